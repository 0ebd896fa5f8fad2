"""The budget ledger: what a party's data have cost over all studies, and what they may still cost. One SQLite file.

An account is a data set with a budget; an entry is a study that was charged to it, in mu (Gaussian differential privacy against
the study's own adversary). Entries compose exactly: mu = sqrt(sum mu_k^2). A study is reserved, on disk, before its first message
leaves, and settled with the certified mu afterwards, so a crash can only leave too much on the account, never too little. There
is no way to take a reservation back: nobody can prove that nothing was sent.

Several processes may use one ledger at once, on one machine (not over a network file system). The clock is handed in.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.privacy.composition import check_mu, compose_mu, epsilon_within, fits, remaining_mu
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.privacy.gaussian import mu_of_budget

SCHEMA = 1
RESERVED: Final = "reserved"
SPENT: Final = "spent"
# Tells a ledger from any other SQLite file, such as a party's store.
_APPLICATION = 0x514D4C47
_WAIT_SECONDS = 30.0
_ATTEMPTS = 5
_TABLES = (
    "CREATE TABLE account (name TEXT PRIMARY KEY, unit TEXT NOT NULL)",
    """CREATE TABLE budget (number INTEGER PRIMARY KEY, account TEXT NOT NULL REFERENCES account (name),
                             epsilon REAL NOT NULL, delta REAL NOT NULL, mu REAL NOT NULL, set_at TEXT NOT NULL)""",
    """CREATE TABLE entry (number INTEGER PRIMARY KEY, study TEXT NOT NULL UNIQUE,
                            account TEXT NOT NULL REFERENCES account (name), name TEXT NOT NULL, unit TEXT NOT NULL,
                            reserved_mu REAL NOT NULL, mu REAL NOT NULL, status TEXT NOT NULL,
                            reserved_at TEXT NOT NULL, settled_at TEXT, note TEXT NOT NULL)""",
)
_COLUMNS = "study, account, name, unit, reserved_mu, mu, status, reserved_at, settled_at, note"

Connect = Callable[[Path], sqlite3.Connection]


@dataclass(frozen=True, slots=True)
class Entry:
    """One study on an account. ``mu`` counts: the reserved one at first, the certified one once it is spent.

    ``unit``: whose replacement mu speaks of. Times are UTC, ISO 8601.
    """

    study: str
    account: str
    name: str
    unit: PrivacyUnit
    reserved_mu: float
    mu: float
    status: str
    reserved_at: str
    settled_at: str | None
    note: str

    def epsilon(self, delta: float) -> float:
        """What it charges at ``delta``, rounded up. Raises :class:`InputError` for an impossible delta."""
        return epsilon_of_mu(self.mu, delta)


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit: (epsilon, delta) as given, and the largest mu that meets it."""

    epsilon: float
    delta: float
    mu: float
    set_at: str


@dataclass(frozen=True, slots=True)
class Account:
    """A data set's budget and what was charged to it. The last of ``budgets`` holds; the earlier ones are its history.

    ``unit``: whose replacement the budget is about. Epsilons are at the budget's delta; what is spent is rounded up, what is left
    down.
    """

    name: str
    unit: PrivacyUnit
    budgets: tuple[Budget, ...]
    entries: tuple[Entry, ...]

    @property
    def budget(self) -> Budget:
        return self.budgets[-1]

    @property
    def mus(self) -> tuple[float, ...]:
        return tuple(entry.mu for entry in self.entries)

    @property
    def charged_mu(self) -> float:
        """Spent and reserved together."""
        return compose_mu(self.mus)

    @property
    def charged_epsilon(self) -> float:
        return epsilon_of_mu(self.charged_mu, self.budget.delta)

    @property
    def remaining_mu(self) -> float:
        return remaining_mu(self.budget.mu, self.mus)

    @property
    def remaining_epsilon(self) -> float:
        """The largest epsilon that a further study may have at the budget's delta."""
        return epsilon_within(self.remaining_mu, self.budget.delta)

    @property
    def overspent(self) -> bool:
        """Only a study that cost more than was planned, or an account that shrank, leads here: never a reservation."""
        return not fits(self.budget.mu, self.mus)


