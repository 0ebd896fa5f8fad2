"""What a column block says about its column: how many values, mean, variance and fourth moment, with the errors of noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.mixtures import BLOCK_SIZE
from quietmean.statistics.columns import Column
from quietmean.statistics.estimate import Estimate, least_count, satterthwaite
from quietmean.statistics.features import ColumnBlock
from quietmean.statistics.influence_bounds import Around, MovedMoments
from quietmean.statistics.statistic import Released

# Noise deviations that the part of present values must have to be divided by.
LEAST_PRESENT = 4.0


@dataclass(frozen=True)
class Summary:
    """The present values of one group, in the column's units. ``noise_``: variances of the privacy noise on each.

    ``variance`` is that with the divisor ``present`` - 1, without the noise's own part in it; 0 where the estimate is negative
    (``variance_estimate`` is not cut). ``fourth``: the central moment.
    """

    present: float
    mean: float
    noise_of_mean: float
    variance_estimate: float
    variance: float
    noise_of_variance: float
    fourth: float

    @property
    def sampling_of_mean(self) -> float:
        """The variance of the mean of a random sample of as many values."""
        return self.variance / self.present

    @property
    def uncertainty_of_sampling(self) -> float:
        """Half the variance of ``sampling_of_mean``: it is estimated from as many values, with the noise in it."""
        return self.sampling_of_mean**2 / max(self.present - 1, 1.0) + self.noise_of_variance / (2 * self.present**2)

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the variance of the mean, with noise and sampling (Satterthwaite)."""
        return satterthwaite(self.noise_of_mean + self.sampling_of_mean, self.uncertainty_of_sampling)

    @property
    def spread_is_known(self) -> bool:
        """Is the fourth moment above the square of the second, as it is for all data?"""
        return self.fourth > max(self.variance_estimate, 0.0) ** 2 - self.noise_of_variance

    @property
    def sampling_of_variance(self) -> float:
        """The variance of the variance of a sample: of any distribution, or a normal one if noise hides the fourth moment."""
        if self.spread_is_known:
            squared = max(self.variance**2 - self.noise_of_variance, 0.0)
            return max(self.fourth - squared, 0.0) / self.present
        return 2 * self.variance**2 / self.present

    def estimate_of_variance(self, term: str, largest: float) -> Estimate:
        """The variance as a term; where noise hides it, only an upper end is known."""
        noise = self.noise_of_variance
        estimate = Estimate.normal(term, self.variance_estimate, noise, self.sampling_of_variance, (0.0, largest))
        if not noise > 0:
            return replace(estimate, value=max(estimate.value, 0.0))
        if self.variance_estimate > 0:
            return estimate
        ends = [(0.0, high) for _, high in (estimate.of_noise, estimate.of_population)]
        return replace(estimate, value=math.nan, of_noise=ends[0], of_population=ends[1])


def estimate_of_mean(term: str, present: Summary | None, column: Column) -> Estimate:
    """The mean as a term; unknown where noise hides whether any value is present."""
    limits = (column.low, column.high)
    if present is None:
        return Estimate.unknown(term, limits)
    return Estimate.normal(term, present.mean, present.noise_of_mean, present.sampling_of_mean, limits, present.degrees)


def square_root(variance: Estimate, term: str) -> Estimate:
    """The standard deviation as a term, from the variance: ends of its intervals are the square roots of those of that."""
    value = math.sqrt(variance.value) if variance.value >= 0 else math.nan
    slope = 1 / (2 * value) if value > 0 else math.nan if variance.error > 0 else 0.0
    ends = [(math.sqrt(low), math.sqrt(high)) for low, high in (variance.of_noise, variance.of_population)]
    return Estimate(term, value, variance.noise * slope, variance.error * slope, 0.0, math.sqrt(variance.high), ends[0], ends[1])


def present_in(released: Released, feature: ColumnBlock, group: int = 0) -> tuple[float, float]:
    """How many values a group has (by its index), and the standard deviation of the noise in that."""
    count, error = released.weighted(feature, np.eye(feature.size)[BLOCK_SIZE * group])
    return count * released.weight, error * released.weight


def moved_block(around: Around, feature: ColumnBlock, group: int = 0) -> MovedMoments | None:
    """How far mean and variance of one group (by its index) move; see :meth:`MovedMoments.of`."""
    one, first, second = np.eye(feature.size)[BLOCK_SIZE * group : BLOCK_SIZE * group + 3]
    return MovedMoments.of(around, feature, np.array([[one, first], [first, second]]), grouped=feature.by is not None)


def summary(released: Released, feature: ColumnBlock, group: int = 0) -> Summary | None:
    """The summary of one group (by its index), or None where noise hides whether any value is present."""
    entries = slice(BLOCK_SIZE * group, BLOCK_SIZE * (group + 1))
    quantities, covariance = released.mean(feature)[entries], released.covariance(feature)[entries, entries]
    part = float(quantities[0])
    error = math.sqrt(max(covariance[0, 0], 0.0))
    if part * released.weight <= least_count(LEAST_PRESENT, error * released.weight, released.least):
        return None
    first, second, third, fourth = (quantities[1:] / part).tolist()
    # Gradients of the ratios to the present part, in half widths of the bounds.
    ratios = np.column_stack([-quantities[1:] / part**2, np.eye(BLOCK_SIZE - 1) / part])
    noise = ratios @ covariance @ ratios.T
    mean_noise = float(noise[0, 0])
    gradient = np.array([-2 * first, 1.0])
    variance_noise = float(gradient @ noise[:2, :2] @ gradient) + 2 * mean_noise**2
    present = released.weight * part
    unbiased = present / (present - 1) if present > 1 else 1.0
    variance = (second - first**2 + mean_noise) * unbiased
    # What noise adds to the fourth moment on average, to second order.
    bias = (6 * second - 18 * first**2) * mean_noise + 12 * first * float(noise[0, 1]) - 4 * float(noise[0, 2])
    central = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4 - bias
    column, half = feature.column, feature.column.width / 2
    limit = max((1 - first) * (1 + first), 0.0) * unbiased
    return Summary(
        present=present,
        mean=column.centre + first * half,
        noise_of_mean=mean_noise * half**2,
        variance_estimate=variance * half**2,
        variance=min(max(variance, 0.0), limit) * half**2,
        noise_of_variance=variance_noise * unbiased**2 * half**4,
        fourth=central * half**4,
    )
