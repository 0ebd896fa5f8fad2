"""The estimates of all terms of a statistic, with what is said of the whole, and the nearest that are possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.lazy import optimize
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.output import TableFile
from quietmean.core.readable import some_of
from quietmean.core.tables import Kinds, Tabular
from quietmean.statistics.compared import COMPARED
from quietmean.statistics.estimate import (
    ASK_FOR_MORE,
    HIDING,
    OF_A_POPULATION,
    THESE_RECORDS,
    UNTESTED,
    WHOLE,
    Estimate,
    Flag,
    HypothesisTest,
    Interval,
    known,
)
from quietmean.statistics.tails import LEVEL, Tails, Z

# An interval is flagged if bins are known to account for more than this part of it.
_MOST_OF_WIDTH, _ROUNDING = 0.25, 1e-9
_COARSE = "coarse-bins"
# What summaries say of a population: intervals, tests, degrees of freedom, and how sites beyond these differ.
_SAMPLED = frozenset(
    (
        *("median_interval_population", "restricted_mean_interval_population", "log-rank", "df", "adjusted_r_squared"),
        *("tau_squared", "i_squared", "heterogeneity"),
    )
)


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
    return f"{number:,.0f}" if error == 0 else f"about {number:,.0f} (standard error {error:.2g})"


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(TableFile):
    """The estimates of a statistic, one entry per term, in the units of the data; arrays of them have shape (terms,).

    A statistic that is one number has the single term ``""``. ``noise_only``: nothing is said about a population of which the
    records are a random sample; ``reason`` says why, and ``these_records`` that the study is about no others. ``since``: for
    each term the public day (YEAR-MONTH-DAY) that its value counts days from, "" where it is none; nothing at all where no term
    is a day.
    ``summary``: further numbers about the whole, plain JSON data. ``headline``: the terms that a reader asks for first; all of
    them where there are none.
    ``completeness``: how many records have what the answer needs; None where its features do not tell. ``n``: (terms, 2), how
    many records each term is of, a whole number, and the standard error of the noise in that; NaN where it is not known.
    """

    entries: tuple[Estimate, ...]
    noise_only: bool = False
    since: tuple[str, ...] = ()
    tests: Mapping[str, HypothesisTest] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    headline: tuple[str, ...] = ()
    completeness: Completeness | None = None
    n: Array | None = None
    reason: str = ""
    method: str = "normal"
    these_records: bool = False
    # Of the noise in what was released; None for normal noise.
    law: NoiseLaw | None = None

    @classmethod
    def of(cls, entries: Iterable[Estimate], *, flags: Iterable[Flag] = (), noise_only: bool = False, **more: Any) -> Self:
        """The estimates of all terms, with a flag of those of which bins leave too much open."""
        each = tuple(entries)
        return cls(each, noise_only, flags=(*flags, *_coarse(each, noise_only)), **more)

    @classmethod
    def number(
        cls, value: float, standard_error: float, low: float, high: float, *, own: Tails | None = None, **more: Any
    ) -> Self:
        """The estimate of a statistic that is one number, of whose population nothing is said; ``own``: its noise's tails."""
        return cls((Estimate.normal(WHOLE, value, standard_error**2, 0.0, (low, high), own=own),), noise_only=True, **more)

    @classmethod
    def nothing_present(cls, subject: str, limits: Mapping[str, Interval], headline: tuple[str, ...] = ()) -> Self:
        """Where noise hides whether anything is present, nothing is known, but between which ``limits`` each term is."""
        text = f"{subject} has too few values for its noise. {ASK_FOR_MORE}"
        entries = tuple(Estimate.unknown(*item) for item in limits.items())
        return cls(entries, flags=(Flag("nothing-present", text),), headline=headline, reason=text)

    @cached_property
    def terms(self) -> tuple[str, ...]:
        return tuple(entry.label for entry in self.entries)

    @cached_property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """For each term its group and its name there, where JSON has an object by group."""
        grouped = any(entry.group for entry in self.entries)
        return tuple((entry.group, entry.term) for entry in self.entries) if grouped else ()

    def _array(self, name: str) -> Array:
        return np.array([getattr(entry, name) for entry in self.entries], dtype=np.float64)

    @cached_property
    def value(self) -> Array:
        return self._array("value")

    @cached_property
    def standard_error(self) -> Array:
        """The standard errors of the noise."""
        return self._array("noise")

    @cached_property
    def low(self) -> Array:
        return self._array("low")

    @cached_property
    def high(self) -> Array:
        return self._array("high")

    @cached_property
    def population(self) -> Array | None:
        """Standard errors for the population of which the records are a random sample, the noise counted in."""
        return None if self.noise_only else self._array("error")

    @cached_property
    def of_noise(self) -> Array:
        """The interval of the noise, shape (terms, 2)."""
        return self._array("of_noise")

    @cached_property
    def of_population(self) -> Array | None:
        """The interval of the population, shape (terms, 2), or None."""
        return None if self.noise_only else self._array("of_population")

    @cached_property
    def p_value(self) -> Array | None:
        """The p-values of the tests of terms, from the population's error."""
        values = self._array("p_value")
        return None if self.noise_only or np.isnan(values).all() else values

    @property
    def test_statistic(self) -> Array | None:
        return None if self.p_value is None else self._array("statistic")

    @cached_property
    def resolution(self) -> Array | None:
        """How far below and above the estimate the answer for the same records without bins may lie, (terms, 2)."""
        binned = any(entry.resolution is not None for entry in self.entries)
        return np.array([entry.resolution or (0.0, 0.0) for entry in self.entries]) if binned else None

    def with_columns(self, **columns: Array) -> Self:
        """Replace fields of all entries, by their names, with arrays of shape (terms,), or (terms, 2) of intervals."""
        rows = zip(*(array.tolist() for array in columns.values()), strict=True)
        entries = []
        for entry, row in zip(self.entries, rows, strict=True):
            own: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in zip(columns, row, strict=True)}
            entries.append(replace(entry, **own))
        return replace(self, entries=tuple(entries))

    def changed(self, terms: Collection[str], change: Callable[[Estimate], Estimate]) -> Self:
        """Change these terms alone."""
        return replace(self, entries=tuple(change(entry) if entry.label in terms else entry for entry in self.entries))

    def without(self, terms: Collection[str], flag: Flag) -> Self:
        """Say nothing about these terms, which the flag is about; what noise hides of them goes unsaid."""
        flags = [other for other in self.flags if not (other.terms and set(other.terms) <= set(terms))]
        return replace(self.changed(terms, Estimate.not_told), flags=(*flags, flag))

    def as_shown(self) -> Self:
        """Leave out the values of terms for which no interval holds, as their flags say, and the tests of coefficients that noise
        hides: without a term of its own, a test is of all that a reader asks for first."""
        terms, lost = ({term for flag in self.flags if flag.code in codes for term in flag.terms} for codes in (HIDING, UNTESTED))
        asked = self.headline or self.terms
        tests = {
            name: test.hidden() if lost.intersection([test.about] if test.about else asked) else test
            for name, test in self.tests.items()
        }
        return replace(self.hiding(terms), tests=tests)

    def hiding(self, terms: Collection[str]) -> Self:
        """Show these terms as noise hides them: between their limits, whatever the data."""
        return self.changed(terms, Estimate.hidden) if terms else self

    def about_these_records(self) -> Self:
        """Count the noise alone: no sampling error, no test, and nothing that is said of a population."""
        entries = tuple(entry.about_these_records() for entry in self.entries)
        flags = [flag for flag in self.flags if flag.code not in (_COARSE, *OF_A_POPULATION)]
        return replace(
            self,
            entries=entries,
            noise_only=True,
            tests={},
            summary=_without_sampling(self.summary),
            flags=(*flags, *_coarse(entries, True)),
            reason="the study is about these records alone",
            method=f"{self.method.partition(';')[0]}; noise only",
            these_records=True,
        )

    def completed(self, terms: Iterable[str]) -> Self:
        """The estimates of all ``terms``, in their order: nothing is known about those that it has not."""
        own = {entry.label: entry for entry in self.entries}
        return replace(self, entries=tuple(own.get(term) or Estimate.unknown(term) for term in terms))

    def comparing(self, compared: Mapping[str, str]) -> Self:
        """Add to the summary who is compared with whom, by term or group; of others than there are nothing is added."""
        there = {label for entry in self.entries for label in (entry.label, entry.group)}
        own = {**self.summary.get(COMPARED, {}), **{term: text for term, text in compared.items() if term in there}}
        return replace(self, summary={**self.summary, COMPARED: own}) if own else self

    def in_words(self, said: Callable[[str], str]) -> Self:
        """The estimates with every sentence as it is ``said``."""
        flags = tuple(replace(flag, message=said(flag.message)) for flag in self.flags)
        summary = {key: said(text) if key == "footnote" else text for key, text in self.summary.items()}
        return replace(self, flags=flags, summary=summary, reason=said(self.reason), method=said(self.method))

    def rows(self) -> list[dict[str, Any]]:
        """One for each term, with the names of R's broom (:mod:`quietmean.statistics.tidy`)."""
        return self._tidy().rows()

    def kinds(self) -> Kinds | None:
        return self._tidy().kinds()

    def _tidy(self) -> Tabular:
        from quietmean.statistics.printed import TidyTerms

        return TidyTerms.of([self.to_json()])

    def __repr__(self) -> str:
        return repr(self._tidy())

    def _repr_html_(self) -> str:
        return self._tidy()._repr_html_()

    @property
    def coverage_ignoring_noise(self) -> Array | None:
        """How often the interval of sampling alone would hold the population's value: by term, from 0 to 1."""
        if self.population is None:
            return None
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            sampling = np.sqrt(np.maximum(self.population**2 - self.standard_error**2, 0.0))
            ratio = np.where(self.population > 0, sampling / self.population, 1.0)
        return np.array([math.erf(Z * share / math.sqrt(2)) if math.isfinite(share) else math.nan for share in ratio])

    @property
    def _noise_law(self) -> dict[str, Any]:
        law = self.law
        assert law is not None  # noqa: S101
        return {"kind": str(law.kind), "quantile": Tails.of(law).quantile()}

    def by_term(self, values: Array | None) -> Any:
        """Plain JSON data of ``values``, shape (terms,) or (terms, 2): one, or an object by term; null for what is not known."""
        if values is None:
            return None
        return self._nested([known(number) for number in values.tolist()])

    def _nested(self, values: Sequence[Any]) -> Any:
        """Values of terms as JSON has them: one, or an object by term, or these by group."""
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
            **({} if Tails.of(self.law).normal else {"noise_law": self._noise_law}),
            "standard_error_population": self.by_term(self.population),
            "interval_noise": self.by_term(self.of_noise),
            "interval_population": self.by_term(self.of_population),
            "interval_level": LEVEL,
            **({"population": THESE_RECORDS} if self.these_records else {}),
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


