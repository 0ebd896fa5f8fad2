"""Tables that stay where they are: their engine counts groups of equal rows, and nothing else is handed over.

The engine only compares with edges and counts: it casts no number, rounds none and adds none up, for in that engines differ.
Texts are grouped by what they are and read here. Where there are too many groups, rows are read instead, a piece at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from math import inf, nextafter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.cells import plain_name
from quietmean.core.columnar import anyway
from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra, is_installed
from quietmean.core.lazy import pyarrow
from quietmean.statistics import Columns
from quietmean.statistics.coding import Groups, Question
from quietmean.studies.data.database import behind_from, not_row_by_row, query_of
from quietmean.studies.data.isolated import GroupedFrame, table_of_frame
from quietmean.studies.data.location import ColumnMapping, Location
from quietmean.studies.data.postgresql import SelectedColumns, compares, is_text, selected_rows, table_of, transaction
from quietmean.studies.data.reading import Declared, Source, location_of
from quietmean.studies.data.records import NOTHING_WITHHELD, Records, Withheld
from quietmean.studies.data.table import ROWS, Cells, Notify, Pieces, Table, heading_absent

# The most groups of one question: more are no summary of a table, and its rows are read.
MOST_GROUPS = 2**20
# The groups of nothing and of what is not a number: below all others.
NOTHING, NOT_A_NUMBER = -1, -2

# A row of each group, piece by piece, and how many rows it has.
Counted: TypeAlias = Iterator[tuple[Table, Ints]]


class CountingEngine(ABC):
    """What holds a table with the named columns of the study. Its methods raise :class:`InputError` where it fails."""

    location: Location

    def at_once(self) -> AbstractContextManager[None]:
        """The context in which all is asked of the table as it is at one moment, and by one connection, where an engine can."""
        return nullcontext()

    @abstractmethod
    def count(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def groups(self, read: list[str], cuts: Mapping[str, tuple[float, ...]], most: int) -> Counted | None:
        """Rows of which the columns that are ``read`` are equal, or lie between the same edges; None for more than ``most``."""

    @abstractmethod
    def pieces(self, read: list[str]) -> Pieces:
        """The rows in these columns."""


class GroupedRows(Groups):
    """The rows that an engine holds, in the declared columns."""

    def __init__(self, engine: CountingEngine, columns: Columns, source: Source) -> None:
        self._engine, self.columns, self.source = engine, columns, source
        # Known once somebody asks, or all groups were counted: the engine goes over its rows for it.
        self._count: int | None = None

    # No row is seen: nothing recognises the people of such a table, and their account is asked for.
    in_order: tuple[Array, ...] = ()
    persons = None

    def wipe(self) -> None:
        """Do nothing: no row is kept."""

    def __len__(self) -> int:
        if self._count is None:
            self._count = self._engine.count()
        return self._count

    def at_once(self) -> AbstractContextManager[None]:
        return self._engine.at_once()

    def counted(self, question: Question) -> Iterator[tuple[Array, Ints]] | None:
        columns = Columns([column for column in self.columns if column.name in question.columns])
        read = [column.name for column in columns if not column.origin]
        mapping = self._engine.location.mapping
        # What is a number only by a site's codes or factor is compared with no edge before.
        cuts = {name: cut for name, cut in question.cuts if mapping.of(name) == ColumnMapping(mapping.of(name).name)}
        grouped = self._engine.groups(read, cuts, MOST_GROUPS)
        return None if grouped is None else self._read(grouped, columns)

    def rows(self) -> Iterator[Array]:
        declared = Declared(self.columns, self._engine.location)
        for table in self._engine.pieces([column.name for column in self.columns if not column.origin]):
            if table.height:
                yield declared.records(table)

    def _read(self, grouped: Counted, columns: Columns) -> Iterator[tuple[Array, Ints]]:
        places = [index for index, column in enumerate(self.columns) if column.name in columns.names]
        declared = Declared(columns, self._engine.location)
        count = 0
        for table, counts in grouped:
            count += int(counts.sum())
            if table.height:
                rows = np.full((table.height, len(self.columns)), np.nan)
                rows[:, places] = declared.records(table)
                yield rows, counts
        self._count = count if self._count is None else self._count


class GroupsOfPostgresql(CountingEngine):
    """Counts groups of the table, view or query of a location: each question in a transaction, or several in one."""

    def __init__(self, location: Location, columns: Columns) -> None:
        self.location = location
        self._wanted = [column.name for column in columns if not column.origin]
        self._open: tuple[Any, SelectedColumns] | None = None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        # A connection takes the driver more time than the groups of many a table.
        with self._transaction() as self._open:
            try:
                yield
            finally:
                self._open = None

    def _transaction(self) -> AbstractContextManager[tuple[Any, SelectedColumns]]:
        return nullcontext(self._open) if self._open else self._asked()

    @contextmanager
    def _asked(self) -> Iterator[tuple[Any, SelectedColumns]]:
        """What is asked of the server.

        Raises :class:`InputError` for what the server does not read row by row, unless its owner declares it.
        """
        query = query_of(self.location)
        # Which table is meant is known by all columns of the study.
        names = self._called(self._wanted).values()
        with transaction(self.location) as tables:
            listed = None if query else tables.chosen(names)
            if not self.location.mixes_rows and (listed is None or not listed.is_table):
                raise not_row_by_row("what the server counts groups of", self.location.name)
            yield tables.cursor, tables.asked(behind_from(query) if listed is None else listed.called, names)

    def count(self) -> int:
        with self._transaction() as (cursor, selection):
            cursor.execute(f"SELECT count(*) FROM {selection.chosen} AS q")  # noqa: S608
            return int(cursor.fetchone()[0])

    def groups(self, read: list[str], cuts: Mapping[str, tuple[float, ...]], most: int) -> Counted | None:
        called = self._called(self._wanted)
        with self._transaction() as (cursor, selection):
            columns = {selection.names.index(plain_name(called[plain_name(name)])): cuts.get(name, ()) for name in read}
            # Batches begin with these columns, in this order.
            selection = replace(selection, selected={place: selection.selected[place] for place in columns})
            cursor.execute(_grouped(selection, columns, most))
            batches, count = [], 0
            # To the end: nothing else can be asked before.
            for batch in cursor.fetch_record_batch():
                count += batch.num_rows
                if count <= most:
                    batches.append(batch)
        return self._counted(batches, selection) if count <= most else None

    def pieces(self, read: list[str]) -> Pieces:
        with self._transaction() as (cursor, selection):
            for table in selected_rows(cursor, selection, self.location):
                yield replace(table, called=self._called(self._wanted))

    def _counted(self, batches: list[Any], selection: SelectedColumns) -> Counted:
        called, row = self._called(self._wanted), 1
        for batch in batches:
            counts = np.asarray(batch.column(batch.num_columns - 1).to_numpy(), dtype=np.int64)
            yield replace(table_of(batch, selection, self.location, row), called=called), counts
            row += batch.num_rows

    def _called(self, names: list[str]) -> dict[str, str]:
        return self.location.mapping.names(names)


def _grouped(selection: SelectedColumns, columns: Mapping[int, tuple[float, ...]], most: int) -> str:
    """The groups of what is selected: a row of each, and how many rows it has. ``columns``: edges, by the columns' places."""
    selected, keys, shown = [], [], []
    for place, cuts in columns.items():
        kind, cell = selection.kinds[place], selection.selected[place]
        selected.append(f'({cell}) COLLATE "C" AS c{place}' if is_text(kind) else f"{cell} AS c{place}")
        if cuts and compares(kind):
            keys.append(_lies(f"c{place}::float8", cuts))
            shown.append(f"min(c{place}) AS c{place}")
        else:
            keys.append(f"c{place}")
            shown.append(f"c{place}")
    rows = f"SELECT {', '.join(selected)} FROM {selection.chosen} AS q"  # noqa: S608
    return f"SELECT {', '.join([*shown, 'count(*)'])} FROM ({rows}) AS r GROUP BY {', '.join(keys)} LIMIT {most + 1}"  # noqa: S608


