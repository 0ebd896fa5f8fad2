"""What an answer says in one sentence, from its JSON: the line that stands over its figure and table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from quietmean.core.readable import HIDDEN, UNKNOWN, fixed, p_phrase, some_of
from quietmean.statistics.columns import MISSING
from quietmean.statistics.estimate import WHOLE, HypothesisTest
from quietmean.statistics.printed import capital, names_in, notes_of, shown
from quietmean.statistics.tidy import Term, terms_of

NOTHING = "The noise hides what was asked"
# Flags about who sees an answer, and how far it holds: they do not explain a missing one.
_NO_REASON = ("sites-seen", "few-sites", "one-shot")
_MOST_NAMED = 3
_SURE = 0.05
_INTERCEPT = "(Intercept)"
# Terms of ``group-means`` that compare groups.
_COMPARED = ("difference", "smd", "cohen-d")


@dataclass(frozen=True, eq=False)
class StatedAnswer:
    """An answer that a finding is about: the entry of 'statistics' in a result."""

    document: Mapping[str, Any]
    counted: str = "records"

    @cached_property
    def terms(self) -> dict[str, Term]:
        """The terms by their labels."""
        return {term.term: term for term in terms_of(self.document)}

    @cached_property
    def tests(self) -> dict[str, HypothesisTest]:
        """The tests that have a p-value, by name."""
        tests = {name: HypothesisTest.of_json(raw) for name, raw in self.document.get("tests", {}).items()}
        return {name: test for name, test in tests.items() if not math.isnan(test.p_value)}

    @property
    def summary(self) -> Mapping[str, Any]:
        summary = self.document.get("summary", {})
        return summary if isinstance(summary, Mapping) else {}

    def known(self, term: str) -> bool:
        return term in self.terms and math.isfinite(self.terms[term].estimate)

    @property
    def all_known(self) -> list[Term]:
        return [term for term in self.terms.values() if math.isfinite(term.estimate)]

    def value(self, term: str) -> str:
        """An estimate with its interval of the population, or of the noise where nothing else is known."""
        return with_interval(self.terms[term]) if term in self.terms else HIDDEN

    def p(self, *tests: str) -> str:
        """The first of these tests that is known, as in ", p = 0.03"; nothing where none is."""
        return next((f", {p_phrase(self.tests[name].p_value)}" for name in tests if name in self.tests), "")

    def p_of(self, term: str) -> str:
        """The p-value of a term, or nothing."""
        stated = self.terms.get(term)
        return "" if stated is None or math.isnan(stated.p_value) else f", {p_phrase(stated.p_value)}"


def with_interval(term: Term) -> str:
    """An estimate and its interval: "4.9 (95 % 2.9 to 7.0)"."""
    texts = shown(term)
    population = texts.population if texts.population != UNKNOWN and not math.isnan(sum(term.population)) else ""
    ends = population or texts.noise
    if term.hidden and texts.estimate.startswith("<"):
        return f"fewer than {texts.estimate.removeprefix('< ')}" if term.counts else f"below {texts.estimate.removeprefix('< ')}"
    if texts.estimate in (HIDDEN, UNKNOWN):
        return "hidden by the noise"
    whose = "" if population else " for the noise"
    return f"{texts.estimate} (95 %{whose} {ends})" if ends not in ("", UNKNOWN) else texts.estimate


def finding(document: Mapping[str, Any], counted: str = "records") -> str:
    """What an entry of 'statistics' in a result says, in a sentence without a full stop; never empty. ``counted``: of what."""
    answer = StatedAnswer(document, counted)
    sentence = _SAYS.get(str(document.get("kind", "")), _first)(answer)
    return sentence or _reason(document)


def _reason(document: Mapping[str, Any]) -> str:
    """Why an answer is missing, as the notes say it, unless that is a list of many: then these say it, and this that it is so."""
    flags = [flag for flag in document.get("flagged", ()) if flag["code"] not in _NO_REASON]
    first = next(iter(notes_of(flags)), NOTHING)
    reason = first if first in {flag["message"] for flag in flags} else NOTHING
    return capital(reason, names_in(document)).removesuffix(".")


def _first(answer: StatedAnswer) -> str:
    """The first terms, and what the first test says."""
    terms = answer.all_known[:_MOST_NAMED]
    stated = "; ".join(f"{term.term or answer.document.get('name', '')}: {with_interval(term)}" for term in terms)
    return stated + answer.p(*answer.tests) if stated else ""


def _one(subject: str) -> Callable[[StatedAnswer], str]:
    """The sentence of a statistic that is one number: "The mean is ..."."""

    def says(answer: StatedAnswer) -> str:
        return f"The {subject} is {answer.value(WHOLE)}" if answer.known(WHOLE) else ""

    return says


def _count(answer: StatedAnswer) -> str:
    term = answer.terms[WHOLE]
    return f"{with_interval(term)[:1].upper()}{with_interval(term)[1:]} {answer.counted} are counted"


def _variance(answer: StatedAnswer) -> str:
    return f"The standard deviation is {answer.value('sd')}"


def _largest(terms: Iterable[Term]) -> Term | None:
    finite = [term for term in terms if math.isfinite(term.estimate) and term.own != MISSING]
    return max(finite, key=lambda term: term.estimate, default=None)


def _proportion(answer: StatedAnswer) -> str:
    if WHOLE in answer.terms:
        return f"The proportion is {answer.value(WHOLE)}"
    largest = _largest(answer.terms.values())
    return f"The most frequent level is {largest.term}, with a proportion of {with_interval(largest)}" if largest else ""


def _histogram(answer: StatedAnswer) -> str:
    largest = _largest(term for term in answer.terms.values() if term.term not in ("below", "above"))
    total = sum(max(term.estimate, 0.0) for term in answer.all_known if term.term != MISSING)
    if largest is None or not 0 < total < math.inf or not largest.estimate > 0 or largest.upper is not None:
        return ""
    share = 100 * largest.estimate / total
    return f"Most {answer.counted} are in {largest.term}: {with_interval(largest)}, {fixed(share, 0)} % of those with a value"


def _cdf(answer: StatedAnswer) -> str:
    """At which edge a quarter, half and three quarters of the values are reached."""
    phrases = []
    for name, part in (("a quarter", 0.25), ("half", 0.5), ("three quarters", 0.75)):
        reached = next((term.term for term in answer.terms.values() if term.estimate >= part), None)
        if reached is not None:
            phrases.append(f"{name} are at most {reached}")
    return f"Of the values, at least {', '.join(phrases)}" if phrases else ""


def _quantiles(answer: StatedAnswer) -> str:
    names = {"0.5": "median", "0.25": "lower quartile", "0.75": "upper quartile"}
    quantiles = [name for name in names if name in answer.terms] or list(answer.terms)[:_MOST_NAMED]
    if not any(answer.known(name) for name in quantiles):
        return ""
    return capital(", ".join(f"the {names.get(name, 'quantile ' + name)} is {answer.value(name)}" for name in quantiles))


def _crosstab(answer: StatedAnswer) -> str:
    p = answer.p("chi-squared")
    if answer.known("odds-ratio"):
        return f"The odds ratio is {answer.value('odds-ratio')}{p}"
    if p:
        return f"Independence of the two: Pearson's chi-squared test{p}"
    cells = [term for term in answer.all_known if term.upper is None and MISSING not in term.term.split(":")]
    largest = _largest(cells)
    return f"The largest cell is {largest.label}: {with_interval(largest)}" if largest else ""


def _group_means(answer: StatedAnswer) -> str:
    if answer.known("difference"):
        p = answer.p("t-test") or answer.p_of("difference")
        groups = [name for name in answer.terms if name not in _COMPARED]
        difference = f"{groups[1]} minus {groups[0]}" if len(groups) == 2 else "second minus first group"
        return f"The difference of means, {difference}, is {answer.value('difference')}{p}"
    means = [term for term in answer.all_known if term.term not in _COMPARED]
    if not means:
        return ""
    low, high = (choose(means, key=lambda term: term.estimate) for choose in (min, max))
    if low is high:
        return f"The mean of {low.term} is {with_interval(low)}"
    return f"Means are from {low.term}, {with_interval(low)}, to {high.term}, {with_interval(high)}{answer.p('anova')}"


def _correlation(answer: StatedAnswer) -> str:
    if WHOLE in answer.terms:
        return f"The correlation is {answer.value(WHOLE)}{answer.p_of(WHOLE) or answer.p('correlation')}"
    correlations = answer.all_known
    if not correlations:
        return ""
    strongest = max(correlations, key=lambda term: abs(term.estimate))
    return f"The strongest correlation is that of {' and '.join(strongest.term.split(':'))}: {with_interval(strongest)}"


def _covariance(answer: StatedAnswer) -> str:
    """The first covariances of different columns: the other terms are variances."""
    covariances = [term for term in answer.all_known if len(set(term.term.split(":"))) > 1][:_MOST_NAMED]
    return capital(
        "; ".join(
            f"the covariance of {' and '.join(covariance.term.split(':'))} is {with_interval(covariance)}"
            for covariance in covariances
        )
    )


def _regression(answer: StatedAnswer) -> str:
    """The slope that is clearest, by its own error."""
    slopes = [term for term in answer.all_known if term.term not in (_INTERCEPT, "auc")]
    sure = [term for term in slopes if 0 < _error(term) < math.inf]
    if not sure:
        return ""
    clearest = max(sure, key=lambda term: abs(term.estimate) / _error(term))
    more = f"; the area under the ROC curve is {answer.value('auc')}" if answer.known("auc") else ""
    squared = answer.summary.get("r_squared")
    more += f"; R² = {fixed(float(squared), 2)}" if isinstance(squared, int | float) and math.isfinite(squared) else ""
    return f"The clearest slope is that of {clearest.term}: {with_interval(clearest)}{answer.p_of(clearest.term)}{more}"


def _error(term: Term) -> float:
    return term.error if math.isfinite(term.error) else term.noise_error


def _survival(answer: StatedAnswer) -> str:
    medians = [term for term in answer.terms.values() if term.group == "median"]
    if not any(_says_something(term) for term in medians):
        return ""
    texts = {term.own: with_interval(term) if _says_something(term) else "not known" for term in medians}
    if len(texts) == 1:
        (text,) = texts.values()
        return f"The median time is {text}"
    tested = answer.p("log-rank")
    if tested:
        tested = f"; {answer.tests['log-rank'].method or 'log-rank test'}{tested}"
    return f"Median times: {'; '.join(f'{arm} {text}' for arm, text in texts.items())}{tested}"


def _says_something(term: Term) -> bool:
    """Is a time known, or one that it is beyond?"""
    return math.isfinite(term.estimate) or term.noise[0] > 0


def _table_1(answer: StatedAnswer) -> str:
    counts = [term for term in answer.terms.values() if term.own == "n" and math.isfinite(term.estimate)]
    sizes = [f"{term.group} {fixed(max(term.estimate, 0.0), 0)}" for term in counts]
    if not sizes:
        return ""
    differ = [test.about or name for name, test in answer.tests.items() if test.p_value < _SURE]
    named = some_of(differ, _MOST_NAMED)
    many = f"{len(answer.tests)} column{'' if len(answer.tests) == 1 else 's'}"
    differing = f"{len(differ)} of {many}: {named}" if differ else f"none of {many}"
    tested = f"; groups differ (p < {_SURE:g}) in {differing}" if answer.tests else ""
    return f"Records: {', '.join(sizes)}{tested}"


def _rates(answer: StatedAnswer) -> str:
    for name, label in (("rate-ratio", "rate ratio"), ("standardised", "standardised rate")):
        if answer.known(name):
            return f"The {label} is {answer.value(name)}{answer.p_of(name)}"
    rates = [term for term in answer.all_known if term.term != "rate-difference"]
    return capital("; ".join(f"the rate of {term.term} is {with_interval(term)}" for term in rates[:_MOST_NAMED]))


def _pca(answer: StatedAnswer) -> str:
    parts = answer.summary.get("proportion") or []
    if not answer.known("PC1"):
        return ""
    share = f", {fixed(100 * float(parts[0]), 0)} % of all" if parts else ""
    return f"The variance along the first component is {answer.value('PC1')}{share}"


def _roc(answer: StatedAnswer) -> str:
    return f"The area under the curve is {answer.value('auc')}" if answer.known("auc") else ""


def _calibration(answer: StatedAnswer) -> str:
    large, slope = "in-the-large", "slope"
    phrases = []
    if answer.known(large):
        phrases.append(f"what happened less what was predicted is {answer.value(large)} on average{answer.p_of(large)}")
    if answer.known(slope):
        phrases.append(f"the slope is {answer.value(slope)}")
    return capital("; ".join(phrases))


def _mann_whitney(answer: StatedAnswer) -> str:
    if not answer.known("probability"):
        return ""
    chance = f"{answer.value('probability')}{answer.p('mann-whitney')}"
    return f"A value of the second group is above one of the first with a chance of {chance}"


def _hazard_ratio(answer: StatedAnswer) -> str:
    terms = answer.all_known[:_MOST_NAMED]
    return capital(
        "; ".join(f"the hazard ratio of {term.term} is {with_interval(term)}{answer.p_of(term.term)}" for term in terms)
    )


def _restricted_mean(answer: StatedAnswer) -> str:
    if answer.known("difference"):
        return f"The difference, second minus first arm, is {answer.value('difference')}{answer.p_of('difference')}"
    return "; ".join(f"{term.term}: {with_interval(term)}" for term in answer.all_known[:_MOST_NAMED])


def _incidence(answer: StatedAnswer) -> str:
    """Each curve at its last known time."""
    last = {term.curve: term for term in answer.all_known}
    phrases = [f"{curve} {with_interval(term)} at {term.own}" for curve, term in last.items()]
    return f"The part with the event: {'; '.join(phrases)}" if phrases else ""


def _site_effects(answer: StatedAnswer) -> str:
    if not answer.known("random"):
        return ""
    part = answer.summary.get("i_squared")
    differ = f"; I² = {fixed(100 * float(part), 0)} %{answer.p('Q')}" if isinstance(part, int | float) else ""
    return f"What all sites like these have in common is {answer.value('random')}{differ}"


_SAYS: dict[str, Callable[[StatedAnswer], str]] = {
    "mean": _one("mean"),
    "sum": _one("sum"),
    "count": _count,
    "variance": _variance,
    "proportion": _proportion,
    "histogram": _histogram,
    "cdf": _cdf,
    "quantiles": _quantiles,
    "crosstab": _crosstab,
    "group-means": _group_means,
    "correlation": _correlation,
    "covariance": _covariance,
    "linear-regression": _regression,
    "logistic-regression": _regression,
    "survival": _survival,
    "table-1": _table_1,
    "rates": _rates,
    "pca": _pca,
    "roc": _roc,
    "calibration": _calibration,
    "mann-whitney": _mann_whitney,
    "hazard-ratio": _hazard_ratio,
    "restricted-mean": _restricted_mean,
    "cumulative-incidence": _incidence,
    "site-effects": _site_effects,
    "meta-analysis": _site_effects,
}
