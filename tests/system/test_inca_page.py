"""The page about IncA, typed: a run with a kill, its certificates, and three machines of which one types its line again."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.pages import commands
from support.rosters import on_this_machine, write_roster
from support.site_policy import write_policy
from support.smallest_study import of_ages

PAGE = "proofs/inca.md"
NAMES = ("north", "south", "west")
STUDY = of_ages(epsilon=4.0, delta=None, colluding=1, protocol="inca", records=900, high=110)


def start(line: str, folder: Path) -> subprocess.Popen[str]:
    tokens = [sys.executable, "-m", "quietmean.cli.main", *shlex.split(line)[1:]]
    return subprocess.Popen(tokens, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


@pytest.mark.slow
def test_a_run_and_its_certificates(tmp_path: Path) -> None:
    rows = [f"{ward},{20 + (7 * ward + 3 * row) % 70}" for ward in range(8) for row in range(300)]
    (tmp_path / "wards.csv").write_text("ward,age\n" + "\n".join(rows))
    run, certify, eavesdrop = (line for line in commands(PAGE) if not line.startswith("quietmean join"))
    output = ended(start(run, tmp_path))
    assert "7 of 8 parties" in output or "8 of 8 parties" in output
    truth = sum(float(row.split(",")[1]) for row in rows) / len(rows)
    result = json.loads((tmp_path / "by-inca" / "receipt.json").read_text())["result"]
    # Five standard errors of the noise, and what the records of the party that left may move.
    assert abs(result["estimate"] - truth) < 5 * result["standard_error"] + 5
    assert result["epsilon"] <= 1.0
    assert "guaranteed before the start: epsilon 1.0000" in ended(start(certify, tmp_path))
    assert "intercepted" in ended(start(eavesdrop, tmp_path))


@pytest.mark.slow
def test_three_machines_of_which_one_is_started_again(tmp_path: Path, free_ports: object) -> None:
    write_policy(unattended=True, largest_epsilon=4.0)
    assert callable(free_ports)
    ports = free_ports(3)
    write_roster(tmp_path, on_this_machine(NAMES, ports))
    for name, port in zip(NAMES, ports, strict=True):
        (tmp_path / f"{name}.csv").write_text("age\n" + "\n".join(str(20 + (port + 3 * row) % 70) for row in range(300)))
    (tmp_path / "study.toml").write_text(STUDY)
    (line,) = [one for one in commands(PAGE) if one.startswith("quietmean join")]
    lines = {name: line.replace("north", name) + " --yes --json" for name in NAMES}
    running = {name: start(lines[name], tmp_path) for name in NAMES}
    while not (tmp_path / "west.store").exists() and running["west"].poll() is None:
        time.sleep(0.02)
    running["west"].kill()
    running["west"].communicate(timeout=60)
    running["west"] = start(lines["west"], tmp_path)
    results = [json.loads(ended(process)) for process in running.values()]
    assert len({result["estimate"] for result in results}) == 1
    assert all(result["parties_counted"] == 3 for result in results)
    assert results[0]["epsilon"] <= 4.0
