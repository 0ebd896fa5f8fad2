"""Standardised differences of two groups: over the square root of the mean of both variances, as tables of journals have them.

Austin, Statistics in Medicine 28, 2009. Cohen's d is over the root of the pooled variance.
"""

from __future__ import annotations

import math

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.block_summary import LEAST_PRESENT, Summary
from quietmean.statistics.cell_counts import KnownMargins
from quietmean.statistics.columns import Column
from quietmean.statistics.delta_method import by_point, multinomial, slopes_of, spread
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.intervals import Flag, least_count, near_threshold

SMD, COHEN_D = "smd", "cohen-d"
# Noise deviations of a variance that is divided by.
_LEAST_VARIANCE = 4.0
# A level whose variance is at most this hardly occurs.
_NO_VARIANCE = 1e-6


def difference_of_means(
    first: Summary | None, second: Summary | None, column: Column, flags: list[Flag], term: str = SMD, *, pooled: bool = False
) -> Estimate:
    """The second mean minus the first over the root of a mean of both variances, ``pooled`` by degrees of freedom or even.

    What it says goes to ``flags``, about ``term``. Errors hold for any distributions of both groups.
    """
    if first is None or second is None:
        return Estimate.unknown(term)
    pair = (first, second)
    total = first.present + second.present
    parts = [(each.present - 1) / max(total - 2, 1.0) if pooled else 0.5 for each in pair]
    variance = sum(part * each.variance for part, each in zip(parts, pair, strict=True))
    noise_of_it = sum(part**2 * each.noise_of_variance for part, each in zip(parts, pair, strict=True))
    if variance <= _LEAST_VARIANCE * math.sqrt(noise_of_it):
        flags.append(Flag("no-variance", f"{column.name}: the noise hides its variance, no standardised difference", (term,)))
        return Estimate.unknown(term)
    if noise_of_it > 0:
        ratio = variance / (_LEAST_VARIANCE * math.sqrt(noise_of_it))
        flags += near_threshold(f"standardised difference of {column.name}", ratio, (term,))
    value = (second.mean - first.mean) / math.sqrt(variance)
    by_variance = value**2 / (4 * variance**2)
    sampling_of_it = sum(part**2 * each.sampling_of_variance for part, each in zip(parts, pair, strict=True))
    noise = (first.noise_of_mean + second.noise_of_mean) / variance + by_variance * noise_of_it
    sampling = (first.sampling_of_mean + second.sampling_of_mean) / variance + by_variance * sampling_of_it
    return Estimate.normal(term, value, noise, sampling)


def difference_of_levels(column: Column, cells: Array, covariance: Array, flags: list[Flag], about: str) -> Estimate:
    """The standardised difference of two groups: of two levels with its sign, of more the length (Yang and Dalton, 2012).

    ``cells``: (2, levels); levels that the noise hides are left out.
    """
    margins = KnownMargins.of(cells, covariance)
    (groups, levels), signed = (len(margins.rows), len(margins.columns)), len(column.categories) == 2
    cells, covariance = margins.within(cells, covariance)
    cells = cells.ravel()
    nothing = Estimate.unknown(column.name, (-math.inf if signed else 0.0, math.inf))
    flag = Flag(
        "no-difference",
        f"{column.name}: noise hides how levels differ between the groups: no standardised difference",
        (about,),
    )
    if groups < 2 or levels < 2:
        flags.append(flag)
        return nothing
    sums = np.kron(np.eye(2), np.ones(levels))
    errors = np.sqrt([spread(weights, covariance) for weights in sums])
    if (sums @ cells <= [least_count(LEAST_PRESENT, error) for error in errors.tolist()]).any() or np.linalg.eigvalsh(
        _middle(cells)
    )[0] <= _NO_VARIANCE:
        flags.append(flag)
        return nothing
    slopes = slopes_of(by_point(lambda at: _apart(at, signed)), cells)[0]
    value, noise, sampling = float(_apart(cells, signed)[0]), spread(slopes, covariance), multinomial(slopes, cells)
    if signed:
        return Estimate.normal(column.name, value, noise, sampling)
    # The squared length, without the bias of the noise.
    by_cells = slopes_of(by_point(_gaps), cells)
    value -= float(np.trace(np.linalg.solve(_middle(cells), by_cells @ covariance @ by_cells.T)))
    if value <= 0 and noise + sampling > 0:
        flags.append(flag)
        return nothing
    root = math.sqrt(max(value, 0.0))
    rate = 1 / (4 * value) if value > 0 else 0.0
    return Estimate.normal(column.name, root, noise * rate, sampling * rate, (0.0, math.inf))


def _gaps(cells: Array) -> Array:
    """The differences of the proportions of all levels but the first, second group minus first."""
    first, second = cells.reshape(2, -1)
    gaps: Array = (second / second.sum() - first / first.sum())[1:]
    return gaps


def _middle(cells: Array) -> Array:
    """The mean of the two groups' covariance matrices of the levels but the first."""
    first, second = (row / row.sum() for row in cells.reshape(2, -1))
    mean: Array = (np.diag(first + second) - np.outer(first, first) - np.outer(second, second))[1:, 1:] / 2
    return mean


def _apart(cells: Array, signed: bool) -> Array:
    """The difference of two levels with its sign, or the squared length of that of more: shape (1,)."""
    gaps, middle = _gaps(cells), _middle(cells)
    return gaps / np.sqrt(middle[0]) if signed else np.array([gaps @ np.linalg.solve(middle, gaps)])
