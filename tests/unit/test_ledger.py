"""The budget ledger and its command: what is charged stays charged, what does not fit is refused in one sentence."""

from __future__ import annotations

import json
import math
import sqlite3
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import RESERVED, SPENT, Ledger
from quietmean.privacy import compose_mu, mu_of_budget
from quietmean.privacy.conversion import epsilon_of_mu

NOON = datetime(2030, 1, 2, 12, 0, 0, tzinfo=UTC)
HALF = mu_of_budget(0.5, 1e-6)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ada.ledger"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path, create=True) as book:
        book.set_budget("wards", 1.0, 1e-6, when=NOON)
        yield book


def charge(ledger: Ledger, study: str, mu: float = HALF, account: str = "wards") -> None:
    ledger.reserve(account, study, mu, name=f"study {study}", when=NOON)


# --- what is kept ------------------------------------------------------------------------------------------------------------


def test_a_study_is_reserved_then_spent_and_all_of_it_is_there_after_a_restart(ledger: Ledger, path: Path) -> None:
    east = datetime(2030, 1, 2, 15, 0, tzinfo=timezone(timedelta(hours=2)))
    reserved = ledger.reserve("wards", "s1", HALF, name="pressure", when=east)
    assert (reserved.status, reserved.mu, reserved.reserved_at) == (RESERVED, HALF, "2030-01-02T13:00:00+00:00")
    spent = ledger.settle("s1", HALF / 2, when=NOON, note="against an outsider")
    assert (spent.status, spent.mu, spent.reserved_mu, spent.note) == (SPENT, HALF / 2, HALF, "against an outsider")
    ledger.close()
    with Ledger.open(path) as again:
        assert again.trace("wards") == (spent,)
        account = again.account("wards")
    assert account.charged_mu == HALF / 2
    assert account.remaining_mu == pytest.approx(math.sqrt(mu_of_budget(1.0, 1e-6) ** 2 - HALF**2 / 4), rel=1e-15)


def test_studies_compose_by_squares_and_the_rest_may_be_asked_for(ledger: Ledger) -> None:
    charge(ledger, "s1")
    charge(ledger, "s2")
    account = ledger.account("wards")
    assert account.charged_mu == compose_mu([HALF, HALF])
    # Two halves are less than the whole: squares add up, not epsilons.
    assert 0.70 < account.charged_epsilon < 0.75
    mu, epsilon = ledger.remaining("wards")
    charge(ledger, "rest", mu_of_budget(epsilon, 1e-6))
    assert not ledger.account("wards").overspent
    assert ledger.remaining("wards")[1] < 1e-3 * epsilon
    assert mu >= mu_of_budget(epsilon, 1e-6)


def test_a_budget_is_spent_to_its_very_edge(ledger: Ledger) -> None:
    charge(ledger, "all", mu_of_budget(1.0, 1e-6))
    assert ledger.remaining("wards") == (0.0, 0.0)
    with pytest.raises(InputError, match=r"has epsilon 0\.0000 left of 1"):
        charge(ledger, "more", 1e-9)


def test_the_same_study_is_charged_once(ledger: Ledger) -> None:
    charge(ledger, "s1")
    charge(ledger, "s1")
    charge(ledger, "s1", HALF / 3)
    assert ledger.account("wards").mus == (HALF,)
    ledger.settle("s1", 2 * HALF, when=NOON)
    charge(ledger, "s1", 100.0)
    assert ledger.account("wards").mus == (2 * HALF,)
    ledger.settle("s1", HALF, when=NOON, note="second answer")
    assert ledger.account("wards").mus == (2 * HALF,)


def test_a_reservation_may_grow_within_the_budget(ledger: Ledger) -> None:
    whole = mu_of_budget(1.0, 1e-6)
    charge(ledger, "s1")
    charge(ledger, "s1", whole)
    assert ledger.account("wards").mus == (whole,)
    with pytest.raises(InputError, match="left of 1"):
        charge(ledger, "s1", whole * 1.01)


def test_refusal_names_what_is_left_what_was_asked_and_the_remedy(ledger: Ledger, path: Path) -> None:
    charge(ledger, "s1", mu_of_budget(0.9, 1e-6))
    with pytest.raises(InputError) as refusal:
        charge(ledger, "s2")
    left = ledger.remaining("wards")[1]
    sentence = str(refusal.value)
    assert f"epsilon {math.floor(left * 1e4) / 1e4:.4f} left of 1" in sentence
    for words in ("asks for epsilon 0.5000 at delta 1e-06", "'wards'", f"--ledger {path} --account wards --budget"):
        assert words in sentence
    assert len(ledger.trace("wards")) == 1


