"""A study with a target in nats, from the plan to the report, over five machines of which one dies and is started again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quietmean.core.folders import data_folder
from support.command_lines import command, ending
from support.joining import NAMES, Consortium, join, results_though_one_dies
from support.json_documents import faults
from support.site_policy import write_policy
from support.smallest_study import of_ages

STUDY = of_ages(epsilon=None, delta=None, nats=0.4, colluding=2, unit="party", protocol="adqsp")


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, free_ports: Any) -> Path:
    Consortium(tmp_path, free_ports(5))
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


@pytest.mark.slow
def test_without_a_word_of_the_owner_nothing_starts_and_nothing_is_charged(folder: Path) -> None:
    write_policy(unattended=True)
    code, _, errors = ending(join(folder, "ada", "--no-ledger"))
    assert code == 2
    assert "allowed only where a policy says largest_nats" in errors
    write_policy(unattended=True, largest_nats=0.5)
    code, _, errors = ending(join(folder, "ada"))
    assert code == 2
    assert "no budget counts it. Give --no-ledger" in errors
    assert not (data_folder() / "ledger").exists()
    assert not list(folder.glob("*.json"))


@pytest.mark.slow
def test_five_machines_learn_the_exact_mean_and_say_what_it_told(folder: Path) -> None:
    write_policy(unattended=True, largest_nats=0.5)
    code, plan, _ = ending(command(folder, "plan", "--study", "study.toml", "--parties", "5"))
    assert code == 0
    assert plan.startswith("guaranteed before the start: at most 0.36")
    results = results_though_one_dies(folder, lambda name: ["--no-ledger"])
    truth = sum(_mean(folder / f"{name}.csv") for name in NAMES) / len(NAMES)
    for result in results:
        assert faults("result", result) == []
        # To the grid: half a millionth of the range.
        assert result["estimate"] == pytest.approx(truth, abs=1e-4)
        assert result["nats"]["target"] == 0.4
        assert 0.2 < result["nats"]["most"] <= result["nats"]["a_priori"] <= 0.4
    receipt = folder / "ada.json"
    assert faults("receipt", json.loads(receipt.read_text())) == []
    code, output, _ = ending(command(folder, "verify", "receipt", str(receipt), "--json", "--report", "why.html"))
    assert code == 0
    certified = json.loads(output)
    assert max(certified["mutual_information_nats"]) == results[0]["nats"]["most"]
    assert certified["nats_a_priori"] == results[0]["nats"]["a_priori"]
    assert max(certified["revealed_variance"]) == results[0]["nats"]["revealed_variance"]
    page = (folder / "why.html").read_text()
    assert "nats learnt" in page
    assert "guaranteed nats" in page
    assert "within the target in nats" in page


def _mean(path: Path) -> float:
    ages = [float(line) for line in path.read_text().split()[1:]]
    return sum(ages) / len(ages)
