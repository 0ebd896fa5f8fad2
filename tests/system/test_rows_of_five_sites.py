"""Rows like the records of five sites: persons, private counts, one site killed and started again, and one gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import quietmean as qm
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.synthetic import Source, synthetic_rows
from support.command_lines import command, ending
from support.joining import NAMES, Consortium, join
from support.json_documents import faults
from support.site_policy import write_policy

PERSONS = 150
TERMS = {
    "name": "rows",
    "epsilon": 8.0,
    "delta": 1e-6,
    "unit": "person",
    "count": "private",
    "most_records": 1000,
    "colluding": 1,
    "minimum": 4,
    "protocol": "packed-sharing",
    "round_timeout": 8.0,
    "start_timeout": 120.0,
    "column": [
        {"name": "age", "low": 0, "high": 100},
        {"name": "sex", "levels": ["f", "m"]},
        {"name": "ill", "levels": ["no", "mild"], "other": True},
    ],
    "statistic": [{"kind": "synthetic-table", "columns": ["age", "sex", "ill"], "bins": 4}],
}


def write_site(folder: Path, place: int, name: str) -> None:
    """Two rows of each person; ills that nobody listed are ``other``."""
    rng = np.random.default_rng((28, place))
    lines = ["who,age,sex,ill"]
    for person in range(PERSONS):
        sex, age = rng.choice(["f", "m"]), int(rng.integers(0, 101))
        ill = rng.choice(["no", "mild", "grave"], p=[0.6, 0.2, 0.2] if sex == "f" else [0.1, 0.6, 0.3])
        lines += [f"{name}-{person},{age},{sex},{ill}"] * 2
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / f"{name}.format.toml").write_text('[mapping]\nperson = "who"\n')


@pytest.mark.slow
def test_five_sites_of_which_one_comes_back_and_one_does_not(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    """All who stayed make the same rows of their receipts; noise moves a number by more than 6 deviations never by chance."""
    Consortium(tmp_path, free_ports(5))
    write_policy(unattended=True, largest_epsilon=10.0)
    for place, name in enumerate(NAMES):
        write_site(tmp_path, place, name)
    start_by = (datetime.now(UTC) + timedelta(seconds=45)).isoformat()
    (tmp_path / "study.toml").write_text(study_text(StudyTerms.parse(TERMS | {"start_by": start_by})))
    running = {name: join(tmp_path, name, "--no-ledger") for name in NAMES}
    for name in ("eve", "dan"):
        deadline = time.monotonic() + 120
        while not (tmp_path / f"{name}.store").exists() and running[name].poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        running[name].kill()
        running[name].communicate(timeout=180)
    running["eve"] = join(tmp_path, "eve", "--no-ledger")
    endings = {name: ending(process) for name, process in running.items() if name != "dan"}
    assert {code for code, _, _ in endings.values()} == {0}, endings
    receipts = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in endings}
    made = {name: synthetic_rows(receipt) for name, receipt in receipts.items()}
    assert len({rows.csv() for rows in made.values()}) == 1
    _require_like_the_persons(receipts["ada"], made["ada"].to_frame())
    for name, receipt in receipts.items():
        assert faults("receipt", receipt) == []
        # The rows cost nothing beside: the certificate is the study's, from its execution alone.
        again = qm.Execution.load(tmp_path / f"{name}.json").privacy(1e-6).coalitions(1).max_epsilon
        assert again == pytest.approx(receipt["result"]["epsilon"], rel=1e-9)
        assert again <= 8.0
    code, said, errors = ending(command(tmp_path, "study", "synthesize", "eve.json", "--out", "rows.csv"))
    assert code == 0, errors
    assert "equal a real person's by chance" in " ".join(said.split())
    assert (tmp_path / "rows.csv").read_bytes() == made["ada"].csv()


def _require_like_the_persons(receipt: dict[str, Any], rows: pl.DataFrame) -> None:
    """As many rows as persons were counted, and each table as the persons have it, within the noise."""
    source = Source.of(receipt)
    counted = [name for place, name in enumerate(receipt["origin"]["names"]) if place not in receipt["result"]["without"]]
    assert set(counted) == set(NAMES) - {"dan"}
    assert rows.height == round(source.records)
    assert abs(rows.height - PERSONS * len(counted)) <= 6 * max(source.noise) * 3
    assert set(rows["ill"].drop_nulls()) == {"no", "mild", "other"}
    women = rows.filter(pl.col("sex") == "f")
    men = rows.filter(pl.col("sex") == "m")
    # 60 % against 10 %.
    assert (women["ill"] == "no").mean() > (men["ill"] == "no").mean() + 0.2  # type: ignore[operator]
