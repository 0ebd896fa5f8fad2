"""Columns as vertices of a graph of products, and its edges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.columns import Column
from quietmean.statistics.statistic import Records, raw

# Two vertices of the graph, in their order; both the same for a square, and None for the vertex of a 1.
Edge = tuple["Vertex | None", "Vertex"]


@dataclass(frozen=True)
class Vertex:
    """A column scaled to [-1, 1]; of a column with levels 1 for one ``level`` and -1 for all others.

    ``until``: a column of times, of events. A record's time beyond its bounds counts as the upper one, and so do its events: one
    at a time beyond it is none, and a number of them counts in proportion.
    """

    column: Column
    level: str | None = None
    until: Column | None = None

    @property
    def name(self) -> str:
        return self.column.name if self.level is None else f"{self.column.name}[{self.level}]"

    @property
    def centre(self) -> float:
        return self.column.centre if self.level is None else 0.5

    @property
    def half(self) -> float:
        """Half the width of the bounds."""
        return self.column.width / 2 if self.level is None else 0.5

    def values(self, records: Records) -> Array:
        """The scaled values, shape (rows,); anything within the bounds where one is missing."""
        raw = records[self.column.name]
        within = self._within(records)
        if self.level is not None:
            return np.where((raw == self.column.categories.index(self.level)) & (within >= 1), 1.0, -1.0)
        return np.clip((raw * within - self.centre) / self.half, -1.0, 1.0)

    def _within(self, records: Records) -> Array | float:
        """Which part of a record's time lies within its bounds, shape (rows,); 1 where there is none."""
        if self.until is None:
            return 1.0
        times = records[raw(self.until.name)]
        beyond = times > self.until.high
        return np.where(beyond, self.until.high / np.where(beyond, times, 1.0), 1.0)


def vertices_of(column: Column) -> tuple[Vertex, ...]:
    """A column of numbers as one vertex, one with levels as a vertex for each but the first."""
    return (Vertex(column),) if column.numeric else tuple(Vertex(column, level) for level in column.categories[1:])


def complete_edges(vertices: Iterable[Vertex]) -> tuple[Edge, ...]:
    """All means and products of different vertices, but those of two levels of one column, which are known from their means."""
    ordered = tuple(dict.fromkeys(vertices))
    pairs = [
        (earlier, other) for count, other in enumerate(ordered) for earlier in ordered[:count] if earlier.column != other.column
    ]
    return (*((None, vertex) for vertex in ordered), *pairs)
