"""What a survival curve in bins says in one number: quantiles of the time to the event, and the restricted mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quietmean.core.arrays import Array
from quietmean.statistics.comparison import Curves
from quietmean.statistics.delta_method import numerical_slopes
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.flags_and_tests import Flag, Z
from quietmean.statistics.intervals import NEAR, NEAR_TEXT
from quietmean.statistics.survival_curve import Curve
from quietmean.statistics.time_bins import TimeBins

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
    error, both = (_error(curve, value, curve.band(sampled), level) for sampled in (False, True))
    resolution = (max(value - open_[0], 0.0), max(open_[1] - value, 0.0))
    return Estimate(term, value, error, both, 0.0, math.inf, noise, population, resolution=resolution)


def _columns(ends: Array) -> tuple[Array, Array]:
    return ends[:, 0], ends[:, 1]


def ends_of(curve: Curve, arm: str, groups: Sequence[str], read_off: Sequence[str] = ()) -> list[Flag]:
    """That the curves of ``groups``, all of the risk set of one arm, end early, and where that was close.

    ``read_off``: terms that are read off the curve: not known either where nothing of it is.
    """
    times, count = curve.bins.times.tolist(), len(curve.shown)
    flags = []
    if count < len(times):
        end = f"{times[count - 1]:g}" if count else "the start"
        hidden = (*(f"{group} {time:g}" for group in groups for time in times[count:]), *(() if curve.usable else read_off))
        text = f"too few at risk for the noise after {end}, the curve ends there"
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
    """Under a curve up to the last time, if the events of each bin are at these times on average."""
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
