"""The records of a site, to be gone over more than once: for the vector, for the ledger, for plans of fewer parties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.statistics import Columns
from quietmean.statistics.persons import Grouped, PersonRows
from quietmean.studies.data.formats import state_of
from quietmean.studies.data.kept_rows import RANGES, KeptRows, parts_of, ranges_of
from quietmean.studies.data.persons import DistinctPersons, Identities, KnownNumbers, require_persons
from quietmean.studies.data.reading import Source, location_of, read_person_rows, read_records
from quietmean.studies.data.table import ROWS
from quietmean.studies.data.text import Notify
from quietmean.studies.data.withheld import NOTHING_WITHHELD, RowLimit, Withheld, most_rows

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
            f"{location_of(self._source).name} was changed while it was read: wait until its program has written all of it"
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
        """Nothing reads the values any more."""
        for kept in (self._kept, self._first):
            if kept is not None:
                kept.wipe()


@dataclass(frozen=True, eq=False)
class RowsInOrder:
    """Pieces of shape (rows, columns), in the order of the source, as often as they are gone over."""

    _records: Records

    def __iter__(self) -> Iterator[Array]:
        return self._records.rows()
