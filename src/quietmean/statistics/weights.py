"""Survey weights: totals and ratios of records that stand for several units of a population, with design-based intervals.

Record i stands for w_i units, up to the public cap. A total is the sum of w y (Horvitz and Thompson), a mean or a part the ratio
of two of them. Variances of sampling are those of drawing with replacement, linearised: n / (n - 1) times the sum of squares of z
about their mean, z = w y of a total and z = w (y - ratio) / (sum of w) of a ratio, as in R's ``survey``. With the public size N
of the population they are multiplied by 1 - n / N. The unit is the record, or the person; a weight decides nothing for others.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.delta_method import NOTHING_PRESENT, smooth, spread
from quietmean.statistics.estimate import Estimate, Flag, few, least_count, satterthwaite
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import CellIndicators, ColumnBlock
from quietmean.statistics.features.block import LEAST_PRESENT
from quietmean.statistics.features.presence import AnyPresent
from quietmean.statistics.features.weighted import Weighted
from quietmean.statistics.influence_bounds import TermReading
from quietmean.statistics.statistic import Feature, Released, Statistic, require_records

_METHOD = "weighted by design, with replacement; linearised variance with the noise"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Weighable(Statistic, ABC):
    """A statistic whose records may count with a weight: what it reads is a total or a ratio of two."""

    weight: str | None = parameter(None, help="the column of survey weights, in 0..CAP: how many units each record counts as")
    population: float | None = parameter(
        None, help="how many units the population has, a public number", above=0, remedy="choose a number > 0"
    )

    def weight_column(self, columns: Columns) -> Column | None:
        """The column of weights; None where all records count alike. Raises :class:`InputError` for one that is none."""
        if self.weight is None:
            if self.population is not None:
                raise InputError(f"{self.text} has a population and no weight. Name the column of weights, as in weight=w.")
            return None
        if getattr(self, "cluster", None) is not None:
            raise InputError(f"{self.text}: weight and cluster do not go together yet. Leave one of them out.")
        require_records(self, columns)
        column = columns.number(self.weight)
        if column.low != 0:
            raise InputError(f"column {column.name!r} is a weight, but its lower bound is {column.low:g}. Declare it from 0 on.")
        return column

    def weighted_features(self, columns: Columns, weight: Column) -> tuple[Feature, ...]:
        """What is released instead of the features. Raises :class:`InputError` where no term can be read."""
        if not self.weighted_readings(columns, weight):
            raise InputError(f"{self.text} asks for what has no value, which weights do not tell. Leave the weight out.")
        return tuple(Weighted(feature, weight) for feature in self.features(columns))

    def weighted_readings(self, columns: Columns, weight: Column) -> tuple[TermReading, ...]:
        """How terms are read from quantities of weighted records: all but those of records in which something is missing."""
        found = []
        for reading in self.readings(columns):
            feature = Weighted(reading.feature, weight)
            if not _counts_nothing(reading):
                top = feature.of_parts(reading.top) * (weight.high if reading.adds_up else 1.0)
                bottom = None if reading.bottom is None else feature.of_parts(reading.bottom)
                found.append(replace(reading, feature=feature, top=top, bottom=bottom))
        return tuple(found)

    def decode_weighted(self, released: Released, columns: Columns, weight: Column, records: float) -> Estimates:
        """The estimates of weighted records; ``records``: how many there are with those that a condition leaves out, NaN where
        that is not known."""
        rows: list[Estimate] = []
        flags: list[Flag] = []
        for reading in self.weighted_readings(columns, weight):
            part = 1.0 if self.population is None else max(1 - records / self.population, 0.0)
            score = _Scores.of(released, reading, records, 1.0 if math.isnan(part) else part)
            row, own = score.total(weight) if reading.adds_up else score.ratio()
            rows.append(row)
            flags += own
        return Estimates.of(rows, flags=flags, method=_METHOD)


def _counts_nothing(reading: TermReading) -> bool:
    """Is a record in which nothing is present in the term, as its value is missing?"""
    return isinstance(reading.feature, CellIndicators) and bool(reading.top[-1])


@dataclass(frozen=True, eq=False)
class _Scores:
    """What one term is read from: with u = w / cap the means of u t, u b, u^2 t^2, u^2 t b and u^2 b^2, where t is what a record
    adds on top and b below, or 0 where nothing is; and the covariance of their noise, (5, 5)."""

    released: Released
    reading: TermReading
    records: float
    unsampled: float
    sums: Array
    noise: Array

    @classmethod
    def of(cls, released: Released, reading: TermReading, records: float, unsampled: float) -> _Scores:
        feature = reading.feature
        assert isinstance(feature, Weighted)  # noqa: S101
        size = feature.inner.size
        factor = feature.weight.high if reading.adds_up else 1.0
        top = reading.top[:size] / factor
        bottom = np.zeros(size) if reading.bottom is None else reading.bottom[:size]
        products = [_product(feature.inner, *pair) for pair in ((top, top), (top, bottom), (bottom, bottom))]
        read = np.array([*map(feature.of_parts, (top, bottom)), *map(feature.of_squares, products)])
        quantities, noise = released.mean(feature), released.covariance(feature)
        return cls(released, reading, records, unsampled, read @ quantities, read @ noise @ read.T)

    @property
    def _unbiased(self) -> float:
        return self.records / (self.records - 1) if self.records > 1 else 1.0

    def total(self, weight: Column) -> tuple[Estimate, list[Flag]]:
        """The sum of w t over the records."""
        known, number = not math.isnan(self.records), self.released.weight
        factor = number * weight.high
        # Where the number of records is as random as they are, nothing is known of their mean.
        centred = number / self.records if known else 0.0

        def variance(sums: NDArray[Any]) -> NDArray[Any]:
            squares: NDArray[Any] = number * weight.high**2 * self._unbiased * (sums[:, 2] - centred * sums[:, 0] ** 2)
            return squares[:, None]

        noise, degrees = factor**2 * float(self.noise[0, 0]), self.records - 1 if known else math.inf
        sampling, degrees = self._sampling(variance, noise, degrees)
        ends = self._ends(factor)
        value = factor * float(self.sums[0])
        row = Estimate.normal(self.reading.term, value, noise, sampling, ends, degrees)
        counts = not isinstance(self._inner, ColumnBlock)
        name = self.reading.term or "the number"
        return row, few(name, value, math.sqrt(noise), row.of_population[1], (row.term,)) if counts and noise > 0 else []

    def _ends(self, factor: float) -> tuple[float, float]:
        inner = self._inner
        if isinstance(inner, ColumnBlock):
            return min(inner.column.low, 0.0) * factor, max(inner.column.high, 0.0) * factor
        return 0.0, factor

    @property
    def _inner(self) -> Feature:
        assert isinstance(self.reading.feature, Weighted)  # noqa: S101
        return self.reading.feature.inner

    def ratio(self) -> tuple[Estimate, list[Flag]]:
        """The sum of w t over that of w b."""
        term, ends, number = self.reading.term, self.reading.ends, self.released.weight
        top, bottom, square = self.sums[0], self.sums[1], float(self.sums[4])
        if bottom * number <= least_count(LEAST_PRESENT, math.sqrt(max(self.noise[1, 1], 0.0)) * number, self._least):
            return Estimate.unknown(term, ends), [replace(NOTHING_PRESENT, terms=(term,))]
        value = float(top / bottom)
        gradient = np.array([1.0, -value, 0.0, 0.0, 0.0]) / bottom
        noise = spread(gradient, self.noise)

        def variance(sums: NDArray[Any]) -> NDArray[Any]:
            ratio = sums[:, 0] / sums[:, 1]
            squares: NDArray[Any] = sums[:, 2] - 2 * ratio * sums[:, 3] + ratio**2 * sums[:, 4]
            return np.asarray(self._unbiased * squares / sums[:, 1] ** 2 / number)[:, None]

        # As many records of equal weights would say as much (Kish).
        effective = max(number * float(bottom) ** 2 / square, 1.0) if square > 0 else 1.0
        sampling, degrees = self._sampling(variance, noise, effective - 1)
        if isinstance(self._inner, ColumnBlock):
            return Estimate.normal(term, value, noise, sampling, ends, degrees), []
        inside = value * (1 - value)
        records = inside / sampling if inside > 0 and sampling > 0 else effective
        estimate = Estimate.proportion(term, value, noise, records)
        return estimate, few(term or "the part", value, math.sqrt(noise), estimate.of_population[1], (term,)) if noise > 0 else []

    @property
    def _least(self) -> float:
        """The least sum of parts of the cap that is more than rounding: small where the cap is far above most weights."""
        return self.released.least * 1e-6

    def _sampling(self, variance: Any, noise: float, degrees: float) -> tuple[float, float]:
        """The variance of sampling, and the degrees of freedom of its sum with the noise."""
        found = smooth(variance, self.sums, self.noise)
        sampling = max(float(found.values[0]), 0.0) * self.unsampled
        uncertain = sampling**2 / max(degrees, 1.0) + float(found.noise[0]) * self.unsampled**2 / 2
        return sampling, satterthwaite(noise + sampling, uncertain)


def _product(feature: Feature, first: Array, other: Array) -> Array:
    """Weights of the quantities in the product of two weighted sums of a record's, (size,) each."""
    if isinstance(feature, CellIndicators | AnyPresent):
        # A record is in one cell.
        return first * other
    assert isinstance(feature, ColumnBlock)  # noqa: S101
    product = np.zeros(feature.size)
    product[:3] = first[0] * other[0], first[0] * other[1] + first[1] * other[0], first[1] * other[1]
    return product


def weight_of(statistic: Statistic, columns: Columns) -> Column | None:
    """The column of weights of a statistic that has one."""
    return statistic.weight_column(columns) if isinstance(statistic, Weighable) else None
