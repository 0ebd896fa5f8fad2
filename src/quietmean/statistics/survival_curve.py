"""Kaplan-Meier curves and the log-rank test from binned counts with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quietmean.statistics.estimates import HypothesisTest, Z
from quietmean.statistics.intervals import chi_squared_test

Array = NDArray[np.float64]

# A curve ends where fewer are at risk than so many, or than so many deviations of their noise.
_LEAST_AT_RISK, _LEAST_DEVIATIONS = 10.0, 5.0
# The log-rank test leaves out bins with so few at risk, in all or in one arm.
_LEAST_TESTED, _LEAST_IN_ARM = 20.0, 2.0
# Of e, that float64 can hold: from there on an interval is from 0 to 1.
_LARGEST_POWER = 700.0


@dataclass(frozen=True, eq=False)
class Curve:
    """One arm. ``events`` and ``censored``: counts by bin, (bins,); ``after``: who is still observed at the end.

    ``noise``: the covariance of the noise of events, censored and after, in this order, (2 bins + 1, 2 bins + 1). Those censored
    in a bin are at risk in half of it.
    """

    times: Array
    events: Array
    censored: Array
    after: float
    noise: Array

    @cached_property
    def risk_slopes(self) -> Array:
        """How the numbers at risk follow from events, censored and after: (bins, 2 bins + 1)."""
        bins = len(self.events)
        later = np.triu(np.ones((bins, bins)))
        return np.hstack([later, later - 0.5 * np.eye(bins), np.ones((bins, 1))])

    @cached_property
    def at_risk(self) -> Array:
        """By bin, (bins,)."""
        at_risk: Array = self.risk_slopes @ np.concatenate([self.events, self.censored, [self.after]])
        return at_risk

    @cached_property
    def risk_noise(self) -> Array:
        """Standard deviations of the noise of the numbers at risk, (bins,)."""
        variances = np.einsum("ip,pq,iq->i", self.risk_slopes, self.noise, self.risk_slopes)
        deviations: Array = np.sqrt(np.maximum(variances, 0.0))
        return deviations

    @cached_property
    def usable(self) -> int:
        """In how many bins, from the first, enough are at risk."""
        least = np.maximum(_LEAST_AT_RISK, _LEAST_DEVIATIONS * self.risk_noise)
        enough = (self.at_risk >= least) & (self.at_risk > self.events)
        return len(enough) if enough.all() else int(np.argmin(enough))

    @cached_property
    def survival(self) -> Array:
        """At the end of each usable bin. Unprojected: noise may make it rise."""
        d, a = self.events[: self.usable], self.at_risk[: self.usable]
        survival: Array = np.cumprod(1 - d / a, dtype=np.float64)
        return survival

    @cached_property
    def extrapolated(self) -> Array:
        """After the usable bins, (bins - usable,): never rising, without an interval. Empty if there is nothing to go on from.

        Each hazard is drawn towards the mean of the usable bins as if so many more had been at risk as make a bin usable: few
        at risk tell little, and a curve that went on level would say that nobody has the event any more.
        """
        count = self.usable
        if count == 0:
            return np.zeros(0)
        usual = max(float(self.events[:count].sum() / self.at_risk[:count].sum()), 0.0)
        weight = np.maximum(_LEAST_DEVIATIONS * self.risk_noise[count:], 1.0)
        hazards = (self.events[count:] + weight * usual) / (np.maximum(self.at_risk[count:], 0.0) + weight)
        later: Array = np.clip(self.survival[-1], 0.0, 1.0) * np.cumprod(1 - np.clip(hazards, 0.0, 1.0), dtype=np.float64)
        return later

    @cached_property
    def log_slopes(self) -> Array:
        """Of log survival by the counts, (usable, 2 bins + 1)."""
        count = self.usable
        d, a = self.events[:count], self.at_risk[:count]
        direct = np.zeros((count, len(self.noise)))
        direct[np.arange(count), np.arange(count)] = -1 / (a - d)
        slopes: Array = np.cumsum(direct + (d / (a * (a - d)))[:, None] * self.risk_slopes[:count], axis=0)
        return slopes

    @cached_property
    def log_noise(self) -> Array:
        """Covariance of the noise of log survival, (usable, usable)."""
        noise: Array = self.log_slopes @ self.noise @ self.log_slopes.T
        return noise

    @cached_property
    def log_sampling(self) -> Array:
        """Greenwood's covariance of log survival, (usable, usable)."""
        d, a = self.events[: self.usable], self.at_risk[: self.usable]
        terms = np.cumsum(np.maximum(d, 0.0) / (a * (a - d)))
        places = np.arange(self.usable)
        covariance: Array = terms[np.minimum(places[:, None], places)]
        return covariance

    def interval(self, covariance: Array) -> Array:
        """At each usable bin, (usable, 2), on the scale of log(-log S)."""
        errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        ends = []
        for value, error in zip(self.survival.tolist(), errors.tolist(), strict=True):
            if error == 0:
                ends.append((value, value))
            elif not 0 < value < 1:
                # No scale of logarithms: what a normal error allows.
                ends.append((min(max(value - Z * error, 0.0), 1.0), min(max(value + Z * error, 0.0), 1.0)))
            else:
                power = Z * error / -math.log(value)
                reach = math.exp(min(power, _LARGEST_POWER))
                ends.append((value**reach, value ** (1 / reach)))
        return np.array(ends).reshape(-1, 2)

    def when(self, values: Array, level: float) -> float:
        """When a curve (usable,) first is at ``level`` or below: the end of that bin, infinite if it never is."""
        below = np.nonzero(values <= level)[0]
        return float(self.times[below[0]]) if len(below) else math.inf

    def restricted_mean(self) -> tuple[float, float, float]:
        """The area under the curve to the last time, and its variances of noise and of sampling; NaN if the curve ends before."""
        if self.usable < len(self.times):
            return math.nan, math.inf, math.inf
        widths = np.diff(np.concatenate([[0.0], self.times]))
        curve = np.concatenate([[1.0], self.survival])
        area = float(widths @ (curve[1:] + curve[:-1]) / 2)
        weights = (widths + np.append(widths[1:], 0.0)) / 2 * self.survival
        return area, float(weights @ self.log_noise @ weights), float(weights @ self.log_sampling @ weights)


