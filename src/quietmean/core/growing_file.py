"""Files that grow at their end, and how much of them is certain: nothing counts that an fsync did not bring to the disk.

After an fsync that failed the system calls what it still holds written: the next one succeeds without writing it, and anyone who
reads sees it until the power is cut. So what such a call was about is cut off, on the disk too, or written anew before it counts.
"""

from __future__ import annotations

import os
from pathlib import Path

from quietmean.core.portability import open_private, read_at, sync_data, write_at

_PIECE = 1 << 20


def write_log_anew(database: Path) -> None:
    """What is in the write-ahead log of a database, which no other process writes now, is on the disk when this returns.

    SQLite reads there what a process before this one wrote, and builds on it, though its fsync may have failed.
    """
    log = database.with_name(f"{database.name}-wal")
    if log.exists():
        file = GrowingFile(open_private(log, os.O_RDWR), log.stat().st_size)
        try:
            file.write_anew(0)
        finally:
            file.close()


class GrowingFile:
    """An open file that only this process writes; its first ``end`` bytes are certain. What is written behind counts once kept.

    All methods raise :class:`OSError`. After one, :meth:`settle` goes back to what is certain.
    """

    def __init__(self, handle: int, end: int) -> None:
        self.handle = handle
        self._certain = self._end = end
        self._unsure = os.fstat(handle).st_size != end

    @property
    def end(self) -> int:
        """Where the next bytes go."""
        return self._end

    def close(self) -> None:
        os.close(self.handle)

    def write_anew(self, start: int) -> None:
        """What a process before this one wrote from ``start`` on: it may have ended between an fsync that failed and its word."""
        for place in range(start, self._certain, _PIECE):
            self._write(read_at(self.handle, min(_PIECE, self._certain - place), place), place)
        self.sync()

    def write(self, content: bytes) -> None:
        """Behind what was written before."""
        self._unsure = True
        self._write(content, self._end)
        self._end += len(content)

    def sync(self) -> None:
        """What was written is on the disk when this returns."""
        sync_data(self.handle)

    def keep(self) -> None:
        """After :meth:`sync`, of this file and of all that belongs to it: what was written is certain."""
        self._certain, self._unsure = self._end, False

    def settle(self) -> None:
        """Before anything is written after an error: back to what is certain, on the disk too."""
        if self._unsure:
            self._end = self._certain
            os.ftruncate(self.handle, self._certain)
            sync_data(self.handle)
            self._unsure = False

    def _write(self, content: bytes, place: int) -> None:
        rest = memoryview(content)
        while rest:
            written = write_at(self.handle, rest, place)
            rest, place = rest[written:], place + written
