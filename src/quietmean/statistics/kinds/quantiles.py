"""Quantiles and cumulative distributions of a column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.lazy import optimize
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.estimate import Estimate, Flag, least_count
from quietmean.statistics.estimates import CurveOfTerms, Estimates
from quietmean.statistics.features import Axis, PrefixTable
from quietmean.statistics.features.block import LEAST_PRESENT
from quietmean.statistics.features.weighted import Weighted
from quietmean.statistics.fields import edges_field, numbers_field, usual_bins_field
from quietmean.statistics.influence_bounds import Around, TermReading
from quietmean.statistics.kinds.counts import PARTIES_DIFFER
from quietmean.statistics.statistic import Feature, Released, Statistic
from quietmean.statistics.survey_design import SMALL, Score
from quietmean.statistics.tails import tails
from quietmean.statistics.weights import Weighable

# Bins finer than noise and sampling resolve; they need hardly more noise than few bins would.
USUAL_BINS = 1024
# What rounding in sums may take from a probability.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Cumulative:
    """Sums over the cells of an axis up to each edge, which belong to the bin before it.

    ``parts``: (edges,), of all records; ``present``: of all records, those with a value. ``own``: variances of the noise of
    ``parts``, ``cross``: their covariances with that of ``present``, (edges,) each, and ``total``: the variance of this one.
    """

    axis: Axis
    parts: Array
    present: float
    own: Array
    cross: Array
    total: float

    @property
    def edges(self) -> Array:
        return np.array(self.axis.edges)

    def noise(self, probability: float | Array) -> Array:
        """Variances of parts - probability times present, shape (edges,)."""
        variances: Array = np.maximum(self.own - 2 * probability * self.cross + probability**2 * self.total, 0.0)
        return variances


def cumulative(released: Released, feature: PrefixTable, group: int = 0, within: Weighted | None = None) -> Cumulative | None:
    """What a prefix table says of one of its groups, or None where noise hides whether anything is present there.

    ``within``: the weighted feature whose first quantities these are; by default it is released by itself.
    """
    own = slice(group * feature.cells, (group + 1) * feature.cells)
    whole: Feature = feature if within is None else within
    cells, covariance = released.mean(whole)[own], released.covariance(whole)[own, own]
    # What is missing has the last cell.
    present, total = float(cells[:-1].sum()), max(float(covariance[:-1, :-1].sum()), 0.0)
    if present * released.weight <= least_count(LEAST_PRESENT, math.sqrt(total) * released.weight, released.least):
        return None
    places = np.arange(len(feature.axis.edges))
    sums = covariance.cumsum(axis=0).cumsum(axis=1)[places, places]
    cross = covariance[:, :-1].sum(axis=1).cumsum()[places]
    return Cumulative(feature.axis, cells.cumsum()[places], present, sums, cross, total)


def prefix_table(
    column: Column, edges: tuple[float, ...] | None, bins: int | None, by: Column | None = None, usual: int = USUAL_BINS
) -> PrefixTable:
    """The table of bins (a, b], whose prefix sums are the parts of values up to each edge; for each level of ``by``."""
    return PrefixTable(Axis.of(column, edges, bins, usual, closed="right"), None if by is None else Axis(by))


def quantile_rows(
    distribution: Cumulative, probabilities: Sequence[float], sampling: float | Callable[[float], Array]
) -> list[tuple[Estimate, tuple[Flag, ...]]]:
    """Each quantile with its flags.

    ``sampling``: 1 over the weight of all records, or 0 where nothing is sampled; or for a probability the variances of the sums
    up to each edge less the probability times that of all, (edges,).
    """
    smooth = np.clip(optimize.isotonic_regression(distribution.parts).x / distribution.present, 0.0, 1.0)
    drawn = [
        sampling(part) if callable(sampling) else part * (1 - part) * distribution.present * sampling for part in probabilities
    ]
    return [_quantile(distribution, smooth, *each) for each in zip(probabilities, drawn, strict=True)]


def moved_quantiles(around: Around, feature: PrefixTable, probabilities: Sequence[float], group: int = 0) -> list[float]:
    """How far each quantile of one group moves: from the value where the highest curve reaches it to that of the lowest.

    Making curves rise keeps their order. Infinite where nothing bounds the part that is present.
    """
    cells = np.eye(feature.size)[group * feature.cells : (group + 1) * feature.cells]
    places = np.arange(len(feature.axis.edges))
    sums, present = cells.cumsum(axis=0)[places], cells[:-1].sum(axis=0)
    parts, whole, lost = around.values(feature, sums), around.values(feature, present), float(around.moved(feature, present))
    if parts is None or whole is None or float(whole) <= lost or not math.isfinite(lost):
        return [math.inf] * len(probabilities)
    moved = around.moved(feature, sums)
    curves = [
        np.clip(optimize.isotonic_regression(parts + sign * moved).x / (float(whole) - sign * lost), 0.0, 1.0)
        for sign in (-1.0, 0.0, 1.0)
    ]
    farthest = []
    for probability in probabilities:
        most, value, least = (_bin_of(feature.axis, curve, probability)[2] for curve in curves)
        farthest.append(max(most - value, value - least))
    return farthest


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Quantiles(Weighable):
    """Quantiles of the present values of a column, linear inside bins; of whole numbers the first that reaches the probability.

    Intervals hold all values that a test of the probability at them does not reject (Woodruff, JASA 47, 1952), wherever in their
    bins values are. Values beyond the bounds count as the nearest bound.
    """

    name = "quantiles"
    summary = "quantiles of a column"
    by_place = ("column", "probabilities")

    column: str = parameter(help="the column")
    probabilities: tuple[float, ...] = numbers_field((0.25, 0.5, 0.75), "which quantiles, between 0 and 1", "probabilities")
    bins: int | None = usual_bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        if len(set(self.probabilities)) < len(self.probabilities) or not all(
            0 < probability < 1 for probability in self.probabilities
        ):
            raise InputError(
                f"{self.text} has impossible probabilities. Give different numbers between 0 and 1, such as 0.25 0.5 0.75."
            )
        return (self._table(columns),)

    def _table(self, columns: Columns) -> PrefixTable:
        return prefix_table(columns.number(self.column), self.edges, self.bins)

    @property
    def _headline(self) -> tuple[str, ...]:
        return ("0.5",) if 0.5 in self.probabilities else ()

    def days_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        return estimates.terms if column.name == self.column else ()

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        if self.weight is not None:
            return {}
        moved = moved_quantiles(around, self._table(columns), self.probabilities)
        return {f"{probability:g}": most for probability, most in zip(self.probabilities, moved, strict=True)}

    def weighted_features(self, columns: Columns, weight: Column) -> tuple[Feature, ...]:
        if any((self.strata, self.psu, self.population, self.margin)):
            raise InputError(f"{self.text} is of records drawn one by one. Leave out all of the design but weight.")
        self.features(columns)
        return (Weighted(self._table(columns), weight),)

    def scores(self, columns: Columns, weight: Column) -> list[Score]:
        return []

    def decode_weighted(self, released: Released, columns: Columns, weight: Column, records: float) -> Estimates:
        table, column = self._table(columns), columns[self.column]
        whole = Weighted(table, weight)
        distribution = cumulative(replace(released, least=released.least * SMALL), table, within=whole)
        if distribution is None:
            limits = {f"{probability:g}": (column.low, column.high) for probability in self.probabilities}
            return Estimates.nothing_present(f"column {column.name!r}", limits, self._headline)
        squares = released.mean(whole)[table.size :]
        up_to, every = squares.cumsum()[: len(table.axis.edges)], float(squares[:-1].sum())
        number = records if records > 1 else released.weight

        def sampling(probability: float) -> Array:
            # Of n / (n - 1) times the squares of u (1 - p) up to the edge and of u p above it, over n squared.
            squared = (1 - probability) ** 2 * up_to + probability**2 * (every - up_to)
            return np.asarray(np.maximum(squared, 0.0) / max(number - 1, 1.0))

        quantiles = quantile_rows(distribution, self.probabilities, sampling)
        return Estimates.of(
            [row for row, _ in quantiles],
            headline=self._headline,
            flags=tuple(flag for _, flags in quantiles for flag in flags),
            method="weighted sums up to each bin with noise; Woodruff's interval, out to the ends of its bins",
        )

    def decode(self, released: Released, columns: Columns) -> Estimates:
        column, distribution = columns[self.column], cumulative(released, self._table(columns))
        parties = columns.unit == PrivacyUnit.PARTY
        if distribution is None:
            limits = {f"{probability:g}": (column.low, column.high) for probability in self.probabilities}
            return Estimates.nothing_present(f"column {column.name!r}", limits, self._headline)
        quantiles = quantile_rows(distribution, self.probabilities, 0.0 if parties else 1 / released.weight)
        return Estimates.of(
            [row for row, _ in quantiles],
            noise_only=parties,
            headline=self._headline,
            flags=tuple(flag for _, flags in quantiles for flag in flags),
            reason=PARTIES_DIFFER if parties else "",
            method="sums up to each bin with noise; Woodruff's interval, out to the ends of its bins",
        )


def _quantile(
    distribution: Cumulative, smooth: Array, probability: float, sampling: Array | float
) -> tuple[Estimate, tuple[Flag, ...]]:
    """The estimate of one quantile; ``sampling``: the variance of the sums less the probability times all."""
    column = distribution.axis.column
    low, high, value = _bin_of(distribution.axis, smooth, probability)
    noise, of_noise, _ = _interval(distribution, probability, 0.0)
    error, of_both, flags = _interval(distribution, probability, sampling)
    # The bin of the estimate, whose cumulative parts are made to rise, is within them but for chance.
    of_noise, of_both = ((min(one, low), max(other, high)) for one, other in (of_noise, of_both))
    limits, resolution = (column.low, column.high), (value - low, high - value)
    row = Estimate(f"{probability:g}", value, noise, error, *limits, of_noise, of_both, resolution=resolution)
    return row, flags


def _bin_of(axis: Axis, rising: Array, level: float) -> tuple[float, float, float]:
    """The least and the greatest value of the bin where a rising function of edges reaches ``level``, and where on a line there.

    Of whole numbers the first one that reaches it.
    """
    edges, column = axis.edges, axis.column
    bin_index = int(np.searchsorted(rising, level * (1 - _ROUNDING)))
    low, high = _values(axis, bin_index)
    if bin_index == 0 or bin_index == len(edges):
        # What lies beyond the edges counts as the nearest one.
        nearest = edges[min(bin_index, len(edges) - 1)]
        return min(low, nearest), max(high, nearest), nearest
    part = (level - rising[bin_index - 1]) / (rising[bin_index] - rising[bin_index - 1])
    value = edges[bin_index - 1] + min(max(part, 0.0), 1.0) * (edges[bin_index] - edges[bin_index - 1])
    return low, high, min(max(math.ceil(value - _ROUNDING), low), high) if column.whole else value


def _values(axis: Axis, bin_index: int) -> tuple[float, float]:
    """The least and the greatest value of the bin that ends at the edge of that place; beyond all, up to the bounds."""
    low = axis.edges[bin_index - 1] if bin_index else min(axis.column.low, axis.edges[0])
    high = axis.edges[bin_index] if bin_index < len(axis.edges) else max(axis.column.high, axis.edges[-1])
    return (min(math.floor(low) + 1.0, high), math.floor(high)) if axis.column.whole and bin_index else (low, high)


def _interval(
    distribution: Cumulative, probability: float, sampling: Array | float
) -> tuple[float, tuple[float, float], tuple[Flag, ...]]:
    """All values where ``probability`` is not rejected, wherever in a bin they are; beyond the edges is flagged.

    With the error of a normal distribution whose interval is as wide as this one with straight lines inside bins.
    """
    distance = distribution.parts - probability * distribution.present
    noise = distribution.noise(probability)
    quantile = tails().quantile(float(noise.max()), float(np.max(sampling)))
    reach = quantile * np.sqrt(noise + sampling)
    edges, column, last = distribution.edges, distribution.axis.column, len(distribution.parts) - 1
    reached, left = np.nonzero(distance + reach >= 0)[0], np.nonzero(distance - reach <= 0)[0]
    # The first bin at whose end so much may be reached, and the last one at whose begin it may not be yet.
    first, end = (int(reached[0]) if len(reached) else last + 1), (int(left[-1]) + 1 if len(left) else 0)
    ends = _values(distribution.axis, first)[0], _values(distribution.axis, max(end, first))[1]
    flags, term = [], f"{probability:g}"
    if first == 0 and edges[0] > column.low:
        flags.append(Flag("below-edges", f"the {term} quantile may lie below {edges[0]:g}. Choose a lower first edge", (term,)))
    if end > last and edges[-1] < column.high:
        flags.append(Flag("above-edges", f"the {term} quantile may lie above {edges[-1]:g}. Choose a higher last edge", (term,)))
    low, high = _first_above(edges, distance + reach), -_first_above(-edges[::-1], -(distance - reach)[::-1])
    return max(high - low, 0.0) / (2 * quantile), ends, tuple(flags)


def _first_above(edges: Array, values: Array) -> float:
    """Where values first reach 0, linear between edges; the last edge where they never do."""
    above = np.nonzero(values >= 0)[0]
    index = int(above[0]) if len(above) else len(edges) - 1
    if index == 0 or not len(above):
        return float(edges[index])
    low, high = values[index - 1], values[index]
    return float(edges[index - 1] - low / (high - low) * (edges[index] - edges[index - 1]))


# The most edges of a curve that are reported by default.
_MOST_EDGES = 65


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CumulativeDistribution(Statistic):
    """Which part of the present values of a column is at most each edge; of many bins, at 65 edges that divide them evenly."""

    name = "cdf"
    summary = "the cumulative distribution of a column"
    by_place = ("column",)

    column: str = parameter(help="the column")
    bins: int | None = usual_bins_field(USUAL_BINS)
    edges: tuple[float, ...] | None = edges_field()

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._table(columns),)

    def _table(self, columns: Columns) -> PrefixTable:
        return prefix_table(columns.number(self.column), self.edges, self.bins)

    def readings(self, columns: Columns) -> tuple[TermReading, ...]:
        table = self._table(columns)
        cells = np.arange(table.size)
        present = (cells < table.size - 1).astype(np.float64)
        return tuple(
            TermReading(table.axis.edge_label(table.axis.edges[edge]), table, (cells <= edge).astype(np.float64), present)
            for edge in self._shown(table).tolist()
        )

    def _shown(self, table: PrefixTable) -> Ints:
        shown = np.arange(len(table.axis.edges))
        if self.edges is None and len(shown) > _MOST_EDGES:
            shown = np.unique(np.rint(np.linspace(0, shown[-1], _MOST_EDGES)).astype(np.int64))
        return shown

    def curves_of(self, estimates: Estimates) -> tuple[CurveOfTerms, ...]:
        return (CurveOfTerms(tuple(range(len(estimates.terms))), rises=True, alike=True),)

    def decode(self, released: Released, columns: Columns) -> Estimates:
        table = self._table(columns)
        distribution, edges, shown = cumulative(released, table), np.array(table.axis.edges), self._shown(table)
        terms = [table.axis.edge_label(edge) for edge in edges[shown].tolist()]
        if distribution is None:
            return Estimates.nothing_present(f"column {self.column!r}", dict.fromkeys(terms, (0.0, 1.0)))
        parts = distribution.parts / distribution.present
        noise = distribution.noise(parts) / distribution.present**2
        records, parties = released.weight * distribution.present, columns.unit == PrivacyUnit.PARTY
        known = zip(terms, parts[shown].tolist(), noise[shown].tolist(), strict=True)
        return Estimates.of(
            [Estimate.proportion(*part, records) for part in known],
            noise_only=parties,
            reason=PARTIES_DIFFER if parties else "",
            method="sums up to each bin with noise; Wilson's interval with the noise in it, for each edge by itself",
        )
