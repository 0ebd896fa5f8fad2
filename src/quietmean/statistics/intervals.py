"""Intervals and p-values that count the privacy noise in. ``noise`` and ``sampling`` are variances of an estimate.

None of them needs a bootstrap: the covariance of the noise is known exactly, and what sampling adds is estimated from what is
released.
"""

from __future__ import annotations

import math

from quietmean.core.lazy_scipy import special
from quietmean.statistics.flags_and_tests import LEVEL, Flag, HypothesisTest, Z

# Above this many times a threshold, chance hardly decides whether a number is shown.
_CLEAR = 1.5
NEAR_TEXT = "only just above the noise, and hidden: what is shown there is shown by chance, and lies too far out on average"
CHI_SQUARED = "chi-squared"
# Without noise, nothing below is a number of records.
HALF_A_RECORD = 0.5
# The flags of a count that noise hides, of a term that is hidden as it would be shown by chance, and of coefficients that noise
# hides or that may be any larger.
FEW, NEAR, NOT_IDENTIFIED, SEPARATED = "few", "near-threshold", "not-identified", "separated"
# No interval holds for the terms of these.
HIDING = (NEAR, NOT_IDENTIFIED, SEPARATED)


def least_count(deviations: float, error: float, floor: float = HALF_A_RECORD) -> float:
    """What a number of records must be above to be distinguished from none: so many deviations of its noise, and never rounding
    alone."""
    return max(deviations * error, floor)


def degrees_of_freedom(noise: float, sampling: float, degrees: float) -> float:
    """Degrees of freedom of a sum of variances of which only ``sampling`` was estimated (Welch and Satterthwaite)."""
    if sampling <= 0 or math.isinf(degrees):
        return math.inf
    return (noise + sampling) ** 2 / (sampling**2 / max(degrees, 1.0))


def satterthwaite(variance: float, uncertainty: float) -> float:
    """Degrees of freedom of an estimated variance, from half the variance of this estimate; at least 1."""
    return max(variance**2 / uncertainty, 1.0) if uncertainty > 0 else math.inf


def t_quantile(degrees: float) -> float:
    """The two-sided quantile of Student's distribution at the level of all intervals."""
    return Z if math.isinf(degrees) else float(special.stdtrit(degrees, (1 + LEVEL) / 2))


def t_test(estimate: float, error: float, degrees: float, method: str = "t test") -> HypothesisTest:
    """That the true value is 0, both sides; ``method``: what the test is called where ``error`` comes from."""
    symbol = "z" if math.isinf(degrees) else "t"
    if not error > 0:
        return HypothesisTest(math.nan, (degrees,), math.nan, method, symbol)
    ratio = estimate / error
    tail = float(special.ndtr(-abs(ratio))) if math.isinf(degrees) else float(special.stdtr(degrees, -abs(ratio)))
    return HypothesisTest(ratio, (degrees,), 2 * tail, method, symbol)


def chi_squared_test(statistic: float, degrees: float, method: str = "chi-squared test") -> HypothesisTest:
    return HypothesisTest(statistic, (degrees,), float(special.chdtrc(degrees, max(statistic, 0.0))), method, CHI_SQUARED)


def f_test(statistic: float, first: float, second: float, method: str = "F test") -> HypothesisTest:
    """The test of a ratio of variances; with infinite second degrees of freedom it is a chi-squared test."""
    ratio = max(statistic, 0.0)
    tail = float(special.chdtrc(first, first * ratio)) if math.isinf(second) else float(special.fdtrc(first, second, ratio))
    return HypothesisTest(statistic, (first, second), tail, method, "F")


def wilson(proportion: float, records: float, noise: float) -> tuple[float, float]:
    """All p with (proportion - p)^2 <= z^2 (p (1 - p) / records + noise): Wilson's interval with the noise's variance in it.

    A proportion that noise moved beyond 0 or 1 counts as that: an interval of one point would look like certainty.
    """
    proportion = min(max(proportion, 0.0), 1.0)
    pull = Z**2 / records
    middle = (proportion + pull / 2) / (1 + pull)
    rest = middle**2 - (proportion**2 - Z**2 * noise) / (1 + pull)
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


def few(subject: str, estimate: float, error: float, upper: float, terms: tuple[str, ...] = ()) -> list[Flag]:
    """A count that noise hides: what is known is an upper end, not 0 or less. ``terms``: those that it is."""
    if estimate >= 2 * error:
        return []
    limit = max(math.ceil(upper), 1)
    return [Flag(FEW, f"{subject}: fewer than {limit:,}, the noise hides how many", terms, float(limit))]


def most_of(count: float, error: float, records: float = math.inf) -> int:
    """The number that a count which noise hides is below, at the level of all intervals; ``records``: how many there can be."""
    return math.floor(min(max(count, 0.0) + Z * error, records)) + 1


def near_threshold(subject: str, ratio: float, terms: tuple[str, ...]) -> list[Flag]:
    """Flags of terms that are hidden because a quantity is only ``ratio`` times the threshold that noise sets.

    Just above the threshold, up to 1.5 times, chance would decide whether they are shown: those that were would lie beyond the
    truth on average, and their intervals hold less often. :meth:`DeclaredStatistic.decode` hides what has this flag.
    """
    if not 1 < ratio < _CLEAR:
        return []
    return [Flag.shared(NEAR, subject, NEAR_TEXT, terms)]


def quadratic_set(square: float, slope: float, constant: float) -> tuple[float, float]:
    """The ends of all r with square r^2 + slope r + constant <= 0, infinite where the set has no end (Fieller, JRSS B 16, 1954).

    A set of two rays, or of all numbers, is from -inf to inf; an empty one is the point where the left side is least.
    """
    rest = slope**2 - 4 * square * constant
    if square <= 0:
        return -math.inf, math.inf
    middle, reach = -slope / (2 * square), math.sqrt(max(rest, 0.0)) / (2 * square)
    return middle - reach, middle + reach
