"""Nothing that is printed is impossible, whatever the noise: ranges, curves, intervals, sums, and numbers of records.

Of every kind, on records of several shapes, with noise up to half of the records: in the data of an answer, from which all
tables, files and pages are made, and in the texts of its terms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.statistics import Answer, Workload, parse_statistic, read_text
from quietmean.statistics.printed import shown
from quietmean.statistics.tidy import Term, terms_of
from support.every_kind import COLUMNS, NAMES, all_statistics, random_rows

Array = NDArray[np.float64]
SEED, RECORDS, MOST = 20261128, 400, 120_000.0
# So large a part of the records is the noise of a count; the largest is half of them.
NOISES = (0.0, 0.003, 0.02, 0.08, 0.5)
# With arms, causes and cut points beside those of every kind, and enough bins for curves to be wrong.
MORE = (
    "survival(age, smoker, by=sex, bins=20)",
    "cumulative-incidence(age, ended, by=sex, bins=12)",
    "cdf(weight, bins=32)",
    "roc(chance, smoker, bins=16)",
    "histogram(weight, bins=20)",
    "quantiles(weight, 0.05 0.1 0.25 0.5 0.75 0.9 0.95)",
    "table-1(by=sex, medians=true)",
    "rates(smoker, age, by=sex, standard=1 2)",
    "covariance(age, weight, chance)",
    "pca(age, weight, chance, scale=false)",
    "proportion(ended)",
    "count(sex, level=missing)",
)
KINDS = list({one.text: one for one in (*all_statistics(), *(parse_statistic(read_text(text)) for text in MORE))}.values())
# Terms along which a curve never falls, and never rises: by kind, in each group.
RISING, FALLING = ("cdf", "cumulative-incidence"), ("survival",)
_ROUNDING = 1e-9


def tables() -> Iterator[tuple[str, Array]]:
    rng = np.random.default_rng(SEED)
    yield "usual", random_rows(rng, RECORDS, 0.1)
    yield "rare", rare_rows(rng)
    yield "empty", np.full((RECORDS, len(COLUMNS)), np.nan)
    same = random_rows(rng, RECORDS, 0.0)
    same[:] = same[0]
    yield "same", same


def rare_rows(rng: np.random.Generator) -> Array:
    """All at an end of their bounds but a few."""
    rows = random_rows(rng, RECORDS, 0.0)
    for place, column in enumerate(COLUMNS):
        rows[6:, place] = column.low if column.numeric else 0.0
    return rows


TABLES = dict(tables())
# Of all cases, those that are always tried.
SOME = (
    ("usual", 0.02, CountVisibility.PUBLIC),
    ("usual", 0.5, CountVisibility.PRIVATE),
    ("rare", 0.003, CountVisibility.PRIVATE),
    ("same", 0.08, CountVisibility.PUBLIC),
    ("empty", 0.0, CountVisibility.PUBLIC),
)


def answers(text: str, table: str, noise: float, draws: int, count: CountVisibility) -> Iterator[Answer]:
    (statistic,) = [one for one in KINDS if one.text == text]
    workload = Workload(COLUMNS, (statistic,), PrivacyUnit.RECORD, count=count, most_records=RECORDS)
    encoded = workload.encode(TABLES[table])
    rng = np.random.default_rng([SEED, len(text), sum(map(ord, text))])
    for _ in range(draws):
        # The noise of a count is that of a coordinate over its scale, and so many records of all.
        level = noise * min(workload.scales.values())
        mean = encoded.vector / encoded.weight + level * rng.standard_normal(encoded.vector.size)
        with np.errstate(all="ignore"):
            yield from workload.decode(mean, level, encoded.weight)


def impossible(answer: Answer) -> Iterator[str]:
    """What cannot be in an answer, in words."""
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
    yield from of_numbers(document, answer)
    for name, test in document.get("tests", {}).items():
        if test["p_value"] is not None and not 0 <= test["p_value"] <= 1:
            yield f"test {name} has the p-value {test['p_value']}"
        if test["symbol"] in ("F", "chi-squared") and test["statistic"] is not None and test["statistic"] < 0:
            yield f"test {name} has the statistic {test['statistic']}"
    yield from of_summary(document.get("summary", {}), answer)


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


def of_numbers(document: Mapping[str, Any], answer: Answer) -> Iterator[str]:
    most = answer.records if math.isfinite(answer.records) else MOST
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


def of_summary(summary: Any, answer: Answer, name: str = "") -> Iterator[str]:
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
        for key, value in summary.items():
            known = key if key in (*parts, *spreads) else name
            yield from of_summary(value, answer, known)
    elif isinstance(summary, list):
        numbers = [value for value in summary if isinstance(value, int | float)]
        for value in numbers:
            yield from of_summary(value, answer, name)
        if name in ("extrapolated", "at_risk") and (np.diff(numbers) > _ROUNDING * RECORDS).any():
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
        if name in ("events", "at_risk", "records") and summary > MOST:
            yield f"{name} is {summary}"


def found(text: str, draws: int, cases: Iterable[tuple[str, float, CountVisibility]]) -> list[str]:
    return [
        f"{table}, noise {noise}, {count.value}: {fault}"
        for table, noise, count in cases
        for answer in answers(text, table, noise, 1 if noise == 0 else draws, count)
        for fault in impossible(answer)
    ]


@pytest.mark.parametrize("text", [one.text for one in KINDS])
def test_nothing_is_impossible(text: str) -> None:
    faults = found(text, 1, SOME)
    assert not faults, f"{len(faults)}: " + "; ".join(faults[:5])


@pytest.mark.slow
@pytest.mark.parametrize("text", [one.text for one in KINDS])
def test_nothing_is_impossible_in_many_studies(text: str) -> None:
    faults = found(text, 12, itertools.product(TABLES, NOISES, CountVisibility))
    assert not faults, f"{len(faults)}: " + "; ".join(faults[:5])


def test_all_columns_are_asked_for() -> None:
    asked = " ".join(one.text for one in KINDS)
    assert all(name in asked for name in NAMES)
