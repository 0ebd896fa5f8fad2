"""From any source to the declared columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.assumptions import QueryStatement
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of
from quietmean.statistics import Column, Columns
from quietmean.statistics.persons import PersonRows
from quietmean.statistics.transforms import Transform
from quietmean.studies.data.cells import ColumnReader
from quietmean.studies.data.formats import digests_of_codes, read_file
from quietmean.studies.data.isolated import GroupedFrame, table_of_frame
from quietmean.studies.data.location import FrameOfPersons, Location
from quietmean.studies.data.persons import KnownNumbers, PersonReader
from quietmean.studies.data.table import MOST_CELLS, Notify, Pieces, Table, joined, require_column, too_many_cells

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

    Source: TypeAlias = Path | str | IntoFrame | NDArray[Any] | FrameOfPersons | GroupedFrame
else:
    Source: TypeAlias = Any


def _ignore(sentence: str) -> None:
    """Say nothing: no owner of data reads it."""


def read_columns(source: Source, columns: Columns, tell: Notify = _ignore) -> Array:
    """The declared columns of all rows as floats, shape (rows, columns), from a file or a data frame.

    ``source``: a path, perhaps with settings (:class:`Location`), a data frame, or an array that has these columns already.
    Numbers are NaN where a cell is empty, holds none or one of the codes for missing; dates are days since the public day; levels
    are their places, NaN where a cell is missing and -1 where it holds none of the declared ones. Transforms are computed.
    ``tell`` gets sentences for the owner of the data alone: which cells were not understood, by line and column.

    A table without rows is one of no records. Raises :class:`InputError`, without any cell, for anything else, for a column
    that is absent or of a type that holds no such values, and for more cells than memory is for.
    """
    if isinstance(source, np.ndarray):
        return _checked(source, len(columns))
    records, _ = Declared(columns, location_of(source)).all_records(read_pieces(source, _named(columns), tell), tell)
    return records


def read_records(source: Source, columns: Columns, tell: Notify = _ignore) -> Iterator[Array]:
    """Yield the declared columns, one piece of rows after the other: of a source of any size little is in memory at a time.

    ``tell`` is called after the last one.
    """
    if isinstance(source, np.ndarray):
        yield _checked(source, len(columns))
        return
    declared = Declared(columns, location_of(source))
    for table in read_pieces(source, _named(columns), tell):
        if table.height:
            yield declared.records(table)
    declared.end(table, tell)


def read_person_rows(
    source: Source, columns: Columns, tell: Notify, rows: str | int | None, known: KnownNumbers | None = None
) -> Iterator[PersonRows]:
    """Yield the declared columns with whose each row is, by the site's mapping.

    ``rows``: which of a person's count; None where persons do not. Its owner is informed of rows of nobody, and of those without
    a day where that chooses. ``known``: of the same source when it was read before.

    Raises :class:`InputError` also without that column.
    """
    declared, persons = Declared(columns, location_of(source)), PersonReader(location_of(source), known or KnownNumbers())
    unit = PrivacyUnit.RECORD if rows is None else PrivacyUnit.PERSON
    for table in read_pieces(source, _named(columns), tell, persons.columns, unit):
        if table.height:
            yield PersonRows(declared.records(table), persons.identities(table), persons.days(table))
    persons.require(table)
    declared.end(table, tell)
    if rows is not None:
        persons.tell(table.place, table.word, tell, rows)


def _named(columns: Columns) -> list[str]:
    """The columns that are read: all but transforms."""
    return [column.name for column in columns if not column.origin]


def _checked(array: NDArray[Any], columns: int) -> Array:
    if array.ndim != 2 or array.shape[1] != columns or array.dtype.kind not in "biuf":
        raise InputError(f"the array must hold numbers in {count_of(columns, 'column')}, as declared. Give such a one.")
    return array.astype(np.float64)


class Declared:
    """Reads the declared columns of a source from its pieces."""

    def __init__(self, columns: Columns, location: Location) -> None:
        self._columns = columns
        self._readers = {column.name: ColumnReader(column, location) for column in columns if not column.origin}

    def records(self, table: Table) -> Array:
        """The columns of a piece, (rows, columns). Raises :class:`InputError` without a column of it."""
        for name in self._readers:
            require_column(table, name)
        by_column: dict[str, Array] = {}
        for column in self._columns:
            if column.origin:
                by_column[column.name] = _transformed(column, self._columns, by_column)
            else:
                # Zero has no sign: an engine may keep none, and what is divided by it would be of either.
                by_column[column.name] = self._readers[column.name].values(table) + 0.0
        return np.column_stack(list(by_column.values()))

    def all_records(
        self, pieces: Pieces, tell: Notify, seen: Callable[[Table], None] = lambda table: None
    ) -> tuple[Array, Table]:
        """The records: those of all pieces, (rows, columns), and the last piece; ``seen`` gets each.

        Raises :class:`InputError`.
        """
        records, cells = [np.empty((0, len(self._columns)))], 0
        for table in pieces:
            if table.height:
                records.append(self.records(table))
                cells += records[-1].size
            if cells > MOST_CELLS:
                raise too_many_cells(table.place)
            seen(table)
        self.end(table, tell)
        return np.vstack(records), table

    def end(self, table: Table, tell: Notify) -> None:
        """Say to the owner, after the last piece, what was not understood.

        Raises :class:`InputError` without a column, whether there is any row or none.
        """
        for name, reader in self._readers.items():
            require_column(table, name)
            reader.tell(table.place, table.word, tell)
            if unreadable := reader.unreadable(table.place):
                tell(unreadable)

    def require_readable(self, place: str) -> None:
        """Raises :class:`InputError` for a column of which no cell can be read: for who sees all data, before anything starts."""
        for reader in self._readers.values():
            if unreadable := reader.unreadable(place):
                raise InputError(unreadable)


def values_of(table: Table, columns: Columns, location: Location) -> Array:
    """The values of a table that was read, as :func:`read_columns`. Raises :class:`InputError` without a column of it."""
    declared = Declared(columns, location)
    records = declared.records(table)
    declared.end(table, _ignore)
    return records


def location_of(source: Source) -> Location:
    """The location of a source; that of a data frame has no settings."""
    if isinstance(source, GroupedFrame):
        return location_of(source.data)
    if isinstance(source, FrameOfPersons):
        return replace(location_of(source.data), mapping=source.mapping)
    return Location.of(source) if isinstance(source, Path | str) else Location(Path("the data frame"))


def query_statement(source: Source, columns: Columns, unit: PrivacyUnit) -> QueryStatement:
    """What the owner of a source declares of its query; it is checked, and no row of data is read.

    Raises :class:`InputError` for a query that is not on the list, and for codes of which two rows have the same key.
    """
    source = source.data if isinstance(source, FrameOfPersons | GroupedFrame) else source
    if not isinstance(source, Path | str):
        return QueryStatement()
    location = Location.of(source)
    if location.mixes_rows:
        return QueryStatement(mixes_rows=True)
    codes = digests_of_codes(location, location.mapping.names(_named(columns)).values(), unit)
    return QueryStatement(codes=tuple(sorted(codes.values())))


def read_table(source: Source, column_names: Collection[str], tell: Notify = _ignore) -> Table:
    """The table with the named columns, all of it, for its owner. Raises :class:`InputError` if there is none, or it is too
    large."""
    return joined(read_pieces(source, column_names, tell, unit=None), len(column_names))


def read_pieces(
    source: Source,
    column_names: Collection[str],
    tell: Notify = _ignore,
    besides: Collection[str] = (),
    unit: PrivacyUnit | None = PrivacyUnit.RECORD,
) -> Pieces:
    """Yield the table piece by piece, with the columns ``besides``, which are called so here.

    ``unit``: that of the study, by whose rules a query is checked; None where either will do. Raises :class:`InputError` also for
    a file that changes meanwhile.
    """
    source = source.data if isinstance(source, FrameOfPersons | GroupedFrame) else source
    if isinstance(source, Path | str):
        return read_at(Location.of(source), column_names, tell, besides, unit)
    return table_of_frame(source, {*column_names, *besides})


def read_all_columns(source: Source, column_names: Collection[str]) -> Pieces:
    """All columns, as they are called here, of the table with the named ones. Raises :class:`InputError` as those do."""
    source = source.data if isinstance(source, FrameOfPersons | GroupedFrame) else source
    if not isinstance(source, Path | str):
        return table_of_frame(source, column_names)
    location = Location.of(source)
    names = next(iter(read_at(location, column_names, unit=None))).names
    return read_file(location, {name for name in names if name}, _ignore, unit=None)


def read_at(
    location: Location,
    column_names: Collection[str],
    tell: Notify = _ignore,
    besides: Collection[str] = (),
    unit: PrivacyUnit | None = PrivacyUnit.RECORD,
) -> Pieces:
    """Yield the table of a file or database with settings; the named columns are called as in the study."""
    called = location.mapping.names(column_names)
    for piece in read_file(location, {*called.values(), *besides}, tell, unit):
        yield replace(piece, called=called)


def _transformed(column: Column, columns: Columns, by_column: dict[str, Array]) -> Array:
    """The values of a transform, (rows,), from those of the columns before it; what is not a level of these is missing."""
    transform = Transform(column.origin)
    sources = {
        name: by_column[name] if columns[name].numeric else np.where(by_column[name] < 0, np.nan, by_column[name])
        for name in transform.sources
    }
    return transform.values(sources)
