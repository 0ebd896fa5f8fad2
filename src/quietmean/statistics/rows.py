"""Terms of a statistic one by one, and all of them as estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.readable import some_of
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.flags_and_tests import Flag, Z
from quietmean.statistics.intervals import t_quantile, t_test, within

Interval = tuple[float, float]

_ANYTHING: Interval = (-math.inf, math.inf)
# The relative step of a central difference quotient.
_NUDGE = 1e-6
# The largest exponent of e within float64.
_LARGEST_POWER = 700.0
# An interval is flagged if bins are known to account for more than this part of it.
_MOST_OF_WIDTH, _ROUNDING = 0.25, 1e-9


@dataclass(frozen=True)
class Row:
    """One term: its value, standard errors of the noise and of the population, its range, two intervals, its p-value, and
    the statistic that this is of.

    ``group``: where JSON has an object by group, the group that the term is of. ``resolution``: how far below and above the value
    the one of records without bins may lie, which both intervals contain; None where nothing is binned. ``estimated``: that is no
    bound, but how far half as many bins move the value.
    """

    term: str
    value: float
    noise: float
    error: float
    low: float
    high: float
    of_noise: Interval
    of_population: Interval
    p_value: float = math.nan
    statistic: float = math.nan
    group: str = ""
    resolution: Interval | None = None
    estimated: bool = False

    @classmethod
    def normal(
        cls, term: str, value: float, noise: float, sampling: float, limits: Interval = _ANYTHING, degrees: float = math.inf
    ) -> Row:
        """From the variances of noise and of sampling, and the degrees of freedom of their sum; intervals are cut at the
        ``limits``."""
        low, high = limits
        errors = [math.sqrt(max(noise, 0.0)), math.sqrt(max(noise, 0.0) + max(sampling, 0.0))]
        reaches = [Z * errors[0], t_quantile(degrees) * errors[1]]
        ends = [within(value, reach, limits) for reach in reaches]
        return cls(term, value, errors[0], errors[1], low, high, ends[0], ends[1])

    @classmethod
    def ratio(
        cls, term: str, log: float, noise: float, sampling: float, degrees: float = math.inf, change: float | None = None
    ) -> Row:
        """A ratio from its logarithm, the variances of noise and of sampling there, and the degrees of freedom of their sum;
        tested against 1. ``change``: by how much half as many bins move the logarithm."""
        noise_only, both = math.sqrt(max(noise, 0.0)), math.sqrt(max(noise, 0.0) + max(sampling, 0.0))
        value, more = math.exp(log), change or 0.0
        reaches = [Z * noise_only + more, t_quantile(degrees) * both + more]
        ends = [(math.exp(log - reach), exp_or_infinite(log + reach)) for reach in reaches]
        test = t_test(math.copysign(max(abs(log) - more, 0.0), log), both, degrees)
        resolution = None if change is None else (value - math.exp(log - change), exp_or_infinite(log + change) - value)
        row = cls(
            term, value, value * noise_only, value * both, 0.0, math.inf, ends[0], ends[1], resolution=resolution, estimated=True
        )
        return replace(row, p_value=test.p_value, statistic=test.statistic)

    def widened(self, below: float, above: float, estimated: bool = False) -> Row:
        """The same where bins leave so much open below and above: both intervals are longer by it, within the range.

        ``estimated``: as half as many bins tell, which is no bound."""
        noise, population = (
            (max(ends[0] - below, self.low), min(ends[1] + above, self.high)) for ends in (self.of_noise, self.of_population)
        )
        return replace(self, of_noise=noise, of_population=population, resolution=(below, above), estimated=estimated)

    @classmethod
    def unknown(cls, term: str, limits: Interval = _ANYTHING) -> Row:
        """A row without an estimate, as noise hides it."""
        return cls(term, math.nan, math.inf, math.inf, *limits, limits, limits)

    def tested(self, degrees: float = math.inf) -> Row:
        """The same with the p-value of the test that it is 0, or as near to it as bins leave open."""
        below, above = self.resolution or (0.0, 0.0)
        nearest = max(self.value - below, 0.0) if self.value > 0 else min(self.value + above, 0.0)
        test = t_test(nearest, self.error, degrees)
        return replace(self, p_value=test.p_value, statistic=test.statistic)

    def possible(self) -> Row:
        """The same with the nearest value within its range; its intervals, made before, hold that."""
        return self if math.isnan(self.value) else replace(self, value=min(max(self.value, self.low), self.high))

    def of(self, group: str) -> Row:
        """The same as a term of a group."""
        return replace(self, group=group)

    @property
    def label(self) -> str:
        """The term with its group."""
        return f"{self.group} {self.term}" if self.group else self.term


def exp_or_infinite(power: float) -> float:
    """The exponential, or infinity beyond float64: an end of an interval where noise hides nearly all."""
    return math.exp(power) if power < _LARGEST_POWER else math.inf


def assembled(rows: Sequence[Row], *, parties: bool = False, flags: tuple[Flag, ...] = (), **more: Any) -> Estimates:
    """The estimates of all terms. ``parties``: nothing is said about a population of records; ``reason`` says why."""
    value, noise, error, low, high, p_value, statistic = np.array(
        [(row.value, row.noise, row.error, row.low, row.high, row.p_value, row.statistic) for row in rows], dtype=np.float64
    ).T
    grouped = any(row.group for row in rows)
    of_noise, of_population = (np.array([getattr(row, name) for row in rows]) for name in ("of_noise", "of_population"))
    binned = any(row.resolution is not None for row in rows)
    return Estimates(
        tuple(row.label for row in rows),
        value,
        noise,
        low,
        high,
        population=None if parties else error,
        interval_noise=of_noise,
        interval_population=None if parties else of_population,
        p_value=None if parties or np.isnan(p_value).all() else p_value,
        test_statistic=None if parties or np.isnan(p_value).all() else statistic,
        groups=tuple((row.group, row.term) for row in rows) if grouped else (),
        resolution=np.array([row.resolution or (0.0, 0.0) for row in rows]) if binned else None,
        flags=(*flags, *_coarse(rows, parties)),
        **more,
    )


def nothing_present(
    subject: str, terms: tuple[str, ...], limits: Sequence[tuple[float, float]], headline: tuple[str, ...] = ()
) -> Estimates:
    """Where noise hides whether anything is present, nothing is known, but between which ``limits`` each term is."""
    text = f"{subject} has too few values for its noise: nothing is known about them; ask for a larger epsilon or more records"
    ends, unknown = np.array(limits, dtype=np.float64), np.full(len(terms), math.inf)
    return Estimates(
        terms,
        np.full(len(terms), math.nan),
        unknown,
        ends[:, 0],
        ends[:, 1],
        population=unknown,
        interval_noise=ends,
        interval_population=ends,
        flags=(Flag("nothing-present", text),),
        headline=headline,
        reason=text,
    )


def _coarse(rows: Sequence[Row], parties: bool) -> tuple[Flag, ...]:
    """A flag of the terms in which bins account for more than a quarter of the interval, by an estimate and no bound.

    Where it is a bound the interval holds wherever in their bins values are, and there is nothing to be warned of.
    """
    terms = [row.label for row in rows if row.estimated and _part_of_bins(row, parties) > _MOST_OF_WIDTH]
    if not terms:
        return ()
    text = (
        f"{some_of(terms, 3)}: more than a quarter of the interval is what the bins leave open, as half as many of them tell: it "
        "may hold too seldom; choose more bins, or edges nearer together"
    )
    return (Flag("coarse-bins", text, tuple(terms)),)


def _part_of_bins(row: Row, parties: bool) -> float:
    """Which part of its interval bins leave open."""
    low, high = row.of_noise if parties else row.of_population
    open_ = sum(row.resolution or (0.0, 0.0))
    # Not where it is nothing but rounding.
    return open_ / (high - low) if open_ > _ROUNDING * max(abs(row.value), 1.0) and high > low else 0.0


def multinomial(gradient: Array, counts: Array) -> float:
    """The variance of sampling of a function of counts with this gradient, (cells,): sum n g^2 - (sum n g)^2 / N."""
    # Of counts as they are: cut at 0 one by one, their noise would add to the sum.
    total = float(counts.sum())
    return max(float(counts @ gradient**2) - float(counts @ gradient) ** 2 / total, 0.0) if total > 0 else 0.0


def spread(gradient: Array, covariance: Array) -> float:
    """The variance of a function with this gradient, (q,), of quantities with noise of this covariance, (q, q)."""
    return max(float(gradient @ covariance @ gradient), 0.0)


def slopes_of(function: Callable[[Array], Array], at: Array) -> Array:
    """The derivatives (terms, q) of a smooth function of quantities (q,), by central differences."""
    steps = _NUDGE * np.maximum(np.abs(at), 1e-3)
    columns = []
    for index, step in enumerate(steps.tolist()):
        moved = np.eye(len(at))[index] * step
        columns.append((function(at + moved) - function(at - moved)) / (2 * step))
    slopes: Array = np.column_stack(columns)
    return slopes
