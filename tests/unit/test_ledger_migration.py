"""A ledger of version 1, as the code of then wrote it: it is brought up to date, and its totals stay."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import RESERVED, SPENT, Inputs, Ledger, Refund
from quietmean.ledger.database import SCHEMA
from quietmean.privacy import Charge, mu_of_budget

NOON = datetime(2030, 1, 2, 12, 0, 0, tzinfo=UTC)
OLD = Path(__file__).parent.parent / "golden" / "ledger-version-1.sqlite"
# What version 1 said: charged mu, remaining mu, charged epsilon, overspent.
TOTALS = {
    "clinic": (0.3, 0.0, 1.2917099372819103, True),
    "labs": (0.2, 0.4599501026290056, 0.7255217508585214, False),
    "wards": (0.23670438066319896, 2.8884666267424297e-09, 0.999999999999922, False),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(OLD, tmp_path / "old.ledger"))


def version(path: Path) -> int:
    with sqlite3.connect(path) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def test_the_file_is_a_real_one(path: Path) -> None:
    assert version(path) == 1
    columns = [row[1] for row in sqlite3.connect(path).execute("PRAGMA table_info(entry)")]
    assert "beta" not in columns


def test_totals_entries_and_history_stay(path: Path) -> None:
    for _ in range(2):
        with Ledger.open(path) as ledger:
            accounts = {account.name: account for account in ledger.accounts()}
        assert version(path) == SCHEMA
        for name, totals in TOTALS.items():
            account = accounts[name]
            assert (account.charged_mu, account.remaining_mu, account.charged_epsilon, account.overspent) == totals
            assert (account.data_set, account.relation, account.refund) == (name, Neighbouring.REPLACEMENT, Refund.SETTLED)
            assert account.frozen is None
            assert (account.charged.beta, account.charged.tv, account.budget.additive_delta) == (0.0, 0.0, 0.0)
        assert accounts["labs"].unit == PrivacyUnit.PARTY
        assert [budget.epsilon for budget in accounts["wards"].budgets] == [0.8, 1.0]
        assert accounts["wards"].budget.mu == mu_of_budget(1.0, 1e-6)
        first, second = accounts["wards"].entries
        assert (first.status, first.charged, first.certified) == (SPENT, Charge(0.09), Charge(0.09))
        assert (first.reserved, first.note) == (
            Charge(mu_of_budget(0.5, 1e-6)),
            "against any coalition of 1 party (all 11 checked)",
        )
        assert (second.status, second.certified, second.settled_at) == (RESERVED, None, None)


def test_it_goes_on_from_there(path: Path) -> None:
    with Ledger.open(path) as ledger:
        # Reserved by version 1, settled by this one: less, then more than reserved.
        assert ledger.settle("a2", Charge(0.1), when=NOON).mu == 0.1
        ledger.reserve("wards", "a3", Charge(0.1), name="height", when=NOON, inputs=Inputs([np.arange(3.0)[:, None]]))
        with pytest.raises(InputError, match="may fail with 1e-09"):
            ledger.reserve("wards", "a4", Charge(0.01, 1e-9), name="pulse", when=NOON)
        # The budget set anew has the part for beta and tv.
        assert ledger.set_budget("wards", 1.0, 1e-6, when=NOON).budget.additive_delta == pytest.approx(1e-8)
        ledger.reserve("wards", "a4", Charge(0.01, 1e-9), name="pulse", when=NOON)
        ledger.settle("b1", Charge(0.25), when=NOON)
        assert ledger.account("labs").frozen is not None
        with pytest.raises(InputError, match=r"left of 0\.5"):
            ledger.reserve("clinic", "c2", Charge(1e-6), name="sex", when=NOON)


def test_a_full_account_of_version_1_stays_full(path: Path) -> None:
    with Ledger.open(path) as ledger:
        with pytest.raises(InputError, match="left of 1"):
            ledger.reserve("wards", "a3", Charge(1e-6), name="height", when=NOON)
        # The part for beta and tv is taken from what mu has already used.
        with pytest.raises(InputError, match=r"is less than what is charged to account 'wards', epsilon 1\.00"):
            ledger.set_budget("wards", 1.0, 1e-6, when=NOON)


def test_many_at_once_bring_it_up_to_date_once(path: Path) -> None:
    failures: list[BaseException] = []

    def use() -> None:
        try:
            with Ledger.open(path) as ledger:
                assert ledger.account("labs").charged_mu == 0.2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_crash_on_the_way_leaves_version_1(path: Path) -> None:
    class Crash(BaseException):
        pass

    class Mortal(sqlite3.Connection):
        lives = 0

        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            if self.lives <= 0:
                raise Crash
            self.lives -= 1
            return super().execute(*arguments)

    def reopened(connection: sqlite3.Connection) -> Callable[[Path], sqlite3.Connection]:
        return lambda path: connection

    for lives in range(60):
        connection = sqlite3.connect(path, isolation_level=None, factory=Mortal)
        connection.lives = lives
        try:
            Ledger.open(path, connect=reopened(connection)).close()
            break
        except Crash:
            connection.close()
        assert version(path) in (1, SCHEMA)
    with Ledger.open(path) as ledger:
        assert {account.name: account.charged_mu for account in ledger.accounts()} == {name: t[0] for name, t in TOTALS.items()}
