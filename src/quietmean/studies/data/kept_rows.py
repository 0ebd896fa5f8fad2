"""Rows of a source that stay in memory, in one place that is made once: no row is there twice while rows are grouped by person.

Of more rows than there is room for, those of some persons stay: whose hash is in the first of 4096 ranges, as many as fit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints
from quietmean.statistics.persons import PersonRows

# Ranges of hashes: a part of the persons is those of some ranges, one after the other.
RANGES = 2**12
_SHIFT = np.uint64(64 - 12)


class KeptRows:
    """The rows that were added, as long as there is room; then those of persons whose range is below ``limit``, 0 for nobody's.

    ``room``: for so many rows, which take memory once they are there; ``by_person``: whether it is kept whose each row is;
    ``dated``: and its day.
    """

    def __init__(self, room: int, columns: int, *, by_person: bool, dated: bool) -> None:
        self.room, self._by_person, self._size = room, by_person, 0
        self._ends: list[int] = []
        self._values = np.empty((room, columns))
        self._persons = np.empty((room if by_person else 0, 2), dtype=np.uint64)
        # One day that is not known is that of all.
        self._days = np.empty(room) if dated else np.broadcast_to(np.nan, room)
        self._dated = dated
        self.limit = RANGES

    @property
    def whole(self) -> bool:
        """Are all rows here that were added, also those of nobody?"""
        return self.limit == RANGES

    def add(self, piece: PersonRows) -> None:
        if not self.limit:
            return
        rows = piece if self.whole else of_ranges(piece, 0, self.limit)
        while self._size + len(rows.values) > self.room and self.limit:
            self.limit = self.limit // 2 if self._by_person else 0
            self._leave_out()
            rows = of_ranges(rows, 0, self.limit) if self._by_person else rows
        if self.limit:
            self._put(rows)
            self._ends.append(self._size)

    def fill(self, pieces: Iterator[PersonRows], first: int, last: int) -> int:
        """Only the rows of the persons in these ranges, as far as there is room; what was here is gone. How many there are."""
        self._size = there = 0
        for piece in pieces:
            rows = of_ranges(piece, first, last)
            there += len(rows.values)
            if there <= self.room:
                self._put(rows)
        return there

    @property
    def by_person(self) -> PersonRows:
        return PersonRows(self._values[: self._size], self._persons[: self._size], self._days[: self._size])

    def in_order(self) -> Iterator[Array]:
        """The values, (rows, columns), as they came, where all of them are here."""
        return (self._values[begin:end] for begin, end in zip([0, *self._ends], self._ends, strict=False))

    def wipe(self) -> None:
        self._values[: self._size] = 0.0

    def _put(self, rows: PersonRows) -> None:
        place = slice(self._size, self._size + len(rows.values))
        self._values[place] = rows.values
        if self._by_person:
            self._persons[place] = rows.persons
        if self._dated:
            self._days[place] = rows.days
        self._size = place.stop

    def _leave_out(self) -> None:
        """Those whose range is not below the limit any more: in place, some at a time."""
        kept, self._size = self.by_person, 0
        if not self.limit:
            self._values = np.empty((0, self._values.shape[1]))
            return
        for begin in range(0, len(kept.values), RANGES):
            some = slice(begin, begin + RANGES)
            self._put(of_ranges(PersonRows(kept.values[some], kept.persons[some], kept.days[some]), 0, self.limit))


def ranges_of(persons: NDArray[np.uint64]) -> Ints:
    """The range of each person's hash, (persons,)."""
    return (persons[:, 1] >> _SHIFT).astype(np.int64)


def of_ranges(piece: PersonRows, first: int, last: int) -> PersonRows:
    """The rows of somebody whose range is one of these, the last one excluded; copies."""
    ranges = ranges_of(piece.persons)
    here = piece.persons.any(axis=1) & (ranges >= first) & (ranges < last)
    return PersonRows(piece.values[here], piece.persons[here], piece.days[here])


def parts_of(rows: Ints, limit: int, room: int) -> list[tuple[int, int]]:
    """All ranges in parts of at most ``room`` rows, or of one range: the first part ends at the ``limit``, where that is not 0.

    ``rows``: of each range, (4096,).
    """
    parts, begin, held = [(0, limit)] if limit else [], limit, 0
    for place in range(limit, RANGES):
        if held + rows[place] > room and place > begin:
            parts.append((begin, place))
            begin, held = place, 0
        held += int(rows[place])
    return [*parts, (begin, RANGES)] if begin < RANGES else parts
