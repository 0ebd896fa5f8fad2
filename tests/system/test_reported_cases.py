"""Reported cases that need real processes: what the command answers, from its own output."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

QUIETMEAN = (sys.executable, "-m", "quietmean.cli.main")


def run(folder: Path, *arguments: str, before: tuple[str, ...] = ()) -> dict[str, Any]:
    command = [*before, *QUIETMEAN, "run", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def write(path: Path, *lines: str) -> None:
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_whole_years_of_follow_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    times, events = rng.integers(1, 11, 600), rng.random(600) < 0.6
    write(tmp_path / "y.csv", "years,event", *(f"{a},{int(b)}" for a, b in zip(times, events, strict=True)))
    columns = ["years in 0..10 [whole]", "event in yes/no"]
    asked = ["survival(years, event, bins=10)", "--epsilon", "8"]
    (survival,) = run(tmp_path, "--data", "y.csv", "--parties", "6", *columns, *asked)["statistics"]
    right = KaplanMeierFitter().fit(times, events).survival_function_at_times(range(1, 11)).to_list()
    values, errors = survival["estimate"]["all"], survival["standard_error"]["all"]
    for year, value in zip(range(1, 11), right, strict=True):
        if values[str(year)] is not None:
            # Six standard errors: once in 5e8.
            assert abs(values[str(year)] - value) < 6 * errors[str(year)] + 1e-3


@pytest.mark.slow
def test_thirty_per_cent_of_cells_are_empty(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    age, gone = rng.normal(72, 8, 900).clip(30, 105).round(1), rng.random(900) < 0.3
    cells = zip(age, gone, strict=True)
    write(tmp_path / "m.csv", "site,age", *(f"s{place % 6 + 1},{'' if m else a}" for place, (a, m) in enumerate(cells)))
    result = run(tmp_path, "--data", "m.csv", "--party-column", "site", "age in 0..110", "--epsilon", "4")
    (mean,) = result["statistics"]
    assert abs(mean["estimate"] - age[~gone].mean()) < 6 * mean["standard_error"]
    low, high = mean["interval_population"]
    assert low < 72 < high or abs(mean["estimate"] - 72) < 1.5 * (high - low)


@pytest.mark.slow
def test_a_declared_level_that_nobody_has(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = []
    for place in range(600):
        group, age = int(rng.integers(2)), rng.normal(50, 10)
        rows.append(f"s{place % 6},{'ab'[group]},{age:.2f},{0.1 * age + 2 * group + rng.normal():.3f}")
    write(tmp_path / "p.csv", "site,grp,age,y", *rows)
    columns = ["y in -5..20", "age in 20..90"]
    asked = ["grp in {a, b, c}", "linear-regression(y ~ age + grp)", "--epsilon", "8"]
    (regression,) = run(tmp_path, "--data", "p.csv", "--party-column", "site", *columns, *asked)["statistics"]
    assert regression["estimate"]["grp[c]"] is None
    for term, right in (("age", 0.1), ("grp[b]", 2.0)):
        low, high = regression["interval_population"][term]
        assert abs(regression["estimate"][term] - right) < 1.5 * (high - low)


@pytest.mark.slow
def test_noise_that_hides_every_estimate_ends_well(tmp_path: Path) -> None:
    write(tmp_path / "v.csv", "x", *(f"{50 + 0.01 * (place % 2)}" for place in range(120)))
    for _ in range(3):
        asked = ["variance(x)", "--epsilon", "0.2", "--accept-wide"]
        run(tmp_path, "--data", "v.csv", "--parties", "4", "x in 0..100", *asked)


@pytest.mark.slow
def test_a_database_with_a_log_on_a_read_only_volume(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a read-only volume needs the rights to mount one")
    volume = tmp_path / "w"
    volume.mkdir()
    database = sqlite3.connect(volume / "v.sqlite")
    database.execute("pragma journal_mode=wal")
    database.execute("create table t(age real)")
    database.executemany("insert into t values(?)", [(place,) for place in range(40)])
    database.commit()
    database.close()
    mount = f'mount --bind {volume} {volume} && mount -o remount,ro,bind {volume} && exec "$@"'
    arguments = [
        "--data",
        str(volume / "v.sqlite"),
        "age in 0..110",
        "--parties",
        "2",
        "--epsilon",
        "8",
    ]
    result = run(tmp_path, *arguments, before=(unshare, "-m", "sh", "-c", mount, "sh"))
    assert result["parties_counted"] == 2
