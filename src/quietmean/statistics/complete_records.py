"""Statistics of complete records: how their fields name columns, the moments that they release, how many they are."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.delta_method import KnownLevels
from quietmean.statistics.estimate import least_count
from quietmean.statistics.estimates import Completeness, Estimates
from quietmean.statistics.features import Moments, Vertex, complete_edges, orders_three_and_four, vertices_of
from quietmean.statistics.features.block import LEAST_PRESENT
from quietmean.statistics.fields import names_field, require_names, sides_of
from quietmean.statistics.influence_bounds import Around, MovedMoments
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released, Statistic

_PAIR = 2


def moments_of(vertices: tuple[Vertex, ...], heavy: Vertex | None = None, *, robust: bool = False) -> Moments:
    """All means and products of the vertices; those of the ``heavy`` one get twice the weight of the others, squared.

    ``robust``: of two vertices, the second of which may be heavy, also those of orders three and four.
    """
    edges = complete_edges(vertices)
    weights = tuple(math.sqrt(2) if heavy is not None and heavy in edge else 1.0 for edge in edges)
    moments = Moments(edges, weights)
    if not robust or len(vertices) != _PAIR:
        return moments
    higher = orders_three_and_four(*vertices, heavy=heavy is not None)
    return replace(moments, higher=tuple(higher), higher_weights=tuple(higher.values()), proven=moments.sensitivity**2)


def moved_products(around: Around, feature: Moments, vertices: tuple[Vertex, ...]) -> MovedMoments | None:
    """How far means and covariances of the vertices, scaled to [-1, 1], move; see :meth:`MovedMoments.of`."""
    return MovedMoments.of(around, feature, _readers(feature, vertices), grouped=feature.by is not None)


@dataclass(frozen=True, eq=False)
class CentredMoments:
    """Moments of the k vertices, scaled to [-1, 1], over complete records; gradients by the released quantities: (..., q).

    ``records``: how many complete records; ``means`` (k,) with ``mean_slopes``; ``covariance`` (k, k), divisor n, without the
    noise's own part, with ``slopes``; ``noise``: the covariance (q, q) of the quantities.
    """

    records: float
    means: Array
    mean_slopes: Array
    covariance: Array
    slopes: Array
    noise: Array

    @classmethod
    def of(cls, released: Released, feature: Moments, vertices: tuple[Vertex, ...]) -> CentredMoments | None:
        """None where noise hides whether any record is complete."""
        quantities, noise = released.mean(feature), released.covariance(feature)
        part = float(quantities[0])
        error = math.sqrt(max(noise[0, 0], 0.0))
        if part * released.weight <= least_count(LEAST_PRESENT, error * released.weight, released.least):
            return None
        readers = _readers(feature, vertices)
        total = np.eye(feature.size)[0]
        # Ratios to the part that is complete, and how they change.
        raw = readers @ quantities / part
        raw_slopes = (readers - raw[..., None] * total) / part
        means, mean_slopes = raw[0, 1:], raw_slopes[0, 1:]
        slopes = raw_slopes[1:, 1:] - means[:, None, None] * mean_slopes - means[None, :, None] * mean_slopes[:, None, :]
        own = mean_slopes @ noise @ mean_slopes.T
        covariance = raw[1:, 1:] - np.outer(means, means) + own
        return cls(released.weight * part, means, mean_slopes, covariance, slopes, noise)

    @cached_property
    def errors(self) -> Array:
        """Standard deviations of the noise in the covariances, shape (k, k)."""
        variances: Array = np.sqrt(np.maximum(np.einsum("ijp,pq,ijq->ij", self.slopes, self.noise, self.slopes), 0.0))
        return variances


def _readers(feature: Moments, vertices: tuple[Vertex, ...]) -> Array:
    """Weights of the quantities in the mean of each product of 1 and the vertices, shape (k + 1, k + 1, q)."""
    unit = np.eye(feature.size)
    edges = {frozenset(edge): unit[1 + index] for index, edge in enumerate(feature.edges)}
    squares = {vertex: unit[1 + len(feature.edges) + index] for index, vertex in enumerate(feature.numbers)}
    alone = [edges[frozenset((None, vertex))] for vertex in vertices]
    readers = np.zeros((len(vertices) + 1, len(vertices) + 1, feature.size))
    readers[0, 0] = unit[0]
    for i, first in enumerate(vertices):
        readers[0, i + 1] = readers[i + 1, 0] = alone[i]
        for j, second in enumerate(vertices):
            if first == second:
                # A level is 1 or -1.
                reader = squares.get(first, unit[0])
            elif first.column == second.column:
                # Nobody has two levels of one column.
                reader = -unit[0] - alone[i] - alone[j]
            else:
                reader = edges[frozenset((first, second))]
            readers[i + 1, j + 1] = reader
    return readers


# The correlation of columns that is assumed where a statistic asks for it and the study states none.
_RELATION = 0.5


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OfColumns(Statistic):
    """A statistic of two or more columns of numbers that play the same part."""

    by_place = ("columns",)
    expects = ("correlation",)
    takes_all = True

    columns: tuple[str, ...] = names_field("the columns, of numbers", "columns")

    def synthesize(self, scenario: SyntheticRecords) -> None:
        usual = _RELATION if self.asks_for_relations else 0.0
        correlation = scenario.expected("correlation")
        for first, second in pairwise(self.columns):
            scenario.correlate(second, [scenario.normal(first)], [usual if correlation is None else correlation])

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._moments(columns),)

    def _moments(self, columns: Columns) -> Moments:
        require_names(self.name, self.columns, 2)
        return moments_of(self._vertices(columns))

    def _vertices(self, columns: Columns) -> tuple[Vertex, ...]:
        return tuple(Vertex(columns.number(name)) for name in self.columns)

    def _terms(self, pairs: Iterable[tuple[int, int]]) -> tuple[str, ...]:
        """The names of pairs of columns, ``age:bmi``."""
        return tuple(f"{self.columns[i]}:{self.columns[j]}" for i, j in pairs)

    def _terms_with(self, column: Column, pairs: Iterable[tuple[int, int]]) -> tuple[str, ...]:
        """The terms of the pairs that this column is in."""
        return self._terms(pair for pair in pairs if column.name in [self.columns[index] for index in pair])

    def _moved(self, around: Around, columns: Columns) -> MovedMoments | None:
        """How far moments of the columns move, in their order."""
        return moved_products(around, self._moments(columns), self._vertices(columns))

    def _centred(self, released: Released, columns: Columns) -> CentredMoments | None:
        """The moments of the columns, in their order; None where noise hides whether any record is complete."""
        return CentredMoments.of(released, self._moments(columns), self._vertices(columns))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Regression(Statistic):
    """A regression of an outcome on columns.

    A column with levels has a vertex for each level but the first; levels that the noise hides are left out of the fit.
    """

    by_place = ("formula",)

    formula: str = parameter(help="outcome ~ column + column ...")

    @property
    def known_expectations(self) -> tuple[str, ...]:
        """Also what a covariate does, by its name: for one unit, or for each level against the first."""
        return (*super().known_expectations, *sides_of(self.formula)[1])

    @property
    def subject(self) -> str | None:
        return None

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._moments(columns),)

    @abstractmethod
    def _outcome(self, name: str, columns: Columns) -> Vertex:
        """The outcome's column. Raises :class:`InputError` for a column that cannot be the outcome."""

    def _moments(self, columns: Columns) -> Moments:
        outcome, covariates = self._sides(columns)
        return moments_of((*covariates, outcome), heavy=outcome)

    def _sides(self, columns: Columns) -> tuple[Vertex, tuple[Vertex, ...]]:
        """The outcome and the covariates."""
        outcome, names = sides_of(self.formula)
        return self._outcome(outcome, columns), tuple(vertex for name in names for vertex in vertices_of(columns[name]))

    def _known(self, released: Released, columns: Columns) -> KnownLevels:
        """The covariates of which the noise leaves enough."""
        return KnownLevels.of(released, self._moments(columns), self._sides(columns)[1])

    def _centred(self, released: Released, columns: Columns, covariates: tuple[Vertex, ...]) -> CentredMoments | None:
        """The moments of the covariates, then the outcome; None where noise hides whether any record is complete."""
        outcome, _ = self._sides(columns)
        return CentredMoments.of(released, self._moments(columns), (*covariates, outcome))


