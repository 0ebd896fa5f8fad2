"""A folder that is not mounted: in a bucket, or at the other end of SFTP or WebDAV, by fsspec.

Whose account that is, is a matter of the system's own settings there (such as AWS_PROFILE, ssh): no URL has a password in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, Final

from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra

# What each needs besides fsspec.
NEEDS: Final = {"s3": "s3fs", "sftp": "paramiko", "webdavs": "webdav4"}


class RemotePlace:
    """``url``: of the folder, one of :data:`NEEDS`. Raises :class:`InputError` where a library is missing."""

    def __init__(self, url: str, session: str) -> None:
        fsspec = import_extra("fsspec", "folder", "a folder that is not mounted")
        scheme = url.partition("://")[0]
        import_extra(NEEDS[scheme], "folder", f"a folder at {scheme}://")
        with _as_os_error():
            self._files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        self._folder = f"{root.rstrip('/')}/{session[:32]}"
        # A bucket has no folders to be made.
        self._made = scheme == "s3"

    def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
        try:
            with _as_os_error():
                # What was listed before is old.
                self._files.invalidate_cache()
                entries = self._files.ls(f"{self._folder}/{round_}", detail=True)
        except FileNotFoundError:
            return
        for entry in entries:
            name = str(entry["name"]).rpartition("/")[2]
            if entry.get("type") == "file" and name.rpartition("-")[0] + "-" in prefixes:
                yield name, int(entry.get("size") or 0), _time_of(entry)

    def read(self, round_: str, name: str, limit: int) -> bytes | None:
        try:
            with _as_os_error():
                content = bytes(self._files.cat_file(f"{self._folder}/{round_}/{name}", start=0, end=limit + 1))
        except FileNotFoundError:
            return None
        return content if len(content) <= limit else None

    def put(self, round_: str, name: str, file: bytes) -> None:
        """One upload. Elsewhere than in a bucket others may see a part of it first: it is not valid, and is looked at again."""
        with _as_os_error():
            if not self._made:
                self._files.makedirs(f"{self._folder}/{round_}", exist_ok=True)
            self._files.pipe_file(f"{self._folder}/{round_}/{name}", file)


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Each library has errors of its own, whose texts may hold names of accounts."""
    try:
        yield
    except (OSError, InputError):
        raise
    except Exception as error:
        raise OSError(type(error).__name__) from None


def _time_of(entry: dict[str, Any]) -> float:
    """When a file was changed, as far as the place tells; only used to see whether it was."""
    for name in ("LastModified", "mtime", "modified", "created"):
        found = entry.get(name)
        if isinstance(found, datetime):
            return found.timestamp()
        if isinstance(found, int | float):
            return float(found)
    return 0.0
