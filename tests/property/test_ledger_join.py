"""A study is charged before it is joined: whatever becomes of it, and once for each noise."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import SPENT, Ledger, LedgerEntry, SpendingRequest
from quietmean.privacy import Charge, mu_of_budget
from quietmean.report.words import rounded_up
from quietmean.studies import StudyTerms
from support.command_lines import fails
from support.rosters import on_this_machine, write_roster
from support.site_policy import BETWEEN_TWO, write_policy
from support.smallest_study import of_ages

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)


def study(protocol: str, timeout: float) -> str:
    return of_ages(epsilon=0.5, colluding=0, protocol=protocol, start_timeout=timeout)


@pytest.fixture
def consortium(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Path:
    """Keys and data of ada and bob, a roster, and a ledger with accounts for both and epsilon 1 on each."""
    write_roster(tmp_path, on_this_machine(("ada", "bob"), free_ports(2)))
    for name in ("ada", "bob"):
        (tmp_path / f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20, 60))))
    (tmp_path / "study.toml").write_text(study("inca", 0.3))
    write_policy(**BETWEEN_TWO)
    with Ledger.open(tmp_path / "ledger", create=True) as ledger:
        ledger.set_budget("ada", 1.0, 1e-6, when=NOON)
        ledger.set_budget("bob", 1.0, 1e-6, when=NOON)
    return tmp_path


def arguments(folder: Path, name: str, *extra: str) -> list[str]:
    study = [str(folder / "study.toml"), "--roster", str(folder / "roster.toml"), "--ledger", str(folder / "ledger")]
    return ["join", *study, "--yes", "--data", str(folder / f"{name}.csv"), "--key", str(folder / f"{name}.key"), *extra]


def entries(folder: Path, account: str) -> tuple[LedgerEntry, ...]:
    with Ledger.open(folder / "ledger") as ledger:
        return ledger.trace(account)


def test_nothing_is_charged_where_nobody_came(consortium: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each try reserves what the study costs whatever happens, its target, and gives it back; from another store, too."""
    for tries in (1, 2):
        fails(arguments(consortium, "ada"), capsys, code=3)
        assert len(entries(consortium, "ada")) == tries
    fails(arguments(consortium, "ada", "--store", str(consortium / "other.store")), capsys, code=3)
    tried = entries(consortium, "ada")
    assert StudyTerms.load(consortium / "study.toml").plan(2).charge.mu == mu_of_budget(0.5, 1e-6)
    assert [(entry.name, entry.status) for entry in tried] == 3 * [("ages", SPENT)]
    assert [entry.reserved_mu for entry in tried] == 3 * [mu_of_budget(0.5, 1e-6)]
    assert [entry.charged.mu for entry in tried] == [0.0, 0.0, 0.0]
    assert entries(consortium, "bob") == ()


