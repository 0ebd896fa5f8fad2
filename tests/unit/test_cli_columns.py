"""Columns on the command line: what a question says of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.studies.agreement.study import StudyTerms
from support.refusals import refused, refused_rows


def test_every_column_is_declared_in_a_question(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    main(["study", "new", "age in 0..100 [missing=centre]", "sex in {f, m}", "smoker in yes/no", "--out", str(study)])
    assert [column.describe() for column in StudyTerms.load(study).columns] == [
        {"name": "age", "low": 0.0, "high": 100.0},
        {"name": "sex", "levels": ["f", "m"]},
        {"name": "smoker", "boolean": True},
    ]


@refused_rows("columns_that_are_not_declared_once")
def test_columns_that_are_not_declared_once(ask: list[str], words: str) -> None:
    refused(words, StudyTerms.parse, {"ask": ask})


def test_how_a_column_is_cut_stands_behind_it(tmp_path: Path) -> None:
    """From the command line to the study file, and from there to the bins."""
    study = tmp_path / "study.toml"
    columns = ["cost in 0..1e6 [scale=log]", "days in 0..60 [whole]", "bmi in 15..45 [edges=15 25 45]"]
    main(["study", "new", *columns, "histogram(bmi)", "histogram(cost, bins=3)", "--out", str(study)])
    cost, days, bmi = StudyTerms.load(study).workload.columns
    assert (cost.scale, days.whole, bmi.edges) == ("log", True, (15.0, 25.0, 45.0))
    assert StudyTerms.load(study).workload.dimension == 3 + 2 + 6


@refused_rows("what_is_no_way_to_cut_a_column")
def test_what_is_no_way_to_cut_a_column(more: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = str(tmp_path / "study.toml")
    with pytest.raises(SystemExit) as ended:
        main(["study", "new", f"mean(bmi in 15..45 [{more}])", "--out", study])
    assert ended.value.code == 2
    assert re.search(words, " ".join(capsys.readouterr().err.split()))
