"""Tables that stay where they are: their engine counts groups of equal rows, and nothing else is handed over.

One set of narwhals expressions for lazy frames of Polars, DuckDB and Spark. The engine only compares with edges and counts: it
casts no number, rounds none and adds none up, for in that engines differ. Texts are grouped by what they are and read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.cells import plain_name
from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra
from quietmean.statistics import Columns
from quietmean.statistics.grouping import Groups, Question
from quietmean.studies.data.frames import GroupedFrame, table_of_frame
from quietmean.studies.data.reading import Declared, Source, location_of
from quietmean.studies.data.records import Records
from quietmean.studies.data.table import heading_absent
from quietmean.studies.data.text import Tell

# The most groups of one question: more are no summary of a table, and are rows to be read.
MOST_GROUPS = 2**20
# What is no number, or nothing, is in a group of its own, below all others.
_NOTHING, _NOT_A_NUMBER = -1, -2


class GroupedRows(Groups):
    """The rows of a :class:`GroupedFrame`, in the declared columns.

    Raises :class:`InputError` for what is no table, without a column of the study, without rows, and for more groups than
    :data:`MOST_GROUPS`.
    """

    def __init__(self, source: GroupedFrame, columns: Columns) -> None:
        self._narwhals = narwhals = import_extra("narwhals", "tables", "counting groups of rows where they are")
        try:
            self._frame = narwhals.from_native(source.data).lazy()
            self._schema = dict(self._frame.collect_schema())
        except TypeError:
            raise InputError(
                f"data of type {type(source.data).__name__} are no table: give a lazy frame of Polars, DuckDB or Spark"
            ) from None
        self.columns, self.source = columns, source
        self._called = {plain_name(name): name for name in self._schema}
        wanted = [column.name for column in columns if not column.origin]
        if not set(map(plain_name, wanted)) <= set(self._called):
            raise heading_absent("the data frame", wanted, tuple(self._called))

    # No row is seen: nothing recognises the people of such a table, and their account is asked for.
    in_order: tuple[NDArray[np.float64], ...] = ()
    persons = None

    def wipe(self) -> None:
        """Nothing is kept."""

    @cached_property
    def _rows(self) -> int:
        rows = int(self._collected(self._frame.select(rows=self._narwhals.len()))["rows"][0])
        if not rows:
            raise InputError("the data frame has no rows: a party needs at least one record")
        return rows

    def __len__(self) -> int:
        return self._rows

    def counted(self, question: Question) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
        columns = Columns([column for column in self.columns if column.name in question.columns])
        read = [column.name for column in columns if not column.origin]
        grouped = self._collected(self._grouped(read, dict(question.cuts)))
        places = [index for index, column in enumerate(self.columns) if column.name in question.columns]
        declared = Declared(columns, location_of(self.source))
        counts = np.asarray(grouped["rows"].to_numpy(), dtype=np.int64)
        shown = grouped.select(**{name: grouped[f"c{place}"] for place, name in enumerate(read)})
        begin = 0
        for table in table_of_frame(shown.to_native(), read):
            rows = np.full((table.height, len(self.columns)), np.nan)
            if table.height:
                rows[:, places] = declared.records(table)
                yield rows, counts[begin : begin + table.height]
            begin += table.height

    def _grouped(self, read: list[str], cuts: dict[str, tuple[float, ...]]) -> Any:
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
        return frame.agg(narwhals.len().alias("rows"), *kept).head(MOST_GROUPS + 1)

    def _compares(self, called: str) -> bool:
        """Does every engine compare its numbers with floats in one way?"""
        kind = self._schema[called]
        return bool(kind == self._narwhals.Float64 or kind.is_integer())

    def _place(self, called: str, cuts: tuple[float, ...]) -> Any:
        """How many edges a number reaches, and how many it is beyond."""
        narwhals, cell = self._narwhals, self._narwhals.col(called)
        reached = [below for edge in cuts for below in (cell >= edge, cell > edge)]
        place = _sum([narwhals.when(each).then(narwhals.lit(1)).otherwise(narwhals.lit(0)) for each in reached])
        if not self._schema[called].is_integer():
            place = narwhals.when(cell.is_nan()).then(narwhals.lit(_NOT_A_NUMBER)).otherwise(place)
        return narwhals.when(cell.is_null()).then(narwhals.lit(_NOTHING)).otherwise(place)

    def _collected(self, frame: Any) -> Any:
        try:
            collected = frame.collect()
        # Its message may quote a cell.
        except Exception:
            raise InputError(
                "the engine of the data frame cannot count groups of rows: check that the columns of the study hold numbers, "
                "texts, dates or truth values, and that the table can be read"
            ) from None
        if len(collected) > MOST_GROUPS:
            raise InputError(
                f"a statistic of this study needs more than {MOST_GROUPS:,} groups of equal rows, which are no summary: give the "
                "data frame itself, whose rows are read, or ask for bins of the column with many values"
            )
        return collected


def records_of(source: Source, columns: Columns, tell: Tell, rows: str | int | None = None) -> Records | GroupedRows:
    """The rows of a source, or their groups where these are to be counted where the rows are. ``rows``: see :class:`Records`.

    Raises :class:`InputError` as these do.
    """
    return GroupedRows(source, columns) if isinstance(source, GroupedFrame) else Records(source, columns, tell, rows)


def _sum(terms: list[Any]) -> Any:
    """Of expressions, by halves: an engine may take no expression that is nested as often as there are edges."""
    half = len(terms) // 2
    return terms[0] if len(terms) == 1 else _sum(terms[:half]) + _sum(terms[half:])
