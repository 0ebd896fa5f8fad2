"""A plan says which question has the smaller error, of a regression by one release and by rounds, wherever it is asked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.statistics.estimate import Estimate
from quietmean.statistics.estimates import Estimates
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.one_or_rounds import OneOrRounds, WholeError
from support.command_lines import fails


def columns(high: float) -> list[dict[str, Any]]:
    """Weights up to a public bound."""
    bounds = {"weight": (0, high, 75, 15), "age": (0, 110, 50, 12)}
    numbers = ({"name": name, "low": low, "high": top, "guess": [mean, sd]} for name, (low, top, mean, sd) in bounds.items())
    return [*numbers, {"name": "ill", "boolean": True}]


WIDE, NARROW = columns(500), columns(130)
SLOPE, ODDS = "linear-regression(weight ~ age)", "logistic-regression(ill ~ age)"
# What is typed has the bounds of the study.
FORMULA, NARROWLY, WIDELY = (
    "weight ~ age",
    *(f"weight in 0..{high} [guess=75 15] ~ age in 0..110 [guess=50 12]" for high in (130, 500)),
)
TYPED = f"glm({WIDELY}, family=gaussian)"
BY_ROUNDS = {SLOPE: "glm(weight ~ age, family=gaussian)", ODDS: "glm(ill ~ age, family=binomial)"}


def planned(question: str, records: float = 10_000, more: tuple[str, ...] = (), **fields: Any) -> Forecast:
    asked = [qm.statistics.read_text(text) for text in (question, *more)]
    given = {"name": "s", "epsilon": 1.0, "delta": 1e-6, "column": WIDE, "statistic": asked, **fields}
    study = StudyTerms.parse(given)
    return Forecast(study, study.plan(12), records)


def answers(values: list[float], error: float | None) -> list[Estimates]:
    """Answers of one term, with such a standard error of noise and sampling, or without any."""
    population = math.nan if error is None else error**2
    return [
        Estimates.of([Estimate.normal("x", value, 1e-6, population) if math.isfinite(value) else Estimate.unknown("x")])
        for value in values
    ]


def test_a_whole_error_has_spread_and_bias_and_counts_what_is_hidden_as_a_guess() -> None:
    near = np.random.default_rng(3).normal(5, 0.1, 400).tolist()
    for truth, error in ((5.0, 0.1 * math.sqrt(2 / math.pi)), (4.0, 1.0)):
        shown = WholeError.of(answers(near, 0.2), 0, truth, 7.0)
        assert shown.size == pytest.approx(error, rel=0.1)
        assert not shown.hidden
        assert shown.stated == pytest.approx(0.2, rel=1e-3)
    for shown_of_all in (100, 200, 201):
        values = [*near[:shown_of_all], *[math.nan] * (400 - shown_of_all)]
        some = WholeError.of(answers(values, 0.2), 0, 5.0, 7.0)
        assert some.size == pytest.approx(7 - (7 - 0.08) * shown_of_all / 400, rel=0.01)
        assert some.hidden == (shown_of_all <= 200)
    assert math.isnan(WholeError.of(answers([math.nan] * 9, None), 0, 5.0, 7.0).stated)


HIDDEN = WholeError(1.0, hidden=True)


@pytest.mark.parametrize(
    ("errors", "better"),
    [
        ((WholeError(1.0), WholeError(0.95)), ""),
        ((WholeError(1.0), WholeError(0.8)), "rounds"),
        ((WholeError(0.8), WholeError(1.0)), "one"),
        ((HIDDEN, WholeError(0.95)), "rounds"),
        ((WholeError(0.5), HIDDEN), "one"),
        ((WholeError(1.5), HIDDEN), ""),
        ((HIDDEN, WholeError(0.5, hidden=True)), ""),
    ],
)
def test_what_is_better_differs_by_ten_percent_and_is_shown(errors: tuple[WholeError, WholeError], better: str) -> None:
    choice = OneOrRounds("one", "rounds", errors)
    assert choice.better == better
    if better:
        other = "rounds" if better == "one" else "one"
        assert choice.sentence(other).startswith(f"{better} would be off by about 0.")
        assert ("noise hides this one" in choice.sentence(other)) == any(error.hidden for error in errors)


def test_an_interval_that_says_much_less_than_the_error_is_said() -> None:
    for stated, said in ((0.15, ""), (0.5, ". Its interval would be +-0.98"), (math.nan, "")):
        choice = OneOrRounds("one", "rounds", (WholeError(1.0), WholeError(0.1, stated=stated)))
        assert choice.sentence("one") == f"rounds would be off by about 0.1 in place of 1{said}"


def test_each_way_is_judged_by_its_own_made_up_records() -> None:
    """With so little noise both errors are those of sampling: judged by the other's records, one is 1.7 times that."""
    (choice,) = planned(ODDS, 20_000, epsilon=8.0).choices
    one, rounds = choice.errors
    expected = pytest.approx(rounds.stated * math.sqrt(2 / math.pi), rel=0.2)
    assert one.size == expected
    assert rounds.size == expected


