"""The demos of real questions: their data are real tables of 20 parties, and noise leaves something of every answer."""

from __future__ import annotations

import math
import runpy
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from quietmean.cli import main, run
from quietmean.cli.columns import attach
from quietmean.privacy import mu_of_budget
from quietmean.statistics.expectation import Expectation
from quietmean.studies.data.sources import parties_of_table

ROOT = Path(__file__).parents[2]
DEMOS = {"survival": ("breast_cancer.py", 686), "table-1": ("randhie.py", 20_190)}


def command(name: str) -> list[str]:
    """What the Makefile's target gives to quietmean."""
    lines = (ROOT / "Makefile").read_text().split(f"demo-{name}: ")[1].split("\n\n")[0].splitlines()
    begin = next(place for place, line in enumerate(lines) if "/quietmean run" in line)
    end = next(place for place in range(begin, len(lines)) if not lines[place].endswith("\\"))
    return shlex.split(" ".join(line.rstrip("\\").strip() for line in lines[begin : end + 1]))[1:]


@pytest.mark.slow
@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_asks_what_can_be_answered(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, rows = DEMOS[name]
    table = tmp_path / "table.csv"
    monkeypatch.setattr("sys.argv", [script, str(table)])
    runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    words = command(name)
    words[words.index("--data") + 1] = str(table)
    words[words.index("--out") + 1] = str(tmp_path / "out")
    asked: list[Any] = []
    monkeypatch.setattr(run, "run_local_study", lambda *arguments: asked.append(arguments))
    app = main.make_app("run")
    app(attach(words), exit_on_error=False, print_error=False, result_action="return_value")
    study, data, rehearsal = asked[0][:3]
    names, parts = parties_of_table(data, study.workload.columns, rehearsal.parties, rehearsal.party_column)
    assert len(names) == 20
    assert sum(map(len, parts)) == rows
    noise = math.sqrt(1.2) * study.workload.sensitivity / mu_of_budget(study.epsilon, study.delta)
    for one in Expectation(study.workload, noise, rows).expected:
        assert not one.hopeless, one.statistic.text
        # An answer that is worth the trouble: noise is no more than a few times the sampling error.
        assert one.ratio[0] < 4, (one.statistic.text, one.ratio)


def test_the_first_demo_asks_what_can_be_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it shows is what it runs: 442 patients of 20 clinics, in a new folder."""
    asked: list[Any] = []
    monkeypatch.setattr(run, "run_local_study", lambda *arguments: asked.append(arguments))
    main.main(["demo", "--out", str(tmp_path / "first")])
    study, data, rehearsal = asked[0][:3]
    names, parts = parties_of_table(data, study.workload.columns, rehearsal.parties, rehearsal.party_column)
    assert (len(names), sum(map(len, parts))) == (20, 442)
    assert Path(data) == tmp_path / "first" / "patients.csv"
    # The patients of the published table, in their order; the clinics are made up.
    published = load_diabetes(scaled=False)
    ours = np.loadtxt(data, delimiter=",", skiprows=1, usecols=(1, 2, 3, 4))
    assert np.array_equal(ours, published.data[:, [published.feature_names.index(name) for name in ("age", "bmi", "bp", "s6")]])
    noise = math.sqrt(1.3) * study.workload.sensitivity / mu_of_budget(study.epsilon, study.delta)
    assert all(not one.hopeless for one in Expectation(study.workload, noise, 442).expected)
