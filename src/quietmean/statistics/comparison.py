"""Arms against each other: up to when, from which events, and the log-rank test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.statistics.flags_and_tests import HypothesisTest
from quietmean.statistics.intervals import chi_squared_test
from quietmean.statistics.survival_curve import Curve, in_half_as_many, up_to
from quietmean.statistics.time_bins import TimeBins

# Arms are compared up to the last bin in which each arm has this many noise deviations at risk.
_LEAST_DEVIATIONS = 3.0
# With fewer bins, an estimate from half as many does not show how much the bins leave open.
LEAST_BINS = 12
LOG_RANK_TEST = "log-rank test"
STRATIFIED_TEST = "stratified log-rank test"


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of all arms in each stratum, and the covariance of the noise of all their counts, stratum after stratum."""

    strata: list[list[Curve]]
    noise: Array

    @cached_property
    def each(self) -> list[Curve]:
        """The curves of the arms whatever the stratum, of bins that all strata have in common."""
        if len(self.strata) == 1:
            return self.strata[0]
        size = len(self.strata[0][0].counts)
        whole, arms = np.hstack([np.eye(len(self.strata[0]) * size)] * len(self.strata)), []
        counts, noise = whole @ self._counts, whole @ self.noise @ whole.T
        for arm in range(len(self.strata[0])):
            block = slice(arm * size, (arm + 1) * size)
            arms.append(Curve.of_counts(self.bins, counts[block], noise[block, block]))
        return arms

    @property
    def _counts(self) -> Array:
        return np.concatenate([curve.counts for arms in self.strata for curve in arms])

    @property
    def bins(self) -> TimeBins:
        """The bins that the arms have in common, of the first stratum."""
        return self.strata[0][0].bins

    def _joined(self, joins: list[tuple[TimeBins, Array]]) -> Curves:
        """Join bins of each stratum."""
        every = _beside([np.kron(np.eye(len(arms)), join) for arms, (_, join) in zip(self.strata, joins, strict=True)])
        strata = [[curve.joined(*join) for curve in arms] for arms, join in zip(self.strata, joins, strict=True)]
        return Curves(strata, every @ self.noise @ every.T)

    def halved(self) -> Curves:
        """The curves in half as many bins."""
        return self._joined([in_half_as_many(arms[0].bins) for arms in self.strata])

    def compared(self) -> Curves:
        """The curves of each stratum up to the last bin in which noise leaves enough at risk in each arm; no bins where it never
        does."""
        return self._joined(
            [up_to(arms[0].bins, min(curve.bins_with(_LEAST_DEVIATIONS) for curve in arms)) for arms in self.strata]
        )

    def arms_at_risk(self) -> list[int]:
        """The places of the arms in which noise leaves enough at risk at the start, in some stratum."""
        arms = range(len(self.strata[0]))
        return [arm for arm in arms if any(own[arm].bins_with(_LEAST_DEVIATIONS) for own in self.strata)]

    def of_arms(self, places: Sequence[int]) -> Curves:
        """The curves of these arms alone."""
        kept, begin = list[int](), 0
        for own in self.strata:
            size = len(own[0].counts)
            kept += [begin + arm * size + count for arm in places for count in range(size)]
            begin += len(own) * size
        return Curves([[own[arm] for arm in places] for own in self.strata], self.noise[np.ix_(kept, kept)])

    @property
    def coarse(self) -> bool:
        """Are there too few bins to say how much they leave open?"""
        return len(self.bins.shown) < LEAST_BINS and not self.bins.exact

    def change_in_half(self, of: Callable[[Curves], Array | None]) -> Array:
        """How far an estimate of these curves (terms,) is from that of half as many bins; 0 where each bin has one time."""
        exact = all(arms[0].bins.exact for arms in self.strata)
        full, halved = of(self), of(self if exact else self.halved())
        if full is None or halved is None:
            return np.full(1, np.inf)
        return np.abs(full - halved)


