"""Where the files are: a folder that all parties see, on a disk of theirs or a share."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from quietmean.core.errors import InputError
from quietmean.core.portability import open_strange, put_inside
from quietmean.node.folder.remote import NEEDS, RemotePlace
from quietmean.randomness import fresh_bytes

# At the end of each name, of a digest.
_DIGITS: Final = 32


class FolderStorage(Protocol):
    """Files in rounds. All raise OSError where the place cannot be reached."""

    def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
        """Name, size in bytes and time of change of the files of a round whose names are a prefix and 32 more signs."""

    def read(self, round_: str, name: str, limit: int) -> bytes | None:
        """A file's content; None if it is gone, no file, or longer than ``limit``."""

    def put(self, round_: str, name: str, file: bytes) -> None:
        """Write a file, whole or not at all, and durably."""


class DiskPlace:
    """A folder of the file system; each session has one of its own in it."""

    def __init__(self, folder: Path, session: str) -> None:
        self._folder = folder / session[:32]

    def names(self, round_: str, prefixes: Collection[str]) -> Iterator[tuple[str, int, float]]:
        try:
            entries = os.scandir(self._folder / round_)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                # Whatever else lies there costs no more than its name.
                if entry.name[:-_DIGITS] not in prefixes:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    # Links lead anywhere.
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield entry.name, status.st_size, status.st_mtime

    def read(self, round_: str, name: str, limit: int) -> bytes | None:
        try:
            # No Path: each name that it has ever seen, strangers' too, goes into a table of this process.
            handle = open_strange(f"{self._folder}{os.sep}{round_}{os.sep}{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            # A link, or not to be read by this user: perhaps later.
            return None
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            content = file.read(limit + 1)
        return content if len(content) <= limit else None

    def put(self, round_: str, name: str, file: bytes) -> None:
        # Anyone who rules the folder must not lead this party to another place.
        root, session = self._folder.parent, self._folder.name
        put_inside(root, (session, round_), name, f".{fresh_bytes(8).hex()}", file)


def parse_folder(text: str) -> Callable[[str], FolderStorage]:
    """The place that a site named, for a session by its digest: a folder that exists, or a URL.

    Raises :class:`InputError` for what is neither, for credentials in a URL, and where a library is missing.
    """
    if "::" in text:
        raise InputError(f"folder {text.partition('::')[0]}::... is a chain of places: name one place")
    parts = urlsplit(text)
    if "://" in text:
        # Whose account it is at the other end of ssh is public.
        if parts.password is not None or (parts.username is not None and parts.scheme != "sftp"):
            raise InputError(
                "the folder's URL has credentials in it, which others can see: leave them to the system's own settings"
            )
        if parts.scheme not in NEEDS:
            schemes = ", ".join(f"{scheme}://" for scheme in NEEDS)
            raise InputError(f"folder {parts.scheme}://... cannot be used: give a path, or one of {schemes}")
        RemotePlace(text, "")
        return partial(RemotePlace, text)
    folder = Path(text)
    if not folder.is_dir():
        raise InputError(f"folder {text!r} does not exist: make it, or mount it, or give the path of one")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise InputError(f"folder {text!r} cannot be read and written here: ask who keeps it for the right to do so")
    return partial(DiskPlace, folder.resolve())
