"""``quietmean site budget``: what is charged to this party's data over all studies, and what is left."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import Parameter
from rich.table import Table

from quietmean.cli.console import err, out, print_json, print_lines, printable
from quietmean.cli.screens import NEXT, show_first
from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of, delta_shown, epsilon_shown, epsilon_text, indented, marked
from quietmean.ledger import Budget, Ledger, Refund
from quietmean.ledger.account import Rule, left_shown, left_text
from quietmean.privacy.charge import Charge
from quietmean.studies.party import Policy, twins_text

if TYPE_CHECKING:
    from quietmean.ledger import Account, LedgerEntry

# What the sum of charges cannot know, printed where an account is made.
_SENTENCES = {
    PrivacyUnit.RECORD: "A record is not a person. A person with k rows costs k times the loss (mu). Persons are counted from "
    "the first study on where the data name a column of persons. Else charge with --group ROWS, the most rows of a person.",
    PrivacyUnit.PERSON: "It counts for all rows of a person. Studies of records are refused unless the data say rows_per_person "
    "beside the column of persons, or --group ROWS does.",
    PrivacyUnit.PARTY: "It counts for all the data of this party together. Studies of records are refused unless --group RECORDS "
    "says how many this party has.",
}
_OVERLAP = (
    "A person at k parties costs k times the loss (mu), and no ledger can see it. Agree that everybody is with one party, or "
    "charge with --group."
)
# The part of delta for rare events from which on it is said how much of it is used.
_WORTH_SAYING = 0.01
_ADDING_UP = {
    Rule.GAUSS: "Costs combine by squares, not by sums",
    Rule.CONCENTRATED: "Costs add up as rho, not as epsilon",
    Rule.PURE: "Epsilons add up",
}
# So many entries on the first screen.
_LATEST = 6


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """The budget that an account is given, and what a new account is about.

    Parameters
    ----------
    budget
        EPSILON DELTA: what all studies of the account may cost together. It cannot be less than what was charged already.
    unit
        What the budget protects: one record (the default of a new account), one person or one party.
    relation
        How neighbouring data differ: one unit is replaced (the default of a new account), or added or removed.
    data_set
        The data set of a new account, by the name that studies use. Default: the account's name. Each data set, unit and
        relation has one account.
    refund
        settled, the default: if a study costs less than was reserved, the rest is refunded. never: the whole reservation stays
        charged. Use never if participation may depend on the values.
    """

    budget: tuple[float, float] | None = None
    unit: PrivacyUnit | None = None
    relation: Neighbouring | None = None
    data_set: str | None = None
    refund: Literal["settled", "never"] | None = None

    def require_possible(self, account: str | None) -> None:
        """Raises :class:`InputError` for an impossible budget, and for an option that says nothing without another one."""
        if self.budget is not None:
            if account is None:
                raise InputError(
                    f"whose budget is epsilon {self.budget[0]:g} at delta {self.budget[1]:g}? Give --account NAME with it."
                )
            Budget.of(*self.budget, "")
            return
        about = {"unit": self.unit, "relation": self.relation, "data set": self.data_set, "refund": self.refund}
        for name, value in about.items():
            if value is not None:
                raise InputError(f"{name} {value} is chosen together with a budget. Give --budget EPSILON DELTA with it.")

    def set_in(self, book: Ledger, account: str) -> bool:
        """Set the budget, if there is one; whether that made the account."""
        if self.budget is None:
            return False
        is_new = all(each.name != account for each in book.accounts())
        book.set_budget(
            account,
            *self.budget,
            when=datetime.now(UTC),
            unit=self.unit,
            relation=self.relation,
            data_set=self.data_set,
            refund=None if self.refund is None else Refund(self.refund),
        )
        return is_new


def budget_command(
    *,
    ledger: Path | None = None,
    policy: Path | None = None,
    account: str | None = None,
    about: BudgetOptions = BudgetOptions(),
    lift: str | None = None,
    details: bool = False,
    json: bool = False,
) -> None:
    """Show this party's privacy budgets and the studies charged to them, set a budget, or lift a freeze.

    Parameters
    ----------
    ledger
        The ledger file. Default: the policy's, or the user's own, as for studies. --budget creates it if it does not exist.
    policy
        This site's rules for taking part. Default: policy.toml in the user's settings folder.
    account
        The account to show; with --budget, the account to set.
    lift
        Unfreeze a frozen account, for this reason. The reason stays in its history.
    details
        Also show all entries, with mu, notes and past freezes.
    json
        One JSON document on standard output.
    """
    # Before a file is made for it.
    about.require_possible(account)
    if lift is not None and account is None:
        raise InputError("which account is to be lifted? Give --account NAME with --lift.")
    path = Policy.load(policy).ledger(ledger)
    if ledger is None and about.budget is not None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
    with Ledger.open(path, create=about.budget is not None) as book:
        is_new = account is not None and about.set_in(book, account)
        if lift is not None and account is not None:
            book.lift(account, lift, when=datetime.now(UTC))
        accounts = book.accounts() if account is None else (book.account(account),)
        twins = {each.name: book.same_inputs(each.name) for each in accounts}
    if json:
        documents = [account_json(each) | {"same_inputs": list(twins[each.name])} for each in accounts]
        print_json({"ledger": str(path), "accounts": documents})
        return
    for each in accounts:
        print_lines([*_first_screen(each, twins[each.name], alone=not accounts[1:])])
        if details:
            out.print()
            _show(each, twins[each.name])
        if is_new:
            print_lines(indented("Counts", _SENTENCES[each.unit]) + indented("Overlap", _OVERLAP))
    if accounts:
        show_first([], details)
    else:
        out.print("No account exists yet.")
        print_lines([f"{NEXT}site budget --account NAME --budget EPSILON DELTA"])
    if accounts[1:]:
        print_lines([f"{NEXT}site budget --account {quote(accounts[0].name)}"])


def _first_screen(account: Account, twins: Sequence[str], *, alone: bool) -> Iterator[str]:
    """What is left, what must not be overlooked, and the latest entries of an account that is shown ``alone``."""
    budget = account.budget
    relation = "" if account.relation == Neighbouring.REPLACEMENT else f", {account.relation}"
    left = "nothing" if account.overspent else f"{left_shown(account.remaining_epsilon)} of epsilon {budget.epsilon:g}"
    yield f"Budget {account.name!r}: {left} left per {account.unit} (delta {delta_shown(budget.delta)}{relation})"
    if account.overspent:
        yield from marked("OVERSPENT", f"epsilon {epsilon_shown(account.charged_epsilon)} is used, more than {budget.epsilon:g}.")
    if account.frozen is not None:
        why = f"since {account.frozen.since}: {account.frozen.reason}. No study can use it until --lift REASON."
        yield from marked("FROZEN", why)
    if twins:
        yield from marked("TWIN", twins_text(twins))
    if account.charged_additive_delta > _WORTH_SAYING * budget.additive_delta:
        kept = f"{account.charged_additive_delta:.2g} of {budget.additive_delta:.2g} kept for rare events is used."
        yield from marked("DELTA", kept)
    if alone and not account.entries:
        yield "Each study takes some of it. With nothing left, none can use these data."
    if not (alone and account.entries):
        return
    latest = account.entries[-_LATEST:]
    names = max(len(printable(entry.name)) for entry in latest)
    for entry in latest:
        state = "final" if entry.settled else entry.status
        cost = epsilon_shown(budget.epsilon_of(entry.charged))
        yield f"  {printable(entry.name):<{names}}  {str(entry.reserved_at)[:10]}  epsilon {cost:>6}  {state}"
    if len(account.entries) > len(latest):
        yield f"  and {count_of(len(account.entries) - len(latest), 'earlier entry', 'earlier entries')}: --details"
    yield f"Costs here are at delta {delta_shown(budget.delta)}, and a study's own screens have its delta."
    adding = _ADDING_UP[account.rule]
    yield f"{adding}." if account.rule == Rule.PURE else f"{adding}, so used and left do not make {budget.epsilon:g}."


def account_json(account: Account) -> dict[str, Any]:
    """An account with its entries; mu and epsilon as in :class:`quietmean.ledger.Account`."""
    return {
        **balance_json(account),
        "budgets": [
            {
                "epsilon": each.epsilon,
                "delta": each.delta,
                "mu": each.limit if each.rule == Rule.GAUSS else None,
                "limit": each.limit,
                "additive_delta": each.additive_delta,
                "set_at": each.set_at,
            }
            for each in account.budgets
        ],
        "entries": [_entry_json(entry, account) for entry in account.entries],
        "freezes": [
            {
                "study": each.study,
                "since": each.since,
                "reason": each.reason,
                "lifted_at": each.lifted_at,
                "lifted_reason": each.lifted_reason,
            }
            for each in account.freezes
        ],
    }


def balance_json(account: Account) -> dict[str, Any]:
    """What an account has, what is charged and what is left, without its entries."""
    charged = account.charged
    return {
        "account": account.name,
        "data_set": account.data_set,
        "unit": str(account.unit),
        "relation": str(account.relation),
        "refund": str(account.refund),
        "epsilon": account.budget.epsilon,
        "delta": account.budget.delta,
        "rule": str(account.rule),
        "limit": account.budget.limit,
        "mu": account.budget.limit if account.rule == Rule.GAUSS else None,
        "additive_delta": account.budget.additive_delta,
        **_columns("charged_", charged),
        "charged_epsilon": account.charged_epsilon,
        "charged_additive_delta": account.charged_additive_delta,
        "remaining": account.remaining,
        "remaining_mu": account.remaining if account.rule == Rule.GAUSS else None,
        "remaining_epsilon": account.remaining_epsilon,
        "remaining_additive_delta": account.remaining_additive_delta,
        "overspent": account.overspent,
        "frozen": None if account.frozen is None else {"since": account.frozen.since, "reason": account.frozen.reason},
    }


def balance_text(account: Account) -> str:
    """One sentence. What is charged is rounded up, what is left down."""
    budget = account.budget
    remaining = f"{left_text(account.remaining_epsilon)} left"
    # Where somebody would add the two up.
    squares = ""
    if account.charged_epsilon and account.rule == Rule.GAUSS:
        squares = f"; squares of mu add up, so used and left do not make {budget.epsilon:g}"
    if account.overspent:
        remaining = "more than the budget, nothing left"
    if account.frozen is not None:
        remaining = f"FROZEN since {account.frozen.since}: {account.frozen.reason}"
    charged = f"epsilon {epsilon_text(account.charged_epsilon)} of {budget.epsilon:g} used (at delta {budget.delta:g})"
    extra = ""
    if account.charged_additive_delta > _WORTH_SAYING * budget.additive_delta:
        extra = (
            f"; {account.charged_additive_delta:.2g} is used of the delta of {budget.additive_delta:.2g} that is kept for rare "
            "events and inexact random numbers"
        )
    about = f"one {account.unit}, {account.relation}"
    if account.data_set != account.name:
        about = f"data set {account.data_set}, {about}"
    return f"account {printable(account.name)}: {charged}, {remaining}{squares} ({printable(about)}){extra}"


def _short_balance(account: Account) -> str:
    budget = account.budget
    if account.frozen is not None:
        return f"FROZEN since {account.frozen.since}: {account.frozen.reason}"
    if account.overspent:
        return f"nothing left of {budget.epsilon:g}: epsilon {epsilon_shown(account.charged_epsilon)} is used"
    squares = " (costs combine by squares, not by sums)" if account.charged_epsilon and account.rule == Rule.GAUSS else ""
    return f"{left_shown(account.remaining_epsilon)} of {budget.epsilon:g} left{squares}"


def show_balance(account: Account, *, details: bool = False) -> None:
    """The balance; on standard error as well if the account is frozen, which nobody may overlook."""
    print_lines([*indented("Budget", _short_balance(account)), *([balance_text(account)] if details else [])])
    if account.frozen is not None:
        err.print(
            f"quietmean: account {printable(account.name)} is frozen, nothing more is reserved on it until a person lifts it: "
            f"{printable(account.frozen.reason)}",
            style="red",
        )


def _columns(prefix: str, charge: Charge | None) -> dict[str, float | None]:
    return {f"{prefix}{each.name}": None if charge is None else getattr(charge, each.name) for each in fields(Charge)}


def _entry_json(entry: LedgerEntry, account: Account) -> dict[str, Any]:
    return {
        "study": entry.study,
        "name": entry.name,
        "unit": str(entry.unit),
        "relation": str(entry.relation),
        "factor": entry.factor,
        "refund": entry.refund,
        "status": entry.status,
        **_columns("", entry.charged),
        "epsilon": account.budget.epsilon_of(entry.charged),
        **_columns("reserved_", entry.reserved),
        **_columns("certified_", entry.certified),
        "reserved_at": entry.reserved_at,
        "settled_at": entry.settled_at,
        "note": entry.note,
    }


def _show(account: Account, twins: Sequence[str]) -> None:
    print_lines([balance_text(account)], style="red" if account.overspent or account.frozen else None)
    if twins:
        print_lines([printable(twins_text(twins))], style="red")
    for freeze in account.freezes:
        if freeze.lifted_at is not None:
            print_lines([f"was frozen from {freeze.since} to {freeze.lifted_at} ({freeze.reason}): {freeze.lifted_reason}"])
    if not account.entries:
        return
    table = Table(box=None, pad_edge=False)
    # A long name wraps; no number is ever cut off.
    table.add_column("study", overflow="fold")
    for title in ("reserved at", "status"):
        table.add_column(title, no_wrap=True)
    for title in ("mu charged", f"epsilon at delta {account.budget.delta:g}"):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in account.entries:
        mu = "inf" if math.isinf(entry.mu) else f"{math.ceil(entry.mu * 1e4) / 1e4:.4f}"
        cells = (
            entry.name,
            entry.reserved_at.removesuffix("+00:00") + " UTC",
            "final" if entry.settled else entry.status,
            mu,
            epsilon_text(account.budget.epsilon_of(entry.charged)),
        )
        table.add_row(*map(printable, cells))
    out.print(table)
    for entry in account.entries:
        if entry.note:
            print_lines([f"{printable(entry.name)}: {printable(entry.note)}"])
