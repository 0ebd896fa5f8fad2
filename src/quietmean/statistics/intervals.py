"""The ends of intervals at 95 %: of parts, correlations, ratios, and of what has limits."""

from __future__ import annotations

import math

import numpy as np

from quietmean.core.lazy import optimize, special
from quietmean.statistics.tails import Tails, Z, tails

# Points at which a distribution of variances is held, and where they are: the middles of so many equal parts.
_POINTS = (np.arange(400) + 0.5) / 400
# Below this part of the noise, a variance of the noise itself is rounding.
_NEXT_TO_NOTHING = 1e-9


def wilson(proportion: float, records: float, noise: float, own: Tails | None = None) -> tuple[float, float]:
    """All p with (proportion - p)^2 <= z^2 (p (1 - p) / records + noise): Wilson's interval with the noise's variance in it.

    z is that of the noise and of sampling together, at the proportion; ``own``: of this noise, by default as of any.

    A proportion that noise moved beyond 0 or 1 counts as that: an interval of one point would look like certainty.
    """
    proportion = min(max(proportion, 0.0), 1.0)
    quantile = (own or tails()).quantile(noise, proportion * (1 - proportion) / records)
    pull = quantile**2 / records
    middle = (proportion + pull / 2) / (1 + pull)
    rest = middle**2 - (proportion**2 - quantile**2 * noise) / (1 + pull)
    # Far outside 0 to 1 only noise is left: no p fits as well as the nearest end.
    reach = math.sqrt(max(rest, 0.0))
    low, high = (min(max(end, 0.0), 1.0) for end in (middle - reach, middle + reach))
    return low, high


def within(value: float, reach: float, limits: tuple[float, float]) -> tuple[float, float]:
    """An interval that reaches so far from a value, within its limits.

    A value that noise moved beyond them counts as the nearest: an interval of one point would look like certainty.
    """
    low, high = limits
    inside = min(max(value, low), high)
    return max(inside - reach, low), min(inside + reach, high)


def fisher(value: float, reach: float) -> tuple[float, float]:
    """The interval of a correlation on the scale of Fisher's z, on which an error is divided by 1 - r^2."""
    if math.isnan(value) or abs(value) >= 1:
        return (-1.0, 1.0) if reach > 0 else (value, value)
    away = reach / (1 - value**2)
    return math.tanh(math.atanh(value) - away), math.tanh(math.atanh(value) + away)


def quadratic_set(square: float, slope: float, constant: float) -> tuple[float, float]:
    """The ends of all r with square r^2 + slope r + constant <= 0, infinite where the set has no end (Fieller, JRSS B 16, 1954).

    A set of two rays, or of all numbers, is from -inf to inf; an empty one is the point where the left side is least.
    """
    rest = slope**2 - 4 * square * constant
    if square <= 0:
        return -math.inf, math.inf
    middle, reach = -slope / (2 * square), math.sqrt(max(rest, 0.0)) / (2 * square)
    return middle - reach, middle + reach


def degrees_of_both(noise: float, sampling: float, degrees: float, added: float) -> float:
    """Degrees of freedom of a known variance of ``noise`` plus one of ``sampling`` in whose estimate more noise was.

    That estimate had so many ``degrees`` of freedom, and the variance ``added`` to it, which was taken off again: it may be below
    0. The variances V >= 0 of sampling that it leaves possible have the prior density ((V + noise) (V + added))^(-1/2); without
    noise that gives Student's t. What is returned has its quantile at 97.5 % where the mixture of normals has it, in errors of
    the noise and the positive part of ``sampling``.
    """
    if added <= _NEXT_TO_NOTHING * (noise + max(sampling, 0.0)):
        total = noise + max(sampling, 0.0)
        return max(total**2 / sampling**2 * degrees, 1.0) if sampling > 0 else math.inf
    whole = max(sampling + added, _NEXT_TO_NOTHING * added)
    # sampling + added over V + added is a chi-squared variable over its degrees, of which V >= 0 leaves a part.
    most = float(special.gammainc(degrees / 2, degrees * whole / added / 2))
    drawn = 2 * special.gammaincinv(degrees / 2, _POINTS * most)
    possible = np.maximum(degrees * whole / np.maximum(drawn, np.finfo(np.float64).tiny) - added, 0.0)
    chances = np.sqrt((possible + added) / (possible + noise))
    errors, chances = np.sqrt(possible + noise), chances / chances.sum()
    outside = optimize.brentq(
        lambda reach: 2 * float(special.ndtr(-reach / errors) @ chances) - 0.05, float(errors.min()), 40 * float(errors.max())
    )
    quantile = outside / math.sqrt(noise + max(sampling, 0.0))
    return max(float(special.stdtridf(0.975, quantile)), 1.0) if quantile > Z else math.inf
