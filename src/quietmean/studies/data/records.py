"""The records of a site, to be gone over more than once: for the vector, for the ledger, for plans of fewer parties.

Rows that stay in memory are in one place that is made once. Rows may take part without a value: of persons whose budget is used
up, of nobody, and more than one person may have. What becomes of a row depends on the rows of its person alone. Where the number
of records is public the row stays, as one without any value; where it is private it is left out, as being there would count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.errors import InputError
from quietmean.statistics import Columns
from quietmean.statistics.persons import Grouped, PersonRows, hashed
from quietmean.studies.data.cells import text_of_cell
from quietmean.studies.data.formats import state_of
from quietmean.studies.data.persons import DistinctPersons, Identities, KnownNumbers, identities_of, require_persons
from quietmean.studies.data.reading import Source, location_of, read_all_columns, read_person_rows, read_records
from quietmean.studies.data.table import ROWS, Notify, Table

_NOBODY: Identities = np.empty((0, 2), dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class Withheld:
    """What is withheld of the rows of persons.

    ``persons``: who takes part without a value, (persons, 2). ``most``: so many rows of one person have values, and none of
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
        """Make a row limit from all rows, of each of which 16 bytes are kept meanwhile."""
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
        """Keep only the rows of the persons in these ranges, as far as there is room; what was here is gone.

        How many there are.
        """
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
        """Leave out the rows whose range is not below the limit any more: in place, some at a time."""
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


# So many values are kept, 64 MiB; of more, the source is read again each time.
MOST_KEPT = 2**23


