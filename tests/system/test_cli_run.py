"""The newcomer's first command: real processes over TLS on real data, then the receipt certified from its file alone."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from quietmean.cli.main import main
from quietmean.cli.simulate import verdict
from support.json_documents import faults


def quietmean(*arguments: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "quietmean.cli.main", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture
def table(tmp_path: Path) -> Path:
    data = load_diabetes(scaled=False).data
    np.savetxt(tmp_path / "data.csv", data[:, [0, 2]], delimiter=",", header="age,bmi", comments="")
    return tmp_path


@pytest.mark.slow
def test_twenty_processes_two_of_them_killed(table: Path) -> None:
    arguments = ["run", "--data", "data.csv", "mean(age in 0..100)", "--parties", "20"]
    privacy = ["--epsilon", "1", "--delta", "1e-6", "--dropouts", "0.1", "--out", "out"]
    result = quietmean(*arguments, *privacy, folder=table)
    assert faults("result", result) == []
    assert faults("receipt", json.loads((table / result["receipt"]).read_text())) == []
    killed = set(result["killed"])
    assert len(killed) == 2
    # Who was killed after it dealt is in the sum, and all that stay are.
    inputs = json.loads((table / result["receipt"]).read_text())["inputs"]
    assert set(range(20)) - killed <= set(inputs)
    assert result["parties_counted"] == len(inputs)
    # Of all twenty it is 48.518, and two of them can move it by so much.
    assert result["true_mean"] == pytest.approx(48.518, abs=3)
    assert abs(result["estimate"] - result["true_mean"]) < 6 * result["standard_error"]
    assert 0 < result["epsilon"] <= 1.05
    assert result["protocol"] == "packed-sharing"
    assert result["why"].startswith(
        "protocol packed-sharing, chosen automatically: no server, 2 of 20 parties may collude and 2 leave"
    )
    assert result["epsilon"] <= result["epsilon_a_priori"] <= 1.0
    assert result["certificate"]["adversary"] == "any coalition of 2 parties (all 190 checked)"
    assert result["certificate"]["unit"] == "record"
    assert result["messages"] > 300
    assert result["bytes"] > 10_000
    receipt = quietmean("verify", "receipt", result["receipt"], folder=table)
    assert receipt["max_epsilon"] == result["epsilon"]
    assert receipt["adversary"] == result["certificate"]["adversary"]
    assert receipt["assumptions"] == result["certificate"]["assumptions"]
    assert receipt["epsilon_a_priori"] == result["epsilon_a_priori"]
    officer = html.unescape((table / result["privacy_page"]).read_text())
    assert "Guaranteed" in officer
    assert all(one["text"] in officer for one in receipt["assumptions"])
    report = (table / result["report"]).read_text()
    assert report.startswith("<!doctype html>") or report.startswith("<!DOCTYPE html>")
    assert "<svg" in report
    fields = ["estimate", "standard_error", "epsilon", "delta", "certificate", "parties_counted", "messages", "bytes", "seconds"]
    assert set(fields) <= set(result)


def test_a_committee_opens_what_others_hand_in(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(table)
    asked = ["--data", "data.csv", "mean(age in 0..100)", "--epsilon", "2", "--committee", "5"]
    main(["run", *asked, "--parties", "10", "--dropouts", "0.2", "--out", "out", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert faults("result", result) == []
    assert faults("receipt", json.loads((table / result["receipt"]).read_text())) == []
    assert result["parties_counted"] == 8
    assert len(result["killed"]) == len(result["not_counted"]) == 2
    assert abs(result["estimate"] - result["true_mean"]) < 6 * result["standard_error"]
    assert result["true_mean"] == pytest.approx(48.518, abs=3)
    assert result["epsilon_a_priori"] <= 2
    # Contributions of 8, and what 5 members tell each other.
    assert result["messages"] > 8 + 5 * 4 * 4
    main(["verify", "receipt", result["receipt"], "--json"])
    certified = json.loads(capsys.readouterr().out)
    assert certified["epsilon_a_priori"] == pytest.approx(result["epsilon_a_priori"], rel=1e-6)
    # The members hold all shares, and are no parties: who says against whom names them, and with all of them nothing is left.
    whom = "any 1 of the 5 members and all other contributors together (by formula, all of them alike)"
    assert result["certificate"]["adversary"] == certified["certificates"]["coalitions"]["adversary"] == whom
    assert result["certificate"]["everyone_else_epsilon"] == "inf"
    checked = ["--with", "verified=yes", "--parties", "4", "--out", "checked", "--json"]
    main(["run", *asked, *checked])
    result = json.loads(capsys.readouterr().out)
    assert result["parties_counted"] == 4
    assert abs(result["estimate"] - result["true_mean"]) < 6 * result["standard_error"]
    for wrong, sentence in (
        (["--with", "committee-colluding=1"], "go with --committee MEMBERS"),
        (["--with", "verified=yes"], "go with --committee MEMBERS"),
        (["--committee", "4", "--with", "verified=yes"], "that checks contributions is too small"),
        (["--committee", "3"], "too small"),
        (["--committee", "5", "--protocol", "inca"], "Leave protocol out"),
        (["--committee", "5", "--colluding", "2"], "colluding has no effect"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["run", *asked[:-2], "--parties", "10", *wrong, "--out", "other"])
        assert ended.value.code == 2
        assert sentence in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["local-dp", "central-dp", pytest.param("gossip", marks=pytest.mark.slow)])
def test_every_protocol_runs_between_processes(protocol: str, table: Path) -> None:
    arguments = ["run", "--data", "data.csv", "--parties", "5", "--protocol", protocol, "--out", "out"]
    columns = ["mean(age in 0..100)", "mean(bmi in 10..60)"]
    agreed = ["--no-privacy"] if protocol == "gossip" else []
    result = quietmean(*arguments, *columns, *agreed, folder=table)
    assert set(result["estimate"]) == {"age", "bmi"}
    for name in ("age", "bmi"):
        error = abs(result["estimate"][name] - result["true_mean"][name])
        assert error <= 6 * result["standard_error"][name] + 1e-9
    if protocol == "gossip":
        assert result["epsilon"] == "inf"
        assert result["standard_error"]["age"] == 0
    else:
        assert result["epsilon"] <= 1
    if protocol == "central-dp":
        assert "party 0 trusted" in result["certificate"]["adversary"]


def test_a_simulation_says_whether_its_prediction_holds() -> None:
    assert verdict(2.0, 0) == verdict(-0.9, 0) == ": agrees with the prediction (2 or less)"
    assert verdict(3.2, 4).startswith(", larger than predicted: rare by chance (about 1 in 700). Repeat with --seed 5.")
    assert verdict(-40.0, 0).startswith(", smaller than predicted: rare by chance (about 1 in 1,000,000 or less).")


@pytest.mark.slow
def test_plan_then_simulate(table: Path) -> None:
    plan = quietmean("plan", "--parties", "12", "--epsilon", "1", "--dropouts", "0.1", "--out", "plan.json", folder=table)
    best = plan["candidates"][plan["chosen"]]
    assert best["protocol"] == "packed-sharing"
    assert plan["why"].startswith(
        "protocol packed-sharing, chosen automatically: no server, 2 of 12 parties may collude and 1 leave"
    )
    assert best["mse_central"] < best["mse"] < best["mse_local"]
    result = quietmean("simulate", "plan.json", "--runs", "2000", "--seed", "7", folder=table)
    assert result["runs"] == 2000
    assert abs(result["mse"] - best["mse"]) < 5 * result["mse_standard_error"] + 0.1 * best["mse"]
    assert quietmean("simulate", "plan.json", "--runs", "2000", "--seed", "7", folder=table) == result
