"""The estimate of one term, with its errors and intervals, of the noise and of the population."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from quietmean.statistics.intervals import Z, fisher, t_quantile, t_test, wilson, within

Interval = tuple[float, float]

ANYTHING: Interval = (-math.inf, math.inf)
# The largest exponent of e within float64.
_LARGEST_POWER = 700.0
_NOT_KNOWN: Interval = (math.nan, math.nan)


@dataclass(frozen=True)
class Estimate:
    """One term: its value, standard errors of the noise and of the population, its range, two intervals at 95 %, its p-value, and
    the statistic of that test.

    ``noise`` is the error of the privacy noise: of the distance from what the same counted records give without noise. ``low``
    and ``high``: what the term can be at the least and at the most, whatever the data. NaN means an estimate that the noise does
    not allow, and an error or an interval about which nothing is known.
    ``group``: where JSON has an object by group, the group that the term is of. ``resolution``: how far below and above the value
    the one of records without bins may lie, which both intervals contain; None where nothing is binned. ``estimated``: that is
    not a bound, but how far half as many bins move the value.
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
        cls, term: str, value: float, noise: float, sampling: float, limits: Interval = ANYTHING, degrees: float = math.inf
    ) -> Estimate:
        """Make one from the variances of noise and of sampling, and the degrees of freedom of their sum; intervals are cut at the
        ``limits``."""
        errors = _errors(noise, sampling)
        ends = [within(value, factor * error, limits) for factor, error in zip((Z, t_quantile(degrees)), errors, strict=True)]
        return cls(term, value, *errors, *limits, ends[0], ends[1])

    @classmethod
    def ratio(
        cls, term: str, log: float, noise: float, sampling: float, degrees: float = math.inf, change: float | None = None
    ) -> Estimate:
        """Make a ratio from its logarithm, the variances of noise and of sampling there, and the degrees of freedom of their sum;
        tested against 1. ``change``: by how much half as many bins move the logarithm."""
        noise_only, both = _errors(noise, sampling)
        value, more = math.exp(log), change or 0.0
        reaches = [Z * noise_only + more, t_quantile(degrees) * both + more]
        ends = [(math.exp(log - reach), exp_or_infinite(log + reach)) for reach in reaches]
        test = t_test(math.copysign(max(abs(log) - more, 0.0), log), both, degrees)
        resolution = None if change is None else (value - math.exp(log - change), exp_or_infinite(log + change) - value)
        return cls(
            *(term, value, value * noise_only, value * both, 0.0, math.inf, ends[0], ends[1], test.p_value, test.statistic),
            resolution=resolution,
            estimated=True,
        )

    @classmethod
    def correlation(cls, term: str, value: float, noise: float, sampling: float, degrees: float = math.inf) -> Estimate:
        """Make a correlation, whose intervals are on the scale of Fisher's z."""
        errors = _errors(noise, sampling)
        ends = [fisher(value, factor * error) for factor, error in zip((Z, t_quantile(degrees)), errors, strict=True)]
        return cls(term, value, *errors, -1.0, 1.0, ends[0], ends[1])

    @classmethod
    def proportion(cls, term: str, value: float, noise: float, records: float) -> Estimate:
        """Make a part of so many records from the variance of its noise, with Wilson's interval."""
        inside = min(max(value, 0.0), 1.0)
        estimate = cls.normal(term, value, noise, inside * (1 - inside) / records, (0.0, 1.0))
        return replace(estimate, of_population=wilson(value, records, noise))

    @classmethod
    def unknown(cls, term: str, limits: Interval = ANYTHING) -> Estimate:
        """Make a term without an estimate, as noise hides it."""
        return cls(term, math.nan, math.inf, math.inf, *limits, limits, limits)

    @property
    def known(self) -> bool:
        return not math.isnan(self.value)

    @property
    def label(self) -> str:
        """The term with its group."""
        return f"{self.group} {self.term}" if self.group else self.term

    def times(self, factor: float) -> Estimate:
        """The estimate in other units: of a part times all records, of a rate times a number of units."""
        numbers = {name: factor * getattr(self, name) for name in ("value", "noise", "error", "low", "high")}
        ends = [(factor * low, factor * high) for low, high in (self.of_noise, self.of_population)]
        return replace(self, **numbers, of_noise=ends[0], of_population=ends[1])

    def widened(self, below: float, above: float, estimated: bool = False) -> Estimate:
        """Lengthen both intervals, within the range, by what bins leave open below and above.

        ``estimated``: as half as many bins tell, which is not a bound."""
        noise, population = (
            (max(ends[0] - below, self.low), min(ends[1] + above, self.high)) for ends in (self.of_noise, self.of_population)
        )
        return replace(self, of_noise=noise, of_population=population, resolution=(below, above), estimated=estimated)

    def tested(self, degrees: float = math.inf) -> Estimate:
        """Add the p-value of the test that it is 0, or as near to it as bins leave open."""
        below, above = self.resolution or (0.0, 0.0)
        nearest = max(self.value - below, 0.0) if self.value > 0 else min(self.value + above, 0.0)
        test = t_test(nearest, self.error, degrees)
        return replace(self, p_value=test.p_value, statistic=test.statistic)

    def possible(self) -> Estimate:
        """Take the nearest value within its range; its intervals, made before, hold that."""
        return replace(self, value=min(max(self.value, self.low), self.high)) if self.known else self

    def moved_to(self, value: float) -> Estimate:
        """Take a possible value in place of the one that was released; intervals stay, and reach to it."""
        if math.isnan(value):
            return replace(self, value=value)
        noise, population = ((min(low, value), max(high, value)) for low, high in (self.of_noise, self.of_population))
        return replace(self, value=value, of_noise=noise, of_population=population)

    def of(self, group: str) -> Estimate:
        """Make it a term of a group."""
        return replace(self, group=group)

    def hidden(self) -> Estimate:
        """Say nothing but its range, as where noise hides it."""
        limits = (self.low, self.high)
        binned = None if self.resolution is None else (0.0, 0.0)
        return replace(Estimate.unknown(self.term, limits), group=self.group, resolution=binned)

    def not_told(self) -> Estimate:
        """Say nothing at all, as nothing that was released tells it."""
        return Estimate(
            *(self.term, math.nan, math.nan, math.nan, self.low, self.high, _NOT_KNOWN, _NOT_KNOWN),
            group=self.group,
            resolution=self.resolution,
        )


def _errors(noise: float, sampling: float) -> tuple[float, float]:
    """The standard errors of noise alone and of both, from variances."""
    noise = max(noise, 0.0)
    return math.sqrt(noise), math.sqrt(noise + max(sampling, 0.0))


def exp_or_infinite(power: float) -> float:
    """The exponential, or infinity beyond float64: an end of an interval where noise hides nearly all."""
    return math.exp(power) if power < _LARGEST_POWER else math.inf