# Entries of summaries that are numbers of records; the first is of all that are complete.
_RECORDS = "records"
_COUNTS = (_RECORDS, "records_left_out", "events")


def counted(
    estimates: Estimates,
    statistic: Statistic,
    released: Released,
    columns: Columns,
    outside: tuple[float, float] | None = None,
) -> Estimates:
    """Add how many records have what it needs, and how many each term is of: those of its group, where it has one.

    ``outside``: how many are outside its condition, with the error of that; None without one.
    """
    complete = [feature for feature in statistic.features(columns) if feature.complete is not None]
    # A statistic of many features has stated of how many records each term is.
    if not complete or estimates.n is not None:
        return _beside(outside, estimates)
    feature = complete[0]
    assert feature.complete is not None  # noqa: S101
    present = records_of(released, feature, feature.complete)
    by = getattr(statistic, "by", None)
    groups: dict[str, tuple[float, float]] = {}
    if by is not None:
        own = feature.complete_in(by)
        # Where no feature counts the groups, the number of records of their terms is unknown.
        categories = columns.category(by).categories
        rows = [None] * len(categories) if own is None else list(own)
        groups = {
            level: (math.nan, math.nan) if row is None else records_of(released, feature, row)
            for level, row in zip(categories, rows, strict=True)
        }
    weights = np.zeros(len(released.quantities))
    weights[released.places[feature]] = feature.complete
    names = estimates.groups or [(term, "") for term in estimates.terms]
    each = [groups.get(_level_of(*name, groups), present) for name in names]
    completeness = completeness_of(released, present, weights)
    summary = {**_of_at_most(estimates.summary, present[0]), **({_RECORDS: present[0]} if _RECORDS in estimates.summary else {})}
    return _beside(outside, replace(estimates, completeness=completeness, summary=summary, n=np.array(each)))


