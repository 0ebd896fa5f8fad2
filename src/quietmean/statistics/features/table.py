"""Tables: bins, how many records are in each cell of a cross-classification of columns, and sums of first cells."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.lazy import special
from quietmean.core.mixtures import Simplex
from quietmean.core.readable_days import day_text
from quietmean.statistics.columns import LINEAR, LOG, LOG_ODDS, MISSING, Column
from quietmean.statistics.features.block import complete_records
from quietmean.statistics.linear import Block, LinearMap
from quietmean.statistics.statistic import TOTAL, Feature, Records, raw

# Where the lower bound is not above 0, bins of equal factors begin at this part of the upper bound: six decades.
_LEAST_OF_LOG = 1e-6
# Probabilities that are common thresholds of decisions.
PROBABILITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
# From this many bins of equal log odds on, edges are moved to these probabilities.
_MANY = 64
# Bins of equal log odds begin at this probability where the lower bound is 0, and end as far from 1.
_LEAST_PROBABILITY = 1e-3


def edges_of(
    column: Column, bins: int, *, low: float | None = None, high: float | None = None, closed: str = "left", scale: str = LINEAR
) -> tuple[float, ...]:
    """Rising edges of at most ``bins`` bins of a column, from ``low`` to ``high``, by default its bounds.

    The column's own ``edges``, where it declares them. Of whole numbers as many in each bin as in any other, one more or less;
    the edges lie between two of them, half beyond the ends, or for bins (a, b] at the last number of each bin, the first edge
    being the first number. By equal factors or log odds, by ``scale`` where the column states none, and of equal width otherwise.
    Raises :class:`InputError` where there are no two whole numbers.
    """
    first, last = column.low if low is None else low, column.high if high is None else high
    if column.edges:
        if low is None and high is None:
            return column.edges
        return (first, *(edge for edge in column.edges if first < edge < last), last)
    if column.whole:
        return _of_whole_numbers(column, math.ceil(first), math.floor(last), bins, closed)
    spacing = column.scale if column.scale != LINEAR else scale
    inner = {LINEAR: _equal, LOG: _by_factors, LOG_ODDS: _by_log_odds}[spacing](first, last, bins)
    return (first, *(edge for edge in inner.tolist() if first < edge < last), last)


def cut_evenly(column: Column) -> bool:
    """Is it a column of numbers whose bins have equal widths, as long as nobody gives edges?"""
    return column.numeric and column.scale == LINEAR and not column.whole and not column.edges


def _equal(first: float, last: float, bins: int) -> Array:
    return np.linspace(first, last, bins + 1)


def _by_factors(first: float, last: float, bins: int) -> Array:
    """Edges of equal factors. From 0 or less on, the first bin holds all that is more than six decades below the last number."""
    return np.geomspace(first, last, bins + 1) if first > 0 else np.geomspace(_LEAST_OF_LOG * last, last, max(bins, 1))


def _by_log_odds(first: float, last: float, bins: int) -> Array:
    low, high = max(first, _LEAST_PROBABILITY), min(last, 1 - _LEAST_PROBABILITY)
    if low >= high:
        return _equal(first, last, bins)
    edges: Array = np.asarray(special.expit(np.linspace(special.logit(low), special.logit(high), bins + 1)), dtype=np.float64)
    if bins >= _MANY:
        for probability in PROBABILITIES:
            if low < probability < high:
                edges[int(np.abs(edges - probability).argmin())] = probability
    # The first and the last bin extend to the bounds.
    return edges[1:-1]


def _of_whole_numbers(column: Column, first: int, last: int, bins: int, closed: str) -> tuple[float, ...]:
    if first >= last:
        raise InputError(f"column {column.name!r} has fewer than two whole numbers from {first} on. Leave whole out.")
    end, shift = (last, 0.0) if closed == "right" else (last + 1, -0.5)
    places = np.rint(np.linspace(first, end, min(bins, end - first) + 1))
    return tuple((places + shift).tolist())


BELOW, ABOVE = "below", "above"
_MOST_CELLS = 4096


@dataclass(frozen=True)
class Axis:
    """One way to sort records: by the levels of a column, or by bins between rising ``edges``.

    Bins are [a, b), the last one closed, where ``closed`` is "left", and (a, b] where it is "right"; values up to the first edge
    are then ``below``. Of a column of whole numbers any other value counts as the nearest one.
    There is a cell for every record: with ``missing`` last, and for bins ``below`` first and ``above`` before it.
    Raises :class:`InputError` for edges that do not rise or go beyond the bounds.
    """

    column: Column
    edges: tuple[float, ...] = ()
    closed: str = "left"

    def __post_init__(self) -> None:
        column, edges = self.column, self.edges
        if column.numeric != bool(edges):
            advice = "has bounds. Give edges or a number of bins." if column.numeric else "has levels. Leave its edges out."
            raise InputError(f"column {column.name!r} {advice}")
        if edges and (len(edges) < 2 or any(b <= a for a, b in pairwise(edges))):
            raise InputError(f"the edges for column {column.name!r} are not two or more rising numbers. Sort them.")
        # Edges between whole numbers, beyond the first and the last one.
        room = 0.5 if column.whole else 0.0
        if edges and not (column.low - room <= edges[0] and edges[-1] <= column.high + room):
            raise InputError(
                f"the edges for column {column.name!r} go from {edges[0]:g} to {edges[-1]:g}, beyond its bounds {column.low:g} "
                f"to {column.high:g}. Stay between them."
            )

    @classmethod
    def of(
        cls,
        column: Column,
        edges: tuple[float, ...] | None,
        bins: int | None,
        usual: int = 10,
        *,
        closed: str = "left",
        scale: str = LINEAR,
    ) -> Axis:
        """Make an axis by the given edges, else in the given number of bins, else as the column declares or in the
        ``usual`` number.

        ``scale``: of bins where the column states none. Of a column with levels, by these.
        """
        if not column.numeric:
            return cls(column)
        if edges is None:
            plain = column if bins is None else column.model_copy(update={"edges": ()})
            edges = edges_of(plain, usual if bins is None else bins, closed=closed, scale=scale)
        return cls(column, edges, closed)

    @property
    def demanded(self) -> tuple[str, ...]:
        """What must be known of a record so that it is not in the last cell: by default a value of the column."""
        return () if self.column.fills_in else (self.column.name,)

    @cached_property
    def by_day(self) -> bool:
        """Does each bin hold at least one day of a column of dates? Then days of the calendar name bins."""
        return bool(self.column.since) and all(b - a >= 1 for a, b in pairwise(self.edges))

    def edge_label(self, edge: float) -> str:
        """The text of an edge, in counts of the values up to it."""
        return day_text(edge, self.column.since, "down") if self.by_day else f"{edge:g}"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the cells, in their order."""
        if not self.edges:
            return (*self.column.categories, MISSING)
        last = len(self.edges) - 2
        return (BELOW, *(self._label(a, b, index == last) for index, (a, b) in enumerate(pairwise(self.edges))), ABOVE, MISSING)

    def _label(self, a: float, b: float, last: bool) -> str:
        if self.column.whole or self.by_day:
            first, end = self._whole_numbers(a, b, last)
            texts = [day_text(day, self.column.since) if self.by_day else f"{day}" for day in (first, end)]
            return texts[0] if first == end else " to ".join(texts)
        return f"({a:g}, {b:g}]" if self.closed == "right" else f"[{a:g}, {b:g}{']' if last else ')'}"

    def numbers_in(self, cell: int, digits: int) -> range:
        """The numbers in the bin of this cell that have so many digits behind the point, as multiples of the last digit."""
        a, b = self.edges[cell - 1], self.edges[cell]
        first, end = (math.floor(edge * 10.0**digits) for edge in (a, b))
        last = cell == len(self.edges) - 1
        near = [k for k in range(first - 1, first + 2) if round(k / 10.0**digits, digits) >= a]
        over = [k for k in range(end - 1, end + 2) if (value := round(k / 10.0**digits, digits)) > b or (value == b and not last)]
        return range(near[0], over[0] if over else end + 2)

    def _whole_numbers(self, a: float, b: float, last: bool) -> tuple[int, int]:
        """The first and the last whole number of a bin."""
        if self.closed == "right":
            return math.floor(a) + 1, math.floor(b)
        return math.ceil(a), math.floor(b) if last else math.ceil(b) - 1

    @cached_property
    def single(self) -> Mask:
        """Which cells hold one value only, (cells,): of whole numbers, one a bin."""
        single = np.zeros(len(self.labels), dtype=np.bool_)
        if self.edges and self.column.whole:
            pairs = list(pairwise(self.edges))
            ends = [self._whole_numbers(a, b, index == len(pairs) - 1) for index, (a, b) in enumerate(pairs)]
            single[1:-2] = [one == other for one, other in ends]
        return single

    @cached_property
    def cuts(self) -> tuple[float, ...]:
        """Rising edges between which all numbers are in one cell; whole numbers are rounded to the nearest first."""
        if not self.column.whole:
            return self.edges
        near = (math.floor(edge) + shift for edge in self.edges for shift in (-0.5, 0.0, 0.5, 1.0, 1.5))
        return tuple(sorted({*self.edges, *near}))

    def place(self, records: Records) -> Ints:
        """The cell of each record, shape (rows,)."""
        if not self.edges:
            levels = records[self.column.name]
            return np.where(np.isnan(levels), len(self.labels) - 1, levels).astype(np.int64)
        values, edges = records[raw(self.column.name)], np.array(self.edges)
        if self.column.whole:
            values = np.rint(values)
        if self.closed == "right":
            cells = np.searchsorted(edges, values, side="left")
        else:
            cells = np.searchsorted(edges, values, side="right")
            # The last edge belongs to the last bin.
            cells = np.where(values == edges[-1], len(edges) - 1, cells)
        cells = np.where(np.isnan(values), len(self.labels) - 1, cells)
        return cells.astype(np.int64)

    def events(self) -> dict[Hashable, Array]:
        """Weights of the cells, by what other features may know as well."""
        name, places = self.column.name, np.arange(len(self.labels))
        weights: dict[Hashable, Array] = {}
        if not self.edges:
            weights |= {("level", name, label): cell for label, cell in zip(self.labels, np.eye(len(places)), strict=True)}
        else:
            for index, edge in enumerate(self.edges):
                if (event := self._up_to(edge, index == len(self.edges) - 1)) is not None:
                    weights[event] = (places <= index).astype(np.float64)
        return weights

    def _up_to(self, edge: float, last: bool) -> Hashable | None:
        """The event of a value in the cells before an edge; None for the last of [a, b), which no other table need agree with."""
        is_whole, name = self.column.whole, self.column.name
        if self.closed == "right":
            return ("not above", name, math.floor(edge) if is_whole else edge)
        if last and not (is_whole and edge != math.floor(edge)):
            return None
        return ("not above", name, math.ceil(edge) - 1) if is_whole else ("below", name, edge)