class Ledger:
    """Use :meth:`open`, best in a ``with`` statement. What changes something is on disk when it returns."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path

    @classmethod
    def open(cls, path: Path, *, create: bool = False, connect: Connect | None = None) -> Ledger:
        """Open a ledger. Raises :class:`InputError` if there is none (unless ``create``) or if it is not one of this version."""
        _make_file(path, create)
        database = (connect or _connect)(path)
        ledger = cls(database, path)
        try:
            with ledger._told():
                ledger._prepare()
        except BaseException:
            database.close()
            raise
        return ledger

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
        """Make an account or change its budget, to no less than is charged to it already. The unit stays as it was made."""
        if not name.strip():
            raise InputError("an account without a name cannot be found again: give it one")
        mu, stamp = mu_of_budget(epsilon, delta), _stamp(when)
        with self._transaction("IMMEDIATE"):
            row = self._row("SELECT unit FROM account WHERE name = ?", name)
            if row is None:
                self._database.execute("INSERT INTO account VALUES (?, ?)", (name, str(unit)))
            else:
                self._check_change(self._account(name, row[0]), epsilon, delta, mu, unit)
            last = self._row("SELECT epsilon, delta FROM budget WHERE account = ? ORDER BY number DESC", name)
            if last != (epsilon, delta):
                self._database.execute(
                    "INSERT INTO budget (account, epsilon, delta, mu, set_at) VALUES (?, ?, ?, ?, ?)",
                    (name, epsilon, delta, mu, stamp),
                )
            return self._account(name, str(unit) if row is None else row[0])

    def _check_change(self, account: Account, epsilon: float, delta: float, mu: float, unit: PrivacyUnit) -> None:
        if unit != account.unit:
            raise InputError(f"account {account.name!r} counts per {account.unit}, not per {unit}: make another account for that")
        if mu < account.budget.mu and not fits(mu, account.mus):
            spent = epsilon_of_mu(account.charged_mu, delta)
            raise InputError(
                f"a budget of epsilon {epsilon:g} at delta {delta:g} is less than what account {account.name!r} has spent "
                f"or reserved, epsilon {_up(spent)}: choose at least that"
            )

    def accounts(self) -> tuple[Account, ...]:
        """All accounts by name, as of one instant."""
        with self._transaction("DEFERRED"):
            rows = self._rows("SELECT name, unit FROM account ORDER BY name")
            return tuple(self._account(name, unit) for name, unit in rows)

    def account(self, name: str) -> Account:
        with self._transaction("DEFERRED"):
            return self._required_account(name)

    def history(self, name: str) -> tuple[Entry, ...]:
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
        """Charge a study before its first message leaves; refuse it if the budget does not allow ``mu``.

        ``study`` identifies one execution with one noise: asked again, nothing is charged again. Only a higher mu than before is
        charged as such, if it fits.
        """
        check_mu(mu)
        stamp = _stamp(when)
        with self._transaction("IMMEDIATE"):
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
        with self._transaction("DEFERRED"):
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
        others = [entry.mu for entry in account.entries if known is None or entry.study != known.study]
        if fits(account.budget.mu, [*others, mu]):
            return
        budget = account.budget
        left = left_text(epsilon_within(remaining_mu(budget.mu, others), budget.delta))
        raise InputError(
            f"study {name!r} asks for epsilon {_up(epsilon_of_mu(mu, budget.delta))} at delta {budget.delta:g} but account "
            f"{account.name!r} has epsilon {left} left of {budget.epsilon:g}: agree on a study that costs less, or raise the "
            f"budget with quietmean ledger --ledger {self._path} --account {account.name} --budget EPSILON DELTA"
        )

    def settle(self, study: str, mu: float, *, when: datetime, note: str = "") -> Entry:
        """Replace the reserved mu of a study by what it really cost, be it less or more. Asked again, the higher mu stays."""
        check_mu(mu)
        stamp = _stamp(when)
        with self._transaction("IMMEDIATE"):
            known = self._entry(study)
            if known is None:
                raise InputError(f"study {study} is not in ledger {self._path}: reserve it first")
            if known.status == SPENT and mu <= known.mu:
                return known
            return self._saved(replace(known, mu=mu, status=SPENT, settled_at=stamp, note=note))

    # --- rows --------------------------------------------------------------------------------------------------------

    def _account(self, name: str, unit: str) -> Account:
        budgets = self._rows("SELECT epsilon, delta, mu, set_at FROM budget WHERE account = ? ORDER BY number", name)
        entries = self._rows(f"SELECT {_COLUMNS} FROM entry WHERE account = ? ORDER BY number", name)  # noqa: S608
        return Account(name, PrivacyUnit(unit), tuple(Budget(*row) for row in budgets), tuple(_entry_of(row) for row in entries))

    def _required_account(self, name: str) -> Account:
        row = self._row("SELECT unit FROM account WHERE name = ?", name)
        if row is None:
            known = ", ".join(repr(known) for (known,) in self._rows("SELECT name FROM account ORDER BY name")) or "none"
            raise InputError(
                f"account {name!r} is not in ledger {self._path} (it has {known}): name one of them, or make it with "
                f"quietmean ledger --ledger {self._path} --account {name} --budget EPSILON DELTA"
            )
        return self._account(name, row[0])

    def _entry(self, study: str) -> Entry | None:
        row = self._row(f"SELECT {_COLUMNS} FROM entry WHERE study = ?", study)  # noqa: S608
        return None if row is None else _entry_of(row)

    def _saved(self, entry: Entry) -> Entry:
        self._database.execute(
            f"""INSERT INTO entry ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (study) DO UPDATE SET
                reserved_mu = excluded.reserved_mu, mu = excluded.mu, status = excluded.status,
                settled_at = excluded.settled_at, note = excluded.note""",  # noqa: S608
            astuple(entry),
        )
        return entry

    def _rows(self, query: str, *arguments: object) -> list[Any]:
        return self._database.execute(query, arguments).fetchall()

    def _row(self, query: str, *arguments: object) -> Any:
        return self._database.execute(query, arguments).fetchone()

    # --- SQLite ------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._check_kind()
        self._use_write_ahead_log()
        self._database.execute("PRAGMA synchronous = FULL")
        with self._transaction("IMMEDIATE"):
            # Another process may have made the tables in the meantime.
            if self._row("PRAGMA user_version")[0] == 0:
                for table in _TABLES:
                    self._database.execute(table)
                self._database.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._database.execute(f"PRAGMA user_version = {SCHEMA}")
        self._check_kind()

    def _check_kind(self) -> None:
        # One read transaction: another process may be in the middle of making the tables.
        with self._transaction("DEFERRED"):
            version, application = self._row("PRAGMA user_version")[0], self._row("PRAGMA application_id")[0]
            tables = self._row("SELECT count(*) FROM sqlite_master")[0]
        if (version or tables) and application != _APPLICATION:
            raise InputError(f"file {self._path} is a database but no ledger: choose another file")
        if version not in (0, SCHEMA):
            raise InputError(
                f"ledger {self._path} has schema version {version}, this version of quietmean knows {SCHEMA}: use the newer one"
            )

    def _use_write_ahead_log(self) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                mode = self._row("PRAGMA journal_mode = WAL")[0]
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == _ATTEMPTS - 1:
                    raise
                # This switch does not wait for others by itself; a transaction does.
                with self._transaction("IMMEDIATE"):
                    continue
            if mode != "wal":
                raise InputError(f"ledger {self._path} is where SQLite cannot keep a write-ahead log: choose a local disk")
            return

    @contextlib.contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        with self._told():
            self._database.execute(f"BEGIN {kind}")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Trouble with the file, in a person's words. Whoever gets it must not send."""
        try:
            yield
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise InputError(
                    f"ledger {self._path} has been in use by another process for {_WAIT_SECONDS:g} s: wait for it and try again"
                ) from None
            raise InputError(f"ledger {self._path} is not usable ({error}): mend the file or choose another") from None


