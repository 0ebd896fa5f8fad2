"""Columns as vertices of a graph of products, its edges, and products of orders three and four."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


# Weights by the powers of both columns, beside moments whose weights are all 1,
EVEN = {(3, 0): 0.4, (2, 1): 0.29, (1, 2): 0.29, (0, 3): 0.4, (4, 0): 1.4, (3, 1): 1.17, (2, 2): 1.12, (1, 3): 1.17, (0, 4): 1.4}
# and beside those with an outcome, the second column, of which the squared weights are twice the others'; all that squares of
# residuals need.
HEAVY = {(3, 0): 0.34, (2, 1): 0.7, (1, 2): 1.55, (4, 0): 1.44, (3, 1): 1.85, (2, 2): 2.45}
# The same where the first column is a level: every other power of it is one of a lower order.
OF_LEVEL = {(1, 2): 1.7}
# Where counts are private what costs is a record's length. So much of the squared weights leaves it as it is.
PART_IF_PRIVATE = 0.25


@dataclass(frozen=True)
class Higher:
    """A product of powers, in the order of the columns' names; the powers add up to three or four."""

    powers: tuple[tuple[Vertex, int], ...]

    @classmethod
    def of(cls, powers: Mapping[Vertex, int]) -> Higher:
        return cls(tuple(sorted(((vertex, power) for vertex, power in powers.items() if power), key=lambda pair: pair[0].name)))

    @property
    def lower(self) -> tuple[tuple[frozenset[Vertex | None], float], ...]:
        """What it equals where all columns are at a bound: edges, or squares as sets of one vertex, with their factors."""
        odd = frozenset(vertex for vertex, power in self.powers if power % 2)
        if odd:
            return ((odd | {None} if len(odd) == 1 else odd, 1.0),)
        return tuple((frozenset((vertex,)), 1 / len(self.powers)) for vertex, _ in self.powers)

    def values(self, columns: Mapping[Vertex, Array]) -> Array:
        """The values of the product in records, less the products of lower order, shape (rows,)."""
        values = np.ones_like(columns[self.powers[0][0]])
        for vertex, power in self.powers:
            values = values * columns[vertex] ** power
        for product, factor in self.lower:
            values = values - factor * _product(product, columns)
        return values


def _product(vertices: frozenset[Vertex | None], columns: Mapping[Vertex, Array]) -> Array:
    """The values of the product of an edge's vertices, or the square of a single vertex, shape (rows,)."""
    named = sorted((vertex for vertex in vertices if vertex is not None), key=lambda vertex: vertex.name)
    if len(vertices) == 1:
        return columns[named[0]] ** 2
    values = columns[named[0]]
    for vertex in named[1:]:
        values = values * columns[vertex]
    return values


def orders_three_and_four(one: Vertex, other: Vertex, *, heavy: bool) -> dict[Higher, float]:
    """The products with their weights, beside all moments of two columns; ``heavy``: of which the other is the outcome."""
    weights = EVEN if not heavy else OF_LEVEL if one.level is not None else HEAVY
    return {Higher.of({one: first, other: second}): weight for (first, second), weight in weights.items()}