def log_rank(curves: list[Curve], noise: Array) -> HypothesisTest | None:
    """That all arms have the same hazard; ``noise`` is the covariance of the counts of all curves, one after the other.

    None where too few are at risk in every bin.
    """
    arms, size = len(curves), len(curves[0].noise)
    risk = np.array([curve.at_risk for curve in curves])
    events = np.array([curve.events for curve in curves])
    kept = (risk.sum(axis=0) > _LEAST_TESTED) & (risk.min(axis=0) > _LEAST_IN_ARM)
    if not kept.any():
        return None
    score, sampling, slopes = np.zeros(arms), np.zeros((arms, arms)), np.zeros((arms, arms * size))
    for place in np.nonzero(kept)[0]:
        r, d = risk[:, place], events[:, place]
        total, died = float(r.sum()), float(d.sum())
        part = r / total
        score += d - died * part
        # Of the hypergeometric distribution, ties included.
        spread = max(died, 0.0) * max(total - died, 0.0) / (total - 1)
        sampling += spread * (np.diag(part) - np.outer(part, part))
        own, by_risk = np.eye(arms) - part[:, None], -died * (np.eye(arms) / total - part[:, None] / total)
        for arm, curve in enumerate(curves):
            block = slice(arm * size, (arm + 1) * size)
            slopes[:, block] += by_risk[:, arm, None] * curve.risk_slopes[place]
            slopes[:, arm * size + place] += own[:, arm]
    free = slice(0, arms - 1)
    covariance = (sampling + slopes @ noise @ slopes.T)[free, free]
    statistic = float(score[free] @ np.linalg.pinv(covariance, hermitian=True) @ score[free])
    return chi_squared_test(statistic, arms - 1.0)
