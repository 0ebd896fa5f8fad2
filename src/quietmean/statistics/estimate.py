"""The estimate of one term, with its errors and intervals, of the noise and of the population."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from quietmean.core.lazy import special
from quietmean.core.readable import outcome_text, percent_text, some_of
from quietmean.statistics.intervals import fisher, wilson, within
from quietmean.statistics.tails import Tails, quantile_of_both, tails

# The only term of a statistic that is one number.
WHOLE = ""
# The most subjects of a flag that are named.
_MOST_NAMED = 3
# What may show more, also where records lack a value.
ASK_FOR_MORE = "Ask for more records or a larger epsilon (it protects less)"
TOO_FEW_COMPLETE = f"the complete records are too few for the noise. {ASK_FOR_MORE}"
COVARIATES_HIDDEN = f"the noise hides all covariates. {ASK_FOR_MORE}"
DEPENDENT = "a covariate is the same for all records, or a sum of others. Leave one out"
# Codes of flags: not all records of an answer count alike; nothing that was released tells a term, whatever the noise.
IN_PART, NOT_TOLD = "in-part", "not-told"


@dataclass(frozen=True)
class Flag:
    """A warning about some result: a short ``code`` for programs and a ``message`` in words.

    ``terms``: those of the answer that it is about; all of them where there are none. ``upper``: where noise hides a count, the
    number that the count is below. ``about``: what stands before a colon in the message of a flag that others may share.
    """

    code: str
    message: str
    terms: tuple[str, ...] = ()
    upper: float | None = None
    about: str = ""

    @classmethod
    def shared(cls, code: str, about: str, text: str, terms: tuple[str, ...] = ()) -> Self:
        """One that may be raised for many terms, levels or groups: :func:`merged` makes one of them."""
        return cls(code, f"{about}: {text}", terms, about=about)

    @property
    def text(self) -> str:
        """The message without what it is about."""
        return self.message.removeprefix(f"{self.about}: ") if self.about else self.message

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "terms": list(self.terms), "upper": self.upper}


def merged(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """One flag for each code and text, about all that they are about, and of all their terms, in the place of the first.

    Flags with an upper end of their own stay apart.
    """
    alike: dict[tuple[str, str, int], list[Flag]] = {}
    for index, flag in enumerate(flags):
        apart = index if flag.upper is not None or not flag.about else -1
        alike.setdefault((flag.code, flag.text, apart), []).append(flag)
    return tuple(_one(group) for group in alike.values())


def _one(flags: list[Flag]) -> Flag:
    if len(flags) == 1:
        return flags[0]
    names = list(dict.fromkeys(flag.about for flag in flags))
    about = some_of(names, _MOST_NAMED)
    # A flag without terms is about all of them.
    terms = [term for flag in flags for term in flag.terms] if all(flag.terms for flag in flags) else []
    return Flag.shared(flags[0].code, about, flags[0].text, tuple(dict.fromkeys(terms)))


def in_part(parts: Collection[float], parties: int) -> Flag:
    """A flag of an answer in which some of the ``parties`` count in part; ``parts``: how far each of these counts, in 0..1."""
    lowest, highest = (percent_text(part) for part in (min(parts), max(parts)))
    by = highest if lowest == highest else f"{lowest.removesuffix(' %')} to {highest}"
    counted_parties = f"{len(parts)} of {parties} parties" + (" counts" if len(parts) == 1 else " count")
    text = (
        f"not all records count alike, as a party left in mid-run. {counted_parties} by {by}. No "
        "interval says how far that is from whole records. Where it matters, ask once more"
    )
    return Flag(IN_PART, text)


@dataclass(frozen=True)
class HypothesisTest:
    """The test of a hypothesis: its ``statistic``, degrees of freedom, and p-value, with the noise counted in.

    ``method``: its name in the literature, such as "Welch's t test"; ``symbol``: what its statistic is called, such as t;
    ``about``: the column or term that it is of, where an answer has several.
    """

    statistic: float
    degrees: tuple[float, ...]
    p_value: float
    method: str = ""
    symbol: str = ""
    about: str = ""

    def hidden(self) -> Self:
        """Return it without what noise hides: its statistic and p-value."""
        return replace(self, statistic=math.nan, p_value=math.nan)

    def sentence(self, name: str) -> str:
        """The test in one line: "age: Welch's t test: t = 0.22, df 4,112, p = 0.830"; ``name``: of the test in its answer."""
        shown = outcome_text(self.method or name, self.symbol, self.statistic, self.degrees, self.p_value)
        return f"{self.about}: {shown}" if self.about else shown

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` gives, and a receipt holds."""
        return cls(
            number_of(raw["statistic"]),
            tuple(number_of(degree) for degree in raw["df"]),
            number_of(raw["p_value"]),
            *(str(raw[name]) for name in ("method", "symbol", "about")),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "symbol": self.symbol,
            "about": self.about,
            "statistic": known(self.statistic),
            "df": [known(degree) for degree in self.degrees],
            "p_value": known(self.p_value),
        }


