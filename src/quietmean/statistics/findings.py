"""What an answer says in one sentence, from its JSON: the line that stands over its figure and table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from quietmean.core.readable import HIDDEN, UNKNOWN, chained, fixed, p_phrase, phrase
from quietmean.core.readable_days import day_text
from quietmean.statistics.columns import MISSING
from quietmean.statistics.estimate import WHOLE, HypothesisTest
from quietmean.statistics.kinds.first_look import HIGH, LOW, OUTSIDE, FirstLook
from quietmean.statistics.printed import NOT_REACHED, capital, names_in, notes_of, shown
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
        return with_interval(self.terms[term]) if term in self.terms else phrase(HIDDEN)

    def p(self, *tests: str) -> str:
        """The first of these tests that is known, as in ", p = 0.03"; nothing where none is."""
        return next((f", {p_phrase(self.tests[name].p_value)}" for name in tests if name in self.tests), "")

    def p_of(self, term: str) -> str:
        """The p-value of a term, or nothing."""
        stated = self.terms.get(term)
        return "" if stated is None or math.isnan(stated.p_value) else f", {p_phrase(stated.p_value)}"


def bound_text(term: Term) -> str:
    """A bound as a study has it, with all its digits."""
    return day_text(term.estimate, term.since) if term.since else f"{term.estimate:,.12g}"


def with_interval(term: Term) -> str:
    """An estimate and its interval: "4.9 (95 % 2.9 to 7.0)"."""
    texts = shown(term)
    population = texts.population if texts.population != UNKNOWN and not math.isnan(sum(term.population)) else ""
    ends, estimate = population or texts.noise, texts.estimate
    if term.hidden and estimate.startswith("<"):
        most = estimate.removeprefix("< ")
        return phrase("fewer than {most}", most=most) if term.counts else phrase("below {most}", most=most)
    if estimate in (HIDDEN, UNKNOWN):
        return phrase("hidden by the noise")
    estimate = phrase(NOT_REACHED) if estimate == NOT_REACHED else estimate
    if ends in ("", UNKNOWN):
        return estimate
    low, _, high = ends.partition(" to ")
    ends = phrase("{low} to {high}", low=low, high=high)
    if population:
        return phrase("{estimate} (95 % {ends})", estimate=estimate, ends=ends)
    return phrase("{estimate} (95 % for the noise {ends})", estimate=estimate, ends=ends)


def _each(terms: Iterable[Term]) -> str:
    """Each term and its value: "f: 4.9 (95 % 2.9 to 7.0)"."""
    return chained(phrase("{term}: {value}", term=term.term, value=with_interval(term)) for term in terms)


def finding(document: Mapping[str, Any], counted: str = "records") -> str:
    """What an entry of 'statistics' in a result says, in a sentence without a full stop; never empty. ``counted``: of what."""
    answer = StatedAnswer(document, counted)
    sentence = _SAYS.get(str(document.get("kind", "")), _first)(answer)
    return sentence or _reason(document)


def _reason(document: Mapping[str, Any]) -> str:
    """Why an answer is missing, as the notes say it, unless that is a list of many: then these say it, and this that it is so."""
    flags = [flag for flag in document.get("flagged", ()) if flag["code"] not in _NO_REASON]
    first = next(iter(notes_of(flags)), NOTHING)
    if first not in {flag["message"] for flag in flags}:
        return phrase(NOTHING)
    return capital(first, names_in(document)).removesuffix(".")


def _first(answer: StatedAnswer) -> str:
    """The first terms, and what the first test says."""
    name = str(answer.document.get("name", ""))
    terms = answer.all_known[:_MOST_NAMED]
    stated = chained(phrase("{term}: {value}", term=term.term or name, value=with_interval(term)) for term in terms)
    return chained([stated, answer.p(*answer.tests)], "") if stated else ""


def _mean(answer: StatedAnswer) -> str:
    return phrase("The mean is {value}", value=answer.value(WHOLE)) if answer.known(WHOLE) else ""


def _sum(answer: StatedAnswer) -> str:
    return phrase("The sum is {value}", value=answer.value(WHOLE)) if answer.known(WHOLE) else ""


def _count(answer: StatedAnswer) -> str:
    term, counted = answer.terms[WHOLE], phrase(answer.counted)
    if term.hidden and (estimate := shown(term).estimate).startswith("<"):
        return phrase("Fewer than {most} {counted} are counted", most=estimate.removeprefix("< "), counted=counted)
    return phrase("{value} {counted} are counted", value=with_interval(term), counted=counted) if answer.known(WHOLE) else ""


def _variance(answer: StatedAnswer) -> str:
    return phrase("The standard deviation is {value}", value=answer.value("sd"))


def _largest(terms: Iterable[Term]) -> Term | None:
    finite = [term for term in terms if math.isfinite(term.estimate) and term.own != MISSING]
    return max(finite, key=lambda term: term.estimate, default=None)


def _proportion(answer: StatedAnswer) -> str:
    if WHOLE in answer.terms:
        return phrase("The proportion is {value}", value=answer.value(WHOLE))
    largest = _largest(answer.terms.values())
    if largest is None:
        return ""
    of = {"level": largest.term, "value": with_interval(largest)}
    return phrase("The most frequent level is {level}, with a proportion of {value}", **of)


def _histogram(answer: StatedAnswer) -> str:
    largest = _largest(term for term in answer.terms.values() if term.term not in ("below", "above"))
    total = sum(max(term.estimate, 0.0) for term in answer.all_known if term.term != MISSING)
    if largest is None or not 0 < total < math.inf or not largest.estimate > 0 or largest.upper is not None:
        return ""
    of = {"counted": phrase(answer.counted), "bin": largest.term, "value": with_interval(largest)}
    share = fixed(100 * largest.estimate / total, 0)
    return phrase("Most {counted} are in {bin}: {value}, {share} % of those with a value", share=share, **of)


def _cdf(answer: StatedAnswer) -> str:
    """At which edge a quarter, half and three quarters of the values are reached."""
    edges = [next((term.term for term in answer.terms.values() if term.estimate >= part), "") for part in (0.25, 0.5, 0.75)]
    phrases = [
        phrase("a quarter are at most {edge}", edge=edges[0]),
        phrase("half are at most {edge}", edge=edges[1]),
        phrase("three quarters are at most {edge}", edge=edges[2]),
    ]
    phrases = [one for one, edge in zip(phrases, edges, strict=True) if edge]
    return phrase("Of the values, at least {parts}", parts=chained(phrases, ", ")) if phrases else ""


_QUARTILES = {"0.5": phrase("median"), "0.25": phrase("lower quartile"), "0.75": phrase("upper quartile")}


def _quantiles(answer: StatedAnswer) -> str:
    quantiles = [name for name in _QUARTILES if name in answer.terms] or list(answer.terms)[:_MOST_NAMED]
    if not any(answer.known(name) for name in quantiles):
        return ""
    named = [(_QUARTILES.get(name) or phrase("quantile {part}", part=name), answer.value(name)) for name in quantiles]
    (first, value), *others = named
    return chained(
        [
            phrase("The {quantile} is {value}", quantile=first, value=value),
            *(phrase("the {quantile} is {value}", quantile=name, value=value) for name, value in others),
        ],
        ", ",
    )


def _crosstab(answer: StatedAnswer) -> str:
    p = answer.p("chi-squared")
    if answer.known("odds-ratio"):
        return chained([phrase("The odds ratio is {value}", value=answer.value("odds-ratio")), p], "")
    if p:
        return chained([phrase("Independence of the two: Pearson's chi-squared test"), p], "")
    cells = [term for term in answer.all_known if term.upper is None and MISSING not in term.term.split(":")]
    largest = _largest(cells)
    return phrase("The largest cell is {cell}: {value}", cell=largest.label, value=with_interval(largest)) if largest else ""


def _group_means(answer: StatedAnswer) -> str:
    if answer.known("difference"):
        p = answer.p("t-test") or answer.p_of("difference")
        groups = [name for name in answer.terms if name not in _COMPARED]
        difference = phrase("second minus first group")
        if len(groups) == 2:
            difference = phrase("{second} minus {first}", second=groups[1], first=groups[0])
        of = {"difference": difference, "value": answer.value("difference")}
        return chained([phrase("The difference of means, {difference}, is {value}", **of), p], "")
    means = [term for term in answer.all_known if term.term not in _COMPARED]
    if not means:
        return ""
    low, high = (choose(means, key=lambda term: term.estimate) for choose in (min, max))
    if low is high:
        return phrase("The mean of {group} is {value}", group=low.term, value=with_interval(low))
    of = {"low": low.term, "least": with_interval(low), "high": high.term, "most": with_interval(high)}
    return chained([phrase("Means are from {low}, {least}, to {high}, {most}", **of), answer.p("anova")], "")


def _correlation(answer: StatedAnswer) -> str:
    if WHOLE in answer.terms:
        tested = answer.p_of(WHOLE) or answer.p("correlation")
        return chained([phrase("The correlation is {value}", value=answer.value(WHOLE)), tested], "")
    correlations = answer.all_known
    if not correlations:
        return ""
    strongest = max(correlations, key=lambda term: abs(term.estimate))
    return phrase("The strongest correlation is that of {pair}: {value}", pair=_pair(strongest), value=with_interval(strongest))


def _pair(term: Term) -> str:
    """The two columns of a term, "age and stay"."""
    first, _, second = term.term.partition(":")
    return phrase("{first} and {last}", first=first, last=second) if second else first


def _covariance(answer: StatedAnswer) -> str:
    """The first covariances of different columns: the other terms are variances."""
    covariances = [term for term in answer.all_known if len(set(term.term.split(":"))) > 1][:_MOST_NAMED]
    return chained(
        phrase(
            "the covariance of {pair} is {value}" if place else "The covariance of {pair} is {value}",
            pair=_pair(covariance),
            value=with_interval(covariance),
        )
        for place, covariance in enumerate(covariances)
    )


def _regression(answer: StatedAnswer) -> str:
    """The slope that is clearest, by its own error."""
    slopes = [term for term in answer.all_known if term.term not in (_INTERCEPT, "auc")]
    sure = [term for term in slopes if 0 < _error(term) < math.inf]
    if not sure:
        return ""
    clearest = max(sure, key=lambda term: abs(term.estimate) / _error(term))
    slope = phrase("The clearest slope is that of {term}: {value}", term=clearest.term, value=with_interval(clearest))
    area = phrase("the area under the ROC curve is {value}", value=answer.value("auc")) if answer.known("auc") else ""
    squared = answer.summary.get("r_squared")
    explained = f"R² = {fixed(float(squared), 2)}" if isinstance(squared, int | float) and math.isfinite(squared) else ""
    return chained([chained([slope, answer.p_of(clearest.term)], ""), area, explained])


def _error(term: Term) -> float:
    return term.error if math.isfinite(term.error) else term.noise_error


def _first_look(answer: StatedAnswer) -> str:
    if not (answer.known(LOW) and answer.known(HIGH)):
        return ""
    low, high = bound_text(answer.terms[LOW]), bound_text(answer.terms[HIGH])
    most = fixed(100 * answer.terms[OUTSIDE].noise[1], 1)
    return phrase("Proposed bounds: {low} to {high}; at most {most} % of the values lie outside", low=low, high=high, most=most)


def _survival(answer: StatedAnswer) -> str:
    medians = [term for term in answer.terms.values() if term.group == "median"]
    if not any(_says_something(term) for term in medians):
        return ""
    texts = {term.own: with_interval(term) if _says_something(term) else phrase("not known") for term in medians}
    if len(texts) == 1:
        (text,) = texts.values()
        return phrase("The median time is {value}", value=text)
    tested = answer.p("log-rank")
    if tested:
        tested = chained([answer.tests["log-rank"].method or phrase("log-rank test"), tested], "")
    times = chained(phrase("{arm} {value}", arm=arm, value=text) for arm, text in texts.items())
    return chained([phrase("Median times: {times}", times=times), tested])


def _says_something(term: Term) -> bool:
    """Is a time known, or one that it is beyond?"""
    return math.isfinite(term.estimate) or term.noise[0] > 0


def _table_1(answer: StatedAnswer) -> str:
    counts = [term for term in answer.terms.values() if term.own == "n" and math.isfinite(term.estimate)]
    sizes = [f"{term.group} {fixed(max(term.estimate, 0.0), 0)}" for term in counts]
    if not sizes:
        return ""
    records = phrase("Records: {sizes}", sizes=", ".join(sizes))
    if not answer.tests:
        return records
    differ = [test.about or name for name, test in answer.tests.items() if test.p_value < _SURE]
    of = {"most": f"{_SURE:g}", "all": phrase("1 column")}
    if len(answer.tests) > 1:
        of["all"] = phrase("{count} columns", count=f"{len(answer.tests)}")
    if not differ:
        return chained([records, phrase("groups differ (p < {most}) in none of {all}", **of)])
    of |= {"some": f"{len(differ)}", "named": ", ".join(differ[:_MOST_NAMED])}
    more = len(differ) - _MOST_NAMED
    if more > 0:
        of["named"] = phrase("{listed} and {more} more", listed=of["named"], more=f"{more}")
    return chained([records, phrase("groups differ (p < {most}) in {some} of {all}: {named}", **of)])


def _rates(answer: StatedAnswer) -> str:
    if answer.known("rate-ratio"):
        ratio = phrase("The rate ratio is {value}", value=answer.value("rate-ratio"))
        return chained([ratio, answer.p_of("rate-ratio")], "")
    if answer.known("standardised"):
        rate = phrase("The standardised rate is {value}", value=answer.value("standardised"))
        return chained([rate, answer.p_of("standardised")], "")
    rates = [term for term in answer.all_known if term.term != "rate-difference"]
    return chained(
        phrase(
            "the rate of {group} is {value}" if place else "The rate of {group} is {value}",
            group=rate.term,
            value=with_interval(rate),
        )
        for place, rate in enumerate(rates[:_MOST_NAMED])
    )


def _pca(answer: StatedAnswer) -> str:
    parts = answer.summary.get("proportion") or []
    if not answer.known("PC1"):
        return ""
    share = phrase("{share} % of all", share=fixed(100 * float(parts[0]), 0)) if parts else ""
    return chained([phrase("The variance along the first component is {value}", value=answer.value("PC1")), share], ", ")


def _roc(answer: StatedAnswer) -> str:
    return phrase("The area under the curve is {value}", value=answer.value("auc")) if answer.known("auc") else ""


def _calibration(answer: StatedAnswer) -> str:
    large, slope = "in-the-large", "slope"
    said = ""
    if answer.known(large):
        said = phrase("What happened less what was predicted is {value} on average", value=answer.value(large))
        said = chained([said, answer.p_of(large)], "")
    if not answer.known(slope):
        return said
    return chained([said, phrase("the slope is {value}" if said else "The slope is {value}", value=answer.value(slope))])


def _mann_whitney(answer: StatedAnswer) -> str:
    if not answer.known("probability"):
        return ""
    chance = answer.value("probability")
    said = phrase("A value of the second group is above one of the first with a chance of {chance}", chance=chance)
    return chained([said, answer.p("mann-whitney")], "")


def _hazard_ratio(answer: StatedAnswer) -> str:
    said: list[str] = []
    for term in answer.all_known[:_MOST_NAMED]:
        ratio = phrase(
            "the hazard ratio of {term} is {value}" if said else "The hazard ratio of {term} is {value}",
            term=term.term,
            value=with_interval(term),
        )
        said.append(chained([ratio, answer.p_of(term.term)], ""))
    return chained(said)


def _restricted_mean(answer: StatedAnswer) -> str:
    if answer.known("difference"):
        said = phrase("The difference, second minus first arm, is {value}", value=answer.value("difference"))
        return chained([said, answer.p_of("difference")], "")
    return _each(answer.all_known[:_MOST_NAMED])


def _incidence(answer: StatedAnswer) -> str:
    """Each curve at its last known time."""
    last = {term.curve: term for term in answer.all_known}
    parts = chained(
        phrase("{curve} {value} at {time}", curve=curve, value=with_interval(term), time=term.own) for curve, term in last.items()
    )
    return phrase("The part with the event: {parts}", parts=parts) if last else ""


def _site_effects(answer: StatedAnswer) -> str:
    if not answer.known("random"):
        return ""
    part = answer.summary.get("i_squared")
    differ = f"I² = {fixed(100 * float(part), 0)} %{answer.p('Q')}" if isinstance(part, int | float) else ""
    return chained([phrase("What all sites like these have in common is {value}", value=answer.value("random")), differ])


_SAYS: dict[str, Callable[[StatedAnswer], str]] = {
    "mean": _mean,
    "sum": _sum,
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
    FirstLook.name: _first_look,
}
