"""Two samples: how often a value of one is above a value of the other, and their standardised difference.

The difference is over the square root of the mean of both variances, as tables of journals have it (Austin, Statistics in
Medicine 28, 2009); Cohen's d is over the root of the pooled variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.statistics.columns import Column
from quietmean.statistics.delta_method import KnownMargins, by_point, multinomial, slopes_of, spread
from quietmean.statistics.estimate import HALF_A_RECORD, Estimate, Flag, HypothesisTest, least_count, near_threshold, t_test
from quietmean.statistics.estimates import monotone
from quietmean.statistics.features import PrefixTable
from quietmean.statistics.features.block import LEAST_PRESENT, Summary
from quietmean.statistics.statistic import Released
from quietmean.statistics.tails import tails

# Bins so narrow that few pairs are tied; they need hardly more noise than few bins would.
USUAL_BINS = 384
# Noise deviations that each sample's size must have.
_LEAST_SAMPLE = 4.0


@dataclass(frozen=True, eq=False)
class TwoSamples:
    """Counts (2, cells) of the first and the second sample in cells that are in rising order, and the covariance of their noise.

    The area is the chance that a value of the second is above one of the first, half of the chance of the same cell included:
    that under a ROC curve, and Mann and Whitney's U over the product of sizes. ``single``: which cells hold one value only, where
    the same cell is the same value. ``least``: as of :class:`Released`.
    """

    counts: Array
    noise: Array
    single: Mask
    least: float = HALF_A_RECORD

    @classmethod
    def of(cls, released: Released, table: PrefixTable) -> TwoSamples:
        """The two samples of an axis with edges by one of two levels; what is missing is left out."""
        places = np.arange(table.size).reshape(table.groups, table.cells)[:2, :-1].ravel()
        cells = released.mean(table)[places] * released.weight
        noise = released.covariance(table)[np.ix_(places, places)] * released.weight**2
        return cls(cells.reshape(2, -1), noise, table.axis.single[:-1], released.least)

    @cached_property
    def sizes(self) -> Array:
        """The sizes of the two samples, (2,)."""
        sizes: Array = self.counts.sum(axis=1)
        return sizes

    def part_below(self) -> Array:
        """Which part of both samples is below the end of each cell, (cells,), never falling; all NaN where nothing is known."""
        together = self.counts.sum(axis=0)
        total = float(together.sum())
        if not total > self.least:
            return np.full(len(together), np.nan)
        return monotone(np.cumsum(together) / total, np.ones(len(together)), rises=True)

    @cached_property
    def _sums(self) -> Array:
        """The matrix that adds all counts up to the sizes, (2, 2 cells)."""
        return np.asarray(np.kron(np.eye(2), np.ones(self.counts.shape[1])), dtype=np.float64)

    @property
    def known(self) -> bool:
        """Has each sample more than the noise?"""
        errors = np.sqrt([spread(weights, self.noise) for weights in self._sums])
        least = [least_count(_LEAST_SAMPLE, error, self.least) for error in errors.tolist()]
        return bool((self.sizes > least).all())

    @cached_property
    def _above(self) -> Array:
        """1 where a cell of the second sample is above one of the first, one half for the same: (cells, cells)."""
        cells = self.counts.shape[1]
        above: Array = np.tri(cells, k=-1).T + 0.5 * np.eye(cells)
        return above

    @cached_property
    def area(self) -> float:
        """The area, without the bias of noise in products of counts."""
        first, second = self.counts
        cells = len(first)
        cross = self.noise[:cells, cells:]
        pairs = float(first @ self._above @ second) - float((self._above * cross).sum())
        return pairs / (float(self.sizes.prod()) - float(cross.sum()))

    @cached_property
    def slopes(self) -> Array:
        """The gradient of the area by the counts, (2 cells,)."""
        first, second = self.counts
        of_first = (self._above @ second / self.sizes[1] - self.area) / self.sizes[0]
        of_second = (first @ self._above / self.sizes[0] - self.area) / self.sizes[1]
        return np.concatenate([of_first, of_second])

    @cached_property
    def tied(self) -> tuple[float, float]:
        """Half of the pairs in one cell, as a part of all, and the variance of its noise.

        By so much, either way, the area of the values themselves may differ from that of the cells.
        """
        kept = (~self.single).astype(np.float64)
        (first, second), cells = self.counts * kept, len(kept)
        noise = self.noise * np.outer(np.tile(kept, 2), np.tile(kept, 2))
        pairs = float(first @ second) - float(np.trace(noise[:cells, cells:]))
        # With noisy counts, the first-order variance contains the second-order term twice.
        second_order = float((noise[:cells, :cells] * noise[cells:, cells:]).sum())
        variance = max(spread(np.concatenate([second, first]), noise) - second_order, 0.0)
        every = 2 * float(self.sizes.prod())
        return min(max(pairs / every, 0.0), 0.5), variance / every**2

    def row(self, term: str) -> Estimate:
        """The area with its intervals, as much longer as the tied pairs ask; sampling adds DeLong's variance of the cells."""
        if not self.known:
            return Estimate.unknown(term, (0.0, 1.0))
        cells = self.counts.shape[1]
        sampling = 0.0
        for sample, size in enumerate(self.sizes.tolist()):
            part = slice(sample * cells, (sample + 1) * cells)
            sampling += multinomial(self.slopes[part], self.counts[sample]) * size / max(size - 1, 1.0)
        resolution, its_noise = self.tied
        row = Estimate.normal(term, self.area, spread(self.slopes, self.noise) + its_noise, sampling, (0.0, 1.0))
        return row.widened(resolution, resolution)

    def test(self) -> HypothesisTest | None:
        """Mann and Whitney's: that both samples have the same distribution, ties and noise counted in."""
        if not self.known:
            return None
        total = float(self.sizes.sum())
        # Ties are estimated from sums of cubes of counts, without the bias of the noise.
        together = self.counts.sum(axis=0)
        adds = np.kron(np.ones((1, 2)), np.eye(len(together)))
        own = np.diag(adds @ self.noise @ adds.T)
        ties = float((together**3 - 3 * together * own - together).sum())
        variance = (total + 1 - ties / (total * (total - 1))) / (12 * float(self.sizes.prod()))
        return t_test(
            self.area - 0.5, math.sqrt(max(variance, 0.0) + spread(self.slopes, self.noise)), math.inf, "Mann-Whitney test"
        )


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
    released = first.noise_with(second)
    noise_of_it = spread(np.array([0.0, parts[0], 0.0, parts[1]]), released)
    if variance <= tails().deviations(_LEAST_VARIANCE) * math.sqrt(noise_of_it):
        flags.append(
            Flag("no-variance", f"{column.name}: the noise hides the variance. No standardised difference is known", (term,))
        )
        return Estimate.unknown(term)
    if noise_of_it > 0:
        ratio = variance / (tails().deviations(_LEAST_VARIANCE) * math.sqrt(noise_of_it))
        flags += near_threshold(f"standardised difference of {column.name}", ratio, (term,))
    value = (second.mean - first.mean) / math.sqrt(variance)
    by_variance = value**2 / (4 * variance**2)
    sampling_of_it = sum(part**2 * each.sampling_of_variance for part, each in zip(parts, pair, strict=True))
    slope = -value / (2 * variance)
    gradient = np.array([-1 / math.sqrt(variance), slope * parts[0], 1 / math.sqrt(variance), slope * parts[1]])
    noise = spread(gradient, released)
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
        f"{column.name}: the noise hides how levels differ between the groups. No standardised difference is known",
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
