"""How many records match, asked alone: private counts and Laplace noise unless somebody says otherwise, and never an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.domain import CountVisibility
from quietmean.core.noise_law import NoiseKind
from quietmean.studies.agreement.any_study import load_any, study_text
from quietmean.studies.agreement.study import StudyTerms
from support.refusals import refused

ASK = ["age in 0..110", "count(where=age >= 65)"]
PRIVATE, PUBLIC = CountVisibility.PRIVATE, CountVisibility.PUBLIC


def terms(*ask: str, **more: Any) -> StudyTerms:
    return StudyTerms.parse({"name": "match", "epsilon": 1.0, "delta": 1e-6, "ask": list(ask or ASK), **more})


@pytest.mark.parametrize(
    ("ask", "more", "count"),
    [
        (ASK, {}, PRIVATE),
        (ASK, {"unit": "person"}, PRIVATE),
        (ASK, {"count": "public"}, PUBLIC),
        ([*ASK, "mean(age)"], {}, PUBLIC),
        (["count(age in 0..110, where=age >= 65)"], {}, PUBLIC),
        (["count(age in 0..110)"], {}, PUBLIC),
    ],
)
def test_counts_are_private_where_that_alone_is_asked(ask: list[str], more: dict[str, Any], count: CountVisibility) -> None:
    assert terms(*ask, **more).count == count


def test_a_file_keeps_what_was_said(tmp_path: Path) -> None:
    for stated in (terms(), terms(count="public")):
        for asks in (True, False):
            (tmp_path / "study.toml").write_text(study_text(stated, asks=asks))
            assert load_any(tmp_path / "study.toml") == stated


@pytest.mark.parametrize(
    ("more", "laplace"),
    [
        ({}, True),
        ({"start_by": "2090-01-01T00:00:00Z", "minimum": 5}, True),
        ({"count": "public"}, False),
        ({"protocol": "packed-sharing"}, False),
        ({"protocol": "local-dp"}, False),
        ({"options": {"noise": "gaussian"}}, False),
        ({"options": {"gone": 1}}, False),
    ],
)
def test_all_plans_have_laplace_noise_unless_somebody_chose(more: dict[str, Any], laplace: bool) -> None:
    for plan in terms(**more).choice(6).plans:
        law = plan.protocol.traits.checks.noise_law(plan.protocol, 6)
        assert (law is not None and law.kind == NoiseKind.LAPLACE) == laplace


def frame(count: int, seed: int = 3) -> pl.DataFrame:
    return pl.DataFrame({"age": np.random.default_rng(seed).uniform(0, 60, count)})


def test_where_nobody_matches_the_answer_is_an_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By chance the noise is beyond 25 records, of scale 1.2 or less, once in 1e8 runs."""
    monkeypatch.chdir(tmp_path)
    frame(300).write_csv("ages.csv")
    main(["run", "ages.csv", *ASK, "--parties", "6", "--out", "none"])
    said = capsys.readouterr().out
    assert "count(where=age >= 65)" in said
    assert "hides" not in said
    study = qm.Study(ASK, epsilon=1.0, delta=1e-6)
    answer = study.run(frame(300), parties=6).outcome.answers[0].estimates
    low, high = answer.of_noise[0]
    # A number of records is at least 0, and so is the lower end.
    assert 0 <= low <= float(answer.value[0]) <= high < 25
    assert high > 0


def test_too_few_are_refused_with_what_would_do() -> None:
    study = qm.Study(ASK, epsilon=0.2, delta=1e-6)
    # Of which planning draws studies.
    refused(
        r"noise hides the answer.*about \d+ records in all or \d+ parties of this size or epsilon",
        study.run,
        frame(10),
        parties=3,
    )
    refused("0 rows of the data frame cannot be split over 3 parties", study.run, frame(0), parties=3)
