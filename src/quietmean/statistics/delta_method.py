"""Smooth functions of released means and counts: values without what noise adds by their curvature, errors by their slopes.

Everything here reads a function of points, (points, q) to (points, terms), which may be complex: an imaginary step gives slopes
to the last digit. Terms are named, with what each can be and the scale of its intervals.

Statistics of the counts of a table are such functions; they also say which levels of a table the noise does not hide.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.statistics.columns import Columns
from quietmean.statistics.estimate import ANYTHING, ASK_FOR_MORE, HALF_A_RECORD, Estimate, Flag, Interval, least_count, most_of
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators, Moments, Vertex
from quietmean.statistics.features.block import LEAST_PRESENT
from quietmean.statistics.influence_bounds import Around
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records

Function = Callable[[NDArray[Any]], NDArray[Any]]

# An imaginary step of a derivative loses no digits; the other is in deviations of the noise, to see curvature.
_TINY, _STEP = 1e-30, 0.1
# The relative step of a central difference quotient.
_NUDGE = 1e-6


@dataclass(frozen=True)
class SmoothTerm:
    """A named number that a statistic asks for: what it can be, and the ``scale`` on which its intervals are.

    On the scale "log" it is a ratio, and what is computed is its logarithm; "fisher" is for correlations.
    """

    name: str
    limits: Interval = ANYTHING
    scale: Literal["plain", "log", "fisher"] = "plain"

    @property
    def unknown(self) -> Estimate:
        return Estimate.unknown(self.name, self.limits)

    def estimate(self, value: float, noise: float, sampling: float, degrees: float = math.inf) -> Estimate:
        """Make its estimate from the variances of noise and of sampling, and the degrees of freedom of their sum."""
        if self.scale == "log":
            return Estimate.ratio(self.name, value, noise, sampling, degrees)
        if self.scale == "fisher":
            return Estimate.correlation(self.name, min(max(value, -1.0), 1.0), noise, sampling, degrees)
        return Estimate.normal(self.name, value, noise, sampling, self.limits, degrees)


def ratio(name: str) -> SmoothTerm:
    """A term that is a ratio, computed as its logarithm."""
    return SmoothTerm(name, (0.0, math.inf), "log")


@dataclass(frozen=True, eq=False)
class Smooth:
    """Values of a smooth function, (terms,), its slopes by quantities, (terms, q), and the covariance of their noise, (q, q)."""

    values: Array
    slopes: Array
    covariance: Array

    @cached_property
    def noise(self) -> Array:
        """The variances that noise gives the values, (terms,)."""
        return np.array([spread(slopes, self.covariance) for slopes in self.slopes])

    @property
    def errors(self) -> Array:
        """The standard deviations of the noise in the values, (terms,)."""
        return np.sqrt(self.noise)


@dataclass(frozen=True, eq=False)
class Estimated:
    """Values (terms,), the variances of noise and of sampling, and the degrees of freedom of their sum."""

    values: Array
    noise: Array
    sampling: Array
    degrees: Array

    def __getitem__(self, part: slice) -> Estimated:
        return Estimated(self.values[part], self.noise[part], self.sampling[part], self.degrees[part])

    def of(self, terms: Iterable[SmoothTerm]) -> list[Estimate]:
        """The estimates of as many terms as there are values."""
        parts = zip(self.values, self.noise, self.sampling, self.degrees, strict=True)
        return [term.estimate(*map(float, part)) for term, part in zip(terms, parts, strict=True)]


def smooth(function: Function, at: Array, covariance: Array, *, corrected: bool = True) -> Smooth:
    """The values of a function at quantities (q,) and its slopes; ``corrected``: without what noise adds on average."""
    with np.errstate(all="ignore"):
        here = function(at[None])[0].real
        slopes = slopes_of(function, at)
        if corrected and covariance.any():
            steps = _STEP * _root(covariance).T
            ends = [function(at + sign * steps).real for sign in (1.0, -1.0)]
            here = here - (ends[0] + ends[1] - 2 * here).sum(axis=0) / _STEP**2 / 2
    return Smooth(here, slopes, covariance)


def slopes_of(function: Function, at: Array) -> Array:
    """The derivatives (terms, q) of an analytic function."""
    slopes: Array = function(at + 1j * _TINY * np.eye(len(at))).imag.T / _TINY
    return slopes


def numerical_slopes(function: Callable[[Array], Array], at: Array) -> Array:
    """The derivatives (terms, q) of a function of one point that no complex number goes through, as where it iterates."""
    steps = np.diag(_NUDGE * np.maximum(np.abs(at), 1e-3))
    return np.column_stack([(function(at + step) - function(at - step)) / (2 * step.sum()) for step in steps])


def by_point(function: Callable[[Array], Array]) -> Function:
    """A function of points from one of a single point."""
    return lambda points: np.array([function(point) for point in points])


def _root(covariance: Array) -> Array:
    """A matrix whose product with its transpose is the covariance."""
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def spread(gradient: Array, covariance: Array) -> float:
    """The variance of a function with this gradient, (q,), of quantities with noise of this covariance, (q, q)."""
    return max(float(gradient @ covariance @ gradient), 0.0)


def multinomial(gradient: Array, counts: Array) -> float:
    """The variance of sampling of a function of counts with this gradient, (cells,): sum n g^2 - (sum n g)^2 / N."""
    # Of counts as they are: cut at 0 one by one, their noise would add to the sum.
    total = float(counts.sum())
    return max(float(counts @ gradient**2) - float(counts @ gradient) ** 2 / total, 0.0) if total > 0 else 0.0


NOTHING_PRESENT = Flag("nothing-present", f"the records are too few for the noise. {ASK_FOR_MORE}")
_PAIR = 2


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Counts of the present levels of a table, in its ``shape``, and the covariance of their noise, (cells, cells)."""

    counts: Array
    noise: Array

    @classmethod
    def of(cls, released: Released, table: CellIndicators) -> CellCounts:
        """What is missing in any of the columns is left out."""
        inner = tuple(slice(0, size - 1) for size in table.shape)
        places = np.arange(table.size).reshape(table.shape)[inner]
        cells = places.ravel()
        counts = released.mean(table)[cells] * released.weight
        return cls(counts.reshape(places.shape), released.covariance(table)[np.ix_(cells, cells)] * released.weight**2)

    @property
    def total(self) -> float:
        return float(self.counts.sum())

    @property
    def known(self) -> bool:
        """Are there more records than the noise hides?"""
        return self.total > least_count(LEAST_PRESENT, self.error(np.ones(self.counts.shape)))

    def sum(self, weights: Array) -> float:
        """A weighted sum of counts, with weights in their shape."""
        return float((weights * self.counts).sum())

    def error(self, weights: Array) -> float:
        """The standard deviation of the noise in a weighted sum of counts, with weights in their shape."""
        return math.sqrt(spread(weights.ravel(), self.noise))

    def smooth(self, function: Function, *, corrected: bool = True) -> Smooth:
        """A function of counts (points, *shape), without what noise adds on average by its curvature, and its slopes by them."""

        def values(points: NDArray[Any]) -> NDArray[Any]:
            return function(points.reshape(-1, *self.counts.shape))

        return smooth(values, self.counts.ravel(), self.noise, corrected=corrected)

    def noise_of(self, slopes: Array) -> float:
        """The variance of noise of a value with these slopes, (cells,)."""
        return spread(slopes, self.noise)

    def estimated(self, function: Function, *, corrected: bool = True, by_row: bool = False) -> Estimated:
        """A function of counts, with what a random sample of records adds by its slopes, or a sample of each row."""
        known = self.smooth(function, corrected=corrected)
        samples = self.counts if by_row else self.counts.reshape(1, -1)
        sampling = np.array([sum(map(multinomial, own.reshape(samples.shape), samples)) for own in known.slopes])
        return Estimated(known.values, known.noise, sampling, np.full(len(sampling), math.inf))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OfCells(Statistic, ABC):
    """A statistic of a table of columns with levels; records with one of them missing are left out."""

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        require_records(self, columns)
        return (self._table(columns),)

    def _table(self, columns: Columns) -> CellIndicators:
        axes = self.axes(columns)
        if len({axis.column.name for axis in axes}) < len(axes):
            raise InputError(f"{self.text} names a column twice. Name each once.")
        return CellIndicators(axes)

    @abstractmethod
    def axes(self, columns: Columns) -> tuple[Axis, ...]:
        """The axes of the table. Raises :class:`InputError` for columns that cannot be compared."""

    def cells(self, released: Released, columns: Columns) -> CellCounts:
        """The released counts of the table."""
        return CellCounts.of(released, self._table(columns))

    def nothing(self, terms: Sequence[SmoothTerm], flag: Flag = NOTHING_PRESENT) -> Estimates:
        """The estimates where nothing is known about its terms; the first one is asked for first."""
        return Estimates.of([term.unknown for term in terms], flags=(flag,), headline=(terms[0].name,) if terms[0].name else ())

    def two_levels(self, columns: Columns, name: str) -> Axis:
        """The axis of a column. Raises :class:`InputError` unless it has two levels."""
        column = columns.category(name)
        if len(column.categories) != _PAIR:
            raise InputError(
                f"{self.text} needs two levels, but column {name!r} has {len(column.categories)}. Choose a column with two."
            )
        return Axis(column)

    def alike(self, columns: Columns, first: str, second: str) -> tuple[Axis, Axis]:
        """The axes of two columns whose levels mean the same in the same order: of one name, or as many with no name in common.

        Raises :class:`InputError` for columns with other levels.
        """
        pair = columns.category(first), columns.category(second)
        levels = [column.categories for column in pair]
        if levels[0] != levels[1] and (len(levels[0]) != len(levels[1]) or set(levels[0]) & set(levels[1])):
            texts = " and ".join(f"{column.name} has {', '.join(column.categories)}" for column in pair)
            raise InputError(
                f"{self.text} compares the levels of two columns, but {texts}. Declare the same levels in one order."
            )
        return Axis(pair[0]), Axis(pair[1])


