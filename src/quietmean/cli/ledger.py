"""``quietmean ledger``: what this party's data have cost over all studies, and what they may still cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from quietmean.cli.console import epsilon_text, out, print_json, printable
from quietmean.core.codec import digest
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError

if TYPE_CHECKING:
    from quietmean.ledger import Account, Entry
    from quietmean.node import NodeSettings
    from quietmean.studies import StudyOutcome


def command(
    *,
    ledger: Path = Path("quietmean.ledger"),
    account: str | None = None,
    budget: tuple[float, float] | None = None,
    unit: PrivacyUnit | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show this party's privacy budgets and the studies charged to them, or set a budget.

    Parameters
    ----------
    ledger
        The ledger file. --budget makes it if there is none.
    account
        Show only this account, or the one whose budget is set: a name for one data set.
    budget
        EPSILON DELTA: what all studies of the account together may cost. Not less than what they have cost already.
    unit
        Whose replacement the budget is about: record (the default of a new account) or party.
    json
        One JSON document on standard output.
    """
    from quietmean.ledger import Ledger

    if budget is not None and account is None:
        raise InputError(f"whose budget is epsilon {budget[0]:g} at delta {budget[1]:g}? give --account NAME with it")
    if unit is not None and budget is None:
        raise InputError(f"unit {unit} is chosen together with a budget: give --budget EPSILON DELTA with it")
    with Ledger.open(ledger, create=budget is not None) as book:
        if budget is not None and account is not None:
            known = {each.name: each.unit for each in book.accounts()}
            book.set_budget(account, *budget, when=datetime.now(UTC), unit=unit or known.get(account, PrivacyUnit.RECORD))
        accounts = book.accounts() if account is None else (book.account(account),)
    if json:
        print_json({"ledger": str(ledger), "accounts": [account_json(each) for each in accounts]})
    else:
        for each in accounts:
            _show(each)
        if not accounts:
            out.print("no accounts; make one with --account NAME --budget EPSILON DELTA")


@dataclass(frozen=True)
class Charge:
    """A study on an account of a ledger."""

    ledger: Path
    account: str
    study: str

    @classmethod
    def reserve(cls, ledger: Path, account: str, name: str, settings: NodeSettings) -> Charge:
        """Charge the planned target, on disk, before anything is sent. Raises :class:`InputError` if the budget forbids it."""
        from quietmean.ledger import Ledger

        with Ledger.open(ledger) as book:
            # An unknown account is reported before the party's store is made.
            book.account(account)
            charge = cls(ledger, account, _execution_id(settings))
            unit = settings.plan.target.unit
            book.reserve(account, charge.study, _planned_mu(settings), name=name, when=datetime.now(UTC), unit=unit)
        return charge

    @classmethod
    def check(cls, ledger: Path, account: str, name: str, settings: NodeSettings) -> Account:
        """The account, if :meth:`reserve` would charge it now. Raises :class:`InputError` if not. Nothing is charged or made."""
        from quietmean.ledger import Ledger

        with Ledger.open(ledger) as book:
            known = _execution_id(settings) if settings.store.exists() and settings.store.stat().st_size else ""
            book.check(account, known, _planned_mu(settings), name=name, unit=settings.plan.target.unit)
            return book.account(account)

    def settle(self, outcome: StudyOutcome, party: int) -> Account:
        """Put the certified mu of this party in place of the planned one."""
        from quietmean.ledger import Ledger

        certificate = outcome.certificate
        note = f"against {certificate.describe()}; mu {outcome.privacy.single_honest()[party]:.4g} should everybody else collude"
        with Ledger.open(self.ledger) as book:
            book.settle(self.study, outcome.charged_mu(party), when=datetime.now(UTC), note=note)
            return book.account(self.account)


def _planned_mu(settings: NodeSettings) -> float:
    """For every coalition and every history: a study without such a bound cannot be charged."""
    bound = settings.plan.a_priori
    if math.isinf(bound.mu):
        raise InputError(
            f"protocol {settings.plan.protocol.name} cannot be charged to a budget: {bound.enforced_by}; choose one with noise, "
            "or leave --ledger out"
        )
    return bound.mu


def _execution_id(settings: NodeSettings) -> str:
    """What is charged once: not the study as agreed but its noise, which lives in the party's store.

    A restart from the same store sends nothing new. From another store the same study draws fresh noise and costs as much again.
    """
    store = settings.open_store()
    try:
        return digest({"format": "quietmean-charge-1", "study": settings.study, "nonce": store.nonce.hex()})
    finally:
        store.close()


def account_json(account: Account) -> dict[str, Any]:
    """An account with its entries; mu and epsilon as in :class:`quietmean.ledger.Account`."""
    return {
        **balance_json(account),
        "budgets": [
            {"epsilon": each.epsilon, "delta": each.delta, "mu": each.mu, "set_at": each.set_at} for each in account.budgets
        ],
        "entries": [_entry_json(entry, account) for entry in account.entries],
    }


def balance_json(account: Account) -> dict[str, Any]:
    """What an account has and has left, without its entries."""
    return {
        "account": account.name,
        "unit": str(account.unit),
        "epsilon": account.budget.epsilon,
        "delta": account.budget.delta,
        "mu": account.budget.mu,
        "charged_mu": account.charged_mu,
        "charged_epsilon": account.charged_epsilon,
        "remaining_mu": account.remaining_mu,
        "remaining_epsilon": account.remaining_epsilon,
        "overspent": account.overspent,
    }


def balance_text(account: Account) -> str:
    """One sentence. What is charged is rounded up, what is left down."""
    from quietmean.ledger.account import left_text

    budget = account.budget
    left = f"{left_text(account.remaining_epsilon)} left" if not account.overspent else "OVERSPENT, nothing left"
    charged = f"epsilon {epsilon_text(account.charged_epsilon)} of {budget.epsilon:g} at delta {budget.delta:g}"
    return f"account {printable(account.name)}: {charged} is spent or reserved, {left} (one {account.unit}, replacement)"


def _entry_json(entry: Entry, account: Account) -> dict[str, Any]:
    return {
        "study": entry.study,
        "name": entry.name,
        "unit": str(entry.unit),
        "status": entry.status,
        "mu": entry.mu,
        "epsilon": account.budget.epsilon_of(entry.mu),
        "reserved_mu": entry.reserved_mu,
        "reserved_at": entry.reserved_at,
        "settled_at": entry.settled_at,
        "note": entry.note,
    }


def _show(account: Account) -> None:
    from rich.table import Table
    from rich.text import Text

    out.print(balance_text(account), markup=False, style="red" if account.overspent else None)
    if not account.entries:
        return
    table = Table(box=None, pad_edge=False)
    # A long name wraps; no number is ever cut off.
    table.add_column("study", overflow="fold")
    for title in ("reserved at", "status"):
        table.add_column(title, no_wrap=True)
    for title in ("mu", f"epsilon at delta {account.budget.delta:g}"):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in account.entries:
        mu = "inf" if math.isinf(entry.mu) else f"{math.ceil(entry.mu * 1e4) / 1e4:.4f}"
        cells = (
            entry.name,
            entry.reserved_at.removesuffix("+00:00") + " UTC",
            entry.status,
            mu,
            epsilon_text(account.budget.epsilon_of(entry.mu)),
        )
        # A study's name comes from others: it is text, not markup.
        table.add_row(*(Text(printable(cell)) for cell in cells))
    out.print(table)
    for entry in account.entries:
        if entry.note:
            out.print(f"{printable(entry.name)}: {printable(entry.note)}", markup=False)