def test_who_knows_nothing_is_off_by_what_four_records_would_be() -> None:
    """Of a slope that is the deviation of the outcome over that of the covariate, halved: 15 / 12 / 2."""
    (choice,) = planned(SLOPE, 300, column=NARROW, epsilon=0.1).choices
    assert all(error.hidden for error in choice.errors)
    assert [error.size for error in choice.errors] == [pytest.approx(15 / 12 / 2, rel=0.03)] * 2


def test_a_plan_names_the_question_with_the_smaller_error_both_ways() -> None:
    """With wide bounds and many records rounds are better, else one release, whichever of both is asked."""
    for records, bounds, best in ((20_000, WIDE, BY_ROUNDS[SLOPE]), (2500, NARROW, SLOPE)):
        forecast = planned(SLOPE, records, column=bounds)
        (choice,) = forecast.choices
        assert choice.better == best
        assert bool(forecast.better) == (best != SLOPE)
        model = qm.learning.GeneralizedLinearModel("weight ~ age", bounds, family="gaussian", epsilon=1.0, delta=1e-6)
        by_model = model.plan(12, records=int(records))._forecast
        assert by_model is not None
        (other,) = by_model.choices
        assert (other.one, other.by_rounds) == (SLOPE, model.text)
        assert by_model.instead == ({model.text: SLOPE.replace(FORMULA, NARROWLY)} if best == SLOPE else {})


def test_a_part_of_a_budget_is_compared_with_rounds_of_that_part() -> None:
    (alone,), (beside,) = planned(SLOPE).choices, planned(SLOPE, more=("mean(age)", "proportion(ill)"), allocate="shares").choices
    assert alone.epsilon is None
    assert beside.epsilon is not None
    assert 0.2 < beside.epsilon < 0.7
    assert beside.errors[1].size > alone.errors[1].size
    assert f"{TYPED} with epsilon 0." in beside.sentence(SLOPE)


@pytest.mark.parametrize(
    "fields",
    [{"unit": "party"}, {"unit": "person"}, {"population": "these records"}, {"count": "private"}],
    ids=lambda fields: " ".join(fields.values()),
)
def test_what_rounds_cannot_be_asked_for_is_not_compared(fields: dict[str, Any]) -> None:
    assert planned(SLOPE, **fields).choices == []


def test_a_question_that_no_rounds_answer_is_not_compared() -> None:
    for question in ("mean(age)", "linear-regression(weight ~ age, where=ill, weight=age)"):
        assert planned(question).choices == []


def test_plan_check_and_the_refusal_of_a_run_name_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    age = rng.normal(50, 12, 12_000).clip(0, 110)
    table = "\n".join(f"{one:.1f},{0.3 * one + other:.1f}" for one, other in zip(age, rng.normal(60, 15, 12_000), strict=True))
    Path("people.csv").write_text(f"age,weight\n{table}\n")
    question = "linear-regression(weight in 0..500 [guess=75 15] ~ age in 0..110 [guess=50 12])"
    main(["study", "new", question, "--epsilon", "2", "--out", "s.toml"])
    capsys.readouterr()
    main(["plan", "--study", "s.toml", "--parties", "6", "--records", "12000"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"Better: {TYPED} would be off by about " in said
    main(["plan", "--study", "s.toml", "--parties", "6", "--records", "12000", "--json"])
    assert json.loads(capsys.readouterr().out)["instead"] == {SLOPE: TYPED}
    line = ["run", "people.csv", question, "--parties", "6", "--epsilon", "1", "--out", "run"]
    assert f"{TYPED} would be off by about " in fails(line, capsys)
    number = {name: {column["name"]: column for column in WIDE}[name] for name in ("weight", "age")}
    declared = {name: qm.statistics.Column.model_validate(column) for name, column in number.items()}
    study = qm.Study(declared, [SLOPE], epsilon=2.0, delta=1e-6)
    assert f"{TYPED} would be off by about" in repr(study.plan(6, records=12_000))
