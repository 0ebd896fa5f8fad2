"""Tables that stay where they are: their engine counts groups of equal rows, and nothing else is handed over.

The engine only compares with edges and counts: it casts no number, rounds none and adds none up, for in that engines differ.
Texts are grouped by what they are and read here. Where there are too many groups, rows are read instead, a piece at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.statistics import Columns
from quietmean.statistics.grouping import Groups, Question
from quietmean.studies.data.location import ColumnMapping, Location
from quietmean.studies.data.reading import Declared, Source
from quietmean.studies.data.table import Pieces, Table

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
        """In it all is asked of the table as it is at one moment, and by one connection, where an engine can."""
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
        """Nothing is kept."""

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
