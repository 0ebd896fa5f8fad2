"""What a plan says that a width or a power takes: of which interval the width is, and the spread that nobody guessed."""

from __future__ import annotations

from typing import Any

import pytest

from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.forecast import Forecast

AGE: dict[str, Any] = {"name": "age", "low": 0, "high": 100}
GUESSED = AGE | {"guess": [50, 18]}
SMOKER = {"name": "smoker", "boolean": True}


@pytest.mark.parametrize(
    ("column", "statistic", "interval", "assumed"),
    [
        (AGE, "mean(age)", "population", {"age": 25.0}),
        (GUESSED, "mean(age)", "population", {}),
        (SMOKER, "proportion(smoker)", "population", {}),
        (AGE, "count(age)", "noise", {}),
    ],
)
def test_a_width_names_its_interval_and_its_spread(
    column: dict[str, Any], statistic: str, interval: str, assumed: dict[str, float]
) -> None:
    asked = {"kind": statistic.partition("(")[0], "column": column["name"]}
    study = StudyTerms.parse({"name": "ages", "column": [column], "statistic": [asked], "epsilon": 1.0, "delta": 1e-6})
    forecast = Forecast(study, study.choice(5).plan, 5000.0, studies=25)
    (needed,) = forecast.needed(2.0 if column is not SMOKER else 0.1, None)
    assert (needed.interval, needed.assumed) == (interval, assumed)
    assert f"of the {interval}'s interval" in needed.sentence
    assert ("assumes a standard deviation of 25 of age" in needed.sentence) is bool(assumed)
    (expected,) = forecast.sentences()
    (term,) = forecast.expected
    differ = any(pair is not None and pair[0] != pair[1] for pair in (term.noise, term.population))
    assert ("standard deviations of 10% to 33% of the bounds" in expected) is differ
    assert needed.to_json().get("assumed", {}) == assumed
