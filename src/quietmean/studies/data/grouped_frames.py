"""Lazy frames of Polars, DuckDB and Spark whose engine counts groups of equal rows, by one set of narwhals expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.cells import plain_name
from quietmean.core.columnar import anyway
from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra, is_installed
from quietmean.statistics import Columns
from quietmean.studies.data.frames import GroupedFrame, table_of_frame
from quietmean.studies.data.grouped import NOT_A_NUMBER, NOTHING, Counted, CountingEngine, GroupedRows
from quietmean.studies.data.grouped_postgresql import GroupsOfPostgresql
from quietmean.studies.data.location import Location
from quietmean.studies.data.reading import Source, location_of
from quietmean.studies.data.records import NOTHING_WITHHELD, Records, Withheld
from quietmean.studies.data.table import ROWS, Cells, Pieces, Table, heading_absent
from quietmean.studies.data.text import Notify


class GroupsOfFrame(CountingEngine):
    """Counts groups of a lazy frame. Raises :class:`InputError` for anything else, and without a column of the study."""

    def __init__(self, data: Any, columns: Columns) -> None:
        self._narwhals = narwhals = import_extra("narwhals", "tables", "counting groups of rows where they are")
        self.location = Location(Path("the data frame"))
        try:
            self._frame = narwhals.from_native(data).lazy()
        except TypeError:
            raise InputError(
                f"data of type {type(data).__name__} are no table: give a lazy frame of Polars, DuckDB or Spark, or the "
                "address of a PostgreSQL database"
            ) from None
        engine = self._frame.implementation
        if (engine.is_duckdb() or engine.is_spark_like()) and not is_installed("pyarrow"):
            called = "DuckDB" if engine.is_duckdb() else "Spark"
            raise InputError(f"counting groups of rows of {called} needs PyArrow, which is not installed: pip install pyarrow")
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
            "the engine of the data frame cannot count groups of rows: check that the columns of the study hold numbers, "
            "texts, dates or truth values, and that the table can be read"
        )
    return answers[0]


def _batches(native: Any, engine: Any) -> Iterator[Any]:
    """Some rows at a time: frames, or tables."""
    if engine.is_polars():
        return iter(native.collect_batches(chunk_size=ROWS))
    if engine.is_duckdb():
        import pyarrow

        return (pyarrow.Table.from_batches([batch]) for batch in native.to_arrow_reader(ROWS))
    rows = native.toLocalIterator()
    return (_of_cells(native.columns, some) for some in iter(lambda: list(islice(rows, ROWS)), []))


def _of_cells(names: list[str], rows: list[Any]) -> Table:
    """Rows of Python's objects."""
    columns = [Cells(list(cells)) for cells in zip(*rows, strict=True)]
    return Table("the data frame", tuple(map(plain_name, names)), range(1, len(rows) + 1), columns.__getitem__)