def test_the_same_data_on_two_accounts_are_noticed(consortium: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "same input columns" not in fails(arguments(consortium, "ada"), capsys, code=3)
    other = ["--account", "bob", "--store", str(consortium / "other.store")]
    error = fails(arguments(consortium, "ada", *other), capsys, code=3)
    assert "account 'bob': the same input columns or people were charged to 'ada', too" in error
    main(["site", "budget", "--ledger", str(consortium / "ledger"), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [account["same_inputs"] for account in document["accounts"]] == [["bob"], ["ada"]]


@pytest.mark.slow
def test_a_group_is_charged_as_many_times(consortium: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.open(consortium / "ledger") as ledger:
        ledger.set_budget("whole", 8.0, 1e-6, when=NOON, unit=PrivacyUnit.PARTY)
    error = fails(arguments(consortium, "ada", "--account", "whole"), capsys)
    assert "counts per party" in error
    fails(arguments(consortium, "ada", "--account", "whole", "--group", "4"), capsys, code=3)
    (entry,) = entries(consortium, "whole")
    assert entry.reserved_mu == StudyTerms.load(consortium / "study.toml").plan(2).charge.of_group(4).mu
    without = [part for part in arguments(consortium, "ada") if part not in ("--ledger", str(consortium / "ledger"))]
    assert "--group cannot go with --no-ledger" in fails([*without, "--group", "4", "--no-ledger"], capsys)


def test_refused_over_budget_before_anything_leaves(consortium: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.open(consortium / "ledger") as ledger:
        ledger.reserve("ada", SpendingRequest("earlier", "earlier", Charge(mu_of_budget(0.9, 0.99e-6))), when=NOON)
    address = (consortium / "roster.toml").read_text().split('address = "')[1].split('"')[0]
    with socket.create_server((address.split(":")[0], int(address.split(":")[1]))):
        # The port is taken: had the node been started, that would be the complaint.
        error = fails(arguments(consortium, "ada"), capsys)
    assert "study 'ages' asks for epsilon 0.5003 at delta 1e-06 but account 'ada' has epsilon 0.3959 left of 1" in error
    assert "raise the budget" in error
    assert len(entries(consortium, "ada")) == 1


def test_a_protocol_without_privacy_is_never_charged_as_if_it_had_some(
    consortium: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (consortium / "study.toml").write_text(study("gossip", 0.3))
    error = fails(arguments(consortium, "ada", "--no-privacy"), capsys)
    assert "asks for epsilon inf" in error
    assert "gossip: nothing, since it adds no noise" in error


def test_mistakes(consortium: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'wards' is not in ledger" in fails(arguments(consortium, "ada", "--account", "wards"), capsys)
    assert not list(consortium.glob("*.store"))
    assert "--ledger cannot go with --no-ledger" in fails(arguments(consortium, "ada", "--no-ledger"), capsys)
    (consortium / "ledger").unlink()
    assert "does not exist" in fails(arguments(consortium, "ada"), capsys)


def test_settled_with_the_certificate(consortium: Path) -> None:
    (consortium / "study.toml").write_text(study("inca", 120.0))
    command = [sys.executable, "-m", "quietmean.cli.main"]
    ada, bob = (
        subprocess.Popen(
            [*command, *arguments(consortium, name, *extra)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for name, extra in (("ada", ("--json",)), ("bob", ("--account", "bob", "--details")))
    )
    output, errors = ada.communicate(timeout=180)
    text, more_errors = bob.communicate(timeout=180)
    assert (ada.returncode, bob.returncode) == (0, 0), errors + more_errors
    document: dict[str, Any] = json.loads(output)
    (entry,) = entries(consortium, "ada")
    assert entry.status == SPENT
    # On a grid nothing is given back: what rounding adds is proven where attendance is not chosen from what was seen.
    assert document["certificate"]["max_mu"] < entry.mu == entry.reserved_mu
    assert "an outsider who sees what is published" in entry.note
    assert "if all others collude" in entry.note
    assert document["ledger"]["charged_mu"] == entry.mu
    assert document["ledger"]["remaining_epsilon"] > 0.8
    assert "account bob: epsilon 0." in text
    # The privacy page, which an extra makes, shows the same account.
    assert (document["privacy_page"] is None) == (find_spec("jinja2") is None)
    if document["privacy_page"]:
        page = Path(document["privacy_page"]).read_text()
        assert "Budget: ε" in page
        assert rounded_up(document["ledger"]["charged_epsilon"]) in page
    assert text.index("guaranteed") < text.index("realised") < text.index("these figures assume")
    assert len(entries(consortium, "bob")) == 1


@pytest.mark.parametrize("first", ["reserved", "bound", "settled"])
def test_a_second_store_of_a_key(tmp_path: Path, first: str) -> None:
    """It takes the place of one of which nothing has left, and no part once something may have."""
    with Ledger.open(tmp_path / "ledger", create=True) as ledger:
        ledger.set_budget("ada", 1.0, 1e-6, when=NOON)
        charge = Charge(mu_of_budget(0.5, 1e-6))
        one, two = (SpendingRequest(study, "ages", charge, seat="ada in ages") for study in ("one", "two"))
        ledger.reserve("ada", one, when=NOON)
        if first == "bound":
            ledger.bind("one", b"left")
        if first == "settled":
            ledger.settle("one", charge, when=NOON)
        if first == "bound":
            for asked in (partial(ledger.reserve, when=NOON), ledger.check):
                with pytest.raises(InputError, match=r"this party already takes part in study 'ages' with another store"):
                    asked("ada", two)
            (entry,) = ledger.trace("ada")
            assert entry.charged == charge
            return
        # Twice, as after a restart.
        for _ in range(2):
            ledger.reserve("ada", two, when=NOON)
        before, after = ledger.trace("ada")
        assert after.charged == charge
        assert before.charged == (charge if first == "settled" else Charge(0.0))
        ledger.bind("two", b"left")
        if first == "reserved":
            with pytest.raises(InputError, match="was given back"):
                ledger.bind("one", b"left")
        # Of another party, or in another study, nothing is known.
        ledger.check("ada", SpendingRequest("three", "ages", Charge(0.0), seat="bob in ages"))