def _make_file(path: Path, create: bool) -> None:
    if not create and not path.exists():
        raise InputError(
            f"ledger {path} does not exist: check the path, or make it with "
            f"quietmean ledger --ledger {path} --account NAME --budget EPSILON DELTA"
        )
    try:
        # SQLite gives its side files the rights of the main file.
        os.close(os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600))
        # A name that is not on disk would take the file with it.
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    except OSError as error:
        raise InputError(f"ledger {path} cannot be opened ({error}): choose a writable place") from None


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)


def _entry_of(row: Any) -> Entry:
    study, account, name, unit, *rest = row
    return Entry(study, account, name, PrivacyUnit(unit), *rest)


def _stamp(when: datetime) -> str:
    if when.tzinfo is None:
        raise ValueError("a time without a time zone")
    return when.astimezone(UTC).isoformat(timespec="seconds")


def _up(epsilon: float) -> str:
    return "inf" if math.isinf(epsilon) else f"{math.ceil(epsilon * 1e4 - 1e-9) / 1e4:.4f}"


def left_text(epsilon: float) -> str:
    """What is left of a budget, rounded down; only what differs by rounding alone counts as the number above."""
    return "inf" if math.isinf(epsilon) else f"{math.floor(epsilon * 1e4 + 1e-6) / 1e4:.4f}"
