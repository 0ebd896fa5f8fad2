"""What a party must not forget: one SQLite file per party and study.

Every method that changes something is one transaction, on disk when the method returns. The private value is not in it, only
its keyed digest, so that a restart with other data is noticed. Vectors of closed rounds are wiped. Large vectors are in a file
beside it (see :mod:`quietmean.node.vault`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from quietmean.core.codec import dump_state
from quietmean.core.errors import InputError
from quietmean.core.party import Message, PartyId, Release, Step, Vector
from quietmean.entropy import Seed
from quietmean.node.vault import LARGE_TAG, Vault
from quietmean.node.wire import PartyLog, decode_log, decode_vector, encode_log, encode_vector

SCHEMA = 4
PENDING: Final = "pending"
ACCEPTED: Final = "ok"
REFUSED: Final = "no"
# The sender gave up waiting and kept its share; whether the receiver had used it is not known yet.
RECLAIMED: Final = "reclaimed"
# It had. What the sender kept is to be taken out again: ``settled`` says at the end of which round that was done.
USED: Final = "used"
_TABLES = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE pledge (party INTEGER PRIMARY KEY, hash BLOB NOT NULL, nonce BLOB, weight REAL, exchange BLOB);
CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), phase INTEGER NOT NULL, round INTEGER NOT NULL, state BLOB NOT NULL);
CREATE TABLE release (phase INTEGER PRIMARY KEY, vector BLOB NOT NULL, weight REAL NOT NULL);
CREATE TABLE round (phase INTEGER, round INTEGER, online INTEGER NOT NULL, PRIMARY KEY (phase, round));
CREATE TABLE message (phase INTEGER, round INTEGER, number INTEGER, vector BLOB NOT NULL, weight REAL NOT NULL,
                      content BLOB NOT NULL, PRIMARY KEY (phase, round, number));
CREATE TABLE outbox (phase INTEGER, round INTEGER, receiver INTEGER, number INTEGER NOT NULL, status TEXT NOT NULL,
                     settled INTEGER, PRIMARY KEY (phase, round, receiver));
CREATE TABLE hearsay (party INTEGER PRIMARY KEY, log BLOB NOT NULL);
CREATE TABLE inbox (phase INTEGER, round INTEGER, sender INTEGER, vector BLOB, weight REAL NOT NULL, content BLOB,
                    PRIMARY KEY (phase, round, sender));
"""


@dataclass(frozen=True, slots=True)
class Pledge:
    """A party's part of the agreement: the hash it committed to and, once revealed, what is behind it.

    ``exchange`` is its public key for secrets in common.
    """

    hash: bytes
    nonce: bytes | None = None
    weight: float | None = None
    exchange: bytes | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it goes over the wire: ``dimension`` float64 values, then the protocol's own content."""

    payload: bytes
    dimension: int
    weight: float


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """How a round ended: for each receiver, accepted, refused or reclaimed; which earlier (round, receiver) were settled."""

    round: int
    statuses: Mapping[PartyId, str]
    settled: Sequence[tuple[int, PartyId]] = ()