LEFT_OUT = "level-left-out"


@dataclass(frozen=True, eq=False)
class KnownMargins:
    """The rows and the columns of a table that enough records have, by their indices.

    ``hidden_rows``, ``hidden_columns``: those that the noise hides, each with a number that its count is below.
    """

    rows: list[int]
    columns: list[int]
    hidden_rows: dict[int, int] = field(default_factory=dict)
    hidden_columns: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Array, noise: Array, records: float = math.inf) -> KnownMargins:
        """The known rows and columns of counts (rows, columns) of at most ``records``, with noise of covariance (cells, cells).

        A row or column that is left out counts in no sum of another.
        """
        shape = table.shape
        kept = [list(range(size)) for size in shape]
        hidden: list[dict[int, int]] = [{}, {}]
        while True:
            inside = np.zeros(shape)
            inside[np.ix_(*kept)] = 1.0
            lost = False
            for axis in (0, 1):
                for level in list(kept[axis]):
                    weights = np.zeros(shape)
                    weights[(level, slice(None)) if axis == 0 else (slice(None), level)] = 1.0
                    weights *= inside
                    count = float((weights * table).sum())
                    error = math.sqrt(max(float(weights.ravel() @ noise @ weights.ravel()), 0.0))
                    if is_hidden(count, error):
                        kept[axis].remove(level)
                        hidden[axis][level] = most_of(count, error, records)
                        lost = True
            if not lost:
                return cls(kept[0], kept[1], hidden[0], hidden[1])

    def within(self, table: Array, noise: Array) -> tuple[Array, Array]:
        """The counts that are left, and the covariance of their noise."""
        places = np.arange(table.size).reshape(table.shape)[np.ix_(self.rows, self.columns)]
        return table[np.ix_(self.rows, self.columns)], noise[np.ix_(places.ravel(), places.ravel())]