def _coarse(entries: Sequence[Estimate], noise_only: bool) -> tuple[Flag, ...]:
    """A flag of the terms in which bins account for more than a quarter of the interval, by an estimate and not a bound.

    Where it is a bound the interval holds wherever in their bins values are, and there is nothing to be warned of.
    """
    terms = [entry.label for entry in entries if entry.estimated and _part_of_bins(entry, noise_only) > _MOST_OF_WIDTH]
    if not terms:
        return ()
    # The one term of an answer has no name.
    about = f"{some_of(terms, 3)}: " if any(terms) else ""
    text = (
        f"{about}more than a quarter of the interval is the uncertainty within the bins, as half as many of "
        "them show. It may hold too seldom. Choose more bins, or edges nearer together"
    )
    return (Flag(_COARSE, text, tuple(terms)),)


def _without_sampling(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A summary without what sampling has a part in, in its groups as well."""
    return {
        key: _without_sampling(value) if isinstance(value, Mapping) else value
        for key, value in summary.items()
        if key not in _SAMPLED
    }


def _part_of_bins(entry: Estimate, noise_only: bool) -> float:
    """Which part of its interval bins leave open."""
    low, high = entry.of_noise if noise_only else entry.of_population
    open_ = sum(entry.resolution or (0.0, 0.0))
    # Not where it is nothing but rounding.
    return open_ / (high - low) if open_ > _ROUNDING * max(abs(entry.value), 1.0) and high > low else 0.0


@dataclass(frozen=True)
class CurveOfTerms:
    """Terms, by their places, of which each is at least the one before if it ``rises``, else at most.

    ``alike``: all weigh the same, so that no value moves further than the farthest of those that were released. ``whole``: curves
    of the same whole are as long as each other, and add up to at most 1.
    """

    places: tuple[int, ...]
    rises: bool
    alike: bool = False
    whole: str = ""


def curves_in(groups: Sequence[str], rises: bool) -> dict[str, CurveOfTerms]:
    """The curves of the terms of each group, from the group of each term."""
    names = dict.fromkeys(groups)
    return {name: CurveOfTerms(tuple(at for at, other in enumerate(groups) if other == name), rises) for name in names}


def possible(estimates: Estimates, curves: Sequence[CurveOfTerms] = ()) -> Estimates:
    """The nearest possible values of these estimates; unknown ones stay so."""
    value = estimates.value.copy()
    for curve in curves:
        places = np.array(curve.places)
        places = places[np.isfinite(value[places])]
        errors = np.ones(len(places)) if curve.alike else estimates.standard_error[places]
        value[places] = monotone(value[places], errors, rises=curve.rises)
    value = np.clip(value, estimates.low, estimates.high)
    for whole in dict.fromkeys(curve.whole for curve in curves if curve.whole):
        places = np.array([curve.places for curve in curves if curve.whole == whole])
        value[places] = _within_one(value[places])
    moved = zip(estimates.entries, value.tolist(), strict=True)
    return replace(estimates, entries=tuple(entry.moved_to(possible_value) for entry, possible_value in moved))


def monotone(values: Array, errors: Array, *, rises: bool) -> Array:
    """The nearest values that never fall, or never rise, by least squares with the inverse squares of the ``errors``, (n,)."""
    steps = np.diff(values) if rises else -np.diff(values)
    if not (steps < 0).any():
        return values
    largest = float(errors.max())
    # An error of next to nothing is rounding.
    weights = np.ones(len(errors)) if not largest > 0 else 1 / np.maximum(errors / largest, 1e-6) ** 2
    nearest: Array = optimize.isotonic_regression(values, weights=weights, increasing=rises).x
    return nearest


def _within_one(curves: Array) -> Array:
    """Curves (curves, n) that rise no more from where they add up to 1, and end where the first unknown value is."""
    known = ~np.isnan(curves).any(axis=0)
    steps = np.diff(curves[:, known], axis=1, prepend=0.0)
    total = np.cumsum(steps.sum(axis=0))
    before = np.concatenate([[0.0], total])[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(total > 1, np.clip((1 - before) / (total - before), 0.0, 1.0), 1.0)
    within = curves.copy()
    within[:, known] = np.cumsum(steps * kept, axis=1)
    return within