def _beside(matrices: Sequence[NDArray[Any]]) -> Array:
    """One with these along its diagonal."""
    rows, columns = (np.cumsum([0, *(matrix.shape[axis] for matrix in matrices)]) for axis in (0, 1))
    every = np.zeros((rows[-1], columns[-1]))
    for place, matrix in enumerate(matrices):
        every[rows[place] : rows[place + 1], columns[place] : columns[place + 1]] = matrix
    return every


def extent(arms: list[str], all_bins: Curves, used: Curves) -> dict[str, Any]:
    """Up to when arms are compared (in the stratum in which that is longest), from which events, and what is left out: plain JSON
    data, counts with their noise."""
    ends = [float(own[0].bins.ends[-1]) for own in used.strata if len(own[0].bins)]
    events = np.maximum(np.array([[curve.events.sum() for curve in own] for own in used.strata]).sum(axis=0), 0.0)
    count = max(len(own[0].bins) for own in used.strata)
    later = sum(
        curve.events[len(own[0].bins) :].sum() + curve.censored[len(own[0].bins) :].sum()
        for curves, own in zip(all_bins.strata, used.strata, strict=True)
        for curve in curves
    )
    return {
        # The last time's own bin begins as good as at its end.
        "until": float(f"{max(ends):.12g}") if ends else 0.0,
        "events": dict(zip(arms, events.tolist(), strict=True)),
        "bins_left_out": int((all_bins.bins.begins >= count).sum()),
        "records_left_out": max(float(later), 0.0),
    }


def too_few_bins(subject: str) -> str:
    """Why arms are not compared."""
    return (
        f"{subject} needs {LEAST_BINS} bins or more, or one for each whole number, to know how much the bins leave open: choose "
        f"bins={LEAST_BINS} or more edges"
    )


def log_rank(curves: Curves) -> HypothesisTest | None:
    """That all arms have the same hazard, within each stratum where there are several: scores and variances are summed over the
    strata (Mantel, Cancer Chemotherapy Reports 50, 1966). None where no bin is left."""
    arms = len(curves.strata[0])
    if not any(len(own[0].bins) for own in curves.strata):
        return None
    parts = [_scores(own) for own in curves.strata]
    score, sampling = (np.sum([part[place] for part in parts], axis=0) for place in (0, 1))
    slopes = np.hstack([part[2] for part in parts])
    free = slice(0, arms - 1)
    covariance = (sampling + slopes @ curves.noise @ slopes.T)[free, free]
    statistic = float(score[free] @ np.linalg.pinv(covariance, hermitian=True) @ score[free])
    return chi_squared_test(statistic, arms - 1.0, LOG_RANK_TEST)


def _scores(curves: list[Curve]) -> tuple[Array, Array, Array]:
    """The scores of the arms of one stratum: events less those expected (arms,), their covariance of sampling (arms, arms), and
    how they change with all counts (arms, counts)."""
    bins = len(curves[0].bins)
    arms, size = len(curves), 2 * bins + 1
    risk = np.array([curve.at_risk for curve in curves])
    events = np.array([curve.events for curve in curves])
    score, sampling, slopes = np.zeros(arms), np.zeros((arms, arms)), np.zeros((arms, arms * size))
    for bin_index in range(bins):
        r, d = risk[:, bin_index], events[:, bin_index]
        total, died = float(r.sum()), float(d.sum())
        part = r / total
        score += d - died * part
        # Of the hypergeometric distribution, ties included.
        spread = max(died, 0.0) * max(total - died, 0.0) / max(total - 1, 1.0)
        sampling += spread * (np.diag(part) - np.outer(part, part))
        own, by_risk = np.eye(arms) - part[:, None], -died * (np.eye(arms) / total - part[:, None] / total)
        for arm, curve in enumerate(curves):
            block = slice(arm * size, (arm + 1) * size)
            slopes[:, block] += by_risk[:, arm, None] * curve.risk_slopes[bin_index]
            slopes[:, arm * size + bin_index] += own[:, arm]
    return score, sampling, slopes
