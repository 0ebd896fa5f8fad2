"""Studies that were drawn before a study, summed up: widths, flags and power of a headline term, and how a width is said."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.readable import either_side, interval_text, plain
from quietmean.statistics.allocation import noise_over_sampling
from quietmean.statistics.estimate import NOT_TOLD, exp_or_infinite
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.kinds.first_look import CUT
from quietmean.statistics.kinds.linear_regression import INTERCEPT
from quietmean.statistics.tails import Z

# A term without bounds of its own is hopeless where noise is so many times its sampling error: an interval that ignored the noise
# would hold the truth in 16 % of all studies.
_MOST_NOISE = 10.0
_LEVEL = 0.05
# Where noise hides the answer in more of the drawn studies than this, it is not worth asking for.
MOST_HIDDEN = 0.5
# Flags about the study rather than about the quality of an answer.
_NOT_ABOUT_NOISE = frozenset(("sites-seen", "few-sites", "filled-in", "untested", "one-shot", NOT_TOLD, CUT))


@dataclass(frozen=True, eq=False)
class Simulated:
    """Studies that were drawn, arrays by study, of a headline term: widths of its intervals, noise over sampling error, whether
    it is flagged or unknown, whether a test at 5 % rejects (NaN without any). ``is_ratio``: is the term shown on
    the scale of logarithms?"""

    term: str
    noise: Array
    population: Array
    ratio: Array
    flagged: Mask
    rejects: Array
    is_ratio: bool = False

    @property
    def sampled(self) -> bool:
        """Is there an interval of a population?"""
        return not np.isnan(self.population).all()

    @property
    def width(self) -> float:
        """The width of the population's interval, or of the noise's where there is none: the median over studies."""
        return middle_of(self.population if self.sampled else self.noise)

    @property
    def power(self) -> float:
        return float(np.nan_to_num(self.rejects).mean()) if not np.isnan(self.rejects).all() else math.nan


def summed_up(decoded: list[Estimates], null: float | None, term: str | None = None) -> Simulated:
    """Studies that were decoded; ``null``: :attr:`Statistic.null`. ``term``: another one than the headline."""
    term = headline(decoded) if term is None else term
    rows = [_row(estimates, term, null) for estimates in decoded]
    noise, population, ratio, rejects = (np.array([row[column] for row in rows]) for column in range(4))
    flagged = np.array([_is_flagged(estimates, term) for estimates in decoded])
    index = decoded[0].terms.index(term)
    is_ratio = any(estimates.entries[index].is_ratio for estimates in decoded)
    return Simulated(term, noise, population, ratio, flagged, rejects, is_ratio)


def headline(decoded: list[Estimates]) -> str:
    """The term by which a statistic is judged: the first that is asked for, else the one in the middle by its part of noise."""
    first = decoded[0]
    if first.headline:
        return first.headline[0]
    ratio = np.median([noise_over_sampling(estimates) for estimates in decoded], axis=0)
    order = [index for index in np.argsort(ratio, kind="stable").tolist() if first.terms[index] != INTERCEPT] or [0]
    return first.terms[int(order[(len(order) - 1) // 2])]


def _row(estimates: Estimates, term: str, null: float | None) -> tuple[float, float, float, float]:
    """Widths of both intervals, noise over sampling error, and whether its test rejects."""
    index = estimates.terms.index(term)
    of_population = estimates.of_population
    population = math.nan if of_population is None else _width(of_population[index])
    return (
        _width(estimates.of_noise[index]),
        population,
        float(noise_over_sampling(estimates)[index]),
        rejects(estimates, term, null),
    )


def rejects(estimates: Estimates, term: str, null: float | None) -> float:
    """Whether the test of a term rejects, or that of the statistic, or its interval of the population; NaN without any."""
    index = estimates.terms.index(term)
    if estimates.p_value is not None and not np.isnan(estimates.p_value).all():
        return float(estimates.p_value[index] < _LEVEL)
    # Cochran's Q is left out: whether sites differ is another question than the headline's.
    tests = [test for name, test in estimates.tests.items() if not name.startswith("Q")]
    if tests:
        return float(tests[0].p_value < _LEVEL)
    if null is None or estimates.of_population is None:
        return math.nan
    low, high = estimates.of_population[index]
    return float(not low <= null <= high)


def _is_flagged(estimates: Estimates, term: str) -> bool:
    flags = [flag for flag in estimates.flags if flag.code not in _NOT_ABOUT_NOISE]
    flagged = any(term in flag.terms for flag in flags) or any(not flag.terms and flag.code != "few" for flag in flags)
    return flagged or _is_unknown(estimates, term)


def _is_unknown(estimates: Estimates, term: str) -> bool:
    return not math.isfinite(float(estimates.value[estimates.terms.index(term)]))


def hopeful(estimates: Estimates) -> bool:
    """Is any of what it is asked for first known better than its bounds tell already?

    Where there are none, better than ten times its sampling error; where nothing is said about that, at least its sign.
    """
    places = [estimates.terms.index(term) for term in estimates.headline] or list(range(len(estimates.terms)))
    room = (estimates.high - estimates.low)[places]
    value, error = estimates.value[places], estimates.standard_error[places]
    ratio = noise_over_sampling(estimates)[places]
    within = np.abs(value) > error if estimates.population is None else ratio <= _MOST_NOISE
    within = np.where(np.isfinite(room), 2 * Z * error < room, within)
    return bool((within & np.isfinite(value) & np.isfinite(error)).any())


def half_of(width: float, digits: int) -> str:
    """How far an interval of this width is on either side."""
    return plain(float(f"{width / 2:.{digits}g}"))


def reach_text(width: float, at: float | None, digits: int = 2) -> str:
    """An interval of this width as text: "±5.3", or both ends of that of a ratio ``at`` a value: "0.52 to 1.94".

    The ends of a ratio are as many times below as above it.
    """
    if at is None:
        return either_side(half_of(width, digits))
    times = math.asinh(width / (2 * at))
    return interval_text((at * exp_or_infinite(-times), at * exp_or_infinite(times)))


def _width(ends: Array) -> float:
    return float(ends[1] - ends[0])


def middle_of(values: Array) -> float:
    """The median of those that are known; infinite where fewer than half are finite."""
    there = values[~np.isnan(values)]
    return float(np.sort(there)[(len(there) - 1) // 2]) if len(there) else math.nan
