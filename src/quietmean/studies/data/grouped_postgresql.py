"""Tables of a PostgreSQL database whose server counts groups of equal rows.

What is grouped is what would be handed over: floats, whole numbers, truth values, bytes or texts, these by their signs whatever
the collation is. So cells that differ for a study are in groups of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from math import inf, nextafter
from typing import Any

import numpy as np

from quietmean.core.cells import plain_name
from quietmean.statistics import Columns
from quietmean.studies.data.database import behind_from, query_of
from quietmean.studies.data.grouped import NOT_A_NUMBER, NOTHING, Counted, CountingEngine
from quietmean.studies.data.location import Location
from quietmean.studies.data.postgresql import SelectedColumns, compares, is_text, selected_rows, table_of, transaction
from quietmean.studies.data.query_tables import not_row_by_row
from quietmean.studies.data.table import Pieces


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
        """Raises :class:`InputError` for what the server does not read row by row, unless its owner declares it."""
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
