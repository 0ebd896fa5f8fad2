"""The SQLite file of a ledger. Several processes may use it at once; what a transaction changed is on disk when it ends."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import astuple, fields
from pathlib import Path
from shlex import quote
from typing import Any

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError, reason_of
from quietmean.core.file_kinds import LEDGER_APPLICATION, FileKind, kind_of_file, refuse_other
from quietmean.core.outage import Trouble, reading_rows, refuse_damage, refuse_outage, trouble_of
from quietmean.core.portability import open_private, sync_folder, write_log_anew
from quietmean.ledger.account import LedgerEntry
from quietmean.privacy.charge import Charge
from quietmean.randomness import Seed

SCHEMA = 5
# Distinguishes a ledger from any other SQLite file, such as a party's store.
_WAIT_SECONDS = 30.0
_ATTEMPTS = 5
_COLUMNS = tuple(field.name for field in fields(Charge))


def _declared(prefix: str, needed: str = " NOT NULL") -> str:
    return ", ".join(f"{prefix}{name} REAL{needed}" for name in _COLUMNS)


_TABLES = (
    """CREATE TABLE account (name TEXT PRIMARY KEY, unit TEXT NOT NULL, data_set TEXT NOT NULL, relation TEXT NOT NULL,
                             refund TEXT NOT NULL)""",
    """CREATE TABLE budget (number INTEGER PRIMARY KEY, account TEXT NOT NULL REFERENCES account (name), epsilon REAL NOT NULL,
                            delta REAL NOT NULL, most REAL NOT NULL, set_at TEXT NOT NULL, additive_delta REAL NOT NULL,
                            rule TEXT NOT NULL)""",
    # A study may be charged to several accounts.
    f"""CREATE TABLE entry (number INTEGER PRIMARY KEY, study TEXT NOT NULL, account TEXT NOT NULL REFERENCES account (name),
                           name TEXT NOT NULL, unit TEXT NOT NULL, relation TEXT NOT NULL, factor INTEGER NOT NULL,
                           refund INTEGER NOT NULL, {_declared("reserved_")}, {_declared("")}, {_declared("certified_", "")},
                           status TEXT NOT NULL, reserved_at TEXT NOT NULL, settled_at TEXT, note TEXT NOT NULL,
                           part REAL, known BLOB, UNIQUE (study, account))""",
    """CREATE TABLE freeze (number INTEGER PRIMARY KEY, account TEXT NOT NULL REFERENCES account (name), study TEXT NOT NULL,
                            since TEXT NOT NULL, reason TEXT NOT NULL, lifted_at TEXT, lifted_reason TEXT)""",
    "CREATE TABLE input (study TEXT NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (study, digest)) WITHOUT ROWID",
    "CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    # Which of an account's persons were in which of its studies.
    """CREATE TABLE people (account TEXT NOT NULL REFERENCES account (name), kind TEXT NOT NULL, key BLOB NOT NULL,
                            identifier BLOB NOT NULL, history TEXT NOT NULL, level INTEGER NOT NULL, count INTEGER NOT NULL,
                            members BLOB NOT NULL, PRIMARY KEY (account, kind, key, identifier, history))""",
)

Connect = Callable[[Path], sqlite3.Connection]


class LedgerDatabase:
    """A ledger's file, open and checked. Raises :class:`InputError` where it is missing, something else, or not usable."""

    def __init__(self, path: Path, *, create: bool, connect: Connect | None) -> None:
        _make_file(path, create)
        self.path = path
        self._database = (connect or _connect)(path)
        try:
            with self._readable_errors():
                self._prepare()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        self._database.close()

    def decoded(self) -> AbstractContextManager[None]:
        """The context in which rows are made values: see :func:`quietmean.core.outage.reading_rows`."""
        return reading_rows(f"ledger {self.path}")

    def rows(self, query: str, *arguments: object) -> list[Any]:
        return self._database.execute(query, arguments).fetchall()

    def row(self, query: str, *arguments: object) -> Any:
        return self._database.execute(query, arguments).fetchone()

    def change(self, statement: str, *arguments: object) -> None:
        self._database.execute(statement, arguments)

    @contextlib.contextmanager
    def transaction(self, kind: str) -> Iterator[None]:
        """``kind`` is IMMEDIATE to change something, DEFERRED to read as of one instant."""
        with self._readable_errors():
            self._database.execute(f"BEGIN {kind}")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has rolled back itself.
                if self._database.in_transaction:
                    with contextlib.suppress(sqlite3.OperationalError):
                        self._database.execute("ROLLBACK")
                raise

    def _prepare(self) -> None:
        self._check_kind()
        self._use_write_ahead_log()
        self._database.execute("PRAGMA synchronous = FULL")
        with self.transaction("IMMEDIATE"):
            # Nobody else writes now.
            write_log_anew(self.path)
            # Another process may have done it in the meantime.
            if not self.row("PRAGMA user_version")[0]:
                for statement in _TABLES:
                    self._database.execute(statement)
                self.change("INSERT OR IGNORE INTO fact VALUES ('key', ?)", Seed.from_os().secret)
                self._database.execute(f"PRAGMA application_id = {LEDGER_APPLICATION}")
                self._database.execute(f"PRAGMA user_version = {SCHEMA}")
        # A crash must not lose the names of the file and of its log: SQLite goes on where the folder's fsync fails.
        sync_folder(self.path.parent)
        self._check_kind()

    def _check_kind(self) -> None:
        # One read transaction: another process may be in the middle of making the tables.
        with self.transaction("DEFERRED"):
            version, application = self.row("PRAGMA user_version")[0], self.row("PRAGMA application_id")[0]
            tables = self.row("SELECT count(*) FROM sqlite_master")[0]
        if (version or tables) and application != LEDGER_APPLICATION:
            refuse_other(kind_of_file(self.path), f"file {self.path}", FileKind.LEDGER)
            raise InputError(f"file {self.path} is a database but no ledger. Choose another file.")
        if version not in (0, SCHEMA):
            raise InputError(
                f"ledger {self.path} has schema version {version}, this version of quietmean knows {SCHEMA}. "
                "Use the one that made it."
            )

    def _use_write_ahead_log(self) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                mode = self.row("PRAGMA journal_mode = WAL")[0]
            except sqlite3.OperationalError as error:
                if trouble_of(error) is not Trouble.IN_USE or attempt == _ATTEMPTS - 1:
                    raise
                # Changing the journal mode does not wait for other processes by itself; a transaction does.
                with self.transaction("IMMEDIATE"):
                    continue
            if mode != "wal":
                raise InputError(f"ledger {self.path} is where SQLite cannot keep a write-ahead log. Choose a local disk.")
            return

    @contextlib.contextmanager
    def _readable_errors(self) -> Iterator[None]:
        """Turns errors of SQLite into an :class:`InputError`. After one, nothing may be sent: the charge may not be on disk."""
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            if trouble_of(error) is Trouble.IN_USE:
                raise InputError(
                    f"ledger {self.path} has been in use by another process for {_WAIT_SECONDS:g} s. Wait for it and try again."
                ) from None
            refuse_outage(error, self.path)
            refuse_other(kind_of_file(self.path), f"file {self.path}", FileKind.LEDGER)
            refuse_damage(error, f"ledger {self.path}")
            raise InputError(
                f"ledger {self.path} is not usable ({reason_of(error)}). Correct the file or choose another."
            ) from None


