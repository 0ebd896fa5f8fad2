"""The gate between real processes: a study that passes, and one that is refused, with receipt, charge and exit code."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.node.local import Kill
from quietmean.planning import Plan
from quietmean.planning.gate import GateRefused, mu_before_release
from quietmean.protocols.inca import IncA
from quietmean.protocols.mechanism import with_guard
from quietmean.studies import StudyTerms
from support.command_lines import called, command
from support.gated import gated_plan
from support.processes import require_agreement, run_processes
from support.smallest_study import of_ages

STUDY = of_ages(epsilon=1.0, colluding=1, options={"rounds": 4})
NAMES = ("ada", "bob", "cy")


def values_of(plan: Plan) -> Any:
    return (1 + np.sin(np.arange(float(plan.target.parties))).reshape(-1, 1)) / 2


@pytest.mark.slow
def test_real_processes_pass_the_gate_although_one_is_killed(tmp_path: Path) -> None:
    plan = gated_plan(5, 6, star=4.0, delta=8.0)
    outcome = run_processes(plan, values_of(plan), tmp_path, [Kill(4, 3)], round_timeout=60.0, gone_timeout=2.0)
    require_agreement(outcome, range(4))
    for result in outcome.results.values():
        assert result.gate is not None
        assert result.gate.published
        assert result.gate.incomplete == (4,)
        assert result.gate.supporters >= 3
        result.gate.check(plan.target, result.gate.to_json())


@pytest.mark.slow
def test_real_processes_publish_nothing_that_could_cost_more(tmp_path: Path) -> None:
    plan = gated_plan(4, 4, star=1.0, delta=2.0)
    with pytest.raises(GateRefused, match="could cost a mu of") as refused:
        run_processes(plan, values_of(plan), tmp_path, round_timeout=60.0, gone_timeout=None)
    assert refused.value.exit_code == 3
    for store in (tmp_path / "run").glob("*.store"):
        with contextlib.closing(sqlite3.connect(store)) as database:
            assert database.execute("SELECT count(*) FROM release").fetchone() == (0,)
            assert database.execute("SELECT count(*) FROM fact WHERE name = 'seed'").fetchone() == (0,)


@pytest.fixture
def consortium(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Path:
    entries = ""
    for number, (name, port) in enumerate(zip(NAMES, free_ports(len(NAMES)), strict=True)):
        entries += called(tmp_path, "key", "new", "--key", f"{name}.key", "--name", name, "--address", f"127.0.0.1:{port}")
        ages = range(20 + number, 60 + number)
        (tmp_path / f"{name}.csv").write_text("age\n" + "\n".join(map(str, ages)))
    (tmp_path / "roster.toml").write_text(entries)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def weak_plan(folder: Path) -> Plan:
    """For the study's target, with a guard as it must be and far too little noise for the release."""
    study = StudyTerms.load(folder / "study.toml")
    target = study.target(len(NAMES))
    levels = IncA(rounds=4, sigma_star=0.5 * target.sensitivity, sigma_delta=target.sensitivity).resolved(len(NAMES))
    hidden = (target.sensitivity / 0.2) ** 2
    return study.placed(replace(Plan(target, with_guard(levels, hidden)), gated=True))


@pytest.mark.slow
def test_a_refused_study_ends_with_code_3_and_says_why_wherever_one_looks(consortium: Path) -> None:
    plan = weak_plan(consortium)
    plan.save(consortium / "plan.json")
    called(consortium, "site", "budget", "--ledger", "ada.ledger", "--account", "ada", "--budget", "3", "1e-5")
    shared = ["join", "study.toml", "--roster", "roster.toml", "--plan", "plan.json"]
    processes = []
    for name in NAMES:
        own = ["--data", f"{name}.csv", "--key", f"{name}.key", "--store", f"{name}.store", "--receipt", f"{name}.receipt.json"]
        charged = ["--ledger", "ada.ledger"] if name == "ada" else []
        processes.append(command(consortium, *shared, *own, *charged))
    for process in processes:
        output, errors = process.communicate(timeout=400)
        assert process.returncode == 3, errors
        assert output == ""
        assert "no result, the gate before the release is closed: this history could cost a mu of" in errors
        assert "Traceback" not in errors
    before = mu_before_release(plan.protocol, plan.target.sensitivity)
    receipt = json.loads((consortium / "ada.receipt.json").read_bytes())
    assert "result" not in receipt
    assert (receipt["gate"]["published"], receipt["gate"]["passes"]) == (False, False)
    assert "could cost" in receipt["gate"]["reason"]
    assert receipt["gate"]["mu_before_release"] == pytest.approx(before)
    document = json.loads(called(consortium, "verify", "receipt", "ada.receipt.json", "--json"))
    assert document["gate"]["published"] is False
    account = json.loads(called(consortium, "site", "budget", "--ledger", "ada.ledger", "--account", "ada", "--json"))
    text = json.dumps(account)
    assert "no result, the gate was closed" in text
    entry = (account["accounts"][0] if "accounts" in account else account)["entries"][0]
    # For one record, out of the sum over forty: the sensitivity is that of a record.
    assert entry["mu"] == pytest.approx(before)
    assert entry["reserved_mu"] > entry["mu"]
    # Started again it says the same, without the others.
    again = command(consortium, *shared, "--data", "ada.csv", "--key", "ada.key", "--store", "ada.store")
    assert "could cost a mu of" in again.communicate(timeout=300)[1]
    assert again.returncode == 3
    # A receipt that was changed is found out.
    receipt["gate"]["published"] = True
    (consortium / "forged.json").write_text(json.dumps(receipt))
    forged = command(consortium, "verify", "receipt", "forged.json")
    assert "does not fit its history: published" in forged.communicate(timeout=300)[1]
    assert forged.returncode == 2