@pytest.mark.parametrize("mu", [2.0, math.inf])
def test_a_study_that_cost_more_than_planned_is_shown_as_it_is(ledger: Ledger, mu: float) -> None:
    charge(ledger, "s1")
    ledger.settle("s1", mu, when=NOON)
    account = ledger.account("wards")
    assert account.overspent
    assert account.charged_mu == mu
    assert account.charged_epsilon == epsilon_of_mu(mu, 1e-6)
    assert (account.remaining_mu, account.remaining_epsilon) == (0.0, 0.0)
    with pytest.raises(InputError, match="left of 1"):
        charge(ledger, "s2", 1e-6)
    # The restart of a study that is charged already is no new charge.
    charge(ledger, "s1")


def test_accounts_are_apart_but_a_study_has_one(ledger: Ledger) -> None:
    ledger.set_budget("labs", 2.0, 1e-5, when=NOON)
    charge(ledger, "s1")
    charge(ledger, "s2", 0.3, account="labs")
    assert [account.mus for account in ledger.accounts()] == [(0.3,), (HALF,)]
    with pytest.raises(InputError, match="charged to account 'wards' already"):
        charge(ledger, "s1", account="labs")


def test_what_hides_a_party_hides_a_record_but_not_the_other_way_round(ledger: Ledger) -> None:
    ledger.set_budget("whole", 1.0, 1e-6, when=NOON, unit=PrivacyUnit.PARTY)
    ledger.reserve("wards", "s1", 0.01, name="a", when=NOON, unit=PrivacyUnit.PARTY)
    ledger.reserve("whole", "s2", 0.01, name="b", when=NOON, unit=PrivacyUnit.PARTY)
    with pytest.raises(InputError, match="protects one record, account 'whole' counts per party"):
        ledger.reserve("whole", "s3", 0.01, name="c", when=NOON)
    with pytest.raises(InputError, match="counts per party, not per record"):
        ledger.set_budget("whole", 2.0, 1e-6, when=NOON)


def test_budgets_rise_and_fall_but_not_below_what_is_charged(ledger: Ledger) -> None:
    charge(ledger, "s1")
    ledger.set_budget("wards", 2.0, 1e-6, when=NOON)
    ledger.set_budget("wards", 0.6, 1e-6, when=NOON)
    ledger.set_budget("wards", 0.5, 1e-6, when=NOON)
    ledger.set_budget("wards", 0.5, 1e-6, when=NOON)
    with pytest.raises(InputError, match=r"less than what account 'wards' has spent or reserved, epsilon 0\.5000"):
        ledger.set_budget("wards", 0.4, 1e-6, when=NOON)
    account = ledger.account("wards")
    assert [budget.epsilon for budget in account.budgets] == [1.0, 2.0, 0.6, 0.5]
    ledger.settle("s1", 1.0, when=NOON)
    # Overspent, it may rise by less than it needs.
    assert ledger.set_budget("wards", 0.7, 1e-6, when=NOON).overspent


# --- what is refused ---------------------------------------------------------------------------------------------------------


def test_impossible_numbers(ledger: Ledger) -> None:
    for mu in (-1.0, math.nan):
        with pytest.raises(InputError, match="choose a number >= 0"):
            charge(ledger, "s1", mu)
        with pytest.raises(InputError, match="choose a number >= 0"):
            ledger.settle("s1", mu, when=NOON)
    with pytest.raises(InputError, match="left of 1"):
        charge(ledger, "s1", math.inf)
    with pytest.raises(InputError, match="choose 0 < delta < 1"):
        ledger.set_budget("wards", 1.0, 0.0, when=NOON)
    with pytest.raises(InputError, match="without a name"):
        ledger.set_budget(" ", 1.0, 0.1, when=NOON)
    with pytest.raises(InputError, match="reserve it first"):
        ledger.settle("s1", 1.0, when=NOON)
    with pytest.raises(ValueError, match="time zone"):
        ledger.reserve("wards", "s1", 0.1, name="a", when=NOON.replace(tzinfo=None))
    assert ledger.trace("wards") == ()


def test_unknown_accounts_are_named(ledger: Ledger) -> None:
    with pytest.raises(InputError, match=r"'labs' is not in ledger .* \(it has 'wards'\)"):
        charge(ledger, "s1", account="labs")