def sentences_of_tests(tests: Iterable[tuple[str, HypothesisTest]], n: Iterable[float]) -> list[str]:
    """Each test in a line, by its name; the first with more degrees of freedom than records says why.

    ``n``: how many records each noisy term is of, NaN where that is not known. The size of the noise is known, so the degrees of
    freedom of a variance that is mostly noise are more than those of its records.
    """
    most, said, lines = max((number for number in n if math.isfinite(number)), default=math.inf), False, list[str]()
    for name, test in tests:
        counts_in = not said and any(math.isfinite(degree) and degree > most for degree in test.degrees)
        said |= counts_in
        lines.append(f"{test.sentence(name)} (noise counts in)" if counts_in else test.sentence(name))
    return lines


def known(value: float | Sequence[float]) -> Any:
    """A number for JSON, or null for NaN; of a pair, null if an end is NaN."""
    if isinstance(value, int | float):
        return None if math.isnan(value) else float(value)
    return None if any(math.isnan(number) for number in value) else [float(number) for number in value]


def number_of(raw: Any) -> float:
    """A number from JSON: NaN for null, infinite for "inf"."""
    return math.nan if raw is None else float(raw)


# Above this many times a threshold, chance hardly decides whether a number is shown.
_CLEAR = 1.5
NEAR_TEXT = "only just above the noise, and so hidden. What chance shows there lies too far out on average"
CHI_SQUARED = "chi-squared"
# Without noise, nothing below is a number of records.
HALF_A_RECORD = 0.5
# The flags of a count that noise hides, of a term that is hidden as it would be shown by chance, and of coefficients that noise
# hides or that may be any larger.
FEW, NEAR, NOT_IDENTIFIED, SEPARATED = "few", "near-threshold", "not-identified", "separated"
# The flag of a ratio in which a count is too small for its noise.
SMALL_CELL = "small-cell"
# What a study says whose answers are about its own records, so that only noise counts.
THESE_RECORDS = "these records"
# Flags of tests, of how far an interval of a population holds, and of what sites beyond these are like.
OF_A_POPULATION = frozenset(
    ("empty-margin", "few-expected", "normal-theory", "model-based", "heterogeneous", "few-sites", "untested")
)
# No interval holds for the terms of these, and no test for those of the last.
UNTESTED = (NOT_IDENTIFIED, SEPARATED)
HIDING = (NEAR, *UNTESTED)


def least_count(deviations: float, error: float, floor: float = HALF_A_RECORD) -> float:
    """What a number of records must be above to be distinguished from none: so many deviations of its noise, or as seldom as of
    normal noise, and never rounding alone."""
    return max(tails().deviations(deviations) * error, floor)


def degrees_of_freedom(noise: float, sampling: float, degrees: float) -> float:
    """Degrees of freedom of a sum of variances of which only ``sampling`` was estimated (Welch and Satterthwaite)."""
    if sampling <= 0 or math.isinf(degrees):
        return math.inf
    return (noise + sampling) ** 2 / (sampling**2 / max(degrees, 1.0))


def satterthwaite(variance: float, uncertainty: float) -> float:
    """Degrees of freedom of an estimated variance, from half the variance of this estimate; at least 1."""
    return max(variance**2 / uncertainty, 1.0) if uncertainty > 0 else math.inf


def t_test(estimate: float, error: float, degrees: float, method: str = "t test", noise: float | None = None) -> HypothesisTest:
    """The test that the true value is 0, both sides; ``method``: what the test is called where ``error`` comes from.

    ``noise``: the part of the error that noise is; by default all of it, where noise is not normal.
    """
    symbol = "z" if math.isinf(degrees) else "t"
    if not error > 0:
        return HypothesisTest(math.nan, (degrees,), math.nan, method, symbol)
    ratio = estimate / error
    tail = float(special.ndtr(-abs(ratio))) if math.isinf(degrees) else float(special.stdtr(degrees, -abs(ratio)))
    return HypothesisTest(
        ratio, (degrees,), tails().p_value(2 * tail, 1.0 if noise is None else (noise / error) ** 2), method, symbol
    )


def chi_squared_test(statistic: float, degrees: float, method: str = "chi-squared test") -> HypothesisTest:
    tail = float(special.chdtrc(degrees, max(statistic, 0.0)))
    return HypothesisTest(statistic, (degrees,), tails().p_value(tail), method, CHI_SQUARED)


def f_test(statistic: float, first: float, second: float, method: str = "F test") -> HypothesisTest:
    """The test of a ratio of variances; with infinite second degrees of freedom it is a chi-squared test."""
    ratio = max(statistic, 0.0)
    tail = float(special.chdtrc(first, first * ratio)) if math.isinf(second) else float(special.fdtrc(first, second, ratio))
    return HypothesisTest(statistic, (first, second), tails().p_value(tail), method, "F")


