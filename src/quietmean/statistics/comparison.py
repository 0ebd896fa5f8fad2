"""Arms against each other: up to when, from which events, and the log-rank test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.statistics.flags_and_tests import HypothesisTest
from quietmean.statistics.intervals import chi_squared_test
from quietmean.statistics.survival_curve import Curve, in_half_as_many, up_to
from quietmean.statistics.time_bins import TimeBins

Array = NDArray[np.float64]

# Arms are compared up to the last bin in which each arm has this many noise deviations at risk.
_LEAST_DEVIATIONS = 3.0
# With fewer bins, an estimate from half as many does not show how much the bins leave open.
LEAST_BINS = 12
LOG_RANK_TEST = "log-rank test"


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of all arms, and the covariance of the noise of all their counts, one arm after the other."""

    each: list[Curve]
    noise: Array

    @property
    def bins(self) -> TimeBins:
        """The bins that the arms have in common."""
        return self.each[0].bins

    def _joined(self, bins: TimeBins, join: Array) -> Curves:
        every = np.kron(np.eye(len(self.each)), join)
        return Curves([curve.joined(bins, join) for curve in self.each], every @ self.noise @ every.T)

    def halved(self) -> Curves:
        """The same in half as many bins."""
        return self._joined(*in_half_as_many(self.bins))

    def compared(self) -> Curves:
        """The curves up to the last bin in which noise leaves enough at risk in each arm; no bins where it never does."""
        return self._joined(*up_to(self.bins, min(curve.bins_with(_LEAST_DEVIATIONS) for curve in self.each)))

    @property
    def coarse(self) -> bool:
        """Are there too few bins to say how much they leave open?"""
        return len(self.bins.shown) < LEAST_BINS and not self.bins.exact

    def change_in_half(self, of: Callable[[Curves], Array | None]) -> Array:
        """How far an estimate of these curves (terms,) is from that of half as many bins; 0 where each bin has one time."""
        full, halved = of(self), of(self if self.bins.exact else self.halved())
        if full is None or halved is None:
            return np.full(1, np.inf)
        return np.abs(full - halved)


def extent(arms: list[str], all_bins: Curves, used: Curves) -> dict[str, Any]:
    """Up to when arms are compared, from which events, and what is left out: plain JSON data, counts with their noise."""
    count = len(used.bins)
    later = [curve.events[count:].sum() + curve.censored[count:].sum() for curve in all_bins.each]
    return {
        # The last time's own bin begins as good as at its end.
        "until": float(f"{used.bins.ends[-1]:.12g}") if count else 0.0,
        "events": {arm: float(curve.events.sum()) for arm, curve in zip(arms, used.each, strict=True)},
        "bins_left_out": int((all_bins.bins.begins >= count).sum()),
        "records_left_out": max(float(sum(later)), 0.0),
    }


def too_few_bins(what: str) -> str:
    """Why there is no comparison."""
    return (
        f"{what} needs {LEAST_BINS} bins or more, or one for each whole number, to know how much the bins leave open: choose "
        f"bins={LEAST_BINS} or more edges"
    )


def log_rank(curves: Curves) -> HypothesisTest | None:
    """That all arms have the same hazard. None where no bin is left."""
    arms, size = len(curves.each), 2 * len(curves.bins) + 1
    if not len(curves.bins):
        return None
    risk = np.array([curve.at_risk for curve in curves.each])
    events = np.array([curve.events for curve in curves.each])
    score, sampling, slopes = np.zeros(arms), np.zeros((arms, arms)), np.zeros((arms, arms * size))
    for bin_index in range(len(curves.bins)):
        r, d = risk[:, bin_index], events[:, bin_index]
        total, died = float(r.sum()), float(d.sum())
        part = r / total
        score += d - died * part
        # Of the hypergeometric distribution, ties included.
        spread = max(died, 0.0) * max(total - died, 0.0) / max(total - 1, 1.0)
        sampling += spread * (np.diag(part) - np.outer(part, part))
        own, by_risk = np.eye(arms) - part[:, None], -died * (np.eye(arms) / total - part[:, None] / total)
        for arm, curve in enumerate(curves.each):
            block = slice(arm * size, (arm + 1) * size)
            slopes[:, block] += by_risk[:, arm, None] * curve.risk_slopes[bin_index]
            slopes[:, arm * size + bin_index] += own[:, arm]
    free = slice(0, arms - 1)
    covariance = (sampling + slopes @ curves.noise @ slopes.T)[free, free]
    statistic = float(score[free] @ np.linalg.pinv(covariance, hermitian=True) @ score[free])
    return chi_squared_test(statistic, arms - 1.0, LOG_RANK_TEST)
