"""Columns on the command line: bounds, levels and boolean ones, each behind its --column."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.cli.study_options import ColumnOptions, attach, declared
from quietmean.studies.agreement.study import StudyTerms
from support.refusals import refused, refused_rows

LINE = ["run", "--column", "age", "--bounds", "0", "100", "--column=sex", "--levels", "f", "m", "--column", "smoker", "--boolean"]


def read(tokens: list[str]) -> list[dict[str, object]]:
    """What run makes of them; bounds as cyclopts reads them."""
    attached = attach(tokens)
    values: dict[str, list[str]] = {name: [] for name in ("--column", "--bounds", "--levels", "--boolean")}
    for place, token in enumerate(attached):
        name, equals, value = token.partition("=")
        if name in values:
            values[name].append(value if equals else attached[place + 1])
    bounds = [(float(low), 100.0) for low in values["--bounds"]]
    return declared(
        values["--column"],
        ColumnOptions(bounds=bounds, levels=values["--levels"], boolean=values["--boolean"], missing="centre"),
    )


def test_every_column_is_declared_by_what_follows_it() -> None:
    assert read(LINE) == [
        {"name": "age", "low": 0.0, "high": 100.0, "missing": "centre"},
        {"name": "sex", "levels": ["f", "m"]},
        {"name": "smoker", "boolean": True},
    ]


def test_other_commands_keep_their_arguments() -> None:
    assert attach(["mine", "--levels", "3", "--boolean"]) == ["mine", "--levels", "3", "--boolean"]
    assert attach([]) == []


@refused_rows("columns_that_are_not_declared_once")
def test_columns_that_are_not_declared_once(tokens: list[str], words: str) -> None:
    refused(words, read, tokens)


def test_how_a_column_is_cut_stands_behind_it(tmp_path: Path) -> None:
    """From the command line to the study file, and from there to the bins."""
    study = tmp_path / "study.toml"
    line = "study new --column cost --bounds 0 1e6 --scale log --column days --bounds 0 60 --whole --column bmi --bounds 15 45"
    tail = ["--edges", "15", "25", "45", "--statistic", "histogram(bmi)", "--statistic", "histogram(cost, bins=3)"]
    main([*line.split(), *tail, "--out", str(study)])
    cost, days, bmi = StudyTerms.load(study).workload.columns
    assert (cost.scale, days.whole, bmi.edges) == ("log", True, (15.0, 25.0, 45.0))
    assert StudyTerms.load(study).workload.dimension == 3 + 2 + 6


@refused_rows("what_is_no_way_to_cut_a_column")
def test_what_is_no_way_to_cut_a_column(more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = str(tmp_path / "study.toml")
    with pytest.raises(SystemExit) as ended:
        main(["study", "new", "--column", "bmi", "--bounds", "15", "45", *more, "--out", study])
    assert ended.value.code == 2
    assert re.search(words, " ".join(capsys.readouterr().err.split()))
