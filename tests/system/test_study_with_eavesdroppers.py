"""Studies whose target has an eavesdropper, over machines of which one dies: ledgers, gates, receipts, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.ledger import Ledger
from quietmean.protocols.target import ALL_AFTER_FIRST
from support.command_lines import command, ending
from support.joining import NAMES, Consortium, join, results_though_one_dies
from support.json_documents import faults
from support.site_policy import write_policy
from support.smallest_study import of_ages


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, free_ports: Any) -> Path:
    together = Consortium(tmp_path, free_ports(5))
    together.budget(*NAMES)
    write_policy(unattended=True, largest_epsilon=10.0)
    return tmp_path


def written(folder: Path, eavesdropping: Any, protocol: str = "inca") -> None:
    (folder / "study.toml").write_text(of_ages(colluding=1, eavesdropping=eavesdropping, protocol=protocol, round_timeout=30.0))


def spent(folder: Path, name: str) -> list[tuple[float, float]]:
    """What is reserved and charged, as mu, of every study of a party's ledger."""
    with Ledger.open(folder / f"{name}.ledger") as book:
        return [(one.reserved.mu, one.charged.mu) for account in book.accounts() for one in account.entries]


@pytest.mark.parametrize("protocol", ["packed-sharing", "central-dp", "secagg"])
def test_what_is_not_promised_is_refused_before_anything_is_reserved(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    written(folder, 0.5, protocol)
    monkeypatch.chdir(folder)
    files = ["study.toml", "--roster", "roster.toml", "--data", "ada.csv", "--key", "ada.key"]
    for line in (
        ["plan", "--study", "study.toml", "--parties", "5"],
        ["site", "contract", "study.toml", "--roster", "roster.toml", "--key", "ada.key"],
        ["check", *files, "--store", "ada.store"],
        ["join", *files, "--store", "ada.store", "--ledger", "ada.ledger", "--receipt", "ada.json", "--yes"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(line)
        assert ended.value.code == 2, line
        assert "promises nothing where each message is read with a chance of 0.5" in capsys.readouterr().err, line
    assert spent(folder, "ada") == []
    assert not list(folder.glob("*.json"))
    assert not (folder / "ada.store").exists()


@pytest.mark.slow
@pytest.mark.parametrize("eavesdropping", [0.5, ALL_AFTER_FIRST])
def test_five_machines_count_what_is_read(folder: Path, eavesdropping: Any) -> None:
    written(folder, eavesdropping)
    random = eavesdropping != ALL_AFTER_FIRST
    if random:
        # No gate can keep what nobody foresees: who joins says so, and nothing is reserved before.
        code, _, errors = ending(join(folder, "ada", "--ledger", "ada.ledger"))
        assert code == 2
        assert "more than the target 2: each party's own noise" in errors
        assert spent(folder, "ada") == []
    accepted = ["--a-priori-above-target"] if random else []
    results = results_though_one_dies(folder, lambda name: ["--ledger", f"{name}.ledger", *accepted])
    assert len({(result["epsilon"], result["epsilon_a_priori"]) for result in results}) == 1
    promised, cost = results[0]["epsilon_a_priori"], results[0]["epsilon"]
    assert cost <= promised
    # A gate keeps what it can check; whom nobody foresees, own noise.
    assert (promised > 2.5) == random
    assert ("gate" in results[0]) != random
    receipts = [json.loads((folder / f"{name}.json").read_text()) for name in NAMES]
    # One draw, the same at all sites.
    assert len({json.dumps(one.get("intercepted")) for one in receipts}) == 1
    for name, receipt in zip(NAMES, receipts, strict=True):
        assert faults("receipt", receipt) == []
        assert receipt["eavesdropping"] == receipt["certify"]["eavesdropping"] == eavesdropping
        assert ("intercepted" in receipt) == random
        ((reserved, charged),) = spent(folder, name)
        # What one draw cost is not what was charged.
        assert charged == reserved
    code, output, _ = ending(command(folder, "verify", "receipt", "ada.json", "--json", "--report", "why.html"))
    assert code == 0
    certified = json.loads(output)
    assert certified["max_epsilon"] == cost
    assert certified["epsilon_a_priori"] == promised
    assert "messages intercepted" in certified["adversary"]
    assert "messages intercepted" in (folder / "why.html").read_text()
