"""What the page on statistics tells its reader to type: between real processes, on a small table."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import quietmean as qm
from quietmean.statistics.registry import ALIASES, registry
from quietmean.studies.agreement.study import StudyTerms
from support.pages import DOCS, blocks, commands

PAGE = "analyse/statistics.md"


@pytest.mark.slow
def test_the_command_of_the_page(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [f"{rng.normal(26, 4):.1f},{rng.choice(['f', 'm', ''])},{rng.choice(['yes', 'no', 'NA'])}" for _ in range(240)]
    (tmp_path / "patients.csv").write_text("bmi,sex,smoker\n" + "\n".join(rows) + "\n")
    command, _, _, private = commands(PAGE)
    words = shlex.split(command)
    assert words[0] == "quietmean"
    arguments = [sys.executable, "-m", "quietmean.cli.main", *words[1:], "--json"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    mean, table, groups = document["statistics"]
    assert mean["name"] == "mean(bmi)"
    assert document["estimate"]["bmi"] == mean["estimate"]
    assert set(groups["estimate"]) == {"f", "m", "difference", "smd", "cohen-d"}
    assert table["estimate"]["f:yes"] is not None
    assert table["tests"]["chi-squared"]["df"] == [1.0]
    assert sum(one for term, one in table["estimate"].items() if ":" in term) == pytest.approx(240)
    for one in (mean, groups):
        assert {"interval_noise", "interval_population", "coverage_ignoring_noise", "share", "flags"} <= set(one)
    assert [one["share"] for one in document["statistics"]] == [1.0, 1.0, 2.0]
    low, high = mean["interval_noise"]
    assert low - 2 * (high - low) < mean["true_value"] < high + 2 * (high - low)
    assert (tmp_path / "asked" / "report.html").exists()
    arguments = [sys.executable, "-m", "quietmean.cli.main", *shlex.split(private)[1:], "--json"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    mean, table = document["statistics"]
    assert document["certificate"]["neighbouring"] == "add-remove"
    # The square root of twelve cells, and six standard errors.
    assert abs(mean["records"] - 240) < 6 * 12**0.5 * table["standard_error"]["no:no"]


def test_the_study_file_of_the_page() -> None:
    text, *_ = blocks(PAGE, "toml")
    study = StudyTerms.parse(tomllib.loads(text))
    (histogram,) = study.workload.statistics
    assert histogram.text == "histogram(bmi, edges=15 20 25 30 45)"
    assert histogram.share == 2
    assert [column.describe() for column in study.columns] == [
        {"name": "bmi", "low": 15.0, "high": 45.0, "missing": "indicator"},
        {"name": "sex", "levels": ["f", "m"]},
        {"name": "smoker", "boolean": True},
    ]


def test_the_columns_of_the_page() -> None:
    _, text, *_ = blocks(PAGE, "toml")
    columns = {column.name: column for column in StudyTerms.parse(tomllib.loads(text)).workload.columns}
    assert (columns["admission"].since, columns["admission"].high) == ("2020-01-01", 1826.0)
    assert columns["logcrp"].low == pytest.approx(np.log(0.1))
    assert columns["inflamed"].boolean


@pytest.mark.slow
def test_the_plan_of_the_page_says_how_wide(tmp_path: Path) -> None:
    _, _, command, _ = commands(PAGE)
    text, *_ = blocks(PAGE, "toml")
    (tmp_path / "study.toml").write_text(text)
    words = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", "quietmean.cli.main", *words[1:], "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (expected,) = document["expected"]
    assert expected["name"].startswith("histogram(bmi")
    assert not expected["hopeless"]
    assert 0 < expected["width_noise"][0] < 5000
    assert document["target"]["parties"] == 20


def test_the_questions_of_the_page_can_be_asked_by_every_name_beside_them() -> None:
    rows = re.findall(r"(?m)^\| [^|]+\? \| (`[^|]+) \| ([^|]*)\|$", (DOCS / PAGE).read_text())
    asked = set()
    for questions, names in rows:
        kinds = {qm.statistics.parse_statistic(qm.statistics.read_text(one)).name for one in re.findall(r"`([^`]+)`", questions)}
        assert {ALIASES[name] for name in re.findall(r"`([^`]+)`", names)} <= kinds
        asked |= kinds
    assert asked == {name for name, kind in registry().items() if kind.__module__.startswith("quietmean.")}
