"""Records in a block of text about which there is nothing to decide: any reader splits them into the same cells.

A plain record has as many cells as the header names, no bytes but those of UTF-8, and quotation marks at most around whole cells
without a mark in them. All plain records of a block are split at once, and only the others one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Mask

_LF, _CR, _QUOTE, _ASCII = ord("\n"), ord("\r"), ord('"'), 128


@dataclass(frozen=True)
class PlainRecords:
    """``block``: of the plain ones, each with LF behind it and without quotation marks. ``plain``: which records these are.

    ``others``: all others, as they stand. Records are those of the block in their order, also empty ones, which are not plain.
    """

    block: bytes = field(repr=False)
    plain: Mask = field(repr=False)
    others: list[bytes] = field(repr=False)

    @classmethod
    def of(cls, block: bytes, delimiter: str, cells: int, closed: bool, end: str) -> Self | None:
        """Return the plain records of a block of UTF-8 that end so.

        ``cells``: how many each has, of which the last is empty if ``closed``.

        None where it is not known where lines end.
        """
        if end == "\r\n":
            # A lone one of both belongs to its cell.
            if not block.count(b"\r") == block.count(b"\n") == block.count(b"\r\n"):
                return None
            block = block.replace(b"\r\n", b"\n")
        block += b"\n"
        raw = np.frombuffer(block, dtype=np.uint8)
        marks = np.flatnonzero((raw == _LF) | (raw == ord(delimiter)))
        last = np.flatnonzero(raw[marks] == _LF)
        ends = marks[last]
        starts = np.concatenate([[0], ends[:-1] + 1])
        plain = (np.diff(np.concatenate([[-1], last])) == cells) & (ends > starts)
        if closed:
            plain &= marks[np.maximum(last - 1, 0)] == ends - 1
        if not block.isascii() and not _is_utf_8(block):
            plain[np.searchsorted(ends, np.flatnonzero(raw >= _ASCII))] = False
        for byte in (_CR, 0):
            if bytes([byte]) in block:
                plain[np.searchsorted(ends, np.flatnonzero(raw == byte))] = False
        around = np.flatnonzero(raw == _QUOTE) if b'"' in block else np.array([], dtype=np.intp)
        if len(around):
            _strike_out(plain, around, raw, marks, ends)
        if plain.all():
            return cls(block.translate(None, b'"'), plain, [])
        keep = np.repeat(plain, ends - starts + 1)
        keep[around] = False
        others = [block[start:stop] for start, stop in zip(starts[~plain], ends[~plain], strict=True)]
        return cls(raw[keep].tobytes(), plain, others)


def _is_utf_8(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _strike_out(
    plain: Mask, around: NDArray[np.intp], raw: NDArray[np.uint8], marks: NDArray[np.intp], ends: NDArray[np.intp]
) -> None:
    """Records with quotation marks that are not in pairs around whole cells are not plain."""
    counts = np.diff(np.searchsorted(around, ends), prepend=0)
    odd = counts % 2 == 1
    if odd.any():
        # Where one record has an odd number, pairs of the next ones would be wrong.
        plain[odd] = False
        around = around[~np.repeat(odd, counts)]
    opens, closes = around[::2], around[1::2]
    # Which one each mark is: a cell stands between two that follow each other. Before the first byte stands the end before it.
    number = np.full(len(raw), -2, dtype=np.int32)
    number[marks] = np.arange(len(marks))
    left = np.where(opens == 0, -1, number[opens - 1])
    plain[np.searchsorted(ends, opens[(left == -2) | (number[closes + 1] != left + 1)])] = False
