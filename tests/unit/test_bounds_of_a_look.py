"""What bounds cost that a first look proposed, which part lies outside of them, and what a site reads of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.errors import InputError
from quietmean.privacy import compose_mu, mu_of_budget
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.kinds.first_look import CUT, HIGH, LOW, OUTSIDE, FirstLook
from quietmean.studies.agreement.any_study import bounds_of
from quietmean.studies.agreement.first_look import LookBudget, ProposedBounds
from quietmean.studies.agreement.study import StudyTerms


def test_a_site_reads_whose_bounds_they_are() -> None:
    raw = {"ask": ["mean(age in 0..110)"], "epsilon": 1.0, "delta": 1e-6}
    looked = raw | {"first_look": {"digest": "0123456789abcdef", "edited": ["age"]}}
    (fact,) = bounds_of(StudyTerms.parse(looked))
    assert (fact.key, str(fact.text)) == ("bounds", "proposed by a first look (01234567); edited by hand: age")
    assert bounds_of(StudyTerms.parse(raw)) == []


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_a_look_takes_a_tenth_of_the_budget_and_leaves_the_rest(delta: float) -> None:
    """To the second decimal of each epsilon, and never more than the whole."""
    looked = StudyTerms.parse({"ask": ["first-look(age)", "first-look(bmi)"], "delta": delta})
    budget = LookBudget(looked.epsilon, delta)
    whole, used, after = (mu_of_budget(epsilon, delta) for epsilon in (1.0, looked.epsilon, budget.after))
    assert 0.09 < (used / whole) ** 2 <= 0.1
    assert 0.85 < (after / whole) ** 2 <= 0.9
    assert compose_mu((used, after)) <= whole
    assert budget.together(budget.after) <= 1.0


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 4.0])
def test_a_study_after_a_look_of_any_epsilon_has_nine_times_its_mu_squared(epsilon: float) -> None:
    document = {"result": {"epsilon_a_priori": epsilon, "delta": 1e-6, "columns": [], "statistics": []}}
    proposed = ProposedBounds.of_result(document["result"])
    assert proposed.budget is not None
    part = (mu_of_budget(epsilon, 1e-6) / mu_of_budget(proposed.budget.after, 1e-6)) ** 2
    assert part == pytest.approx(1 / 9, rel=0.15 if epsilon < 0.1 else 0.03)
    assert part >= 1 / 9 - 1e-9
    # What somebody says stays.
    assert "epsilon" not in proposed.fields({"epsilon": 2.0}, ["mean(age in 0..1)"])
    assert proposed.fields({}, ["mean(age in 0..1)"])["epsilon"] == proposed.budget.after


def test_what_is_said_stays_and_a_study_of_more_has_the_whole() -> None:
    assert StudyTerms.parse({"ask": ["first-look(age)"], "epsilon": 2.0}).epsilon == 2.0
    assert StudyTerms.parse({"ask": ["first-look(age)", "mean(bmi in 10..60)"]}).epsilon == 1.0
    assert qm.Study(["first-look(age)"]).terms.epsilon == StudyTerms.parse({"ask": ["first-look(age)"]}).epsilon
    with pytest.raises(InputError, match="no budget"):
        qm.Study(["first-look(age)", "mean(bmi in 10..60)"])
    # Laplace noise takes more of a shared budget.
    assert LookBudget(0.3, 1e-6, times=4.0).after > LookBudget(0.3, 1e-6).after


def test_the_part_outside_that_is_true_is_of_the_bounds_that_are_proposed() -> None:
    """Not of those that a look without noise proposes, which leave out next to nothing."""
    workload = StudyTerms.parse({"ask": ["first-look(x)"]}).workload
    values = np.random.default_rng(20281130).normal(50, 15, 2000)
    mean = workload.of_records(values[:, None]).sum(axis=0) / len(values)
    ends = {LOW: 32.0, HIGH: 72.0}
    proposed = Estimates.of([Estimate.normal(term, end, 1.0, 0.0) for term, end in ends.items()], noise_only=True)
    look = workload.statistics[0]
    assert isinstance(look, FirstLook)
    released = workload.decoder().released(mean, 1e-12, float(len(values)))
    true = workload.with_columns(look.within(proposed)).decode(released)
    told = dict(zip(true.terms, true.value, strict=True))
    assert told[OUTSIDE] == pytest.approx(((values < 32) | (values >= 72)).mean())
    assert math.isnan(told[LOW])
    assert math.isnan(told[HIGH])


def _looked(flags: list[str]) -> ProposedBounds:
    answer = {"kind": "first-look", "name": "first-look(age)", "estimate": {LOW: 20.0, HIGH: 90.0}, "flags": flags}
    return ProposedBounds.of_result({"columns": [], "statistics": [answer]})


@pytest.mark.parametrize(
    ("asked", "cut"),
    [
        ("mean(age)", ("age",)),
        ("mean(age in 20..90)", ("age",)),
        ("mean(age in 30..120)", ("age",)),
        ("mean(age in 0..90)", ()),
        ("mean(age in yes/no)", ()),
        ("mean(bmi in 10..60)", ()),
    ],
)
def test_bounds_stay_cut_until_somebody_widens_them(asked: str, cut: tuple[str, ...]) -> None:
    names = {asked[5:8], "mean"}
    assert _looked([CUT]).chosen([asked], names)[1].cut == cut
    assert _looked([]).chosen([asked], names)[1].cut == ()


def test_every_answer_of_a_cut_column_says_so_and_no_other() -> None:
    """Parties agree on it, and read it before they do."""
    uses = [
        "mean(age)",
        "variance(age)",
        "quantiles(age)",
        "correlation(age, bmi)",
        "linear-regression(bmi ~ age)",
        "mean(bmi, where=age > 50)",
        "mean(ratio)",
    ]
    columns = [
        {"name": "age", "low": 20, "high": 90, "missing": "indicator"},
        {"name": "bmi", "low": 10, "high": 60, "missing": "indicator"},
        {"name": "ratio", "from": "bmi / age", "low": 0, "high": 3, "missing": "indicator"},
    ]
    raw = {"ask": [*uses, "mean(bmi)"], "column": columns, "epsilon": 1.0, "delta": 1e-6}
    looked = raw | {"first_look": _looked([CUT]).chosen(["mean(age)"], {"age"})[1].model_dump()}
    study = StudyTerms.parse(looked)
    assert study.context()["first_look"]["cut"] == ["age"]
    (fact,) = bounds_of(study)
    assert str(fact.text).endswith("may cut values: age")
    rng = np.random.default_rng(20281201)
    records = np.column_stack([rng.uniform(20, 90, 400), rng.uniform(10, 60, 400), rng.uniform(0.2, 2, 400)])
    for terms, flagged in ((study, uses), (StudyTerms.parse(raw), [])):
        mean = terms.workload.of_records(records).mean(axis=0)
        answers = [answer.to_json() for answer in terms.workload.decode(mean, 1e-9, 400.0)]
        told = [[message for message in answer["messages"] if "bounds of a first look" in message] for answer in answers]
        assert [len(each) for each in told] == [1] * len(flagged) + [0] * (len(answers) - len(flagged))
        assert all(each == ["age: " + each[0].removeprefix("age: ")] for each in told if each)
        assert [CUT in answer["flags"] for answer in answers] == [bool(each) for each in told]
