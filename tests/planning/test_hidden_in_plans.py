"""A plan that forecasts hidden answers says so, and leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.statistics import Statistic
from quietmean.statistics.allocation import USUAL_SPREAD
from quietmean.statistics.drawn_studies import SPREADS, fewer_than_half
from quietmean.statistics.simulated import hopeful
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.forecast import Forecast
from support.every_kind import COLUMNS, all_statistics

# The others take minutes.
FAST = ("group-means(age, sex)", "trend(sex, ended)")


@pytest.mark.parametrize(
    ("question", "epsilon", "hidden"), [("a in yes/no ~ b in 0..10", 0.05, True), ("a in yes/no ~ b in 0..10", 20, False)]
)
def test_a_plan_whose_answers_are_hidden_has_no_next_step(
    question: str, epsilon: float, hidden: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        f'[study]\nname = "s"\nepsilon = {epsilon}\ndelta = 1e-6\nrecords = 900\naccept_wide = true\n'
        f'protocol = "local-dp"\ncolluding = 0\nask = ["logistic-regression({question})"]\n'
    )
    main(["plan", "--study", str(study), "--parties", "3"])
    last = capsys.readouterr().out
    assert ("! HIDDEN" in last) == hidden
    assert ("study invite" in last) != hidden


# Every kind of statistic that is asked of few and of more records: what is refused says what would do, and that does.
TABLES: list[dict[str, Any]] = [
    {"name": column.name}
    | (
        {"levels": [*column.levels]}
        if column.levels
        else {"boolean": True}
        if column.boolean
        else {"low": column.low, "high": column.high}
    )
    | ({"missing": column.missing} if column.name == "age" else {})
    for column in COLUMNS
]
SIZES = (80.0, 500.0)


def forecast(
    statistic: Statistic, records: float, *, parties: int = 10, epsilon: float = 1.0, protocol: str = "packed-sharing"
) -> Forecast:
    asked = {"kind": type(statistic).name, **statistic.agreed_fields()}
    study = StudyTerms.parse(
        {"name": "s", "epsilon": epsilon, "delta": 1e-6, "column": TABLES, "statistic": [asked], "protocol": protocol}
    )
    return Forecast(study, study.plan(parties), records)


def refusal(planned: Forecast) -> str:
    """Why a study is refused; "" where it is not. What a plan shows is the same verdict."""
    hidden = [line for line in planned.lines() if line.startswith("! ")]
    (statistic,) = planned.expectation.asked
    assert bool(hidden) == planned.expected[0].hopeless == planned.expectation.hides(statistic)
    try:
        planned.require_hope()
    except InputError as error:
        assert hidden
        return str(error)
    assert not hidden
    return ""


def enough(text: str) -> dict[str, float]:
    """What a refusal says would do."""
    found = re.findall(r"about ([\d,]+) records|(\d[\d,]*) parties of this size|epsilon ([\d.]*\d)", text)
    return {
        name: float(value.replace(",", ""))
        for row in found
        for name, value in zip(("records", "parties", "epsilon"), row, strict=True)
        if value
    }


@pytest.mark.parametrize("records", SIZES)
@pytest.mark.parametrize(
    "statistic",
    [pytest.param(one, id=one.text, marks=[] if one.text in FAST else pytest.mark.slow) for one in all_statistics()],
)
def test_what_a_refusal_says_is_enough_is_not_refused_when_planned_again(statistic: Statistic, records: float) -> None:
    for name, value in enough(refusal(forecast(statistic, records))).items():
        match name:
            case "records":
                again = forecast(statistic, value)
            case "parties":
                again = forecast(statistic, records * value / 10, parties=int(value))
            case _:
                again = forecast(statistic, records, epsilon=value)
        assert not again.expectation.hides(statistic), (name, value)


def test_more_parties_bring_their_noise_along() -> None:
    """Each party of local-dp adds its own: four times as many parties have half as much noise a record, not a quarter."""
    (one,) = (one for one in all_statistics() if one.text == "group-means(age, sex)")
    said = enough(refusal(forecast(one, 150.0, protocol="local-dp")))
    assert said["parties"] / 10 > 1.2 * said["records"] / 150
    assert not forecast(one, 15 * said["parties"], parties=int(said["parties"]), protocol="local-dp").expectation.hides(one)


def test_a_refusal_goes_by_the_usual_spread() -> None:
    """With the most hopeful of the spreads this regression would be asked, and hide its answer in most studies."""
    (one,) = (one for one in all_statistics() if one.text == "logistic-regression(smoker ~ age + weight)")
    planned, hidden = forecast(one, 430.0), []
    for spread in (max(SPREADS), USUAL_SPREAD):
        decoded = planned.expectation.answers(one, spread, 1.0, 1.0, 51)
        hidden.append(fewer_than_half(map(hopeful, decoded), 51))
    assert hidden == [False, True]
    with pytest.raises(InputError, match="noise hides the answer"):
        planned.require_hope()