def is_hidden(count: float, error: float, least: float = HALF_A_RECORD) -> bool:
    """Does the noise hide whether anybody is counted, or is nobody? ``least``: as of :class:`Released`."""
    return count <= least_count(LEAST_PRESENT, error, least)


def levels_stay(around: Around, feature: Moments, declared: Sequence[Vertex]) -> bool:
    """Are the covariates of a model all of these, whichever of the results ``around`` it is?"""
    unit = np.eye(feature.size)
    alone = {other: unit[1 + index] for index, (constant, other) in enumerate(feature.edges) if constant is None}
    for column in dict.fromkeys(vertex.column for vertex in declared if vertex.level is not None):
        readers = [(unit[0] + alone[vertex]) / 2 for vertex in declared if vertex.column == column]
        levels = np.array([unit[0] - np.sum(readers, axis=0), *readers])
        parts = around.values(feature, levels)
        if parts is None:
            return False
        least = parts - around.moved(feature, levels)
        hidden = np.maximum(LEAST_PRESENT * around.noise(feature, levels), HALF_A_RECORD / around.shift.records)
        if (least <= hidden).any():
            return False
    return True


@dataclass(frozen=True, eq=False)
class KnownLevels:
    """The ``covariates`` that a model can have, and what is said of the others.

    For a column with levels, the vertices of those that enough records have, against the first of these.
    """

    covariates: tuple[Vertex, ...]
    flags: tuple[Flag, ...]
    # What each level is compared with, by its name.
    bases: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, released: Released, feature: Moments, declared: Sequence[Vertex]) -> KnownLevels:
        quantities, noise = released.mean(feature), released.covariance(feature)
        unit = np.eye(feature.size)
        alone = {other: unit[1 + index] for index, (constant, other) in enumerate(feature.edges) if constant is None}
        kept: list[Vertex] = []
        flags: list[Flag] = []
        bases = dict[str, str]()
        for column in dict.fromkeys(vertex.column for vertex in declared):
            own = [vertex for vertex in declared if vertex.column == column]
            if column.numeric:
                kept += own
                continue
            # A level is 1 or -1 over the complete records; a record with none of these levels has the first.
            readers = [(unit[0] + alone[vertex]) / 2 for vertex in own]
            readers.insert(0, unit[0] - np.sum(readers, axis=0))
            counts = [
                (
                    float(reader @ quantities) * released.weight,
                    math.sqrt(max(float(reader @ noise @ reader), 0.0)) * released.weight,
                )
                for reader in readers
            ]
            visible = [index for index, count in enumerate(counts) if not is_hidden(*count, released.least)]
            stay = [own[index - 1] for index in visible[1:]]
            kept += stay
            bases |= {vertex.name: f"against {column.name} {column.categories[visible[0]]}" for vertex in stay}
            names = tuple(vertex.name for vertex in own)
            for index, level in enumerate(column.categories):
                if index in visible:
                    continue
                upper = most_of(*counts[index], released.weight)
                prefix = f"{column.name}: fewer than {upper:,.0f} records have the level {level}"
                if index:
                    flags.append(
                        Flag(LEFT_OUT, f"{prefix}, too few for the noise. It has no coefficient", (names[index - 1],), upper)
                    )
                elif stay:
                    others = f"Others are compared with {column.categories[visible[0]]} instead"
                    flags.append(Flag(LEFT_OUT, f"{prefix}, too few for the noise. {others}", names, upper))
                else:
                    flags.append(
                        Flag(LEFT_OUT, f"{prefix}, too few to compare others with. None has a coefficient", names, upper)
                    )
        return cls(tuple(kept), tuple(flags), bases)

    def completed(self, estimates: Estimates, terms: Sequence[str]) -> Estimates:
        """The estimates of all ``terms``, where nothing is known about those that were left out."""
        return replace(estimates.completed(terms), flags=(*estimates.flags, *self.flags)).comparing(self.bases)