def few(subject: str, estimate: float, error: float, upper: float, terms: tuple[str, ...] = ()) -> list[Flag]:
    """A count that noise hides: what is known is an upper end, not 0 or less. ``terms``: those that it is."""
    if estimate >= tails().deviations(2.0) * error:
        return []
    limit = max(math.ceil(upper), 1)
    return [Flag(FEW, f"{subject}: fewer than {limit:,}. The noise hides how many", terms, float(limit))]


def most_of(count: float, error: float, records: float = math.inf) -> int:
    """The number that a count which noise hides is below, at the level of all intervals; ``records``: how many there can be."""
    return math.floor(min(max(count, 0.0) + tails().quantile() * error, records)) + 1


def near_threshold(subject: str, ratio: float, terms: tuple[str, ...]) -> list[Flag]:
    """Flags of terms that are hidden because a quantity is only ``ratio`` times the threshold that noise sets.

    Just above the threshold, up to 1.5 times, chance would decide whether they are shown: those that were would lie beyond the
    truth on average, and their intervals hold less often. :meth:`DeclaredStatistic.decode` hides what has this flag.
    """
    if not 1 < ratio < _CLEAR:
        return []
    return [Flag.shared(NEAR, subject, NEAR_TEXT, terms)]


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
    not a bound, but how far half as many bins move the value. ``is_ratio``: its intervals are on the scale of logarithms.
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
    is_ratio: bool = False

    @classmethod
    def normal(
        cls,
        term: str,
        value: float,
        noise: float,
        sampling: float,
        limits: Interval = ANYTHING,
        degrees: float = math.inf,
        own: Tails | None = None,
    ) -> Estimate:
        """Make one from the variances of noise and of sampling, and the degrees of freedom of their sum; intervals are cut at the
        ``limits``. ``own``: the tails of this noise, by default those of any that is being decoded."""
        ends = [within(value, reach, limits) for reach in _reaches(noise, sampling, degrees, own)]
        return cls(term, value, *_errors(noise, sampling), *limits, ends[0], ends[1])

    @classmethod
    def ratio(
        cls, term: str, log: float, noise: float, sampling: float, degrees: float = math.inf, change: float | None = None
    ) -> Estimate:
        """Make a ratio from its logarithm, the variances of noise and of sampling there, and the degrees of freedom of their sum;
        tested against 1. ``change``: by how much half as many bins move the logarithm."""
        noise_only, both = _errors(noise, sampling)
        value, more = math.exp(log), change or 0.0
        reaches = [reach + more for reach in _reaches(noise, sampling, degrees)]
        ends = [(math.exp(log - reach), exp_or_infinite(log + reach)) for reach in reaches]
        test = t_test(math.copysign(max(abs(log) - more, 0.0), log), both, degrees, noise=noise_only)
        resolution = None if change is None else (value - math.exp(log - change), exp_or_infinite(log + change) - value)
        return cls(
            *(term, value, value * noise_only, value * both, 0.0, math.inf, ends[0], ends[1], test.p_value, test.statistic),
            resolution=resolution,
            estimated=True,
            is_ratio=True,
        )

    @classmethod
    def correlation(cls, term: str, value: float, noise: float, sampling: float, degrees: float = math.inf) -> Estimate:
        """Make a correlation, whose intervals are on the scale of Fisher's z."""
        ends = [fisher(value, reach) for reach in _reaches(noise, sampling, degrees)]
        return cls(term, value, *_errors(noise, sampling), -1.0, 1.0, ends[0], ends[1])

    @classmethod
    def proportion(cls, term: str, value: float, noise: float, records: float, own: Tails | None = None) -> Estimate:
        """Make a part of so many records from the variance of its noise, with Wilson's interval; ``own``: its tails."""
        inside = min(max(value, 0.0), 1.0)
        estimate = cls.normal(term, value, noise, inside * (1 - inside) / records, (0.0, 1.0), own=own)
        return replace(estimate, of_population=wilson(value, records, noise, own))

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
        test = t_test(nearest, self.error, degrees, noise=self.noise)
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

    def interval(self, sampled: bool) -> Interval:
        """The interval of the population, or of the noise alone."""
        return self.of_population if sampled else self.of_noise

    def about_these_records(self) -> Estimate:
        """Count the noise alone, and test nothing."""
        return replace(self, error=self.noise, of_population=self.of_noise, p_value=math.nan, statistic=math.nan)

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


def _reaches(noise: float, sampling: float, degrees: float, own: Tails | None = None) -> tuple[float, float]:
    """Half the widths of both intervals, from variances."""
    law, (alone, both) = own or tails(), _errors(noise, sampling)
    return law.quantile() * alone, quantile_of_both(noise, sampling, degrees, law) * both


def exp_or_infinite(power: float) -> float:
    """The exponential, or infinity beyond float64: an end of an interval where noise hides nearly all."""
    return math.exp(power) if power < _LARGEST_POWER else math.inf
