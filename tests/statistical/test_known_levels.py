"""Levels that nobody has, or nearly nobody, change neither the error of what else is estimated nor how often nothing is refused.

2000 studies under the null hypothesis each, whose p-values are below 5 % in 0.05 +- 0.015 of them: three standard errors of a
binomial proportion of 2000, so that a right test fails once in 370 runs of a new seed; seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.privacy import mu_of_budget
from quietmean.statistics import Column, Columns, Estimates, Workload, parse_statistic, read_text

Array = NDArray[np.float64]
RECORDS, STUDIES, LEVEL, SLACK = 1000, 2000, 0.05, 0.015
NUMBERS = [Column(name="y", low=-5, high=20), Column(name="age", low=20, high=90)]


def study(text: str, levels: tuple[str, ...], by: tuple[str, ...] = ("u", "v")) -> Workload:
    columns = [*NUMBERS, Column(name="grp", levels=levels), Column(name="by", levels=by), Column(name="ill", boolean=True)]
    return Workload(Columns(columns), (parse_statistic(read_text(text)),), PrivacyUnit.RECORD)


def noise_of(workload: Workload, epsilon: float) -> float:
    return math.sqrt(1.2) * workload.sensitivity / mu_of_budget(epsilon, 1e-6) / RECORDS


def decoded(workload: Workload, records: Array, epsilon: float, rng: np.random.Generator) -> Estimates:
    mean, noise = workload.of_records(records).mean(axis=0), noise_of(workload, epsilon)
    (answer,) = workload.decode(mean + noise * rng.standard_normal(len(mean)), noise, float(len(records)))
    return answer.estimates


def unrelated(chances: list[float], rng: np.random.Generator, rows: int = RECORDS) -> Array:
    """Columns that have nothing to do with each other; the levels have these chances."""
    return np.column_stack(
        [
            rng.normal(7, 2, rows),
            rng.normal(50, 10, rows),
            rng.choice(len(chances), rows, p=chances),
            rng.integers(2, size=rows),
            rng.random(rows) < 0.4,
        ]
    ).astype(np.float64)


def false_alarms(text: str, chances: list[float], epsilon: float, p_of: Callable[[Estimates], float]) -> tuple[float, float]:
    """How often a p-value is below the level, of the studies that have one; and how many have."""
    rng = np.random.default_rng(20)
    workload = study(text, tuple("abcd"[: len(chances)]))
    found = np.array([p_of(decoded(workload, unrelated(chances, rng), epsilon, rng)) for _ in range(STUDIES)])
    known = found[np.isfinite(found)]
    return float((known < LEVEL).mean()), len(known) / STUDIES


def by_test(name: str) -> Callable[[Estimates], float]:
    return lambda found: found.tests[name].p_value if name in found.tests else math.nan


def of_term(term: str) -> Callable[[Estimates], float]:
    return lambda found: float(np.asarray(found.p_value)[found.terms.index(term)])


# Nobody has c; and so many have it that the noise keeps it in about every other study.
NOBODY, THRESHOLD = [0.5, 0.5, 0.0], [0.495, 0.495, 0.01]


@pytest.mark.slow
@pytest.mark.parametrize("chances", [NOBODY, THRESHOLD], ids=["nobody", "threshold"])
@pytest.mark.parametrize(
    ("text", "p_of"),
    [
        ("crosstab(grp, by)", by_test("chi-squared")),
        ("table-1(grp, by=by)", by_test("grp")),
        ("group-means(y, by=grp)", by_test("anova")),
        ("linear-regression(y ~ age + grp)", of_term("age")),
        ("linear-regression(y ~ age + grp)", by_test("F")),
    ],
    ids=["chi-squared", "table-1", "anova", "slope", "F"],
)
def test_nothing_is_refused_more_often_than_stated(text: str, p_of: Callable[[Estimates], float], chances: list[float]) -> None:
    alarms, known = false_alarms(text, chances, 4.0, p_of)
    assert known > 0.99
    assert abs(alarms - LEVEL) < SLACK, alarms


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_level_that_nobody_has_costs_others_nothing(place: int) -> None:
    """Wherever it is declared: errors of others are at most 1.5 times those without it, which are those of one more column."""
    rng = np.random.default_rng(3)
    # Of a level that nobody has, before, between and after those that there are.
    levels = ["a", "b"]
    levels.insert(place, "none")
    records = unrelated([0.5, 0.5], rng, 600)
    placed = records.copy()
    placed[:, 2] = [levels.index("ab"[int(one)]) for one in records[:, 2]]
    for text in ("linear-regression(y ~ age + grp)", "logistic-regression(ill ~ age + grp)"):
        without = decoded(study(text, ("a", "b")), records, 8.0, np.random.default_rng(1))
        found = decoded(study(text, tuple(levels)), placed, 8.0, np.random.default_rng(1))
        error = dict(zip(found.terms, found.standard_error, strict=True))
        usual = dict(zip(without.terms, without.standard_error, strict=True))
        assert error["age"] < 1.5 * usual["age"]
        assert error["grp[b]"] < 1.5 * usual["grp[b]"]
        (flag,) = [flag for flag in found.flags if flag.code == "level-left-out"]
        hidden = "grp[a]" if place == 0 else "grp[none]"
        assert hidden in flag.terms
        assert np.isnan(found.value[found.terms.index(hidden)])
        assert flag.upper is not None
        assert 0 < flag.upper < 30
    # What stays is compared as if nobody had declared it.
    table = decoded(study("crosstab(grp, by)", tuple(levels)), placed, 8.0, rng)
    assert table.tests["chi-squared"].degrees == (1.0,)
    (flag,) = [flag for flag in table.flags if flag.code == "level-left-out"]
    assert flag.terms == ("none:u", "none:v", "none:missing")
    first = decoded(study("table-1(grp, by=by)", tuple(levels)), placed, 8.0, rng)
    assert first.tests["grp"].degrees == (1.0,)
    value: dict[str, Any] = dict(zip(first.terms, first.value, strict=True))
    assert np.isnan(value["u grp:none"])
    assert np.isfinite(value["smd grp"])
    hidden_cells = {term: flag.upper for flag in first.flags if flag.code == "few" for term in flag.terms}
    assert {"u grp:none", "v grp:none"} <= set(hidden_cells)
    assert all(upper is not None and 0 < upper < 30 for upper in hidden_cells.values())


def test_all_levels_but_one_hidden_is_no_regression_and_no_test() -> None:
    rng = np.random.default_rng(4)
    records = unrelated([1.0], rng)
    found = decoded(study("linear-regression(y ~ grp)", ("a", "b", "c")), records, 8.0, rng)
    assert np.isnan(found.value).all()
    assert [flag.terms for flag in found.flags if flag.code == "level-left-out"] == [("grp[b]",), ("grp[c]",)]
    table = decoded(study("crosstab(grp, by)", ("a", "b", "c")), records, 8.0, rng)
    assert math.isnan(table.tests["chi-squared"].p_value)
    assert "empty-margin" in [flag.code for flag in table.flags]