def _lies(number: str, cuts: tuple[float, ...]) -> str:
    """How many edges a number reaches, and how many it is beyond: as many next floats it reaches."""
    edges = ",".join(repr(edge) for cut in cuts for edge in (cut, nextafter(cut, inf)))
    return (
        f"CASE WHEN {number} IS NULL THEN {NOTHING} WHEN {number} = 'NaN' THEN {NOT_A_NUMBER} "
        f"ELSE width_bucket({number}, '{{{edges}}}'::float8[]) END"
    )


class GroupsOfFrame(CountingEngine):
    """Counts groups of a lazy frame. Raises :class:`InputError` for anything else, and without a column of the study."""

    def __init__(self, data: Any, columns: Columns) -> None:
        self._narwhals = narwhals = import_extra("narwhals", "tables", "counting groups of rows where they are")
        self.location = Location(Path("the data frame"))
        try:
            self._frame = narwhals.from_native(data).lazy()
        except TypeError:
            raise InputError(
                f"Data of type {type(data).__name__} are not a table. Give a lazy frame of Polars, DuckDB or "
                "Spark, or the address of a PostgreSQL database."
            ) from None
        engine = self._frame.implementation
        if (engine.is_duckdb() or engine.is_spark_like()) and not is_installed("pyarrow"):
            called = "DuckDB" if engine.is_duckdb() else "Spark"
            raise InputError(
                f"counting groups of rows of {called} needs PyArrow, which is not installed. Run pip install pyarrow."
            )
        self._schema = dict(_answer(self._frame.collect_schema))
        self._called = {plain_name(name): name for name in self._schema}
        column_names = [column.name for column in columns if not column.origin]
        if not set(map(plain_name, column_names)) <= set(self._called):
            raise heading_absent(self.location.name, column_names, tuple(self._called))

    def count(self) -> int:
        counted = self._frame.select(rows=self._narwhals.len())
        return int(_answer(counted.collect)["rows"][0])

    def groups(self, read: list[str], cuts: Mapping[str, tuple[float, ...]], most: int) -> Counted | None:
        # Some types, such as lists, can be in no group: their rows are read.
        grouped = anyway(self._grouped(read, cuts).head(most + 1).collect)
        return None if grouped is None or len(grouped) > most else self._counted(grouped, read)

    def _counted(self, grouped: Any, read: list[str]) -> Counted:
        counts = np.asarray(grouped["rows"].to_numpy(), dtype=np.int64)
        shown = grouped.select(**{name: grouped[f"c{place}"] for place, name in enumerate(read)})
        begin = 0
        for table in table_of_frame(shown.to_native(), read):
            yield table, counts[begin : begin + table.height]
            begin += table.height

    def pieces(self, read: list[str]) -> Pieces:
        narwhals = self._narwhals
        selected = self._frame.select(**{name: narwhals.col(self._called[plain_name(name)]) for name in read})
        batches = _answer(lambda: _batches(selected.to_native(), selected.implementation))
        while (batch := _answer(lambda: next(batches, None))) is not None:
            yield from [batch] if isinstance(batch, Table) else table_of_frame(batch, read)

    def _grouped(self, read: list[str], cuts: Mapping[str, tuple[float, ...]]) -> Any:
        narwhals = self._narwhals
        cells, keys, kept = {}, [], []
        for place, name in enumerate(read):
            called = self._called[plain_name(name)]
            cells[f"c{place}"] = narwhals.col(called)
            if name in cuts and self._compares(called):
                cells[f"k{place}"] = self._place(called, cuts[name])
                kept.append(narwhals.col(f"c{place}").min())
            else:
                keys.append(f"c{place}")
        keys += [name for name in cells if name.startswith("k")]
        frame = self._frame.select(**cells).group_by(keys, drop_null_keys=False)
        return frame.agg(narwhals.len().alias("rows"), *kept)

    def _compares(self, called: str) -> bool:
        """Does every engine compare its numbers with floats in one way?"""
        kind = self._schema[called]
        return bool(kind == self._narwhals.Float64 or kind.is_integer())

    def _place(self, called: str, cuts: tuple[float, ...]) -> Any:
        """How many edges a number reaches, and how many it is beyond."""
        narwhals, cell = self._narwhals, self._narwhals.col(called)
        place = self._place_among([below for edge in cuts for below in (cell >= edge, cell > edge)], 0)
        if not self._schema[called].is_integer():
            place = narwhals.when(cell.is_nan()).then(narwhals.lit(NOT_A_NUMBER)).otherwise(place)
        return narwhals.when(cell.is_null()).then(narwhals.lit(NOTHING)).otherwise(place)

    def _place_among(self, reached: list[Any], before: int) -> Any:
        """How many of these rising conditions hold, and ``before``: by halves, so that few are looked at for a row."""
        narwhals = self._narwhals
        if not reached:
            return narwhals.lit(before)
        half = len(reached) // 2
        beyond = self._place_among(reached[half + 1 :], before + half + 1)
        return narwhals.when(reached[half]).then(beyond).otherwise(self._place_among(reached[:half], before))


