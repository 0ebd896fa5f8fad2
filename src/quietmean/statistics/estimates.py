"""Estimates with their errors and intervals, of the noise and of the population."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.table_files import TableFile
from quietmean.core.tables import Kinds, Tabular
from quietmean.statistics.flags_and_tests import LEVEL, WHOLE, Flag, HypothesisTest, Z, known
from quietmean.statistics.intervals import HIDING


@dataclass(frozen=True)
class Completeness:
    """How many records have a value in all columns that an answer needs, and how many have not, with errors of the noise.

    NaN where nothing that was released tells: nobody knows it. An error of 0: it follows from public numbers. ``outside``: how
    many records lie outside the condition of the answer, which neither have such a value nor lack one; None without a condition.
    """

    present: float
    missing: float
    present_error: float
    missing_error: float
    outside: float | None = None
    outside_error: float | None = None

    def to_json(self) -> dict[str, Any]:
        document = {
            "present": known(self.present),
            "missing": known(self.missing),
            "standard_error_present": known(self.present_error),
            "standard_error_missing": known(self.missing_error),
        }
        if self.outside is None or self.outside_error is None:
            return document
        return document | {"outside": known(self.outside), "standard_error_outside": known(self.outside_error)}

    def __str__(self) -> str:
        parts = [
            (self.present, self.present_error, "have all values that it needs"),
            (self.missing, self.missing_error, "have not"),
        ]
        if self.outside is not None and self.outside_error is not None:
            parts.append((self.outside, self.outside_error, "are outside its condition"))
        return "; ".join(f"{_about(*number)} records {text}" for *number, text in parts)


def _about(number: float, error: float) -> str:
    """A number of records, with the standard error of its noise where it has one."""
    if math.isnan(number):
        return "an unknown number of"
    return f"{number:,.0f}" if error == 0 else f"about {number:,.0f} (± {error:.2g})"


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(TableFile):
    """The estimates of a statistic, one entry per term: arrays of shape (terms,), in the units of the data.

    ``standard_error`` is that of the privacy noise: of the distance from what the same counted records give without noise.
    ``low`` and ``high``: what the term can be at the least and at the most, whatever the data. NaN stands for an estimate that
    the noise does not allow, and for an error or an interval about which nothing is known. A statistic that is one number has the
    single term ``""``.

    ``population``: standard errors for the population of which the records are a random sample, the noise counted in.
    ``interval_noise`` and ``interval_population``: (terms, 2), at 95 %; otherwise the normal ones, cut at ``low`` and ``high``.
    ``reason``: why there is no interval of the population. ``p_value`` and ``test_statistic``: by term, of the test of the term,
    from the population's error. ``since``: for each term the public day (YEAR-MONTH-DAY) that its value counts days from, ""
    where it is none; nothing at all where no term is a day.
    ``summary``: further numbers about the whole, plain JSON data. ``groups``: for each term its group and its name there,
    where JSON has an object by group. ``headline``: the terms that a reader asks for first; all of them where there are none.
    ``resolution``: (terms, 2), how far below and above the estimate the answer for the same records without bins may lie; both
    intervals contain it already.
    ``completeness``: how many records have what the answer needs; None where its features do not tell. ``n``: (terms, 2), how
    many records each term is of, a whole number, and the standard error of the noise in that; NaN where it is not known.
    """

    terms: tuple[str, ...]
    value: Array
    standard_error: Array
    low: Array
    high: Array
    population: Array | None = None
    interval_noise: Array | None = None
    interval_population: Array | None = None
    p_value: Array | None = None
    test_statistic: Array | None = None
    since: tuple[str, ...] = ()
    tests: Mapping[str, HypothesisTest] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[tuple[str, str], ...] = ()
    flags: tuple[Flag, ...] = ()
    headline: tuple[str, ...] = ()
    resolution: Array | None = None
    completeness: Completeness | None = None
    n: Array | None = None
    reason: str = ""
    method: str = "normal"

    @classmethod
    def number(cls, value: float, standard_error: float, low: float, high: float, **more: Any) -> Self:
        """The estimates of a statistic that is one number; intervals are pairs, ``population`` a number."""
        arrays = {
            name: np.atleast_1d(array) for name, array in more.items() if name in ("population", "p_value") and array is not None
        }
        arrays |= {name: np.array([array]) for name, array in more.items() if name.startswith("interval") and array is not None}
        values, errors, lows, highs = (np.array([entry], dtype=np.float64) for entry in (value, standard_error, low, high))
        return cls((WHOLE,), values, errors, lows, highs, **{**more, **arrays})

    def without(self, terms: Collection[str], flag: Flag) -> Self:
        """The same with nothing known about these terms, for which the flag stands; what noise hides of them goes unsaid."""
        lost = np.array([term in terms for term in self.terms])
        ends = self.of_population

        def unknown(values: Array | None) -> Array | None:
            return None if values is None else np.where(lost if values.ndim == 1 else lost[:, None], math.nan, values)

        flags = [other for other in self.flags if not (other.terms and set(other.terms) <= set(terms))]
        return replace(
            self,
            value=np.where(lost, math.nan, self.value),
            standard_error=np.where(lost, math.nan, self.standard_error),
            population=unknown(self.population),
            interval_noise=unknown(self.of_noise),
            interval_population=unknown(ends),
            p_value=unknown(self.p_value),
            test_statistic=unknown(self.test_statistic),
            flags=(*flags, flag),
        )

    def as_shown(self) -> Self:
        """The same without the terms for which no interval holds, as their flags say."""
        return self.hiding({term for flag in self.flags if flag.code in HIDING for term in flag.terms})

    def hiding(self, terms: Collection[str]) -> Self:
        """The same with these terms as noise hides them: between their limits, whatever the data."""
        if not terms:
            return self
        lost, ends = np.array([term in terms for term in self.terms]), np.column_stack([self.low, self.high])
        endless, nothing = np.where(lost, math.inf, 0.0), np.where(lost, math.nan, 0.0)

        def hidden(values: Array | None) -> Array | None:
            return None if values is None else np.where(lost[:, None], ends, values)

        return replace(
            self,
            value=self.value + nothing,
            standard_error=self.standard_error + endless,
            population=None if self.population is None else self.population + endless,
            interval_noise=hidden(self.of_noise),
            interval_population=hidden(self.of_population),
            p_value=None if self.p_value is None else self.p_value + nothing,
            test_statistic=None if self.test_statistic is None else self.test_statistic + nothing,
            resolution=None if self.resolution is None else np.where(lost[:, None], 0.0, self.resolution),
        )

    def in_words(self, said: Callable[[str], str]) -> Self:
        """With every sentence as it is ``said``."""
        flags = tuple(replace(flag, message=said(flag.message)) for flag in self.flags)
        summary = {key: said(text) if key == "footnote" else text for key, text in self.summary.items()}
        return replace(self, flags=flags, summary=summary, reason=said(self.reason), method=said(self.method))

    def rows(self) -> list[dict[str, Any]]:
        """One for each term, with the names of R's broom (:mod:`quietmean.statistics.tidy`)."""
        return self._tidy().rows()

    def kinds(self) -> Kinds | None:
        return self._tidy().kinds()

    def _tidy(self) -> Tabular:
        from quietmean.statistics.tidy_tables import TidyTerms

        return TidyTerms.of([self.to_json()])

    def __repr__(self) -> str:
        return repr(self._tidy())

    def _repr_html_(self) -> str:
        return self._tidy()._repr_html_()

    @property
    def of_noise(self) -> Array:
        """The interval of the noise, shape (terms, 2)."""
        return self._interval(self.standard_error) if self.interval_noise is None else self.interval_noise

    @property
    def of_population(self) -> Array | None:
        """The interval of the population, shape (terms, 2), or None."""
        if self.interval_population is None and self.population is not None:
            return self._interval(self.population)
        return self.interval_population

    def _interval(self, error: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            # Beyond the range an interval of one point would look like certainty.
            inside = np.clip(self.value, self.low, self.high)
            ends = np.column_stack([inside - Z * error, inside + Z * error])
        return np.clip(ends, self.low[:, None], self.high[:, None])

    @property
    def coverage_ignoring_noise(self) -> Array | None:
        """How often the interval of sampling alone would hold the population's value: by term, from 0 to 1."""
        if self.population is None:
            return None
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            sampling = np.sqrt(np.maximum(self.population**2 - self.standard_error**2, 0.0))
            ratio = np.where(self.population > 0, sampling / self.population, 1.0)
        return np.array([math.erf(Z * share / math.sqrt(2)) if math.isfinite(share) else math.nan for share in ratio])

    def by_term(self, values: Array | None) -> Any:
        """Plain JSON data of ``values``, shape (terms,) or (terms, 2): one, or an object by term; null for what is not known."""
        if values is None:
            return None
        return self._nested([known(number) for number in values.tolist()])

    def _nested(self, values: Sequence[Any]) -> Any:
        """One of each term: one, or an object by term, or these by group."""
        if not self.groups:
            return values[0] if self.terms == (WHOLE,) else dict(zip(self.terms, values, strict=True))
        nested: dict[str, dict[str, Any]] = {group: {} for group, _ in self.groups}
        for (group, name), value in zip(self.groups, values, strict=True):
            nested[group][name] = value
        return nested

    def to_json(self) -> dict[str, Any]:
        """What 'statistics' of a result has for each: estimates, errors, intervals, flags."""
        document = {
            "terms": list(self.terms),
            **({"groups": [group for group, _ in self.groups]} if self.groups else {}),
            "estimate": self.by_term(self.value),
            "standard_error": self.by_term(self.standard_error),
            "standard_error_population": self.by_term(self.population),
            "interval_noise": self.by_term(self.of_noise),
            "interval_population": self.by_term(self.of_population),
            "interval_level": LEVEL,
            **({"resolution": self.by_term(self.resolution)} if self.resolution is not None else {}),
            "p_value": self.by_term(self.p_value),
            "test_statistic": self.by_term(self.test_statistic),
            **({"since": self._nested([day or None for day in self.since])} if self.since else {}),
            "flags": [flag.code for flag in self.flags],
            "messages": [flag.message for flag in self.flags],
            "flagged": [flag.to_json() for flag in self.flags],
            "method": self.method,
            "coverage_ignoring_noise": self.by_term(self.coverage_ignoring_noise),
            "completeness": None if self.completeness is None else self.completeness.to_json(),
            "n": None if self.n is None else self.by_term(self.n[:, 0]),
            "n_standard_error": None if self.n is None else self.by_term(self.n[:, 1]),
        }
        if self.tests:
            document["tests"] = {name: test.to_json() for name, test in self.tests.items()}
        if self.summary:
            document["summary"] = dict(self.summary)
        return document | ({"reason": self.reason} if self.reason else {})
