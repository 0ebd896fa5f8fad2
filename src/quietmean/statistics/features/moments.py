"""Means and products of columns, the vertices: one graph for a whole study, whose sensitivity is four times a maximum cut."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.input_domain import InputDomain
from quietmean.core.mixtures import Products
from quietmean.core.moment_products import MomentsInSteps, RecordMoments
from quietmean.statistics.columns import Column
from quietmean.statistics.features.block import Groups, complete_in_groups, complete_records, groups_of, signs_of_powers
from quietmean.statistics.statistic import Feature, Records, presence_of, raw

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
            # Products, which every machine rounds alike: powers are not. Each by itself, so that their order makes no difference.
            values = values * math.prod([columns[vertex]] * (power - 1), start=columns[vertex])
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


# Up to this many vertices all cuts are tried; beyond, the largest eigenvalue of the Laplacian bounds them.
_EXACT_CUTS = 16
_ORDER_OF_EDGES = 2


@dataclass(frozen=True)
class Moments(Feature):
    """Weighted means of vertices and of their products, of the records that have all of the columns that may be missing.

    (w0 p, w_i p z_i, w_ij p z_i z_j, s_i p (z_i^2 - 1)), p = 1 where nothing is missing; ``edges`` with ``weights`` are a graph.
    Squares of numbers have s_i^2 = w_i^2 + 1/2 sum_j w_ij^2, and the indicator w0^2 = sum of all w^2: both cost nothing. The
    squared sensitivity is four times the maximum cut of the graph with weights w^2.

    With ``by``, a column with levels, a record's moments stand in the place of its group, and one without a group has none. Then
    w0^2 = D^2 / 2 - sum of all w^2, and the groups cost nothing either.

    ``private``, for private counts: w0^2 is the mean of all w^2. No record is longer than the root of w0^2 + sum of all w^2,
    for what a square takes from the products of its column is at most what it gives.

    ``higher``: products of orders three and four of two columns, with weights that cost nothing beside those of the edges
    (:mod:`~quietmean.statistics.features.moments`). ``proven`` is then the squared sensitivity. They have no groups.

    ``of_single_record``: each value is that of one record, of which all products follow.

    Quantities, for each group: the means of p, of p z_i, p z_i z_j in the order of the edges, p z_i^2 in that of the numbers, and
    those of ``higher``.
    """

    edges: tuple[Edge, ...]
    weights: tuple[float, ...]
    by: Groups | None = None
    private: bool = False
    higher: tuple[Higher, ...] = ()
    higher_weights: tuple[float, ...] = ()
    proven: float | None = None
    of_single_record: bool = False

    @cached_property
    def vertices(self) -> tuple[Vertex, ...]:
        return tuple(dict.fromkeys(vertex for edge in self.edges for vertex in edge if vertex is not None))

    @cached_property
    def numbers(self) -> tuple[Vertex, ...]:
        """The vertices that have squares."""
        return tuple(vertex for vertex in self.vertices if vertex.level is None)

    @cached_property
    def demanded(self) -> tuple[Column, ...]:
        """The columns of which a missing value leaves the record out."""
        columns = dict.fromkeys(vertex.column for vertex in self.vertices)
        return tuple(column for column in columns if not column.fills_in)

    @property
    def imputed(self) -> tuple[Column, ...]:
        return tuple(dict.fromkeys(vertex.column for vertex in self.vertices if vertex.column.fills_in))

    @property
    def groups(self) -> int:
        return 1 if self.by is None else len(self.by.categories)

    @property
    def block(self) -> int:
        """How many numbers each group has."""
        return 1 + len(self.edges) + len(self.numbers) + len(self.higher)

    @property
    def size(self) -> int:
        return self.groups * self.block

    @cached_property
    def sensitivity(self) -> float:
        return moment_sensitivity(self.edges, self.weights) if self.proven is None else math.sqrt(self.proven)

    @property
    def length(self) -> float:
        return math.sqrt(float(self.factors[0]) ** 2 + math.fsum(weight**2 for weight in self.weights))

    @property
    def most_nonzero(self) -> int:
        return self.block

    def for_private_count(self) -> Moments:
        return replace(self, private=True)

    def for_single_record(self, *, of_party: bool) -> Moments:
        # A party's records are averaged, and nothing is stated of products of a higher order.
        return self if of_party or self.higher else replace(self, of_single_record=True)

    @cached_property
    def factors(self) -> Array:
        """The weights of all coordinates of a group, shape (block,)."""
        squares = dict.fromkeys(self.vertices, 0.0)
        for (first, other), weight in zip(self.edges, self.weights, strict=True):
            for vertex in (first, other):
                if vertex is not None:
                    squares[vertex] += weight**2 * (1.0 if first is None else 0.5)
        total = math.fsum(weight**2 for weight in self.weights)
        if self.private:
            total /= len(self.weights)
        elif self.by is not None:
            total = self.sensitivity**2 / 2 - total
        part = PART_IF_PRIVATE if self.private else 1.0
        higher = [part * weight**2 for weight in self.higher_weights]
        return np.sqrt([total, *(weight**2 for weight in self.weights), *(squares[vertex] for vertex in self.numbers), *higher])

    @cached_property
    def _places(self) -> dict[frozenset[Vertex | None] | Higher, int]:
        """Where quantities of a group are: of edges, of squares as sets of one vertex, and of higher products."""
        squares = (frozenset((vertex,)) for vertex in self.numbers)
        products: list[frozenset[Vertex | None] | Higher] = [*map(frozenset, self.edges), *squares, *self.higher]
        return {product: 1 + index for index, product in enumerate(products)}

    def place_of(self, powers: Mapping[Vertex, int]) -> int | None:
        """Where the mean of a product of powers, each above 0, is in the quantities of a group; None where it is not."""
        if not powers:
            return 0
        key = frozenset(powers) if len(powers) > 1 or max(powers.values()) > 1 else frozenset((None, *powers))
        return self._places.get(key if sum(powers.values()) <= _ORDER_OF_EDGES else Higher.of(powers))

    @property
    def domain(self) -> InputDomain:
        return InputDomain((self._record if self.of_single_record else Products(**self._bounds),))

    @property
    def _bounds(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "width": self.sensitivity,
            "largest_coordinate": float(self.factors.max()),
            "scale": 1.0,
        }

    @cached_property
    def _record(self) -> RecordMoments:
        columns: dict[Column, int] = {}
        for vertex in self.vertices:
            if vertex.level is not None:
                columns.setdefault(vertex.column, len(columns) + 1)
        numbers = {vertex: number for number, vertex in enumerate(self.vertices, 1)}
        return RecordMoments(
            **self._bounds,
            groups=self.groups,
            levels=tuple(0 if vertex.level is None else columns[vertex.column] for vertex in self.vertices),
            edges=tuple((0 if first is None else numbers[first], numbers[other]) for first, other in self.edges),
            weights=tuple(self.factors.tolist()),
        )

    @property
    def complete(self) -> Array:
        return np.tile(np.eye(self.block)[0], self.groups)

    def complete_in(self, by: str) -> Array | None:
        return complete_in_groups(self.by, by, self.block)

    def encode(self, records: Records) -> Array:
        values = {vertex: vertex.values(records) for vertex in self.vertices}
        rows = len(next(iter(values.values())))
        present = np.ones(rows)
        for column in self.demanded:
            present = present * records[presence_of(column.name)]
        products = [values[other] if one is None else values[one] * values[other] for one, other in self.edges]
        squares = [values[vertex] ** 2 - 1 for vertex in self.numbers]
        higher = [feature.values(values) for feature in self.higher]
        encoded: Array = np.column_stack([np.ones(rows), *products, *squares, *higher]) * self.factors * present[:, None]
        if self.by is None:
            return encoded
        placed = np.where(groups_of(records, self.by)[:, None] == np.arange(self.groups), 1.0, 0.0)
        return np.asarray((placed[:, :, None] * encoded[:, None, :]).reshape(rows, self.size))

    def to_grid(self, scaled: Array, scale: float, step: float) -> Array:
        """Draw records together by as much as rounding to the nearest step may move two records apart."""
        return np.rint(scaled * (1 - self._contraction(scale, step)) / step) * step + 0.0

    def response(self, scale: float, step: float) -> Array:
        exact = bool(step) and self.of_single_record
        if exact:
            matrix = np.diag(MomentsInSteps.of(self._record.times(scale), step).coefficients * step / scale)
        else:
            matrix = np.diag(self.factors * (1 - self._contraction(scale, step)))
        weights = np.diag(matrix).copy()
        squares = slice(1 + len(self.edges), 1 + len(self.edges) + len(self.numbers))
        matrix[squares, 0] = -weights[squares]
        for higher in self.higher:
            own = self._places[higher]
            for product, factor in higher.lower:
                matrix[own, self._places[product]] = -factor * weights[own]
        if step and not exact:
            matrix[0, 0] = np.rint(matrix[0, 0] * scale / step) * step / scale
        return np.asarray(np.kron(np.eye(self.groups), matrix), dtype=np.float64)

    def _contraction(self, scale: float, step: float) -> float:
        # Two records of different groups differ in twice as many numbers, each of which one of them has as an exact 0.
        return math.sqrt(self.block) * step / (self.sensitivity * scale)

    def events(self) -> Mapping[Hashable, Array]:
        events = {complete_records((column.name for column in self.demanded), self.by): self.complete}
        if self.by is None or self.demanded:
            return events
        levels = zip(self.by.categories, np.eye(self.size)[:: self.block], strict=True)
        return events | {("level", self.by.name, level): value for level, value in levels}

    def never_negative(self) -> Array:
        """What :func:`signs_of_powers` says, in each group, of each number that has its mean."""
        rows = [np.zeros((0, self.block))]
        for vertex in self.numbers:
            mean, square = self.place_of({vertex: 1}), self.place_of({vertex: 2})
            if mean is not None and square is not None:
                rows.append(signs_of_powers(self.block, 0, mean, square))
        return np.asarray(np.kron(np.eye(self.groups), np.vstack(rows)), dtype=np.float64)

    def family(self) -> Hashable:
        return ("moments", frozenset(self.demanded), self.by)

    @classmethod
    def joined(cls, features: Mapping[Any, float]) -> Feature:
        edges, squares = _graph(features)
        higher: dict[Higher, float] = {}
        for feature, share in features.items():
            for product, weight in zip(feature.higher, feature.higher_weights, strict=True):
                higher[product] = higher.get(product, 0.0) + share * weight**2 / feature.sensitivity**2
        by = next(iter(features)).by
        weights = tuple(math.sqrt(squares[key]) for key in edges)
        if not higher:
            return cls(tuple(edges.values()), weights, by)
        # What is free is so beside the moments of its own statistic: these count in full, and by a cut all others together.
        proven = math.fsum(share for feature, share in features.items() if feature.higher)
        others, cut = _graph({feature: share for feature, share in features.items() if not feature.higher})
        if others:
            proven += moment_sensitivity(tuple(others.values()), tuple(math.sqrt(cut[key]) for key in others)) ** 2
        roots = tuple(math.sqrt(square) for square in higher.values())
        return cls(tuple(edges.values()), weights, by, higher=tuple(higher), higher_weights=roots, proven=proven)

    def places_of(self, part: Any) -> Ints:
        own = np.array([0, *(self._places[place] for place in part._places)])
        return np.concatenate([own + group * self.block for group in range(self.groups)])


def _graph(features: Mapping[Any, float]) -> tuple[dict[frozenset[Any], Edge], dict[frozenset[Any], float]]:
    """The edges of several moments with these shares together, and their squared weights."""
    squares: dict[frozenset[Any], float] = {}
    edges: dict[frozenset[Any], Edge] = {}
    for feature, share in features.items():
        for edge, weight in zip(feature.edges, feature.weights, strict=True):
            key = frozenset(edge)
            edges.setdefault(key, edge)
            squares[key] = squares.get(key, 0.0) + share * weight**2 / feature.sensitivity**2
    return edges, squares


@cache
def moment_sensitivity(edges: tuple[Edge, ...], weights: tuple[float, ...]) -> float:
    """The square root of four times the maximum cut of a graph with squared weights, or a bound on it for many vertices."""
    vertices: dict[Vertex | None, int] = {None: 0}
    for edge in edges:
        for vertex in edge:
            vertices.setdefault(vertex, len(vertices))
    squares = np.zeros((len(vertices), len(vertices)))
    for (first, second), weight in zip(edges, weights, strict=True):
        squares[vertices[first], vertices[second]] = squares[vertices[second], vertices[first]] = weight**2
    return math.sqrt(4 * maximum_cut(squares))


def maximum_cut(squares: Array) -> float:
    """The largest sum of weights between two parts of the vertices, from a symmetric matrix (v, v) with a diagonal of 0.

    Exact up to 17 vertices; beyond, v/4 times the largest eigenvalue of the Laplacian, which is at least as large (Mohar and
    Poljak, 1990).
    """
    count = len(squares)
    if count - 1 <= _EXACT_CUTS:
        best = 0.0
        # The first vertex stays on one side.
        for begin in range(0, 1 << (count - 1), 1 << 12):
            numbers = np.arange(begin, min(begin + (1 << 12), 1 << (count - 1)))
            sides = np.column_stack([np.ones(len(numbers)), 1.0 - 2.0 * ((numbers[:, None] >> np.arange(count - 1)) & 1)])
            inside = np.einsum("ij,jk,ik->i", sides, squares, sides)
            best = max(best, float((squares.sum() - inside.min()) / 4))
        return best
    laplacian = np.diag(squares.sum(axis=1)) - squares
    return float(np.linalg.eigvalsh(laplacian)[-1]) * count / 4 * (1 + 1e-12)
