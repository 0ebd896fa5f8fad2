"""The budget ledger: what a party's data have cost over all studies, and what they may still cost. One SQLite file.

An account is a data set with a budget; an entry is a study that was charged to it, in mu (Gaussian differential privacy against
the study's own adversary). Entries compose exactly: mu = sqrt(sum mu_k^2). A study is reserved, on disk, before its first message
leaves, and settled with the certified mu afterwards, so a crash can only leave too much on the account, never too little. There
is no way to take a reservation back: nobody can prove that nothing was sent.

Several processes may use one ledger at once, on one machine (not over a network file system). The clock is an argument.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger.account import RESERVED, SPENT, Account, Budget, Entry, left_text, spent_text
from quietmean.ledger.database import Connect, Database
from quietmean.privacy.composition import check_mu

_COLUMNS = "study, account, name, unit, reserved_mu, mu, status, reserved_at, settled_at, note"


class Ledger:
    """Use :meth:`open`, best in a ``with`` statement. What changes something is on disk when it returns."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._path = database.path

    @classmethod
    def open(cls, path: Path, *, create: bool = False, connect: Connect | None = None) -> Ledger:
        """Open a ledger. Raises :class:`InputError` if there is none (unless ``create``) or if it is not one of this version."""
        return cls(Database(path, create=create, connect=connect))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- accounts ----------------------------------------------------------------------------------------------------

    def set_budget(
        self, name: str, epsilon: float, delta: float, *, when: datetime, unit: PrivacyUnit = PrivacyUnit.RECORD
    ) -> Account:
        """Make an account, or change the budget of one. The unit of an account never changes.

        Raises :class:`InputError` for an empty name, an impossible budget, another unit than that of the account, or a smaller
        budget than what is charged to the account already.
        """
        if not name.strip():
            raise InputError("an account without a name cannot be found again: give it one")
        budget = Budget.of(epsilon, delta, _stamp(when))
        with self._database.transaction("IMMEDIATE"):
            row = self._database.row("SELECT unit FROM account WHERE name = ?", name)
            if row is None:
                self._database.change("INSERT INTO account VALUES (?, ?)", name, str(unit))
            else:
                _check_change(self._account(name, row[0]), budget, unit)
            last = self._database.row("SELECT epsilon, delta FROM budget WHERE account = ? ORDER BY number DESC", name)
            if last != (epsilon, delta):
                self._database.change(
                    "INSERT INTO budget (account, epsilon, delta, mu, set_at) VALUES (?, ?, ?, ?, ?)", name, *astuple(budget)
                )
            return self._account(name, str(unit) if row is None else row[0])

    def accounts(self) -> tuple[Account, ...]:
        """All accounts by name, as of one instant."""
        with self._database.transaction("DEFERRED"):
            rows = self._database.rows("SELECT name, unit FROM account ORDER BY name")
            return tuple(self._account(name, unit) for name, unit in rows)

    def account(self, name: str) -> Account:
        with self._database.transaction("DEFERRED"):
            return self._required_account(name)

    def trace(self, name: str) -> tuple[Entry, ...]:
        """The account's entries, in the order in which they were reserved."""
        return self.account(name).entries

    def remaining(self, name: str) -> tuple[float, float]:
        """(mu, epsilon at the account's delta) that a further study may cost; rounded down."""
        account = self.account(name)
        return account.remaining_mu, account.remaining_epsilon

    # --- studies -----------------------------------------------------------------------------------------------------

    def reserve(
        self, account: str, study: str, mu: float, *, name: str, when: datetime, unit: PrivacyUnit = PrivacyUnit.RECORD
    ) -> Entry:
        """Charge a study before its first message is sent.

        ``study`` identifies one execution with one noise. A second call for it charges nothing, with one exception: if the study
        is not settled yet and ``mu`` is higher than before, its entry is raised to ``mu``. Raises :class:`InputError` if the
        budget does not allow ``mu``, if the account does not exist or counts per party what the study protects per record, if
        another account is charged with the study, or if ``mu`` is negative.
        """
        check_mu(mu)
        stamp = _stamp(when)
        with self._database.transaction("IMMEDIATE"):
            payer = self._required_account(account)
            known = self._entry(study)
            if known is not None and known.account != account:
                raise InputError(f"study {name!r} is charged to account {known.account!r} already: name that account")
            if known is not None and (known.status == SPENT or mu <= known.reserved_mu):
                return known
            self._check_room(payer, known, mu, name, unit)
            fresh = Entry(study, account, name, unit, mu, mu, RESERVED, stamp, None, "")
            return self._saved(fresh if known is None else replace(known, reserved_mu=mu, mu=mu))

    def check(self, account: str, study: str, mu: float, *, name: str, unit: PrivacyUnit = PrivacyUnit.RECORD) -> None:
        """Raise :class:`InputError` where :meth:`reserve` would; nothing is charged."""
        check_mu(mu)
        with self._database.transaction("DEFERRED"):
            payer, known = self._required_account(account), self._entry(study)
            if known is None or (known.status != SPENT and mu > known.reserved_mu):
                self._check_room(payer, known, mu, name, unit)

    def _check_room(self, account: Account, known: Entry | None, mu: float, name: str, unit: PrivacyUnit) -> None:
        # What hides a whole party hides each of its records, but not the other way round.
        if account.unit == PrivacyUnit.PARTY and unit != PrivacyUnit.PARTY:
            raise InputError(
                f"study {name!r} protects one {unit}, account {account.name!r} counts per {account.unit}: "
                f"use an account that counts per {unit}"
            )
        others, budget = account if known is None else account.without(known.study), account.budget
        if others.allows(mu):
            return
        asked, left = spent_text(budget.epsilon_of(mu)), left_text(others.remaining_epsilon)
        raise InputError(
            f"study {name!r} asks for epsilon {asked} at delta {budget.delta:g} but account {account.name!r} has epsilon {left} "
            f"left of {budget.epsilon:g}: agree on a study that costs less, or raise the budget with quietmean ledger "
            f"--ledger {self._path} --account {account.name} --budget EPSILON DELTA"
        )

    def settle(self, study: str, mu: float, *, when: datetime, note: str = "") -> Entry:
        """Replace the reserved mu of a study by what it really cost, be it less or more.

        After several calls the highest mu holds. Raises :class:`InputError` for a study that was never reserved, or a
        negative mu.
        """
        check_mu(mu)
        stamp = _stamp(when)
        with self._database.transaction("IMMEDIATE"):
            known = self._entry(study)
            if known is None:
                raise InputError(f"study {study} is not in ledger {self._path}: reserve it first")
            if known.status == SPENT and mu <= known.mu:
                return known
            return self._saved(replace(known, mu=mu, status=SPENT, settled_at=stamp, note=note))

    # --- rows --------------------------------------------------------------------------------------------------------

    def _account(self, name: str, unit: str) -> Account:
        budgets = self._database.rows("SELECT epsilon, delta, mu, set_at FROM budget WHERE account = ? ORDER BY number", name)
        entries = self._database.rows(f"SELECT {_COLUMNS} FROM entry WHERE account = ? ORDER BY number", name)  # noqa: S608
        return Account(name, PrivacyUnit(unit), tuple(Budget(*row) for row in budgets), tuple(_entry_of(row) for row in entries))

    def _required_account(self, name: str) -> Account:
        row = self._database.row("SELECT unit FROM account WHERE name = ?", name)
        if row is None:
            known = ", ".join(repr(known) for (known,) in self._database.rows("SELECT name FROM account ORDER BY name")) or "none"
            raise InputError(
                f"account {name!r} is not in ledger {self._path} (it has {known}): name one of them, or make it with "
                f"quietmean ledger --ledger {self._path} --account {name} --budget EPSILON DELTA"
            )
        return self._account(name, row[0])

    def _entry(self, study: str) -> Entry | None:
        row = self._database.row(f"SELECT {_COLUMNS} FROM entry WHERE study = ?", study)  # noqa: S608
        return None if row is None else _entry_of(row)

    def _saved(self, entry: Entry) -> Entry:
        self._database.change(
            f"""INSERT INTO entry ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (study) DO UPDATE SET
                reserved_mu = excluded.reserved_mu, mu = excluded.mu, status = excluded.status,
                settled_at = excluded.settled_at, note = excluded.note""",  # noqa: S608
            *astuple(entry),
        )
        return entry


def _check_change(account: Account, budget: Budget, unit: PrivacyUnit) -> None:
    if unit != account.unit:
        raise InputError(f"account {account.name!r} counts per {account.unit}, not per {unit}: make another account for that")
    if budget.mu < account.budget.mu and not account.within(budget):
        raise InputError(
            f"a budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} is less than what account {account.name!r} has "
            f"spent or reserved, epsilon {spent_text(budget.epsilon_of(account.charged_mu))}: choose at least that"
        )


def _entry_of(row: Any) -> Entry:
    study, account, name, unit, *rest = row
    return Entry(study, account, name, PrivacyUnit(unit), *rest)


def _stamp(when: datetime) -> str:
    if when.tzinfo is None:
        raise ValueError("a time without a time zone")
    return when.astimezone(UTC).isoformat(timespec="seconds")
