"""Twelve statistics of 20 190 rows over 20 processes, one of them killed for good: what is missing, what it costs, and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("statsmodels")

COLUMNS = [
    *("visits in 0..80", "coinsurance in 0..5", "diseases in 0..60"),
    *("deductible in yes/no", "limited in yes/no", "health in {excellent, good, fair, poor}"),
]
STATISTICS = [
    "mean(visits)",
    "variance(visits)",
    "count(health)",
    "proportion(limited)",
    "histogram(visits, edges=0 1 2 5 10 20 80)",
    "quantiles(visits, 0.5 0.9)",
    "cdf(diseases, bins=16)",
    "crosstab(health, deductible)",
    "group-means(visits, by=deductible)",
    "covariance(coinsurance, diseases)",
    "correlation(visits, coinsurance, diseases)",
    "linear-regression(visits ~ coinsurance + diseases + limited)",
]
SITES = 20


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("randhie") / "people.csv"
    example = Path(__file__).parents[2] / "examples" / "randhie.py"
    subprocess.run([sys.executable, str(example), str(path)], check=True, capture_output=True, timeout=300)
    return path


def run(table: Path, folder: str, *more: str) -> dict[str, Any]:
    arguments = ["run", "--data", str(table), "--party-column", "site", *COLUMNS, *STATISTICS, "--epsilon", "5", "--json", *more]
    command = [sys.executable, "-m", "quietmean.cli.main", *arguments, "--out", folder]
    done = subprocess.run(command, cwd=table.parent, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.slow
def test_twelve_statistics_with_one_party_killed_for_good(table: Path) -> None:
    document = run(table, "killed", "--dropouts", "0.05", "--round-timeout", "20")
    assert len(document["statistics"]) == len(STATISTICS)
    (gone,) = document["killed"]
    assert document["not_counted"] in ([], [f"site {gone + 1:02d}"])
    report = (table.parent / "killed" / "report.html").read_text()
    # Who is missing is named, and how many records the answers are of.
    assert f"site {gone + 1:02d}" in report.split("Dropped out for good")[1].split("</dd>")[0]
    counted = document["statistics"][0]["records"]
    assert counted in ((20_190,) if not document["not_counted"] else (20_190 - 1009, 20_190 - 1010))
    assert document["parties_counted"] >= SITES - 1
    assert 0 < document["epsilon"] <= 5 * 1.05
    assert document["epsilon_a_priori"] <= 5 * 1.001
    by_name = {one["name"]: one for one in document["statistics"]}
    mean = by_name["mean(visits)"]
    # Six standard errors of the noise, and what one site in twenty can move the mean.
    assert abs(mean["estimate"] - 2.86) < 6 * mean["standard_error"] + 0.3
    assert document["seconds"] < 600
    print({name: document[name] for name in ("seconds", "bytes", "messages", "epsilon", "epsilon_a_priori")})


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows() -> None:
    """Of encoding: ten times as many rows take no more than the table itself, and a little."""
    program = f"""
import resource, sys
import numpy as np
from quietmean.statistics import read_text
from quietmean.studies import Study
columns = [{{"name": n, "low": 0, "high": 80}} for n in ("visits", "coinsurance", "diseases")]
columns += [{{"name": n, "boolean": True}} for n in ("deductible", "limited")]
columns += [{{"name": "health", "levels": ["excellent", "good", "fair", "poor"]}}]
study = Study.parse({{"column": columns, "statistic": [read_text(text) for text in {STATISTICS!r}]}})
rows = int(sys.argv[1])
table = np.random.default_rng(1).integers(0, 2, (rows, 6)).astype(float)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
study.workload.encode(table, step=2.0**-40)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""

    def taken(rows: int) -> float:
        done = subprocess.run([sys.executable, "-c", program, str(rows)], capture_output=True, text=True, timeout=900, check=True)
        return float(done.stdout) / 1024

    few, many = taken(20_190), taken(201_900)
    # What the rows themselves take to be checked for missing and for bounds: six floats, and as many bits.
    own = 201_900 * 6 * 3 / 2**20
    assert many < few + own + 24, (few, many)