class Records:
    """Pieces of shape (rows, columns), in the order of the source; as many records as its length says.

    ``rows``: where persons are the unit, which of a person's rows count. Pieces are of whole persons then
    (:class:`~quietmean.statistics.persons.Grouped`), and the length says how many persons there are, or rows where these are
    added up. ``withheld``: rows that take part without a value; a limit to the rows of one person is found by going over them
    once more, with 16 bytes of each. A source whose rows are not kept is gone over once for each 64 MiB of them, with the rows
    of as many persons in memory as that holds, once, and 40 bytes more for each; besides, 16 bytes for each person (24 more where
    numbers tell them apart), and all rows of any one person.

    Raises :class:`InputError` as :func:`read_columns` does, where a large source is another one when it is read again, and where
    the site does not say whose its rows are.
    """

    def __init__(
        self,
        source: Source,
        columns: Columns,
        tell: Notify,
        rows: str | int | None = None,
        withheld: Withheld = NOTHING_WITHHELD,
    ) -> None:
        self._source, self._columns, self._of_person = source, columns, rows
        self._withheld = withheld
        self._row_limit: RowLimit | None = None
        self._names_persons = not isinstance(source, np.ndarray) and bool(location_of(source).mapping.person)
        if rows is not None:
            require_persons(location_of(source), rows)
        self._state = self._state_now()
        self._known = KnownNumbers()
        if self._names_persons and withheld.most is not None:
            self._row_limit = RowLimit.of(self._person_rows(), withheld.most)
        self._room = max(MOST_KEPT // len(columns), 1)
        kept = self._place_for(self._room)
        self._all_rows = 0
        # Of each range of hashes.
        self._rows = np.zeros(RANGES, dtype=np.int64)
        distinct = DistinctPersons()
        for piece in self._read(tell):
            self._all_rows += len(piece.values)
            distinct.add(piece.persons)
            self._rows += np.bincount(ranges_of(piece.persons[piece.persons.any(axis=1)]), minlength=RANGES)
            kept.add(piece)
        self._kept: KeptRows | None = kept if kept.whole else None
        # The first part of the persons, for who goes over them first.
        self._first, self._limit = kept if kept.limit else None, kept.limit
        self._persons = distinct.all()
        self._units = self._all_rows if rows is None else len(self._persons)
        if isinstance(rows, int):
            self._units = sum(len(piece.values) for piece in self._grouped(rows))

    def __len__(self) -> int:
        return self._units

    def __iter__(self) -> Iterator[Array | Grouped]:
        return iter(self.in_order) if self._of_person is None else self._grouped(self._of_person)

    @property
    def columns(self) -> Columns:
        return self._columns

    @property
    def source(self) -> Source:
        return self._source

    @property
    def in_order(self) -> RowsInOrder:
        """All rows in the order of the source, whatever the unit is."""
        return RowsInOrder(self)

    def rows(self) -> Iterator[Array]:
        return (piece.values for piece in self._again()) if self._kept is None else self._kept.in_order()

    @property
    def persons(self) -> Identities | None:
        """Who they are, (persons, 2), each once; None where the site does not say whose its rows are."""
        return self._persons if self._names_persons else None

    def _grouped(self, rows: str | int) -> Iterator[Grouped]:
        """Persons by their hash, of as many at a time as are kept."""
        if self._kept is not None:
            yield from self._kept.by_person.chosen_in_pieces(rows, ROWS)
            return
        parts = parts_of(self._rows, self._limit, self._room)
        kept, self._first = self._first, None
        for first, last in parts:
            if kept is None or first:
                there = int(self._rows[first:last].sum())
                if kept is None or kept.room < there:
                    kept = self._place_for(max(self._room, there))
                if kept.fill(self._again(), first, last) != there:
                    raise self._changed()
            yield from kept.by_person.chosen_in_pieces(rows, ROWS)

    def _place_for(self, room: int) -> KeptRows:
        by_person = self._of_person is not None
        dated = by_person and bool(location_of(self._source).mapping.date)
        return KeptRows(room, len(self._columns), by_person=by_person, dated=dated)

    def _again(self) -> Iterator[PersonRows]:
        """All rows, anew from the source."""
        rows = 0
        if self._state_now() == self._state:
            for piece in self._read():
                rows += len(piece.values)
                yield piece
        if rows != self._all_rows:
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(
            f"{location_of(self._source).name} was changed while it was read. Wait until its program has written all of it."
        )

    def _read(self, tell: Notify = lambda sentence: None) -> Iterator[PersonRows]:
        if self._names_persons:
            yield from self._withheld.rows(self._person_rows(tell), self._row_limit)
            return
        for piece in read_records(self._source, self._columns, tell):
            yield PersonRows(piece, np.zeros((len(piece), 2), dtype=np.uint64), np.zeros(0))

    def _person_rows(self, tell: Notify = lambda sentence: None) -> Iterator[PersonRows]:
        return read_person_rows(self._source, self._columns, tell, self._of_person, self._known)

    def most_rows(self) -> int:
        """Return how many rows the person with most of them has in the source: for the owner alone."""
        return most_rows(self._person_rows())

    def withholding(self, withheld: Withheld) -> Records:
        """The records of the same source, read anew, of which these rows take part without a value."""
        return Records(self._source, self._columns, lambda sentence: None, self._of_person, withheld)

    @property
    def withheld(self) -> Withheld:
        return self._withheld

    def _state_now(self) -> tuple[int, int, int] | None:
        location = location_of(self._source)
        return state_of(location.path) if location.path.is_file() and not location.database else None

    def wipe(self) -> None:
        """Overwrite the values: nothing reads them any more."""
        for kept in (self._kept, self._first):
            if kept is not None:
                kept.wipe()


@dataclass(frozen=True, eq=False)
class RowsInOrder:
    """Pieces of shape (rows, columns), in the order of the source, as often as they are gone over."""

    _records: Records

    def __iter__(self) -> Iterator[Array]:
        return self._records.rows()


def whole_rows(source: Source, columns: Columns) -> tuple[Identities, int]:
    """The distinct rows, (distinct, 2), and how many there are in all; none of an array, which has no other columns.

    The order of columns makes no difference: the hash of a row is a sum over its cells.
    """
    if isinstance(source, np.ndarray):
        return np.empty((0, 2), dtype=np.uint64), 0
    distinct, rows = DistinctPersons(), 0
    for table in read_all_columns(source, [column.name for column in columns if not column.origin]):
        if table.height:
            distinct.add(_rows(table))
            rows += table.height
    return distinct.all(), rows


def _rows(table: Table) -> Identities:
    total: NDArray[np.uint64] = np.zeros((table.height, 2), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for place in (place for place, name in enumerate(table.names) if name):
            cells = table.take(place).distinct()
            # An empty cell adds nothing.
            total += cells.spread(identities_of(text_of_cell(cell) for cell in cells.values))
    return total