def is_there(path: Path) -> bool:
    """Is there a ledger, or another file in its place? Not an empty one: a process that was making it may have ended."""
    return path.exists() and not _is_empty(path)


def _is_empty(path: Path) -> bool:
    # SQLite, too, takes one byte for nothing.
    return path.is_file() and path.stat().st_size <= 1


def _make_file(path: Path, create: bool) -> None:
    if not create and not is_there(path):
        wrong = f"file {path} is empty, not a ledger" if path.exists() else f"ledger {path} does not exist"
        raise InputError(
            f"{wrong}. Check the path, or make it with "
            f"quietmean site budget --ledger {quote(str(path))} --account NAME --budget EPSILON DELTA."
        )
    try:
        # SQLite gives its side files the rights of the main file.
        os.close(open_private(path, os.O_RDWR | (os.O_CREAT if create else 0)))
    except OSError as error:
        refuse_outage(error, path)
        raise InputError(f"ledger {path} cannot be opened ({reason_of(error)}). Choose a writable place.") from None


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)


_CHARGES = [f"{prefix}{name}" for prefix in ("reserved_", "", "certified_") for name in _COLUMNS]
_FIXED = ["study", "account", "name", "unit", "relation", "factor", "refund"]
_ALL = [*_FIXED, *_CHARGES, "status", "reserved_at", "settled_at", "note", "part", "known"]
ENTRY = ", ".join(_ALL)
_CHANGING = ", ".join(f"{name} = excluded.{name}" for name in ["factor", "part", *_CHARGES, "status", "settled_at", "note"])
BUDGET = "epsilon, delta, most, set_at, additive_delta, rule"
FREEZE = "study, since, reason, lifted_at, lifted_reason"


def entry_of(row: Any) -> LedgerEntry:
    """Return the entry of a row with the columns :data:`ENTRY`."""
    study, account, name, unit, relation, factor, refund, *columns, status, reserved_at, settled_at, note, part, known = row
    fixed = (study, account, name, PrivacyUnit(unit), Neighbouring(relation), factor, bool(refund))
    size = len(_COLUMNS)
    first, charged, last = (columns[begin : begin + size] for begin in (0, size, 2 * size))
    charges = _charge_of(*first), _charge_of(*charged), None if last[0] is None else _charge_of(*last)
    about = part, None if known is None else bytes(known)
    return LedgerEntry(*fixed, *charges, status, reserved_at, settled_at, note, *about)


def entries_of(database: LedgerDatabase, study: str) -> list[LedgerEntry]:
    """Return the entries of a study on all accounts that are charged with it, the one that was named first."""
    rows = database.rows(f"SELECT {ENTRY} FROM entry WHERE study = ? ORDER BY number", study)  # noqa: S608
    with database.decoded():
        return [entry_of(row) for row in rows]


def required_entries(database: LedgerDatabase, study: str) -> list[LedgerEntry]:
    """Return the same. Raises :class:`InputError` for a study that was never reserved."""
    if not (entries := entries_of(database, study)):
        raise InputError(f"study {study} is not in ledger {database.path}. Reserve it first.")
    return entries


def _charge_of(*columns: Any) -> Charge:
    return Charge(*map(float, columns))


def save_entry(database: LedgerDatabase, entry: LedgerEntry) -> None:
    """Write an entry, anew or in place of what is there of the study on its account."""
    certified = (None,) * len(_COLUMNS) if entry.certified is None else astuple(entry.certified)
    fixed = (entry.study, entry.account, entry.name, str(entry.unit), str(entry.relation), entry.factor, entry.refund)
    changing = (*astuple(entry.reserved), *astuple(entry.charged), *certified, entry.status)
    database.change(
        f"""INSERT INTO entry ({ENTRY}) VALUES ({", ".join("?" * len(_ALL))})
            ON CONFLICT (study, account) DO UPDATE SET {_CHANGING}""",  # noqa: S608
        *fixed,
        *changing,
        entry.reserved_at,
        entry.settled_at,
        entry.note,
        entry.part,
        entry.known,
    )
