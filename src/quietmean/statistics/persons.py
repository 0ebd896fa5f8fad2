"""Rows of persons: which of them count, and how they become one vector for each person.

A person's rows are averaged after the features, each with weight 1 over their number: so a person counts once however many rows
it has, and the sensitivity is that of a record. The mean of inputs would be another thing: the square of a mean is not a mean of
squares. Of ``rows = "first"`` or ``"last"`` one row counts. Of ``rows = k`` at most k rows are added up, and the sensitivity is
k times that of a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Mask
from quietmean.core.domain import FIRST_ROW, LAST_ROW, MEAN_OF_ROWS

# Of the hash that decides between rows of one day: the constants of splitmix64.
_STEP, _FIRST, _SECOND = (np.uint64(value) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class Persons:
    """Which of a person's ``rows`` count, and at how many parties one person is at most."""

    rows: str | int
    sites: int


@dataclass(frozen=True, eq=False)
class Grouped:
    """Rows of whole persons, one person after the other, and as many persons as its length says.

    ``values``: (rows, columns); ``starts``: where each person begins, (persons,).
    """

    values: Array = field(repr=False)
    starts: NDArray[np.intp] = field(repr=False)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def counts(self) -> NDArray[np.intp]:
        """How many rows each person has, (persons,)."""
        return np.diff(self.starts, append=len(self.values))

    def means(self, of_rows: Array) -> Array:
        """The mean over each person's rows, (persons, size), of what is known of each row, (rows, size)."""
        sums: Array = np.add.reduceat(of_rows, self.starts, axis=0)
        return sums / self.counts[:, None]

    def pieces(self, rows: int) -> Iterator[Grouped]:
        """The persons, about so many rows at a time."""
        for begin, end in spans(self.starts, rows):
            stop = self.starts[end] if end < len(self) else len(self.values)
            yield Grouped(self.values[self.starts[begin] : stop], self.starts[begin:end] - self.starts[begin])


@dataclass(frozen=True, eq=False)
class PersonRows:
    """Rows of persons in any order.

    ``values``: (rows, columns); ``persons``: 128 bits of each row's person, (rows, 2), zeros for nobody; ``days``: of
    each row, (rows,), NaN where none is known.
    """

    values: Array = field(repr=False)
    persons: NDArray[np.uint64] = field(repr=False)
    days: Array = field(repr=False)

    @classmethod
    def none(cls, columns: int) -> PersonRows:
        """The rows of a table without any."""
        return cls(np.empty((0, columns)), np.empty((0, 2), dtype=np.uint64), np.empty(0))

    def chosen(self, rows: str | int) -> Grouped:
        """The rows that count, by person. Which ones depends on this person's rows alone, and not on their order.

        Rows without a day come last of all; of one day, a hash of the person and the row decides.
        """
        order, fresh = self._order(latest_first=rows == LAST_ROW)
        starts = np.flatnonzero(fresh)
        if rows != MEAN_OF_ROWS:
            most = 1 if rows in (FIRST_ROW, LAST_ROW) else int(rows)
            counts = np.diff(starts, append=len(order))
            order = order[np.arange(len(order)) - np.repeat(starts, counts) < most]
            fewer = np.minimum(counts, most)
            starts = np.cumsum(fewer) - fewer
        return Grouped(self.values[order], starts)

    def chosen_in_pieces(self, rows: str | int, size: int) -> Iterator[Grouped]:
        """The rows that count, whole persons with about ``size`` rows at a time: what sorts them is of one piece alone, as their
        copy is."""
        first = self.persons[:, 0]
        for low, high in pairwise(_edges(-(-len(first) // size))):
            here = np.flatnonzero((first >= low) & (first <= high - 1))
            grouped = PersonRows(self.values[here], self.persons[here], self.days[here]).chosen(rows)
            if len(grouped):
                yield grouped

    def _order(self, *, latest_first: bool) -> tuple[NDArray[np.intp], Mask]:
        """The order of the rows of somebody, by person, day and hash; and which ones are the first of a person."""
        keys = [hashed(self.persons, self.values)]
        # What is the same in all rows, as where no day is known, need not be sorted by.
        if not np.isnan(self.days).all():
            days = -self.days if latest_first else self.days
            keys.append(np.where(np.isnan(days), np.inf, days))
        first, second = self.persons[:, 0], self.persons[:, 1]
        # Zeros come first.
        nobodys = len(self.persons) - int(self.persons.any(axis=1).sum())
        order = np.lexsort((*keys, first))[nobodys:]
        fresh, also = _fresh(first[order]), _fresh(second[order])
        # Half of the bits tell persons apart, unless two have the same half.
        if (also & ~fresh).any():
            order = np.lexsort((*keys, second, first))[nobodys:]
            fresh, also = _fresh(first[order]), _fresh(second[order])
        return order, fresh | also


def spans(starts: NDArray[np.intp], size: int) -> Iterator[tuple[int, int]]:
    """Which persons, from and up to, have about ``size`` rows together; one person at least."""
    begin = 0
    while begin < len(starts):
        end = max(int(np.searchsorted(starts, starts[begin] + size)), begin + 1)
        yield begin, end
        begin = end


def _edges(pieces: int) -> list[int]:
    """Edges from 0 to 2^64, with as many hashes between each two."""
    return [place * 2**64 // pieces for place in range(pieces + 1)] if pieces else []


def joined(parts: list[PersonRows]) -> PersonRows:
    """The rows of all parts, at least one."""
    return PersonRows(
        np.vstack([part.values for part in parts]),
        np.vstack([part.persons for part in parts]),
        np.concatenate([part.days for part in parts]),
    )


def hashed(persons: NDArray[np.uint64], values: Array) -> NDArray[np.uint64]:
    """64 bits for each row, of its person and its values: as good as random, and the same whenever it is asked."""
    hashes = persons[:, 0].copy()
    # Adding 0.0 makes the two zeros one.
    for column in values.T:
        hashes = _mixed(hashes ^ np.ascontiguousarray(column + 0.0).view(np.uint64))
    return hashes


def _fresh(words: NDArray[np.uint64]) -> Mask:
    """Which ones differ from the one before, (rows,): the first one does."""
    return np.concatenate([[True], words[1:] != words[:-1]])[: len(words)]


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output of splitmix64 (Steele, Lea, Flood, 2014) for each state."""
    with np.errstate(over="ignore"):
        bits = bits + _STEP
        bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
        bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return np.asarray(bits ^ (bits >> np.uint64(31)))


# Records that are encoded at a time: memory does not grow with the table.
_ROWS = 4096


def in_rows(pieces: Iterable[Array | Grouped]) -> Iterator[Array | Grouped]:
    """The records, so many at a time, however many are in a piece; of persons, whole ones."""
    held: Array | None = None
    for piece in pieces:
        if isinstance(piece, Grouped):
            yield from piece.pieces(_ROWS)
            continue
        held = piece if held is None or not len(held) else np.vstack([held, piece])
        end = len(held) - len(held) % _ROWS
        for begin in range(0, end, _ROWS):
            yield held[begin : begin + _ROWS]
        held = held[end:]
    if held is not None and len(held):
        yield held