def records_of(
    source: Source, columns: Columns, tell: Notify, rows: str | int | None = None, withheld: Withheld = NOTHING_WITHHELD
) -> Records | GroupedRows:
    """The rows of a source, or their groups where these are to be counted where the rows are.

    Rows of persons are read one by one. ``rows``, ``withheld``: see :class:`Records`. Raises :class:`InputError` as these do.
    """
    location = location_of(source)
    if location.mapping.person:
        return Records(source.data if isinstance(source, GroupedFrame) else source, columns, tell, rows, withheld)
    if location.database and (isinstance(source, GroupedFrame) or (location.counts_groups and rows is None)):
        return GroupedRows(GroupsOfPostgresql(location, columns), columns, source)
    if isinstance(source, GroupedFrame):
        return GroupedRows(GroupsOfFrame(source.data, columns), columns, source)
    return Records(source, columns, tell, rows, withheld)


def _answer(call: Callable[[], Any]) -> Any:
    """Return the engine's answer. Raises :class:`InputError` where it fails: its message may quote a cell."""
    answers = anyway(lambda: [call()])
    if answers is None:
        raise InputError(
            "the engine of the data frame cannot count groups of rows. Check that the table can be read. Let "
            "the columns of the study hold numbers, texts, dates or truth values."
        )
    return answers[0]


def _batches(native: Any, engine: Any) -> Iterator[Any]:
    """Some rows at a time: frames, or tables."""
    if engine.is_polars():
        return iter(native.collect_batches(chunk_size=ROWS))
    if engine.is_duckdb():
        return (pyarrow.Table.from_batches([batch]) for batch in native.to_arrow_reader(ROWS))
    rows = native.toLocalIterator()
    return (_of_cells(native.columns, some) for some in iter(lambda: list(islice(rows, ROWS)), []))


def _of_cells(names: list[str], rows: list[Any]) -> Table:
    """Rows of Python's objects."""
    columns = [Cells(list(cells)) for cells in zip(*rows, strict=True)]
    return Table("the data frame", tuple(map(plain_name, names)), range(1, len(rows) + 1), columns.__getitem__)
