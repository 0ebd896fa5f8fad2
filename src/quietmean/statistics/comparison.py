"""Arms against each other: restricted means, quantiles and the log-rank test of survival curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.statistics.delta_method import numerical_slopes
from quietmean.statistics.estimate import NEAR, NEAR_TEXT, Estimate, Flag, HypothesisTest, chi_squared_test
from quietmean.statistics.survival_curve import Curve, TimeBins, in_half_as_many, up_to
from quietmean.statistics.tails import Z

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
            block, late = slice(arm * size, (arm + 1) * size), [own[arm].entered for own in self.strata]
            entered = np.sum([each for each in late if each is not None], axis=0) if late[0] is not None else None
            arms.append(Curve.of_counts(self.bins, counts[block], noise[block, block], entered))
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
    """A matrix with these matrices along its diagonal."""
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
        curve.leaving[len(own[0].bins) :].sum()
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
        f"{subject} needs {LEAST_BINS} bins or more, or one for each whole number, to know how much the bins leave open. Choose "
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


Interval = tuple[float, float]

# The code of the flag of what ends before the last time, since too few are at risk for the noise.
CUT = "curve-cut"
# A curve within this distance of a level has reached it: the rest is rounding.
_CLOSE = 1e-12
# The smallest power of time; the largest is its inverse.
_LEAST_POWER = 0.25
# Gauss-Legendre quadrature on [0, 1].
_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(16)[0] + 1) / 2, np.polynomial.legendre.leggauss(16)[1] / 2


def quantile(curve: Curve, level: float, term: str) -> Estimate:
    """When the curve first is at ``level`` or below: events of a bin are spread evenly over its times for the estimate.

    The intervals hold all times at which the band has not left the level (Brookmeyer and Crowley, Biometrics 38, 1982), to the
    ends of bins: inside of one the data say nothing. Without an estimate, but with a lower end, where the curve ends above.
    """
    value = _crossing(curve.bins, curve.falling, level)
    low, high = curve.limits
    open_: Interval = _reached(curve, low, high, level)
    noise, population = (_reached(curve, *_columns(curve.interval(sampled)), level) for sampled in (False, True))
    if math.isinf(value):
        return Estimate(term, math.nan, math.inf, math.inf, 0.0, math.inf, noise, population)
    # What chance moves, as if events were spread evenly in every bin.
    error, both = (_error(curve, value, curve.band(sampled, Z), level) for sampled in (False, True))
    resolution = (max(value - open_[0], 0.0), max(open_[1] - value, 0.0))
    return Estimate(term, value, error, both, 0.0, math.inf, noise, population, resolution=resolution)


def _columns(ends: Array) -> tuple[Array, Array]:
    return ends[:, 0], ends[:, 1]


def ends_of(curve: Curve, arm: str, groups: Sequence[str], read_off: Sequence[str] = ()) -> list[Flag]:
    """The flags that the curves of ``groups``, all of the risk set of one arm, end early, and where that was close.

    ``read_off``: terms that are read off the curve: not known either where nothing of it is.
    """
    times, count = curve.bins.times.tolist(), len(curve.shown)
    flags = []
    if count < len(times):
        end = f"{times[count - 1]:g}" if count else "the start"
        hidden = (*(f"{group} {time:g}" for group in groups for time in times[count:]), *(() if curve.usable else read_off))
        text = f"after {end} too few are at risk for the noise. The curve ends there"
        flags.append(Flag.shared(CUT, f"arm {arm}", text, hidden))
    near = curve.bins.ends[curve.near].tolist()
    if near:
        close = tuple(f"{group} {time:g}" for group in groups for time in near)
        flags.append(Flag.shared(NEAR, f"arm {arm} from {near[0]:g} on", f"numbers at risk are {NEAR_TEXT}", close))
    return flags


def _crossing(bins: TimeBins, values: Array, level: float) -> float:
    """When a curve (usable,) first is at ``level`` or below; infinite if it never is."""
    below = np.nonzero(values <= level + _CLOSE)[0]
    if not len(below):
        return math.inf
    bin_index = int(below[0])
    before = float(values[bin_index - 1]) if bin_index else 1.0
    return bins.within(bin_index, min(max((before - level) / (before - float(values[bin_index])), _CLOSE), 1.0))


def _reached(curve: Curve, low: Array, high: Array, level: float) -> Interval:
    """The earliest time at which the lower curve may have reached the level, and the latest at which the upper one has."""
    bins = curve.bins
    places = [np.nonzero(values <= level + _CLOSE)[0] for values in (low, high)]
    last_known = float(bins.ends[curve.usable - 1]) if curve.usable else 0.0
    first = float(bins.first[places[0][0]]) if len(places[0]) else last_known
    return first, float(bins.last[places[1][0]]) if len(places[1]) else math.inf


def _error(curve: Curve, value: float, band: Array, level: float) -> float:
    """The standard error of a quantile from where a band leaves the level; from its lower end where the upper one does not."""
    low, high = (_crossing(curve.bins, values, level) for values in band.T)
    return (high - low) / (2 * Z) if math.isfinite(high) else (value - low) / Z


def restricted_mean(curve: Curve, term: str) -> Estimate:
    """The area under the curve to the last time; unknown if the curve ends before.

    In a bin of many times the cumulative hazard is taken to be a power of time. The bins leave open what is between the steps of
    the lower limit, with all events as early as they can be, and those of the upper one.
    """
    last = float(curve.bins.ends[-1])
    limits = (0.0, last)
    if curve.usable < len(curve.bins):
        return Estimate.unknown(term, limits)
    bins = curve.bins

    def smooth(survival: Array) -> Array:
        return np.array([_area(bins, survival, mean_times(bins, survival))])

    value, weights = float(smooth(curve.survival)[0]), numerical_slopes(smooth, curve.survival)[0]
    low, high = curve.limits
    below, above = value - _area(bins, low, bins.first), _area(bins, high, bins.last) - value
    noise, sampling = (_variance(weights, covariance) for covariance in (curve.noise_covariance, curve.sampling_covariance))
    return Estimate.normal(term, value, noise, sampling, limits).widened(max(below, 0.0), max(above, 0.0))


def _area(bins: TimeBins, survival: Array, times: Array) -> float:
    """The area under a curve up to the last time, if the events of each bin are at these times on average."""
    return float(-np.diff(np.concatenate([[1.0], survival])) @ times + survival[-1] * bins.ends[-1])


def mean_times(bins: TimeBins, survival: Array) -> Array:
    """The mean time of the events in each bin, (bins,), of a curve that is known at the bins' ends.

    Between them cumulative hazards are a power of time, which is exact for Weibull's distributions; the power of the first bin is
    that of the next one. Where noise leaves no such power, and of whole numbers, events are spread evenly.
    """
    many = np.isinf(bins.numbers)
    before = np.concatenate([[1.0], survival[:-1]])
    with np.errstate(invalid="ignore", divide="ignore"):
        hazards = np.log(before / survival)
        since = np.cumsum(np.where(many, hazards, 0.0))
        apart = np.log(bins.last / bins.first)
        # Within what powers may be, and in one piece there: no events before a bin are nearly the same as hardly any.
        part = np.clip((since - hazards) / since, np.exp(-apart / _LEAST_POWER), np.exp(-apart * _LEAST_POWER))
        power = -np.log(part) / apart
    first = np.flatnonzero(many)[:2]
    if len(first) == 2 and bins.first[first[0]] == 0:
        power[first[0]] = power[first[1]]
    power = np.where(np.isfinite(power), power, 1.0)[:, None]
    # Nodes that are dense at a bin's begin, where a power of time may rise steeply.
    nodes, weights = _NODES**4, _WEIGHTS * 4 * _NODES**3
    span = (bins.last - bins.first)[:, None]
    started, ended = bins.first[:, None] ** power, bins.last[:, None] ** power
    usable = many & (before > 0) & (survival > 0)
    until = (bins.first[:, None] + span * nodes) ** power - started
    passed = np.where(usable[:, None], until / np.where(usable[:, None], ended - started, 1.0), 0.0)
    falls = np.where(usable, hazards, 0.0)[:, None]
    # Of the events in the bin, which part comes later than each node.
    some = np.abs(falls) > _CLOSE
    safe = np.where(some, falls, 1.0)
    later = np.where(some, np.exp(-safe * passed) * np.expm1(-safe * (1 - passed)) / np.expm1(-safe), 1 - passed)
    return np.where(usable, bins.first + span[:, 0] * (later @ weights), bins.middle)


def _variance(weights: Array, covariance: Array) -> float:
    return float(weights @ covariance @ weights)


def difference_of_means(curves: Curves, term: str) -> Estimate:
    """The difference of the restricted means of two arms, second minus first.

    The bins move both arms alike. So what they leave open is the distance to where in all bins of both arms events come first or
    last, as where times are heaped, or that to the difference in half as many bins, which is not a bound; and at most what they
    leave open in both arms.
    """
    bins, last = curves.bins, float(curves.bins.ends[-1])
    first, second = (restricted_mean(curve, "") for curve in curves.each)
    if math.isnan(first.value + second.value):
        return Estimate.unknown(term, (-last, last))
    noise, both = first.noise**2 + second.noise**2, first.error**2 + second.error**2
    value = second.value - first.value
    fewer = [restricted_mean(curve, "").value for curve in curves.halved().each]
    change = abs(value - (fewer[1] - fewer[0]))
    heaped = []
    for times in (bins.first, bins.last):
        areas = [_area(bins, curve.survival, times) for curve in curves.each]
        heaped.append(areas[1] - areas[0])
    (less, more), (below, above) = first.resolution or (0.0, 0.0), second.resolution or (0.0, 0.0)
    # Half as many bins may be cut where these are not.
    change = math.inf if math.isnan(change) else change
    alike, limits = (value - min(heaped), max(heaped) - value), (below + more, above + less)
    open_ = [min(max(change, heap), limit) for heap, limit in zip(alike, limits, strict=True)]
    estimated = change > min(max(alike), max(limits))
    return Estimate.normal(term, value, noise, both - noise, (-last, last)).widened(open_[0], open_[1], estimated).tested()
