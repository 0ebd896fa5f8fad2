"""What a machine refuses for now: a disk that is full or fails, memory that is used up. Later the same goes on."""

from __future__ import annotations

import contextlib
import errno
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from quietmean.core.errors import Outage, reason_of

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FAILS: Final = frozenset({errno.EIO})
# Linux makes a file system read-only once its disk has failed.
_READ_ONLY: Final = frozenset({errno.EROFS})
_MEMORY: Final = frozenset({errno.ENOMEM})
# By the primary code of SQLite's result, which older layers give in words only. Quotas that are used up are a failed write to it.
_SQLITE_FULL: Final = {sqlite3.SQLITE_FULL: "database or disk is full"}
_SQLITE_FAILS: Final = {sqlite3.SQLITE_IOERR: "disk I/O error"}
_SQLITE_READ_ONLY: Final = {
    sqlite3.SQLITE_READONLY: "attempt to write a readonly database",
    sqlite3.SQLITE_CANTOPEN: "unable to open database file",
}


# What follows on the remedy: for a study, whose party waits for it, and for any other command.
THE_STUDY_GOES_ON: Final = "the study goes on"
ONCE_MORE: Final = "then run the same command again"


def outage_of(error: BaseException, path: Path | str, then: str = THE_STUDY_GOES_ON) -> Outage | None:
    """The error in a sentence if it is of a disk, at ``path``, or of memory; None for any other."""
    if isinstance(error, Outage):
        return error
    if _is(error, _FULL, _SQLITE_FULL):
        return Outage(f"no space beside {path}: make room, {then}")
    if _is(error, _FAILS, _SQLITE_FAILS) or is_read_only(error):
        return Outage(f"the disk with {path} fails or has no room ({reason_of(error)}): mend it or make room, {then}")
    if isinstance(error, MemoryError) or _is(error, _MEMORY, {}):
        return Outage(f"no memory is left for {path}: end what else runs on this machine, {then}")
    return None


def refuse_outage(error: BaseException, path: Path | str) -> None:
    """Raises :class:`Outage` for an error of a disk that is full or fails: another place is no remedy for that.

    A place that could never be written is left to the caller.
    """
    if not is_read_only(error) and (outage := outage_of(error, path, ONCE_MORE)) is not None:
        raise outage from None


def require_space(path: Path, size: int) -> None:
    """Raises :class:`Outage` where a file at ``path`` cannot grow to ``size`` bytes. Quotas are not looked at."""
    folder = path.parent
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < size:
            raise Outage(
                f"no space beside {path}: {free / 1e6:.1f} MB are free, and this study takes {size / 1e6:.1f} MB or more: make "
                f"room, {THE_STUDY_GOES_ON}"
            )


def is_read_only(error: BaseException) -> bool:
    """Whether a place cannot be written: from the beginning, or since its disk failed."""
    return _is(error, _READ_ONLY, _SQLITE_READ_ONLY)


def _is(error: BaseException, numbers: frozenset[int], results: dict[int, str]) -> bool:
    if isinstance(error, sqlite3.OperationalError):
        code = getattr(error, "sqlite_errorcode", None)
        # Extended codes have the primary one in their last eight bits.
        return code & 0xFF in results if code is not None else str(error) in results.values()
    return isinstance(error, OSError) and error.errno in numbers
