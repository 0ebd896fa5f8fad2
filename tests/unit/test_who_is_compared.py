"""Every term that compares two groups or columns says who is compared with whom, on the first screen and in its own direction."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.core.readable import Phrase
from quietmean.statistics import Workload, parse_statistic, read_text, registry
from quietmean.statistics.compared import COMPARED, compared_in
from quietmean.statistics.tidy import terms_of
from quietmean.studies.outcome.first_screen import first_screen
from support.every_kind import COLUMNS, all_statistics

SEED, RECORDS = 20261130, 4000
# What compares two groups or columns, in all kinds; a hazard ratio has both arms in its name, "m/f".
COMPARING = (
    "odds-ratio",
    "risk-ratio",
    "risk-difference",
    "rate-ratio",
    "rate-difference",
    "difference",
    "smd",
    "cohen-d",
    "bias",
)
MORE = (
    "crosstab(sex, smoker)",
    "mantel-haenszel(sex, smoker, by=ended)",
    "group-means(weight, sex)",
    "rates(smoker, age, by=sex)",
    "mann-whitney(weight, sex)",
    "restricted-mean(age, smoker, by=sex)",
    "table-1(weight, smoker, by=sex)",
    "linear-regression(weight ~ sex + ended)",
    "logistic-regression(smoker ~ sex)",
    "meta-analysis(crosstab(sex, smoker), by=ended)",
)
ASKED = [*(one.text for one in all_statistics()), *MORE]


def rows() -> Any:
    """Men weigh more, smoke more and live shorter; who smokes has a larger chance."""
    rng = np.random.default_rng(SEED)
    male = rng.random(RECORDS) < 0.4
    smoker = rng.random(RECORDS) < np.where(male, 0.6, 0.2)
    weight = np.clip(rng.normal(70 + 15 * male, 8), 40, 140)
    age = np.clip(rng.exponential(np.where(male, 20, 60)), 0, 100)
    return np.column_stack([age, weight, rng.random(RECORDS), male, rng.integers(0, 3, RECORDS), smoker])


@cache
def document(text: str) -> dict[str, Any]:
    workload = Workload(COLUMNS, (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)
    encoded = workload.encode(rows())
    with np.errstate(all="ignore"):
        return workload.decode(encoded.vector / encoded.weight, 0.0, encoded.weight)[0].to_json()


@pytest.mark.parametrize("text", dict.fromkeys(ASKED))
def test_a_term_that_compares_says_who_with_whom(text: str) -> None:
    answer = document(text)
    model = answer["kind"].endswith("-regression")
    comparing = {
        name
        for term in terms_of(answer)
        for name in (term.label, term.group)
        if name in COMPARING or (model and name.endswith("]"))
    }
    said = answer.get("summary", {}).get(COMPARED, {})
    assert comparing <= said.keys(), f"{text}: nothing says the direction of {comparing - said.keys()}"
    assert all(re.search(r"\b(against|minus|above)\b", each) for each in said.values())


def test_the_kinds_that_compare_are_known() -> None:
    """A new kind that compares is in this list, and one that ends to say so fails."""
    saying = {str(document(text)["kind"]) for text in ASKED if document(text).get("summary", {}).get(COMPARED)}
    assert saying == {
        *("bland-altman", "crosstab", "group-means", "linear-regression", "logistic-regression", "mann-whitney"),
        *("mantel-haenszel", "mcnemar", "meta-analysis", "paired-difference", "rates", "restricted-mean", "table-1"),
    }
    assert saying <= registry().keys()


@pytest.mark.parametrize(
    ("text", "line", "larger"),
    [
        ("crosstab(sex, smoker)", "odds-ratio, risk-ratio, risk-difference: smoker yes, sex m against f", "risk-ratio"),
        ("mantel-haenszel(sex, smoker, by=ended)", "odds-ratio, risk-ratio, risk-difference: smoker yes, sex m against f", ""),
        ("group-means(weight, sex)", "difference, smd (standardised mean difference), cohen-d: sex m minus f", "difference"),
        ("rates(smoker, age, by=sex)", "rate-ratio: sex m against f", "rate-ratio"),
        ("mann-whitney(weight, sex)", "probability: how often sex m is above sex f", "probability"),
        ("linear-regression(weight ~ sex + ended)", "sex[m]: against sex f", "sex[m]"),
        ("paired-difference(age, weight)", "difference: weight minus age", "difference"),
        ("bland-altman(age, weight)", "bias: weight minus age", "bias"),
        ("meta-analysis(crosstab(sex, smoker), by=ended)", "odds-ratio: smoker yes, sex m against f", "fixed"),
    ],
)
def test_the_direction_is_that_of_the_number_and_is_on_the_first_screen(text: str, line: str, larger: str) -> None:
    answer = document(text)
    assert line in compared_in(answer["summary"])
    if larger:
        (value,) = (term.estimate for term in terms_of(answer) if larger in (term.term, term.own))
        nothing = 1.0 if "ratio" in larger or larger == "fixed" else 0.5 if larger == "probability" else 0.0
        assert value > nothing
        assert math.isfinite(value)
    assert any(line in shown for shown in first_screen({"result": {"statistics": [answer]}}))


def test_every_line_has_a_form_that_other_languages_have_and_is_the_same_text() -> None:
    lines = [line for text in dict.fromkeys(ASKED) for line in compared_in(document(text).get("summary", {}))]
    assert [line for line in lines if not isinstance(line, Phrase)] == []
    assert len({line.template for line in lines if isinstance(line, Phrase)}) == 5
    # What a column is called is no word of a form.
    (odd,) = compared_in({COMPARED: {"difference": "a against b minus c"}})
    assert odd == "difference: a against b minus c"
    assert not isinstance(odd, Phrase)


def test_nothing_is_said_where_more_than_two_groups_are_compared() -> None:
    for text in ("crosstab(ended, smoker)", "group-means(weight, ended)", "rates(smoker, age, by=ended)"):
        assert compared_in(document(text).get("summary", {})) == []