class Store:
    """Use :meth:`open`."""

    def __init__(self, database: sqlite3.Connection, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    @classmethod
    def open(cls, path: Path, study: str, value: Vector, weight: float, fresh: Callable[[], Seed] = Seed.from_os) -> Self:
        """Open or make the store of a study for this input. Raises :class:`InputError` if it belongs to something else.

        ``fresh`` gives the seed and the nonce of a new store.
        """
        database = _connect(path)
        try:
            store = cls(database, Vault(path.with_name(path.name + ".vectors")))
            store._prepare(path)
            store._check_owner(path, study, value, weight, fresh)
            store._vault.open(store._tokens())
        except sqlite3.DatabaseError as error:
            database.close()
            raise _unusable(path, error) from None
        except BaseException:
            database.close()
            raise
        return store

    def close(self) -> None:
        self._database.close()
        self._vault.close()

    def _prepare(self, path: Path) -> None:
        # Exclusive: a second process on the same store must fail at once, not corrupt the ledger.
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            self._database.execute(f"PRAGMA {setting}").fetchall()
        version = self._one("PRAGMA user_version")[0]
        if version == 0:
            tables = "".join(f"{statement};" for statement in _TABLES.split(";") if statement.strip())
            self._database.executescript(f"BEGIN EXCLUSIVE; {tables} PRAGMA user_version = {SCHEMA}; COMMIT;")
        elif version != SCHEMA:
            raise InputError(
                f"store {path} has schema version {version}, this version of quietmean knows {SCHEMA}: finish it with the old one"
            )

    def _check_owner(self, path: Path, study: str, value: Vector, weight: float, fresh: Callable[[], Seed]) -> None:
        with self._transaction():
            if self._fact("study") is None:
                seed = fresh()
                self._set_fact("study", study.encode())
                self._set_fact("seed", seed.secret)
                self._set_fact("nonce", fresh().secret)
                self._set_fact("input", _input_digest(seed, value, weight))
        if self._fact("study") != study.encode():
            raise InputError(f"store {path} belongs to another study, plan or roster: choose another file for this one")
        if self._fact("input") != _input_digest(self.seed, value, weight):
            raise InputError(f"this study was started with other data, see store {path}: start again with the same value")

    # --- facts -------------------------------------------------------------------------------------------------------

    @property
    def seed(self) -> Seed:
        """The party's secret seed: written before anything that depends on it is sent."""
        return Seed(self._required_fact("seed"))

    @property
    def nonce(self) -> bytes:
        """The party's nonce for the study's public seed."""
        return self._required_fact("nonce")

    def _fact(self, name: str) -> bytes | None:
        row = self._maybe("SELECT value FROM fact WHERE name = ?", name)
        return None if row is None else bytes(row[0])

    def _required_fact(self, name: str) -> bytes:
        return bytes(self._one("SELECT value FROM fact WHERE name = ?", name)[0])

    def _set_fact(self, name: str, value: bytes) -> None:
        self._database.execute("INSERT INTO fact VALUES (?, ?)", (name, value))

    # --- agreement ---------------------------------------------------------------------------------------------------

    def pledges(self) -> dict[PartyId, Pledge]:
        return {row[0]: Pledge(*row[1:]) for row in self._rows("SELECT party, hash, nonce, weight, exchange FROM pledge")}

    def save_commit(self, party: PartyId, commit: bytes) -> None:
        with self._transaction():
            self._database.execute("INSERT INTO pledge (party, hash) VALUES (?, ?)", (party, commit))

    def save_reveal(self, party: PartyId, nonce: bytes, weight: float, exchange: bytes) -> None:
        with self._transaction():
            self._database.execute(
                "UPDATE pledge SET nonce = ?, weight = ?, exchange = ? WHERE party = ?", (nonce, weight, exchange, party)
            )

    # --- rounds ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[int, int, bytes] | None:
        """(phase, round in progress, the machine's state), or None before the first phase."""
        row = self._maybe("SELECT phase, round, state FROM state")
        return None if row is None else (row[0], row[1], self._vault.get(row[2]))

    def release(self, phase: int) -> Release | None:
        row = self._maybe("SELECT vector, weight FROM release WHERE phase = ?", phase)
        return None if row is None else Release(decode_vector(self._vault.get(row[0])), row[1])

    def record(self, phase: int, step: Step[Any], closed: ClosedRound | None = None, missed: Sequence[int] = ()) -> None:
        """One step: how the last round ended, which rounds were missed, the new state and what it sends."""
        with self._transaction():
            if closed is not None:
                self._close(phase, closed)
            self._database.executemany("INSERT INTO round VALUES (?, ?, 0)", [(phase, round_) for round_ in missed])
            self._database.execute(
                "INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?)",
                (phase, step.state.round, self._vault.put(dump_state(step.state))),
            )
            for number, message in enumerate(step.send):
                self._send(phase, number, message)
            if step.release is not None:
                released = (phase, self._vault.put(encode_vector(step.release.vector)), step.release.weight)
                self._database.execute("INSERT INTO release VALUES (?, ?, ?)", released)
        if self._vault.in_use:
            self._vault.keep_only(self._tokens())

    def _close(self, phase: int, closed: ClosedRound) -> None:
        key = (phase, closed.round)
        self._database.execute("INSERT INTO round VALUES (?, ?, 1)", key)
        self._database.executemany(
            "UPDATE outbox SET status = ? WHERE phase = ? AND round = ? AND receiver = ?",
            [(status, *key, receiver) for receiver, status in closed.statuses.items()],
        )
        self._database.executemany(
            "UPDATE outbox SET settled = ? WHERE phase = ? AND round = ? AND receiver = ?",
            [(closed.round, phase, round_, receiver) for round_, receiver in closed.settled],
        )
        # The ids stay, so that a late copy is recognised; the contents are of no more use here.
        self._database.execute("UPDATE inbox SET vector = NULL, content = NULL WHERE phase = ? AND round = ?", key)
        self._wipe_messages(phase, closed.round)

    def _wipe_messages(self, phase: int, last_round: int) -> None:
        """Delete what was sent up to a closed round, except shares that may still have to be settled."""
        self._database.execute(
            """DELETE FROM message WHERE phase = ? AND round <= ? AND NOT EXISTS (
                 SELECT 1 FROM outbox WHERE outbox.phase = message.phase AND outbox.round = message.round
                 AND outbox.number = message.number AND (status = ? OR (status = ? AND settled IS NULL)))""",
            (phase, last_round, RECLAIMED, USED),
        )

    def _send(self, phase: int, number: int, message: Message) -> None:
        key = (phase, message.round)
        vector = self._vault.put(encode_vector(message.vector))
        self._database.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", (*key, number, vector, message.weight, message.content)
        )
        self._database.executemany(
            "INSERT INTO outbox (phase, round, receiver, number, status) VALUES (?, ?, ?, ?, ?)",
            [(*key, receiver, number, PENDING) for receiver in message.recipients],
        )

    def outgoing(self, phase: int, round_: int) -> dict[PartyId, Outgoing]:
        """For each receiver, its message of the round in progress."""
        query = "SELECT number, vector, weight, content FROM message WHERE phase = ? AND round = ?"
        messages = {
            number: _outgoing(self._vault.get(vector), content, weight)
            for number, vector, weight, content in self._rows(query, phase, round_)
        }
        query = "SELECT receiver, number FROM outbox WHERE phase = ? AND round = ? ORDER BY receiver"
        # Of a round that is over only the receivers are kept.
        return {receiver: messages[number] for receiver, number in self._rows(query, phase, round_) if number in messages}

    def sent_status(self, phase: int, round_: int, receiver: PartyId) -> str | None:
        row = self._maybe("SELECT status FROM outbox WHERE phase = ? AND round = ? AND receiver = ?", phase, round_, receiver)
        return None if row is None else str(row[0])

    def reclaimed(self, phase: int) -> tuple[tuple[int, PartyId], ...]:
        """(round, receiver) of messages that were taken back without knowing whether they had been used."""
        query = "SELECT round, receiver FROM outbox WHERE phase = ? AND status = ? ORDER BY round, receiver"
        return tuple((row[0], row[1]) for row in self._rows(query, phase, RECLAIMED))

    def resolve(self, phase: int, round_: int, receiver: PartyId, status: str) -> None:
        """What became of a message that was taken back: refused or used."""
        with self._transaction():
            self._database.execute(
                "UPDATE outbox SET status = ? WHERE phase = ? AND round = ? AND receiver = ? AND status = ?",
                (status, phase, round_, receiver, RECLAIMED),
            )

    def unsettled(self, phase: int, party: PartyId) -> list[Message]:
        """Own messages whose shares were kept here and used there, one for each receiver."""
        query = """SELECT round, receiver, vector, weight FROM outbox JOIN message USING (phase, round, number)
                   WHERE phase = ? AND status = ? AND settled IS NULL ORDER BY round, receiver"""
        return [
            Message(party, (receiver,), round_, decode_vector(self._vault.get(vector)), weight)
            for round_, receiver, vector, weight in self._rows(query, phase, USED)
        ]

    def accept(self, phase: int, message: Message, so_far: PartyLog | None = None) -> None:
        """Take a transfer in; once this returns it counts, whatever happens. ``so_far``: its sender's log, to be remembered."""
        with self._transaction():
            if so_far is not None:
                self._database.execute("INSERT OR REPLACE INTO hearsay VALUES (?, ?)", (message.sender, encode_log(so_far)))
            self._database.execute(
                "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?)",
                (
                    phase,
                    message.round,
                    message.sender,
                    self._vault.put(encode_vector(message.vector)),
                    message.weight,
                    message.content,
                ),
            )

    def forget(self, phase: int, round_: int, sender: PartyId) -> None:
        """Give back a transfer of the round in progress, as if it had never come."""
        with self._transaction():
            self._database.execute("DELETE FROM inbox WHERE phase = ? AND round = ? AND sender = ?", (phase, round_, sender))

    def has_accepted(self, phase: int, round_: int, sender: PartyId) -> bool:
        return self._maybe("SELECT 1 FROM inbox WHERE phase = ? AND round = ? AND sender = ?", phase, round_, sender) is not None

    def received(self, phase: int, round_: int, receiver: PartyId) -> list[Message]:
        """What has come in for the round in progress."""
        query = "SELECT sender, vector, weight, content FROM inbox WHERE phase = ? AND round = ? ORDER BY sender"
        return [
            Message(sender, (receiver,), round_, decode_vector(self._vault.get(vector)), weight, content)
            for sender, vector, weight, content in self._rows(query, phase, round_)
        ]

    def hearsay(self, parties: int, rounds: int) -> dict[PartyId, PartyLog]:
        """The last log that each party sent along with its messages."""
        rows = self._rows("SELECT party, log FROM hearsay ORDER BY party")
        return {party: decode_log(log, parties, rounds) for party, log in rows}

    # --- the log -----------------------------------------------------------------------------------------------------

    def rounds_online(self, phase: int) -> tuple[int, ...]:
        return tuple(row[0] for row in self._rows("SELECT round FROM round WHERE phase = ? AND online ORDER BY round", phase))

    def arrived_there(self, phase: int) -> tuple[tuple[int, PartyId], ...]:
        """(round, receiver) of own messages that were accepted."""
        query = "SELECT round, receiver FROM outbox WHERE phase = ? AND status IN (?, ?) ORDER BY round, receiver"
        return tuple((row[0], row[1]) for row in self._rows(query, phase, ACCEPTED, USED))

    def settled(self, phase: int) -> tuple[tuple[int, PartyId, int], ...]:
        """(round, receiver, round in which it was settled, 0 if it never was) of shares kept here though used there."""
        query = """SELECT round, receiver, coalesce(settled, 0) FROM outbox WHERE phase = ? AND status = ?
                   ORDER BY round, receiver"""
        return tuple((row[0], row[1], row[2]) for row in self._rows(query, phase, USED))

    def arrived_here(self, phase: int) -> tuple[tuple[int, PartyId], ...]:
        """(round, sender) of messages taken in."""
        query = "SELECT round, sender FROM inbox WHERE phase = ? ORDER BY round, sender"
        return tuple((row[0], row[1]) for row in self._rows(query, phase))

    def unsettled_shares(self, status: str) -> tuple[tuple[int, int, PartyId], ...]:
        """(phase, round, receiver) of messages that were taken back: USED there (and here too), or RECLAIMED, not known."""
        query = "SELECT phase, round, receiver FROM outbox WHERE status = ? AND settled IS NULL ORDER BY phase, round, receiver"
        return tuple((row[0], row[1], row[2]) for row in self._rows(query, status))

    # --- SQLite ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._vault.sync()
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def _tokens(self) -> list[bytes]:
        """Every token of the vault's file that a row names; short content lies in the rows and is not read for this."""
        query = """SELECT token FROM (SELECT state AS token FROM state UNION ALL SELECT vector FROM release
                   UNION ALL SELECT vector FROM message UNION ALL SELECT vector FROM inbox)
                   WHERE substr(token, 1, 1) = ?"""
        return [row[0] for row in self._rows(query, LARGE_TAG)]

    def _rows(self, query: str, *arguments: object) -> list[Any]:
        return self._database.execute(query, arguments).fetchall()

    def _maybe(self, query: str, *arguments: object) -> Any:
        return self._database.execute(query, arguments).fetchone()

    def _one(self, query: str, *arguments: object) -> Any:
        row = self._maybe(query, *arguments)
        if row is None:
            raise sqlite3.DatabaseError("an entry is missing")
        return row


def _outgoing(vector: bytes, content: bytes, weight: float) -> Outgoing:
    return Outgoing(vector + content if content else vector, len(vector) // 8, weight)


def _connect(path: Path) -> sqlite3.Connection:
    try:
        # SQLite gives its side files the rights of the main file.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        return sqlite3.connect(path, timeout=0.5, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"store {path} cannot be opened ({error}): choose a writable place") from None


def _unusable(path: Path, error: sqlite3.DatabaseError) -> InputError:
    if "locked" in str(error):
        return InputError(f"store {path} is in use: this party runs already, stop that process first")
    return InputError(f"store {path} is not usable ({error}): choose another file")


def _input_digest(seed: Seed, value: Vector, weight: float) -> bytes:
    # Keyed by the seed: whoever reads only this learns nothing about the value, not even by trying all values.
    shape = ",".join(str(size) for size in np.shape(value))
    return seed.derive("input", shape, encode_vector(value), weight.hex()).secret