def _of_at_most(summary: Mapping[str, Any], most: float, counts: bool = False) -> dict[str, Any]:
    """A summary whose numbers of records are of the ``most`` that there are; ``counts``: all that it holds is such a number."""
    kept = {}
    for name, value in summary.items():
        here = counts or name in _COUNTS
        if isinstance(value, Mapping):
            value = _of_at_most(value, most, here)
        elif here and isinstance(value, float):
            value = min(value, most)
        kept[name] = value
    return kept


def _beside(outside: tuple[float, float] | None, estimates: Estimates) -> Estimates:
    """Add how many records are outside its condition."""
    if outside is None or estimates.completeness is None:
        return estimates
    return replace(estimates, completeness=replace(estimates.completeness, outside=outside[0], outside_error=outside[1]))


def _level_of(group: str, own: str, levels: Collection[str]) -> str:
    """The level that a term is about, b of "b 5", "median b" or "b:heart 5"; "" where it is about several or none."""
    exact = next((name for name in (group, own) if name in levels), "")
    return exact or max((level for level in levels if group.startswith(f"{level}:")), key=len, default="")


def records_of(released: Released, feature: Feature, weights: Array) -> tuple[float, float]:
    """How many records the quantities with these weights, (size,), count, and the standard error of the noise in that.

    A whole number, of no more records than there are.
    """
    part, error = released.weighted(feature, weights)
    most = released.weight if math.isnan(released.records) else released.records
    return whole_number(part * released.weight, most), error * released.weight


def whole_number(number: float, most: float) -> float:
    """The nearest number of records that is possible."""
    return float(min(max(round(number), 0), math.floor(most + 0.5)))


def completeness_of(released: Released, present: tuple[float, float], weights: Array) -> Completeness:
    """Completeness with the rest of all records, whose number may be an estimate. ``weights``, (q,)."""
    if math.isnan(released.records):
        return Completeness(present[0], math.nan, present[1], math.nan)
    gradient = weights if released.whole is None else released.whole - weights
    error = released.error(gradient) * released.weight
    return Completeness(present[0], whole_number(released.records - present[0], released.records), present[1], error)
