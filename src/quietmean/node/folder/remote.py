"""A folder that is not mounted: in a bucket, or at the other end of SFTP or WebDAV, by fsspec.

Whose account that is, is a matter of the system's own settings there (such as AWS_PROFILE, ssh's keys, .netrc): no URL has a
password in it.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra
from quietmean.randomness import fresh_bytes

# A server that says nothing for so many seconds is gone.
_LONGEST_ANSWER: Final = 60.0
# What each needs besides fsspec.
NEEDS: Final = {"s3": "s3fs", "sftp": "paramiko", "webdavs": "webdav4"}


@dataclass(frozen=True)
class _Opened:
    """``rename`` replaces a file in one step; None where an upload is whole or not at all by itself."""

    files: Any
    root: str
    rename: Callable[[str, str], Any] | None = None


def _bucket(url: SplitResult) -> _Opened:
    import s3fs

    return _Opened(s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True), f"{url.netloc}{url.path}")


def _sftp(url: SplitResult) -> _Opened:
    import paramiko
    from fsspec.implementations.sftp import SFTPFileSystem

    class OfKnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
        """As ssh without a terminal: a host is known, or refused. By itself the library would take any key."""

        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            files = (Path.home() / ".ssh" / "known_hosts", Path("/etc/ssh/ssh_known_hosts"))
            if not any(paramiko.HostKeys(str(file)).check(hostname, key) for file in files if file.exists()):
                raise OSError(f"the key of {hostname} is not the one in known_hosts: log in once with ssh, and compare it")

    # Without a name, this account's.
    address = {name: value for name, value in (("port", url.port), ("username", url.username)) if value}
    files = SFTPFileSystem(
        url.hostname, timeout=_LONGEST_ANSWER, host_key_policy=OfKnownHosts(), skip_instance_cache=True, **address
    )
    files.ftp.get_channel().settimeout(_LONGEST_ANSWER)
    return _Opened(files, url.path, files.mv)


def _webdav(url: SplitResult) -> _Opened:
    import httpx
    from webdav4.fsspec import WebdavFileSystem

    auth = httpx.NetRCAuth() if (Path.home() / ".netrc").exists() else None
    # The system's certificates, rather than the library's own.
    files = WebdavFileSystem(f"https://{url.netloc}{url.path}", auth, verify=ssl.create_default_context())
    return _Opened(files, "", lambda old, new: files.client.move(old, new, overwrite=True))


_OPEN: Final = {"s3": _bucket, "sftp": _sftp, "webdavs": _webdav}


class RemotePlace:
    """``url``: of the folder, one of :data:`NEEDS`. Raises :class:`InputError` where a library is missing."""

    def __init__(self, url: str, session: str) -> None:
        self._url, self._session = urlsplit(url), session[:32]
        import_extra("fsspec", "folder", "a folder that is not mounted")
        import_extra(NEEDS[self._url.scheme], "folder", f"a folder at {self._url.scheme}://")
        self._opened: _Opened | None = None

    def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
        try:
            with self._place() as opened:
                # What was listed before is old.
                opened.files.invalidate_cache()
                entries = opened.files.ls(self._path(opened, round_), detail=True)
        except FileNotFoundError:
            return
        for entry in entries:
            name = str(entry["name"]).rpartition("/")[2]
            if entry.get("type") == "file" and name.rpartition("-")[0] + "-" in prefixes:
                yield name, int(entry.get("size") or 0), _time_of(entry)

    def read(self, round_: str, name: str, limit: int) -> bytes | None:
        try:
            with self._place() as opened:
                content = bytes(opened.files.cat_file(self._path(opened, round_, name), start=0, end=limit + 1))
        except FileNotFoundError:
            return None
        return content if len(content) <= limit else None

    def put(self, round_: str, name: str, file: bytes) -> None:
        """Write a file, whole or not at all."""
        with self._place() as opened:
            path = self._path(opened, round_, name)
            if opened.rename is None:
                opened.files.pipe_file(path, file)
                return
            # A bucket has no folders to be made.
            opened.files.makedirs(self._path(opened, round_), exist_ok=True)
            partial = self._path(opened, round_, f".{fresh_bytes(8).hex()}")
            opened.files.pipe_file(partial, file)
            opened.rename(partial, path)

    def _path(self, opened: _Opened, *parts: str) -> str:
        return "/".join([opened.root.rstrip("/"), self._session, *parts])

    @contextlib.contextmanager
    def _place(self) -> Iterator[_Opened]:
        """Connected, again if that was lost. Each library has errors of its own, whose texts may hold names of accounts."""
        try:
            if self._opened is None:
                self._opened = _OPEN[self._url.scheme](self._url)
            yield self._opened
        except (FileNotFoundError, InputError):
            raise
        except OSError:
            self._opened = None
            raise
        except Exception as error:
            self._opened = None
            raise OSError(type(error).__name__) from None


def _time_of(entry: dict[str, Any]) -> float:
    """When a file was changed, as far as the place tells; only used to see whether it was."""
    for name in ("LastModified", "mtime", "modified", "created"):
        modified = entry.get(name)
        if isinstance(modified, datetime):
            return modified.timestamp()
        if isinstance(modified, int | float):
            return float(modified)
    return 0.0
