"""Survey weights: totals and ratios of records that represent several units of a population, with design-based intervals.

Record i represents w_i units, up to the public cap. A total is the sum of w y (Horvitz and Thompson), a mean or a part the ratio
of two of them. Variances of sampling are those of drawing with replacement, linearised: n / (n - 1) times the sum of squares of z
about their mean, z = w y of a total and z = w (y - ratio) / (sum of w) of a ratio, as in R's ``survey``. With the public size N
of the population they are multiplied by 1 - n / N. With strata they are those within each, added up; with clusters (primary
sampling units, psu) what varies are the sums of z over each: m / (m - 1) times their squares about the mean.

The unit is the record, or the person; a weight decides nothing for others.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.lazy import linalg
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.delta_method import NOTHING_PRESENT, smooth, spread
from quietmean.statistics.estimate import Estimate, Flag, few, least_count, satterthwaite
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import Axis, CellIndicators, ColumnBlock
from quietmean.statistics.features.block import LEAST_PRESENT
from quietmean.statistics.features.presence import AnyPresent
from quietmean.statistics.features.weighted import Weighted
from quietmean.statistics.fields import numbers_field
from quietmean.statistics.influence_bounds import TermReading
from quietmean.statistics.intervals import degrees_of_both
from quietmean.statistics.statistic import Feature, Released, Statistic

_METHOD = "weighted by design, with replacement; linearised variance with the noise"
# Parts of the budget of what an estimate reads, of what its variance does, and of the sizes of strata.
_PARTS_OF_STRATA, _PARTS_OF_CLUSTERS = (0.75, 0.15, 0.1), (0.4, 0.6)
# With fewer records nothing varies that could be seen, and all that they add is taken to.
_LEAST_DRAWN = 1.5
# Of half a record: parts of the cap may be small.
_SMALL = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Weighable(Statistic, ABC):
    """A statistic whose records may count with a weight: what it reads is a total or a ratio of two."""

    weight: str | None = parameter(None, help="the column of survey weights, in 0..CAP: how many units each record counts as")
    strata: str | None = parameter(None, help="the column whose levels are the strata that records were drawn from")
    psu: str | None = parameter(None, help="the column whose levels are the clusters that were drawn, such as sites")
    population: tuple[float, ...] | None = numbers_field(
        None, "the public numbers of units to draw from: of all, of each stratum, or of clusters", "population"
    )

    def weight_column(self, columns: Columns) -> Column | None:
        """The column of weights; None where all records count alike. Raises :class:`InputError` for one that is none."""
        design = {"strata": self.strata, "psu": self.psu, "population": self.population}
        if self.weight is None:
            for name in (name for name, value in design.items() if value is not None):
                raise InputError(f"{self.text} has a field {name} and no weight. Name the column of weights, as in weight=w.")
            return None
        if getattr(self, "cluster", None) is not None:
            raise InputError(f"{self.text}: weight and cluster do not go together yet. Leave one of them out.")
        if columns.unit == PrivacyUnit.PARTY:
            raise InputError(f"{self.text} weighs records, but the unit is party. Leave weight out, or protect records.")
        column = columns.number(self.weight)
        if column.low != 0:
            raise InputError(f"column {column.name!r} is a weight, but its lower bound is {column.low:g}. Declare it from 0 on.")
        self._require_design(columns)
        return column

    def _require_design(self, columns: Columns) -> None:
        if self.strata is not None and self.psu is not None:
            raise InputError(f"{self.text}: strata and psu do not go together yet. Leave one of them out.")
        named = self.strata or self.psu
        if named is not None and named in (getattr(self, name, None) for name in self.by_place):
            raise InputError(f"{self.text} has the column {named!r} twice. Name another one for the design.")
        count = 1 if self.strata is None else len(columns.category(self.strata).categories)
        if self.population is not None and (len(self.population) != count or min(self.population) <= 0):
            many = f"{count} numbers > 0, one for each stratum" if count > 1 else "one number > 0"
            raise InputError(f"{self.text} has a population that does not fit. Give {many}.")

    def _groups(self, columns: Columns) -> Column | None:
        """The strata or the clusters."""
        named = self.strata or self.psu
        return None if named is None else columns.category(named)

    def weighted_features(self, columns: Columns, weight: Column) -> tuple[Feature, ...]:
        """What is released instead of the features: what the estimate reads, and with a design what its variance does.

        Raises :class:`InputError` where no term can be read.
        """
        scores = self._scores(columns, weight)
        if not scores:
            raise InputError(f"{self.text} asks for what has no value, which weights do not tell. Leave the weight out.")
        return tuple(dict.fromkeys((scores[0].feature, scores[0].divided)))

    def beside(self, columns: Columns) -> tuple[Feature, ...]:
        """What is known of all records, whatever its condition: how many there are in each stratum."""
        return () if self.strata is None else (CellIndicators((Axis(columns.category(self.strata)),)),)

    @property
    def parts(self) -> tuple[float, ...]:
        """Which parts of its share these features have; none where there is one alone."""
        return _PARTS_OF_STRATA if self.strata is not None else _PARTS_OF_CLUSTERS if self.psu is not None else ()

    def weighted_readings(self, columns: Columns, weight: Column) -> tuple[TermReading, ...]:
        """How terms are read from quantities of weighted records: all but those of records in which something is missing."""
        found = []
        for score in self._scores(columns, weight):
            reading, feature = score.reading, score.feature
            top = feature.of_parts(score.top) * (weight.high if reading.adds_up else 1.0)
            bottom = None if reading.bottom is None else feature.of_parts(score.bottom)
            found.append(replace(reading, feature=feature, top=top, bottom=bottom))
        return tuple(found)

    def _scores(self, columns: Columns, weight: Column) -> list[_Score]:
        groups = self._groups(columns)
        return [
            _Score(reading, _plain(reading.feature), weight, groups, squares=self.psu is None)
            for reading in self.readings(columns)
            if not _counts_nothing(reading)
        ]

    def decode_weighted(self, released: Released, columns: Columns, weight: Column, records: float) -> Estimates:
        """The estimates of weighted records; ``records``: how many there are with those that a condition leaves out, NaN where
        that is not known."""
        rows: list[Estimate] = []
        flags: list[Flag] = []
        for score in self._scores(columns, weight):
            design = _Design(released, score, self.beside(columns), self.psu is not None, records, self.population)
            row, own = design.total() if score.reading.adds_up else design.ratio()
            rows.append(row)
            flags += own
        return Estimates.of(rows, flags=flags, method=_METHOD)


def _plain(feature: Feature) -> Feature:
    """A feature that can be divided by groups, with the same first quantities."""
    single = isinstance(feature, AnyPresent) and len(feature.declared) == 1 and feature.declared[0].numeric
    return ColumnBlock(feature.declared[0]) if isinstance(feature, AnyPresent) and single else feature


def _counts_nothing(reading: TermReading) -> bool:
    """Is a record in which nothing is present in the term, as its value is missing?"""
    return isinstance(reading.feature, CellIndicators) and bool(reading.top[-1])


@dataclass(frozen=True, eq=False)
class _Score:
    """What a record adds to a term, t on top and b below, as sums of the quantities of its ``own`` feature."""

    reading: TermReading
    own: Feature
    weight: Column
    design: Column | None
    squares: bool

    @property
    def feature(self) -> Weighted:
        """What the estimate reads."""
        return Weighted(self.own, self.weight, squares=self.squares, needs=self.design)

    @property
    def divided(self) -> Weighted:
        """What the variance reads: by strata or clusters, where there are any."""
        if self.design is None:
            return self.feature
        if isinstance(self.own, CellIndicators):
            inner: Feature = CellIndicators((Axis(self.design), *self.own.axes))
        elif isinstance(self.own, ColumnBlock):
            inner = replace(self.own, by=self.design)
        else:
            raise InputError("a condition on several columns has no strata and no psu. Leave them out.")
        return Weighted(inner, self.weight, squares=self.squares, needs=self.design)

    @property
    def groups(self) -> int:
        return 1 if self.design is None else len(self.design.categories)

    def _padded(self, weights: Array | None) -> Array:
        own = np.zeros(self.own.size)
        own[: 0 if weights is None else len(weights)] = 0.0 if weights is None else weights
        return own

    @property
    def top(self) -> Array:
        return self._padded(self.reading.top)

    @property
    def bottom(self) -> Array:
        return self._padded(self.reading.bottom)

    @property
    def read(self) -> tuple[Array, Array]:
        """Weights of the quantities of ``feature`` in the means of u t and u b, and if there are squares in those of u^2 t^2,
        u^2 t b and u^2 b^2, (sums, size); and of those of ``divided`` in the same of each group, kind after kind."""
        divided, top, bottom = self.divided, self.top, self.bottom

        def in_groups(weights: Array) -> Array:
            rows = np.zeros((self.groups, divided.inner.size))
            for group in range(self.groups):
                rows[group, group * len(weights) : (group + 1) * len(weights)] = weights
            return rows

        every = [self.feature.of_parts(weights) for weights in (top, bottom)]
        rows = [divided.of_parts(in_groups(weights)) for weights in (top, bottom)]
        if self.squares:
            products = [_product(self.own, *pair) for pair in ((top, top), (top, bottom), (bottom, bottom))]
            every += [self.feature.of_squares(product) for product in products]
            rows += [divided.of_squares(in_groups(product)) for product in products]
        return np.array(every), np.vstack(rows)


@dataclass(frozen=True, eq=False)
class _Design:
    """A term with its design: ``sizes``, the table of strata, or none; ``clustered``: are groups the clusters that were drawn?"""

    released: Released
    score: _Score
    sizes: tuple[Feature, ...]
    clustered: bool
    records: float
    population: tuple[float, ...] | None

    @cached_property
    def _known(self) -> tuple[Array, Array]:
        """The sums by which :attr:`_Score.read` says, then parts of records in strata; and the covariance of their noise."""
        features = [self.score.feature, self.score.divided, *self.sizes]
        reads = [*self.score.read, *(np.eye(self._groups, feature.size) for feature in self.sizes)]
        places = np.concatenate([self.released.places[feature] for feature in features])
        rows: Array = np.asarray(linalg.block_diag(*reads), dtype=np.float64)
        return rows @ self.released.quantities[places], rows @ self.released.covariance_at(places, places) @ rows.T

    @property
    def _groups(self) -> int:
        return self.score.groups

    @property
    def _drawn(self) -> Array:
        """How many records, or clusters, were drawn in each stratum; NaN where that is not known."""
        if self.clustered:
            return np.array([float(self._groups)])
        if not self.sizes:
            return np.array([self.records if self.records > _LEAST_DRAWN else math.nan])
        sums, noise = self._known
        drawn, errors = (values[-self._groups :] * self.released.weight for values in (sums, np.sqrt(np.diag(noise))))
        known = drawn > np.maximum(least_count(LEAST_PRESENT, 1.0) * errors, _LEAST_DRAWN)
        return np.where(known, drawn, math.nan)

    def _variance(self, ratio: bool) -> Callable[[NDArray[Any]], NDArray[Any]]:
        """The variance of sampling as a function of the sums, (points, sums)."""
        groups, number, cap = self._groups, self.released.weight, self.score.weight.high
        drawn = self._drawn
        known, unsampled = ~np.isnan(drawn), np.ones(len(drawn))
        if self.population is not None:
            unsampled = np.maximum(1 - np.where(known, drawn, 0.0) / np.array(self.population), 0.0)

        usual, kinds = float(unsampled.mean()), len(self.score.read[0])

        def linearised(sums: NDArray[Any]) -> NDArray[Any]:
            every, by_kind = sums[:, :kinds], sums[:, kinds:].reshape(len(sums), -1, groups)
            top, bottom, *squares = (by_kind[:, kind] for kind in range(by_kind.shape[1]))
            size: Any = number * cap**2
            if ratio:
                value, below = every[:, :1] / every[:, 1:2], every[:, 1:2]
                each, size = (top - value * bottom) / below, 1 / below**2 / number
            else:
                value, each = 0.0 * every[:, :1], number * cap * top
            if self.clustered:
                apart = each - each.mean(axis=1, keepdims=True)
                return np.asarray((apart**2).sum(axis=1) * unsampled[0] * groups / (groups - 1))[:, None]
            own = (squares[0] - 2 * value * squares[1] + value**2 * squares[2]) * size
            whole = (every[:, 2:3] - 2 * value * every[:, 3:4] + value**2 * every[:, 4:5]) * size
            count = squares[3] * number if self.sizes else np.where(known, drawn, 2.0)[None]
            within = np.where(known, count, 2.0)
            # Where nothing tells how many there are, all that they add varies. The squares of all together have less noise than
            # those of each: of these as little is taken as strata differ.
            factors = np.where(known, within / (within - 1), 1.0) * unsampled
            apart = (factors - usual) * own - np.where(known, factors * each**2 / within, 0.0)
            return np.asarray(usual * whole[:, 0] + apart.sum(axis=1))[:, None]

        return linearised

    def _sampling(self, ratio: bool, noise: float, degrees: float) -> tuple[float, float]:
        """The variance of sampling, and the degrees of freedom of its sum with the noise."""
        function, (sums, covariance) = self._variance(ratio), self._known
        found = smooth(function, sums, covariance)
        estimated, sampling = float(found.values[0]), max(float(found.values[0]), 0.0)
        if self.clustered:
            # The noise of the sums over clusters adds to their squares, more than is known of what these are without it.
            added = float(function(sums[None])[0, 0].real) - estimated
            return sampling, degrees_of_both(noise, estimated, degrees, added)
        uncertain = sampling**2 / max(degrees, 1.0) + float(found.noise[0]) / 2
        return sampling, satterthwaite(noise + sampling, uncertain)

    def total(self) -> tuple[Estimate, list[Flag]]:
        """The sum of w t over the records."""
        sums, noise = self._known
        factor = self.released.weight * self.score.weight.high
        value, own = factor * float(sums[0]), factor**2 * max(float(noise[0, 0]), 0.0)
        degrees = self._groups - 1 if self.clustered else self.records - self._groups
        sampling, degrees = self._sampling(False, own, math.inf if math.isnan(degrees) else degrees)
        counts = not isinstance(self.score.reading.feature, ColumnBlock)
        term = self.score.reading.term
        row = Estimate.normal(term, value, own, sampling, self._ends(factor), degrees)
        flagged = counts and own > 0
        return row, few(term or "the number", value, math.sqrt(own), row.of_population[1], (term,)) if flagged else []

    def _ends(self, factor: float) -> tuple[float, float]:
        feature = self.score.reading.feature
        if isinstance(feature, ColumnBlock):
            return min(feature.column.low, 0.0) * factor, max(feature.column.high, 0.0) * factor
        return 0.0, factor

    def ratio(self) -> tuple[Estimate, list[Flag]]:
        """The sum of w t over that of w b."""
        sums, noise = self._known
        term, ends, number = self.score.reading.term, self.score.reading.ends, self.released.weight
        below, error = float(sums[1]), math.sqrt(max(float(noise[1, 1]), 0.0))
        # The least sum of parts of the cap that is more than rounding is small where the cap is far above most weights.
        if below * number <= least_count(LEAST_PRESENT, error * number, self.released.least * _SMALL):
            return Estimate.unknown(term, ends), [replace(NOTHING_PRESENT, terms=(term,))]
        value = float(sums[0]) / below
        own = spread(np.array([1.0, -value]) / below, noise[:2, :2])
        # As many records of equal weights would say as much (Kish).
        square = 0.0 if self.clustered else float(sums[4])
        effective = max(number * below**2 / square, 1.0) if square > 0 else 1.0
        sampling, degrees = self._sampling(True, own, self._groups - 1 if self.clustered else effective - self._groups)
        if self.clustered or isinstance(self.score.reading.feature, ColumnBlock):
            return Estimate.normal(term, value, own, sampling, ends, degrees), []
        inside = value * (1 - value)
        estimate = Estimate.proportion(term, value, own, inside / sampling if inside > 0 and sampling > 0 else effective)
        upper = estimate.of_population[1]
        return estimate, few(term or "the part", value, math.sqrt(own), upper, (term,)) if own > 0 else []


def _product(feature: Feature, first: Array, other: Array) -> Array:
    """Weights of the quantities in the product of two weighted sums of a record's, (size,) each."""
    if not isinstance(feature, ColumnBlock):
        # A record is in one cell.
        return first * other
    product = np.zeros(feature.size)
    product[:3] = first[0] * other[0], first[0] * other[1] + first[1] * other[0], first[1] * other[1]
    return product


def weight_of(statistic: Statistic, columns: Columns) -> Column | None:
    """The column of weights of a statistic that has one."""
    return statistic.weight_column(columns) if isinstance(statistic, Weighable) else None
