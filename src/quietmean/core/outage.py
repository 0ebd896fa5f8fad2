"""What a machine refuses for now: a disk that is full or fails, memory that is used up. Later the same goes on.

What an error is of is read from its number, in one table for the system and one for SQLite; never from when it comes. Where an
error only says that a file cannot be opened or written, the file system is asked whether it forbids that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Final

from quietmean.core.errors import InputError, StorageError, as_sentence, reason_of
from quietmean.core.portability import is_mounted_read_only


class Trouble(Enum):
    """The cause of an error of a disk, of memory or of a database."""

    FULL = auto()
    FAILS = auto()
    # A place that is forbidden to this process, or a disk that has failed: Linux makes its file system read-only then.
    NOT_WRITABLE = auto()
    MEMORY = auto()
    IN_USE = auto()
    DAMAGED = auto()


_OF_SYSTEM: Final = {
    errno.ENOSPC: Trouble.FULL,
    errno.EDQUOT: Trouble.FULL,
    # The limit of a process or of a file system on the size of a file.
    errno.EFBIG: Trouble.FULL,
    errno.EIO: Trouble.FAILS,
    errno.ESTALE: Trouble.FAILS,
    **{getattr(errno, name): Trouble.FAILS for name in ("EUCLEAN", "EBADMSG", "EREMOTEIO") if hasattr(errno, name)},
    errno.EROFS: Trouble.NOT_WRITABLE,
    errno.ENOMEM: Trouble.MEMORY,
}
# By the primary code, which extended ones have in their last eight bits, and its words: older layers give those only. A used up
# quota is a failed write to SQLite, and so is a limit on the size of a file.
_OF_SQLITE: Final = {
    sqlite3.SQLITE_FULL: (Trouble.FULL, "database or disk is full"),
    sqlite3.SQLITE_IOERR: (Trouble.FAILS, "disk I/O error"),
    sqlite3.SQLITE_PROTOCOL: (Trouble.IN_USE, "locking protocol"),
    sqlite3.SQLITE_BUSY: (Trouble.IN_USE, "database is locked"),
    sqlite3.SQLITE_LOCKED: (Trouble.IN_USE, "database table is locked"),
    sqlite3.SQLITE_READONLY: (Trouble.NOT_WRITABLE, "attempt to write a readonly database"),
    sqlite3.SQLITE_CANTOPEN: (Trouble.NOT_WRITABLE, "unable to open database file"),
    sqlite3.SQLITE_PERM: (Trouble.NOT_WRITABLE, "access permission denied"),
    sqlite3.SQLITE_NOMEM: (Trouble.MEMORY, "out of memory"),
    sqlite3.SQLITE_CORRUPT: (Trouble.DAMAGED, "database disk image is malformed"),
    # Statements of ours fit the tables that we made.
    sqlite3.SQLITE_ERROR: (Trouble.DAMAGED, "SQL logic error"),
}
_BY_WORDS: Final = {words: trouble for trouble, words in _OF_SQLITE.values()}
# Of the driver, for a text that is not UTF-8.
_NO_TEXT: Final = "Could not decode"
# The loader of libraries and the starting of threads give no number.
_MEMORY_IN_WORDS: Final = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory", "can't start new thread")

# What follows on the remedy: for a study, whose party waits for it, and for any other command.
THE_STUDY_GOES_ON: Final = "the study goes on"
ONCE_MORE: Final = "then run the same command again"


def trouble_of(error: BaseException) -> Trouble | None:
    """What an error of the system, of memory or of SQLite is of; None for any other."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_IOERR_NOMEM:
            return Trouble.MEMORY
        if code is not None:
            return _OF_SQLITE[code & 0xFF][0] if code & 0xFF in _OF_SQLITE else None
        return Trouble.DAMAGED if str(error).startswith(_NO_TEXT) else _BY_WORDS.get(str(error))
    if isinstance(error, ImportError | RuntimeError):
        return Trouble.MEMORY if any(words in str(error) for words in _MEMORY_IN_WORDS) else None
    if isinstance(error, MemoryError):
        return Trouble.MEMORY
    # SQLite quotes what it cannot read of a file.
    if isinstance(error, UnicodeDecodeError):
        return Trouble.DAMAGED
    return _OF_SYSTEM.get(error.errno or 0) if isinstance(error, OSError) else None


