"""How a study's budget is divided by the widths that it wants, beside the best division that a search finds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.statistics import allocation
from quietmean.statistics.allocation import made_up, noise_over_sampling, principal
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.statistic import Statistic
from quietmean.statistics.workload import Workload
from quietmean.studies.agreement.study import StudyTerms

TINY, ROWS = 1e-6, 1e4
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "low": 0, "high": 100, "guess": [40, 15]},
    {"name": "bmi", "low": 10, "high": 60},
    {"name": "sex", "levels": ["f", "m"], "guess": [0.3, 0.7]},
]


def study(*statistics: dict[str, Any], **more: Any) -> StudyTerms:
    return StudyTerms.parse({"column": COLUMNS, "statistic": list(statistics), "protocol": "local-dp", **more})


def asked(*questions: str, **terms: Any) -> StudyTerms:
    return StudyTerms.parse({"ask": list(questions), "epsilon": 1.0, "delta": 1e-6} | terms)


def answers(workload: Workload, relation: float) -> list[Estimates]:
    mean = workload.of_records(made_up(workload.columns, 0.25, relation)).mean(axis=0)
    return [each.estimates for each in workload.decode(mean, TINY * workload.sensitivity, ROWS)]


class Wanted:
    """The sum over statistics of squared widths, that of a statistic being the mean over its terms, each beside what it would be
    if the statistic were asked alone, times the noise of its principal term over its sampling error there."""

    def __init__(self, workload: Workload) -> None:
        self.relation = 0.5 if any(each.asks_for_relations for each in workload.statistics) else 0.0
        self.alone = [self._ratios(replace(workload, statistics=(each,), allocated=None))[0] for each in workload.statistics]
        self.units = [each[0][each[1]] for each in self.alone]

    def _ratios(self, workload: Workload) -> list[tuple[Array, int]]:
        return [(noise_over_sampling(each), principal(each)) for each in answers(workload, self.relation)]

    def of(self, workload: Workload) -> float:
        total = 0.0
        for (ratios, _), (alone, _), unit in zip(self._ratios(workload), self.alone, self.units, strict=True):
            told = np.isfinite(ratios) & np.isfinite(alone) & (alone > 0)
            total += (unit / TINY) ** 2 * float(np.mean((ratios[told] / alone[told]) ** 2))
        return total


@pytest.mark.parametrize(
    "questions",
    [
        ("crosstab(sex in {f,m}, smoker in yes/no)", "proportion(smoker)"),
        ("crosstab(sex in {f,m}, stage in {a,b,c,d})", "proportion(stage)", "proportion(sex)"),
        ("mean(age in 20..90)", "proportion(sex in {f,m})", "crosstab(sex, smoker in yes/no)"),
        ("mean(age in 20..90)", "group-means(age, by=sex in {f,m})"),
        ("survival(time in 0..2000, dead in yes/no)", "survival(time, dead, by=sex in {f,m})"),
        ("linear-regression(bmi in 0..50 ~ age in 20..90)", "mean(age)", "mean(bmi)"),
        ("histogram(age in 20..90)", "group-means(age, by=sex in {f,m})", "proportion(sex)"),
    ],
    ids=lambda questions: str(questions[0].partition("(")[0]) + str(len(questions)),
)
@pytest.mark.parametrize(
    "count", [{}, pytest.param({"count": "private", "most_records": 500}, marks=pytest.mark.slow)], ids=["public", "private"]
)
def test_widths_are_within_one_percent_of_the_best_division(questions: tuple[str, ...], count: dict[str, Any]) -> None:
    workload = asked(*questions, allocate="widths", **count).workload
    wanted, shares = Wanted(workload), np.array(workload.allocated)

    def logarithm(logs: Any) -> float:
        parts = np.exp(np.append(logs, 0.0))
        return math.log(wanted.of(replace(workload, allocated=tuple((parts / parts.sum()).tolist()))))

    start = [float(each) for each in np.log(shares[:-1] / shares[-1])]
    best = minimize(logarithm, start, method="Nelder-Mead", options={"maxiter": 60, "fatol": 1e-5})
    assert math.sqrt(wanted.of(workload) / math.exp(best.fun)) < 1.01
    # Equal shares, by default without guesses, are worse, or as good where halves are right.
    assert wanted.of(workload) < 1.001 * wanted.of(replace(workload, allocated=None))


def test_a_margin_that_a_table_tells_as_well_is_paid_less() -> None:
    alike = asked("crosstab(sex in {f,m}, smoker in yes/no)", "proportion(smoker)", allocate="shares").workload
    divided = asked("crosstab(sex in {f,m}, smoker in yes/no)", "proportion(smoker)").workload
    wanted = Wanted(alike)
    assert math.sqrt(wanted.of(alike) / wanted.of(divided)) > 1.05


def test_widths_are_the_default_where_guesses_tell_them() -> None:
    guessed = [{"name": "age", "low": 0, "high": 100, "guess": [50, 18]}, {"name": "smoker", "boolean": True}]
    means = [{"kind": "mean", "column": "age"}, {"kind": "proportion", "column": "smoker"}]

    def divided(columns: list[dict[str, Any]], statistics: list[dict[str, Any]], **terms: Any) -> tuple[float, ...] | None:
        raw = {"name": "ages", "column": columns, "statistic": statistics, "epsilon": 1.0, "delta": 1e-6}
        return StudyTerms.parse(raw | terms).workload.allocated

    assert divided(guessed, means) is not None
    assert divided(guessed, means) == divided(guessed, means, allocate="widths")
    assert divided(guessed, means, allocate="shares") is None
    # Of numbers whose spread nobody guessed, beside a share that somebody chose, and of one statistic shares are as declared.
    assert divided([guessed[0] | {"guess": []}, guessed[1]], means) is None
    assert divided(guessed, [means[0] | {"share": 2.0}, means[1]]) is None
    assert divided(guessed, means[:1]) is None


def test_allocation_by_widths_has_the_least_sum_of_squared_relative_widths() -> None:
    statistics = [
        {"kind": "mean", "column": "age"},
        {"kind": "histogram", "column": "bmi"},
        {"kind": "proportion", "column": "sex"},
    ]

    def total(shares: list[float] | None) -> float:
        given = [one | {"share": share} for one, share in zip(statistics, shares or [1.0] * 3, strict=True)]
        asked = study(*given, allocate="shares" if shares else "widths")
        workload, rows = asked.workload, 1e6
        mean = workload.of_records(made_up(workload.columns, 0.25)).mean(axis=0)
        found = [one.estimates for one in workload.decode(mean, 1e-6 * workload.sensitivity, rows)]
        return float(sum(noise_over_sampling(one)[principal(one)] ** 2 for one in found))

    best = total(None)
    assert best < total([1.0, 1.0, 1.0])
    allocated = study(*statistics, allocate="widths").workload.allocated
    assert allocated is not None
    # Features of different columns: the optimum is that of the formula, and every other division is worse.
    for place in range(3):
        for factor in (0.7, 1.4):
            moved = [share * (factor if other == place else 1.0) for other, share in enumerate(allocated)]
            assert total(moved) > best * (1 - 1e-9)


def test_an_unknown_allocation_is_refused() -> None:
    with pytest.raises(InputError, match="allocate"):
        _ = study({"kind": "mean", "column": "age"}, allocate="width").workload


def test_what_is_agreed_on_names_the_allocated_shares() -> None:
    asked = study({"kind": "mean", "column": "age"}, {"kind": "variance", "column": "bmi"}, allocate="widths")
    assert asked.context()["allocated"] == list(asked.workload.allocated or ())
    assert "allocated" not in study({"kind": "mean", "column": "age"}).context()


def test_shares_of_the_same_questions_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A study is read by each party and each command: what is asked decides, and nothing else that it says."""
    asks = ["proportion(sex in {f, m})", "crosstab(sex, arm in {a, b})", "proportion(arm)"]
    first = asked(*asks).workload.allocated
    assert first is not None
    found, alone = list[Workload](), allocation._alone

    def counted(workload: Workload, one: Statistic) -> Workload:
        found.append(workload)
        return alone(workload, one)

    monkeypatch.setattr(allocation, "_alone", counted)
    assert asked(*asks, epsilon=2.0, name="another").workload.allocated == first
    assert not found
    assert asked(*asks[:2]).workload.allocated != first
    assert found