@dataclass(frozen=True)
class CellIndicators(Feature):
    """1 in the cell of a record, 0 in all others: a replaced record leaves one cell and enters another, sqrt(2) apart.

    Cells are those of all ``axes`` against each other, the last axis running fastest. Quantities: the parts of the records in
    each. They add up to 1.
    """

    sensitivity = math.sqrt(2)
    length = 1.0
    most_nonzero = 1
    is_whole = True

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if self.size > _MOST_CELLS:
            names = ", ".join(axis.column.name for axis in self.axes)
            raise InputError(
                f"a table of {names} has {self.size} cells. Choose fewer bins or levels, at most {_MOST_CELLS} cells."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(len(axis.labels) for axis in self.axes)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def domain(self) -> InputDomain:
        return InputDomain((Simplex(size=self.size, scale=1.0),))

    def place(self, records: Records) -> Ints:
        """The cell of each record, shape (rows,)."""
        places, *others = (axis.place(records) for axis in self.axes)
        for along, place in zip(self.shape[1:], others, strict=True):
            places = places * along + place
        return places

    def cuts(self) -> dict[str, tuple[float, ...]]:
        by_column: dict[str, tuple[float, ...]] = {}
        for axis in self.axes:
            name = axis.column.name
            by_column[name] = tuple(sorted({*by_column.get(name, ()), *axis.cuts}))
        return {name: cuts for name, cuts in by_column.items() if cuts}

    def encode(self, records: Records) -> Array:
        return np.where(self.place(records)[:, None] == np.arange(self.size), 1.0, 0.0)

    def sums(self, records: Records, weights: Array, scale: float, step: float) -> Array:
        # One number of a record is not 0: thousands of cells take no longer than a few.
        places = self.place(records)
        order = np.argsort(places, kind="stable")
        cells, begins = np.unique(places[order], return_index=True)
        sums = np.zeros((*weights.shape[:-1], self.size))
        if len(cells):
            value = np.floor(scale / step) * step if step else scale
            sums[..., cells] = np.add.reduceat(weights[..., order], begins, axis=-1) * value
        return sums

    def response(self, scale: float, step: float) -> Array:
        return np.eye(self.size) * (np.floor(scale / step) * step / scale if step else 1.0)

    def inverse(self, scale: float, step: float) -> LinearMap:
        return LinearMap.of_block(Block(np.full(self.size, 1 / (np.floor(scale / step) * step if step else scale))))

    def events(self) -> Mapping[Hashable, Array]:
        by_event: dict[Hashable, Array] = {TOTAL: np.ones(self.size)}
        for dimension, axis in enumerate(self.axes):
            for event, weights in axis.events().items():
                by_event[event] = self.along(dimension, weights)
        return by_event | {complete_records(name for axis in self.axes for name in axis.demanded): self.complete}

    @property
    def complete(self) -> Array:
        weights = np.ones(self.size)
        for dimension, axis in enumerate(self.axes):
            # What is missing is the last cell of every axis, in which nobody is where missing cells count as the middle.
            if axis.demanded:
                weights *= self.along(dimension, 1.0 - np.eye(len(axis.labels))[-1])
        return weights

    def complete_in(self, by: str) -> Array | None:
        for dimension, axis in enumerate(self.axes):
            if axis.column.name == by and not axis.edges:
                cells = np.eye(len(axis.labels))[:-1]
                return np.array([self.complete * self.along(dimension, cell) for cell in cells])
        return None

    def along(self, dimension: int, weights: Array) -> Array:
        """Weights of the cells (size,) that depend on one axis only, from those of its cells."""
        shape = [1] * len(self.axes)
        shape[dimension] = -1
        wide: Array = np.broadcast_to(weights.reshape(shape), self.shape).ravel().copy()
        return wide
