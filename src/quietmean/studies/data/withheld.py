"""Rows that take part without a value: of persons whose budget is used up, of nobody, and more than one person may have.

What becomes of a row depends on the rows of its person alone. Where the number of records is public the row stays, as one without
any value, and the number with it; where it is private the row is left out, for being there would count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Mask
from quietmean.statistics.persons import PersonRows, hashed
from quietmean.studies.data.persons import Identities

_NOBODY: Identities = np.empty((0, 2), dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class Withheld:
    """``persons``: who takes part without a value, (persons, 2). ``most``: so many rows of one person have values, and none of
    nobody; None: any number. ``absent``: whether rows without a value are left out."""

    persons: Identities = field(default_factory=_NOBODY.copy, repr=False)
    most: int | None = None
    absent: bool = False

    def rows(self, pieces: Iterable[PersonRows], limit: RowLimit | None) -> Iterator[PersonRows]:
        """The rows of all pieces as they take part. ``limit``: of the same rows, where ``most`` says a number."""
        seen: dict[int, int] = {}
        for piece in pieces:
            gone = np.isin(piece.persons[:, 0], self.persons[:, 0]) & piece.persons.any(axis=1)
            if limit is not None:
                gone |= ~piece.persons.any(axis=1) | limit.beyond(piece, seen)
            if not gone.any():
                yield piece
            elif self.absent:
                days = piece.days[~gone] if len(piece.days) else piece.days
                yield PersonRows(piece.values[~gone], piece.persons[~gone], days)
            else:
                yield PersonRows(np.where(gone[:, None], np.nan, piece.values), piece.persons, piece.days)


@dataclass(frozen=True, eq=False)
class RowLimit:
    """Which rows of a person with too many stay: those with the least hashes of their content, and so many of the last one.

    ``persons``: the first words of such persons, rising; ``last``: the largest hash that stays; ``equal``: how many rows with it.
    """

    persons: NDArray[np.uint64] = field(repr=False)
    last: NDArray[np.uint64] = field(repr=False)
    equal: NDArray[np.intp] = field(repr=False)

    @classmethod
    def of(cls, pieces: Iterable[PersonRows], most: int) -> RowLimit:
        """From all rows, of each of which 16 bytes are kept meanwhile."""
        words, hashes = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.uint64)]
        for piece in pieces:
            somebody = piece.persons.any(axis=1)
            words.append(piece.persons[somebody, 0])
            hashes.append(hashed(piece.persons[somebody], piece.values[somebody]))
        person, content = np.concatenate(words), np.concatenate(hashes)
        order = np.lexsort((content, person))
        person, content = person[order], content[order]
        persons, starts, counts = np.unique(person, return_index=True, return_counts=True)
        many = counts > most
        persons, starts = persons[many], starts[many]
        last = content[starts + most - 1]
        first_equal = np.array(
            [np.searchsorted(content[s : s + most], value) for s, value in zip(starts, last, strict=True)], dtype=int
        )
        return cls(persons, last, most - first_equal)

    def beyond(self, piece: PersonRows, seen: dict[int, int]) -> Mask:
        """Which rows have no value, (rows,). ``seen``: how many with the last hash came before, by their person."""
        gone = np.zeros(len(piece.values), dtype=np.bool_)
        if not len(self.persons):
            return gone
        places = np.minimum(np.searchsorted(self.persons, piece.persons[:, 0]), len(self.persons) - 1)
        rows = np.flatnonzero(self.persons[places] == piece.persons[:, 0])
        hashes = hashed(piece.persons[rows], piece.values[rows])
        gone[rows] = hashes > self.last[places[rows]]
        for row in rows[hashes == self.last[places[rows]]].tolist():
            place = int(places[row])
            gone[row] = seen.get(place, 0) >= self.equal[place]
            seen[place] = seen.get(place, 0) + 1
        return gone


def most_rows(pieces: Iterable[PersonRows]) -> int:
    """Return how many rows the person with most of them has, 0 where nobody has any."""
    words = [np.empty(0, dtype=np.uint64), *(piece.persons[piece.persons.any(axis=1), 0] for piece in pieces)]
    return int(np.unique(np.concatenate(words), return_counts=True)[1].max(initial=0))


NOTHING_WITHHELD = Withheld()