def test_the_file_is_its_owners_only_with_a_log_ahead_and_full_sync(ledger: Ledger, path: Path) -> None:
    charge(ledger, "s1")
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["ada.ledger", "ada.ledger-shm", "ada.ledger-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    connection = sqlite3.connect(path, isolation_level=None)
    with Ledger.open(path, connect=lambda path: connection):
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_files_that_are_no_ledgers(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Ledger.open(path)
    assert not path.exists()
    path.write_bytes(b"no database at all, but long enough to look like a file with some content" * 20)
    with pytest.raises(InputError, match="not usable"):
        Ledger.open(path)
    with pytest.raises(InputError, match="cannot be opened"):
        Ledger.open(tmp_path / "nowhere" / "ledger", create=True)
    with pytest.raises(InputError, match="cannot be opened"):
        Ledger.open(tmp_path)


@pytest.mark.parametrize("version", [0, 1])
def test_another_database_is_left_alone(path: Path, version: int) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE fact (name TEXT)")
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="a database but no ledger"):
        Ledger.open(path, create=True)
    assert path.read_bytes() == before


def test_unknown_schema_is_refused(path: Path) -> None:
    Ledger.open(path, create=True).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(InputError, match="schema version 2, this version of quietmean knows 1"):
        Ledger.open(path)


def test_a_ledger_in_use_is_told(ledger: Ledger, path: Path) -> None:
    impatient = Ledger.open(path, connect=lambda path: sqlite3.connect(path, timeout=0.01, isolation_level=None))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(InputError, match="in use by another process"):
        charge(impatient, "s1")
    # Reading needs no turn.
    assert impatient.trace("wards") == ()
    other.execute("ROLLBACK")
    charge(impatient, "s1")
    impatient.close()
    other.close()


# --- the command -------------------------------------------------------------------------------------------------------------


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["ledger", *arguments])
    output = capsys.readouterr()
    assert output.err == ""
    return output.out


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    output = capsys.readouterr()
    assert (stop.value.code, output.out, output.err.count("\n")) == (2, "", 1), output.err
    return output.err


def test_budget_and_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = shown(capsys, "--ledger", str(path), "--account", "wards", "--budget", "1", "1e-6")
    assert made.startswith("account wards: epsilon 0.0000 of 1 at delta 1e-06 is spent or reserved, 1.0000 left")
    with Ledger.open(path) as book:
        book.reserve("wards", "s1", HALF, name="a [red]study[/red]\x1b[2J", when=NOON)
    table = shown(capsys, "--ledger", str(path))
    assert "[red]stud" in table
    assert "\x1b" not in table
    assert "2030-01-02T12:00:00 UTC  reserved" in table
    assert "0.5000" in table
    with Ledger.open(path) as book:
        book.settle("s1", math.inf, when=NOON, note="gave a value away")
    overspent = shown(capsys, "--ledger", str(path))
    assert "OVERSPENT" in overspent
    assert "a [red]study[/red]?[2J: gave a value away" in overspent


def test_one_json_document(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, "--ledger", str(path), "--account", "labs", "--budget", "2", "1e-5", "--unit", "party")
    shown(capsys, "--ledger", str(path), "--account", "labs", "--budget", "3", "1e-5")
    shown(capsys, "--ledger", str(path), "--account", "wards", "--budget", "1", "1e-6")
    with Ledger.open(path) as book:
        charge(book, "s1")
        book.settle("s1", math.inf, when=NOON)
    document: dict[str, Any] = json.loads(shown(capsys, "--ledger", str(path), "--json"))
    labs, wards = document["accounts"]
    assert (labs["account"], labs["unit"], labs["epsilon"], labs["entries"]) == ("labs", "party", 3.0, [])
    assert [budget["epsilon"] for budget in labs["budgets"]] == [2.0, 3.0]
    assert (wards["charged_mu"], wards["charged_epsilon"], wards["overspent"]) == ("inf", "inf", True)
    assert wards["entries"][0]["status"] == "spent"
    only: dict[str, Any] = json.loads(shown(capsys, "--ledger", str(path), "--account", "labs", "--json"))
    assert [account["account"] for account in only["accounts"]] == ["labs"]


def test_mistakes(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = ["ledger", "--ledger", str(path)]
    assert "does not exist" in fails(capsys, *ledger)
    assert "--account NAME" in fails(capsys, *ledger, "--budget", "1", "1e-6")
    assert "--budget EPSILON DELTA" in fails(capsys, *ledger, "--unit", "party")
    assert "delta is 2" in fails(capsys, *ledger, "--account", "a", "--budget", "1", "2")
    assert "epsilon is -1" in fails(capsys, *ledger, "--account", "a", "--budget", "-1", "1e-6")
    shown(capsys, *ledger[1:], "--account", "a", "--budget", "1", "1e-6")
    assert "'b' is not in ledger" in fails(capsys, *ledger, "--account", "b")
    assert "counts per record" in fails(capsys, *ledger, "--account", "a", "--budget", "2", "1e-6", "--unit", "party")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ada.ledger"]
