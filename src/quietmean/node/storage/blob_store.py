"""The file for what is large in a store: each vector and content is written once, where SQLite would write it two or three times.

The database holds short tokens. Order makes it safe: what is large is on disk before the transaction that names it commits, and
its slots are reused only after a transaction that no longer names it has committed. Slots that no committed row names are free.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from quietmean.core.portability import open_private, read_at, sync_data, sync_folder, write_at
from quietmean.node.net import Payload

# Whatever is shorter stays in the database.
LARGE = 64 * 1024
_SLOT = 64 * 1024
# Slots that are read at once.
_AT_ONCE = 64
# The first byte of a token: is the content in it, or in the file?
_SMALL_TAG, LARGE_TAG = b"\0", b"\1"
_ZEROS = bytes(_SLOT)


class BlobStore:
    """Byte strings by token. Free slots are reused; :meth:`wipe` overwrites those that are still free."""

    def __init__(self, path: Path, *, lasts: bool = True, large: float = LARGE) -> None:
        """``lasts``: whether it outlives a power cut; ``large``: bytes from which on content is in the file."""
        self._path = path
        self._lasts, self._large = lasts, large
        self._file = -1
        self._free: set[int] = set()
        # Slots that hold something not public, free ones included.
        self._secret: set[int] = set()
        self._slots = 0
        self._dirty = False
        # Whether its name is on the disk; a process that made it may have ended before.
        self._named = False

    def open(self, tokens: Iterable[bytes]) -> None:
        """Open the file with what the committed ``tokens`` name; all other slots are free."""
        if self._path.exists():
            self._open_file()
            self._slots = -(-os.fstat(self._file).st_size // _SLOT)
            self._secret = set(range(self._slots))
            self.keep_only(tokens)
            self.wipe()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def put(self, content: Payload, public: bool = False) -> bytes:
        """The token under which ``content`` is found again; it is durable after :meth:`sync`. What is public is not wiped."""
        if len(content) < self._large:
            return _SMALL_TAG + content
        if self._file < 0:
            self._open_file()
        slots = self._allocate(-(-len(content) // _SLOT))
        view = memoryview(content)
        for index, (first, count) in _runs(slots):
            _write_all(self._file, view[index * _SLOT : (index + count) * _SLOT], first * _SLOT)
        if public:
            # The last slot may keep the end of what was there before.
            self._secret.difference_update(slots[:-1])
        else:
            self._secret.update(slots)
        self._dirty = True
        return LARGE_TAG + struct.pack(f">Q{len(slots)}I", len(content), *slots)

    def get(self, token: bytes) -> bytes:
        return token[1:] if token[:1] == _SMALL_TAG else b"".join(self._read(token, _slots_of(token)))

    def get_long(self, token: bytes) -> Payload:
        """The content of a token, read a piece at a time: what is read is not twice in memory."""
        if token[:1] == _SMALL_TAG:
            return token[1:]
        # Its pages come into being as it is read.
        content, begin = np.empty(_length_of(token), dtype=np.uint8).data, 0
        for piece in self._read(token, _slots_of(token), _AT_ONCE):
            content[begin : begin + len(piece)] = piece
            begin += len(piece)
        return content

    def _read(self, token: bytes, slots: Sequence[int], most: int | None = None) -> Iterator[bytes]:
        """Neighbouring slots at once, but not more than ``most``."""
        length, most = _length_of(token), most or len(slots)
        for begin in range(0, len(slots), most):
            for index, (first, count) in _runs(slots[begin : begin + most]):
                size = min(count * _SLOT, length - (begin + index) * _SLOT)
                piece = read_at(self._file, size, first * _SLOT)
                if len(piece) < size:
                    raise OSError(errno.EIO, "the file is shorter than what was written")
                yield piece

    def sync(self) -> None:
        """Make the strings durable: to be called before the transaction that names new tokens commits."""
        if self._dirty and self._lasts:
            sync_data(self._file)
            if not self._named:
                sync_folder(self._path.parent)
            self._dirty, self._named = False, True

    @property
    def in_use(self) -> bool:
        """Whether the file is open, because something large was stored."""
        return self._file >= 0

    def keep_only(self, tokens: Iterable[bytes]) -> None:
        """Free the slots that no row names any longer: to be called after a commit."""
        used = {slot for token in tokens if token[:1] == LARGE_TAG for slot in _slots_of(token)}
        self._free = set(range(self._slots)) - used

    def wipe(self) -> None:
        """Overwrite free slots that hold secrets with zeros, and truncate the file if all slots are free."""
        for slot in sorted(self._secret & self._free):
            _write_all(self._file, memoryview(_ZEROS), slot * _SLOT)
        self._secret -= self._free
        if self._file >= 0 and len(self._free) == self._slots:
            os.ftruncate(self._file, 0)
            self._slots, self._free = 0, set()

    def _open_file(self) -> None:
        self._file = open_private(self._path, os.O_RDWR | os.O_CREAT)

    def _allocate(self, count: int) -> list[int]:
        slots = sorted(self._free)[:count]
        self._free.difference_update(slots)
        missing = count - len(slots)
        slots += range(self._slots, self._slots + missing)
        self._slots += missing
        return slots


def _write_all(file: int, content: memoryview, offset: int) -> None:
    """Write all: pwrite may write less than it is given, for example to a disk that is nearly full."""
    while content:
        written = write_at(file, content, offset)
        content, offset = content[written:], offset + written


def _length_of(token: bytes) -> int:
    return int(struct.unpack_from(">Q", token, 1)[0])


def _slots_of(token: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{(len(token) - 9) // 4}I", token[9:])


def _runs(slots: Iterable[int]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Neighbouring slots together: (place in the content, (first slot, how many))."""
    begin, first, count = 0, -1, 0
    for index, slot in enumerate(slots):
        if count and slot == first + count:
            count += 1
            continue
        if count:
            yield begin, (first, count)
        begin, first, count = index, slot, 1
    if count:
        yield begin, (first, count)
