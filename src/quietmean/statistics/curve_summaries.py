"""What a survival curve in bins says in one number: quantiles of the time to the event, and the restricted mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quietmean.statistics.comparison import Curves
from quietmean.statistics.flags_and_tests import Flag, Z
from quietmean.statistics.rows import Row
from quietmean.statistics.survival_curve import Curve
from quietmean.statistics.time_bins import TimeBins

Array = NDArray[np.float64]
Interval = tuple[float, float]

# A curve that is at a level but for rounding has reached it.
_CLOSE = 1e-12


def quantile(curve: Curve, level: float, term: str) -> Row:
    """When the curve first is at ``level`` or below: events of a bin are spread evenly over its times for the estimate.

    The intervals hold all times at which the band has not left the level (Brookmeyer and Crowley, Biometrics 38, 1982), to the
    ends of bins: inside of one the data say nothing. Without an estimate, but with a lower end, where the curve ends above.
    """
    value = _crossing(curve.bins, curve.survival, level)
    low, high = curve.limits
    open_: Interval = _reached(curve, low, high, level)
    noise, population = (_reached(curve, *_columns(curve.interval(sampled)), level) for sampled in (False, True))
    if math.isinf(value):
        return Row(term, math.nan, math.inf, math.inf, 0.0, math.inf, noise, population)
    # What chance moves, as if events were spread evenly in every bin.
    error, both = (_error(curve, value, curve.band(sampled), level) for sampled in (False, True))
    resolution = (value - open_[0], open_[1] - value)
    return Row(term, value, error, both, 0.0, math.inf, noise, population, resolution=resolution)


def _columns(ends: Array) -> tuple[Array, Array]:
    return ends[:, 0], ends[:, 1]


def ends_of(curve: Curve, arm: str, groups: Sequence[str]) -> list[Flag]:
    """That the curves of ``groups``, all of the risk set of one arm, end early, and where that was close."""
    times, count = curve.bins.times.tolist(), len(curve.shown)
    flags = []
    if count < len(times):
        end = f"{times[count - 1]:g}" if count else "the start"
        text = f"arm {arm}: too few at risk for the noise after {end}, the curve ends there"
        flags.append(Flag("curve-cut", text, tuple(f"{group} {time:g}" for group in groups for time in times[count:])))
    near = curve.bins.ends[curve.near].tolist()
    if near:
        text = (
            f"arm {arm}: hardly enough at risk for the noise from {near[0]:g} on, values there may be off by more than they say"
        )
        flags.append(Flag("near-threshold", text, tuple(f"{group} {time:g}" for group in groups for time in near)))
    return flags


def _crossing(bins: TimeBins, values: Array, level: float) -> float:
    """When a curve (usable,) first is at ``level`` or below; infinite if it never is."""
    below = np.nonzero(values <= level + _CLOSE)[0]
    if not len(below):
        return math.inf
    place = int(below[0])
    before = float(values[place - 1]) if place else 1.0
    return bins.within(place, min(max((before - level) / (before - float(values[place])), _CLOSE), 1.0))


def _reached(curve: Curve, low: Array, high: Array, level: float) -> Interval:
    """The earliest time at which the lower curve may have reached the level, and the latest at which the upper one has."""
    bins = curve.bins
    places = [np.nonzero(values <= level + _CLOSE)[0] for values in (low, high)]
    known = float(bins.ends[curve.usable - 1]) if curve.usable else 0.0
    first = float(bins.first[places[0][0]]) if len(places[0]) else known
    return first, float(bins.last[places[1][0]]) if len(places[1]) else math.inf


def _error(curve: Curve, value: float, band: Array, level: float) -> float:
    """The standard error of a quantile from where a band leaves the level; from its lower end where the upper one does not."""
    low, high = (_crossing(curve.bins, values, level) for values in band.T)
    return (high - low) / (2 * Z) if math.isfinite(high) else (value - low) / Z


def restricted_mean(curve: Curve, term: str) -> Row:
    """The area under the curve to the last time; unknown if the curve ends before.

    Events are spread evenly over the times of their bin. The bins leave open what is between the steps of the lower limit, with
    all events as early as they can be, and those of the upper one.
    """
    last = float(curve.bins.ends[-1])
    limits = (0.0, last)
    if curve.usable < len(curve.bins):
        return Row.unknown(term, limits)
    bins = curve.bins

    def area(survival: Array, times: Array) -> float:
        return float(-np.diff(np.concatenate([[1.0], survival])) @ times + survival[-1] * last)

    value = area(curve.survival, bins.middle)
    weights = np.diff(np.append(bins.middle, last))
    low, high = curve.limits
    below, above = value - area(low, bins.first), area(high, bins.last) - value
    noise, sampling = (_variance(weights, one) for one in (curve.noise_covariance, curve.sampling_covariance))
    return Row.normal(term, value, noise, sampling, limits).widened(max(below, 0.0), max(above, 0.0))


def _variance(weights: Array, covariance: Array) -> float:
    return float(weights @ covariance @ weights)


def difference_of_means(curves: Curves, term: str) -> Row:
    """Of two arms, second minus first.

    The bins move both arms alike. So what they leave open is the distance to the difference in half as many bins, and at most
    what they leave open in both arms.
    """
    found = [restricted_mean(curve, "") for curve in curves.each]
    last = float(curves.bins.ends[-1])
    first, second = found
    if math.isnan(first.value + second.value):
        return Row.unknown(term, (-last, last))
    noise, both = first.noise**2 + second.noise**2, first.error**2 + second.error**2
    value = second.value - first.value
    fewer = [restricted_mean(curve, "").value for curve in curves.halved().each]
    change = abs(value - (fewer[1] - fewer[0]))
    (less, more), (below, above) = first.resolution or (0.0, 0.0), second.resolution or (0.0, 0.0)
    # Half as many bins may be cut where these are not.
    limits = (below + more, above + less)
    open_ = limits if math.isnan(change) else (min(change, limits[0]), min(change, limits[1]))
    return Row.normal(term, value, noise, both - noise, (-last, last)).widened(*open_).tested()