def outage_of(error: BaseException, path: Path | str, then: str = THE_STUDY_GOES_ON) -> StorageError | None:
    """The error in a sentence if it is of a disk, at ``path``, or of memory; None for any other."""
    if isinstance(error, StorageError):
        return error
    match trouble_of(error):
        case Trouble.FULL:
            return StorageError(f"no space beside {path}. Make room, {then}.")
        case Trouble.FAILS | Trouble.NOT_WRITABLE:
            return StorageError(
                f"the disk with {path} fails or has no room ({reason_of(error)}). Repair it or make room, {then}."
            )
        case Trouble.MEMORY:
            return StorageError(f"no memory is left for {path}. End what else runs on this machine, {then}.")
    return None


def refuse_outage(error: BaseException, path: Path, then: str = ONCE_MORE) -> None:
    """Raises :class:`StorageError` for an error of a disk that is full or fails: another place does not help for that.

    A place that this process may not write is left to the caller.
    """
    if not is_forbidden(error, path) and (outage := outage_of(error, path, then)) is not None:
        raise outage from None


def refuse_damage(error: BaseException, subject: str, remedy: str = "restore it") -> None:
    """Raises :class:`InputError` for an error of a database that holds something else than was written into it."""
    if trouble_of(error) is Trouble.DAMAGED:
        raise InputError(f"{subject} is damaged ({_words(error)}). {as_sentence(remedy)}") from None


@contextlib.contextmanager
def reading_rows(subject: str, remedy: str = "restore it") -> Iterator[None]:
    """The context in which rows of a database are read.

    Raises :class:`InputError` where what is read of a database has another type, or another text, than what is written.
    """
    try:
        yield
    except (InputError, ValueError, TypeError, LookupError, OverflowError, struct.error):
        raise InputError(f"{subject} is damaged (it holds what is never written). {as_sentence(remedy)}") from None


def is_forbidden(error: BaseException, path: Path) -> bool:
    """Whether the error is that this process may not write to ``path``, and the file system says so as well."""
    if trouble_of(error) is not Trouble.NOT_WRITABLE:
        return False
    folder = path.parent
    if isinstance(error, OSError) or not folder.is_dir() or path.is_dir() or is_mounted_read_only(folder):
        return True
    return not all(os.access(place, os.W_OK) for place in (folder, path) if place.exists())


def require_space(path: Path, size: int) -> None:
    """Raises :class:`StorageError` where a file at ``path`` cannot grow to ``size`` bytes. Quotas are not looked at."""
    free = free_beside(path)
    if free is not None and free < size:
        raise StorageError(
            f"no space beside {path}: {free / 1e6:.1f} MB are free, and this study takes {size / 1e6:.1f} MB or more. Make "
            f"room, {THE_STUDY_GOES_ON}."
        )


def room_beside(path: Path, needed: int) -> str:
    """Say what is free for a file at ``path``, and what is missing where it grows by ``needed`` bytes at least."""
    free = free_beside(path)
    if free is None:
        return ""
    missing = f", and {(needed - free) / 1e6:.1f} MB or more are missing" if free < needed else ""
    return f"{free / 1e6:.1f} MB are free there{missing}"


def free_beside(path: Path) -> int | None:
    """How many bytes a file at ``path`` may grow by; None where that cannot be asked."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage(path.parent).free
    return None


def _words(error: BaseException) -> str:
    """Nothing of what is in the file, which SQLite quotes behind its own words."""
    if isinstance(error, UnicodeDecodeError) or _NO_TEXT in str(error):
        return "it holds a text that is not valid"
    return re.split(r"[:(]| - ", reason_of(error))[0].strip()
