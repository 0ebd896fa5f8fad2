"""What no answer may say, whatever the noise: ranges, curves, intervals, sums, and numbers of records."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from quietmean.statistics import Answer
from quietmean.statistics.printed import shown
from quietmean.statistics.tidy import Term, terms_of

# Terms along which a curve never falls, and never rises: by kind, in each group.
RISING, FALLING = ("cdf", "cumulative-incidence"), ("survival",)
_ROUNDING = 1e-9


def impossible(answer: Answer, most: float) -> Iterator[str]:
    """What cannot be in an answer, in words. ``most``: of so many records where their number is private."""
    document = answer.to_json()
    terms, estimates = terms_of(document), answer.estimates
    for term, low, high in zip(terms, estimates.low.tolist(), estimates.high.tolist(), strict=True):
        if math.isnan(term.estimate):
            continue
        room = _ROUNDING * max(1.0, abs(term.estimate))
        if not low - room <= term.estimate <= high + room:
            yield f"{term.term} is {term.estimate}, beyond {low} to {high}"
        for name, ends in (("noise", term.noise), ("population", term.population)):
            if not math.isnan(sum(ends)) and not ends[0] - room <= term.estimate <= ends[1] + room:
                yield f"{term.term} is {term.estimate}, outside its interval of the {name}, {ends}"
        for ends in (term.noise, term.population):
            if not math.isnan(sum(ends)) and not low - room <= ends[0] <= ends[1] <= high + room:
                yield f"{term.term} has the ends {ends}, beyond {low} to {high}"
        if min(term.error, term.noise_error) < 0:
            yield f"{term.term} has a negative error"
        if shown(term).estimate.startswith("-") and low >= 0:
            yield f"{term.term} is printed as {shown(term).estimate}"
    yield from of_curves(answer.statistic.name, [term for term in terms if math.isfinite(term.estimate)])
    most = answer.records if math.isfinite(answer.records) else most
    yield from of_numbers(document, most)
    for name, test in document.get("tests", {}).items():
        if test["p_value"] is not None and not 0 <= test["p_value"] <= 1:
            yield f"test {name} has the p-value {test['p_value']}"
        if test["symbol"] in ("F", "chi-squared") and test["statistic"] is not None and test["statistic"] < 0:
            yield f"test {name} has the statistic {test['statistic']}"
    yield from of_summary(document.get("summary", {}), most)


def of_curves(kind: str, terms: list[Term]) -> Iterator[str]:
    groups: dict[str, list[Term]] = {}
    for term in terms:
        if not (kind == "survival" and term.group in ("median", "lower-quartile", "upper-quartile")):
            groups.setdefault(term.own.partition(":")[2] if kind == "roc" else term.group, []).append(term)
    for group, own in groups.items():
        steps = np.diff([term.estimate for term in own])
        falls = kind in FALLING or (kind == "roc" and group == "sensitivity")
        rises = kind in RISING or kind == "quantiles" or (kind == "roc" and group == "specificity")
        if (falls and (steps > _ROUNDING).any()) or (rises and (steps < -_ROUNDING * 100).any()):
            yield f"the curve {group!r} is {[term.estimate for term in own]}"
    by_name = {term.term: term.estimate for term in terms}
    if kind == "cumulative-incidence":
        for time in {term.own for term in terms}:
            for arm in {term.group.partition(":")[0] if ":" in term.group else "" for term in terms}:
                causes = [one.estimate for one in terms if one.own == time and one.group.startswith(arm)]
                if sum(causes) > 1 + _ROUNDING:
                    yield f"the incidences at {time} add up to {sum(causes)}"
    if kind == "covariance":
        for name, value in by_name.items():
            one, _, other = name.partition(":")
            both = [by_name.get(f"{each}:{each}", math.nan) for each in (one, other)]
            if abs(value) > math.sqrt(both[0] * both[1]) * (1 + 1e-6) + _ROUNDING:
                yield f"the covariance {name} is {value}, of variances {both}"


def of_numbers(document: Mapping[str, Any], most: float) -> Iterator[str]:
    for term in terms_of(document):
        if not math.isnan(term.n) and not 0 <= term.n <= most + 1e-6:
            yield f"{term.term} is of {term.n} of {most} records"
    complete = document["completeness"]
    if complete is not None:
        there, lost = complete["present"], complete["missing"]
        if there is not None and not 0 <= there <= most + 1e-6:
            yield f"{there} of {most} records are complete"
        if lost is not None and not 0 <= lost <= most + 1e-6:
            yield f"{lost} of {most} records are not complete"


def of_summary(summary: Any, most: float, name: str = "") -> Iterator[str]:
    parts = ("r_squared", "adjusted_r_squared", "i_squared", "proportion", "cumulative", "extrapolated")
    spreads = (
        "sigma",
        "tau",
        "tau_squared",
        "sdev",
        "restricted_mean",
        "median",
        "events",
        "at_risk",
        "records_left_out",
        "records",
    )
    if isinstance(summary, Mapping):
        yield from of_intervals(summary)
        for key, value in summary.items():
            known = key if key in (*parts, *spreads) else name
            yield from of_summary(value, most, known)
    elif isinstance(summary, list):
        numbers = [value for value in summary if isinstance(value, int | float)]
        for value in numbers:
            yield from of_summary(value, most, name)
        if name in ("extrapolated", "at_risk") and (np.diff(numbers) > _ROUNDING * most).any():
            yield f"{name} is {numbers}, which rises"
        if name == "cumulative" and (np.diff(numbers) < -_ROUNDING).any():
            yield f"{name} is {numbers}, which falls"
        if name == "proportion" and numbers and sum(numbers) > 1 + 1e-6:
            yield f"{name} is {numbers}"
    elif isinstance(summary, int | float):
        if name in parts and name != "adjusted_r_squared" and not -_ROUNDING <= summary <= 1 + _ROUNDING:
            yield f"{name} is {summary}"
        if name in spreads and summary < -_ROUNDING:
            yield f"{name} is {summary}"
        if name in ("events", "at_risk", "records", "records_left_out") and summary > most + 1e-6:
            yield f"{name} is {summary}"


def of_intervals(summary: Mapping[str, Any]) -> Iterator[str]:
    """What stands beside an interval of its own, as a mean in the summary of an arm."""
    for key, ends in summary.items():
        value = summary.get(key.removesuffix("_interval_population"))
        if not key.endswith("_interval_population") or not isinstance(ends, list) or not isinstance(value, float):
            continue
        low, high = (math.inf if end is None else float(end) for end in ends)
        if not low - _ROUNDING * abs(value) <= value <= high + _ROUNDING * abs(value) or low < 0:
            yield f"{key} is {ends}, of {value}"


# --- in any text that people read ---

_SIGNED = r"[-\u2212+]?(?:\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|inf\b|\u221e)"
# What a program writes, and no person; an infinite end is "inf" on a terminal.
_OF_PROGRAMS = re.compile(r"(?<![\w.])(?:nan|NaN|None|null)(?![\w:])|(?<![\w.,])[-\u2212]0(?:\.0+)?(?![\d.,e])")
_INTERVAL = re.compile(rf"(?<![\w.,\u2212-])({_SIGNED}) to ({_SIGNED})(?![\w.,]*\d)")
_P = re.compile(rf"\bp ?(?:=|<|>|\u2264) ?({_SIGNED})")
_OF = re.compile(r"(?<![\w.,-])(\d[\d,]*) of (?:about |the )?(\d[\d,]*)(?![\d.]*\d)")
_PERCENT = re.compile(rf"({_SIGNED})(?: ?%)")
_NUMBERS = re.compile(rf"(?<![\w.,])({_SIGNED}) (?:of the )?(records|people|persons|events|values|cells)\b")


def number_in(text: str) -> float:
    plain = text.replace(",", "").replace("\u2212", "-").replace("\u221e", "inf")
    return float(plain)


def impossible_in(text: str, most: float) -> Iterator[str]:
    """What cannot be in a text: reversed intervals, p-values and parts beyond 1, more than there are, fewer than none.

    ``most``: of so many records.
    """
    for line in text.splitlines():
        for found in _OF_PROGRAMS.finditer(line):
            yield f"{found[0]!r} in: {_around(line, found)}"
        for found in _INTERVAL.finditer(line):
            if number_in(found[1]) > number_in(found[2]):
                yield f"a reversed interval in: {_around(line, found)}"
        for found in _P.finditer(line):
            if not 0 <= number_in(found[1]) <= 1:
                yield f"a p-value in: {_around(line, found)}"
        for found in _OF.finditer(line):
            if number_in(found[1]) > number_in(found[2]):
                yield f"more than there are in: {_around(line, found)}"
        for found in _PERCENT.finditer(line):
            if not 0 <= number_in(found[1]) <= 100:
                yield f"a percentage in: {_around(line, found)}"
        for found in _NUMBERS.finditer(line):
            if not 0 <= number_in(found[1]) <= most:
                yield f"a number of {found[2]} in: {_around(line, found)}"


def _around(line: str, found: re.Match[str]) -> str:
    return line[max(found.start() - 60, 0) : found.end() + 40].strip()
