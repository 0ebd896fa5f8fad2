"""An account as it stands in a ledger's file."""

from __future__ import annotations

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.ledger.account import Account, Budget, Freeze, Refund
from quietmean.ledger.database import LedgerDatabase
from quietmean.ledger.entries import BUDGET, ENTRY, FREEZE, entry_of
from quietmean.ledger.known_people import Numbered, shares


def read_account(database: LedgerDatabase, name: str) -> tuple[Account, Numbered]:
    """Return the account, and its entries by their numbers. Raises :class:`InputError` for a file that is damaged."""
    budgets = database.rows(f"SELECT {BUDGET} FROM budget WHERE account = ? ORDER BY number", name)  # noqa: S608
    rows = database.rows(f"SELECT number, {ENTRY} FROM entry WHERE account = ? ORDER BY number", name)  # noqa: S608
    freezes = database.rows(f"SELECT {FREEZE} FROM freeze WHERE account = ? ORDER BY number", name)  # noqa: S608
    about = database.row("SELECT data_set, unit, relation, refund FROM account WHERE name = ?", name)
    with database.decoded():
        data_set, unit, relation, refund = about
        if not budgets:
            raise ValueError("an account is made with its budget")
        entries = {number: entry_of(row) for number, *row in rows}
        account = Account(
            name,
            data_set,
            PrivacyUnit(unit),
            Neighbouring(relation),
            Refund(refund),
            tuple(_budget_of(*row) for row in budgets),
            tuple(entries.values()),
            tuple(Freeze(*row) for row in freezes),
            shares(database, name, entries),
        )
    return account, entries


def _budget_of(epsilon: float, delta: float, mu: float, set_at: str, additive_delta: float) -> Budget:
    return Budget(float(epsilon), float(delta), float(mu), set_at, float(additive_delta))
