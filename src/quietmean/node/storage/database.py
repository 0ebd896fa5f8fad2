"""The SQLite file of a party and study, and the file of what is large beside it, changed in transactions that span both.

Beside values it keeps logs, the site's audit log, votes at the gate, and secrets of pairs.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from quietmean.core.errors import InputError, StorageError, as_sentence, reason_of
from quietmean.core.outage import Trouble, is_forbidden, outage_of, reading_rows, refuse_damage, trouble_of
from quietmean.core.party import PartyId, Vector
from quietmean.core.portability import open_private, sync_folder, write_log_anew
from quietmean.node.net import Payload, encode_vector
from quietmean.node.phase import Phase
from quietmean.node.storage.blob_store import LARGE, LARGE_TAG, BlobStore
from quietmean.node.storage.housekeeping import require_store
from quietmean.randomness import Encapsulated, Seed

SCHEMA = 10
_TABLES = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), phase INTEGER NOT NULL, round INTEGER NOT NULL, state BLOB NOT NULL);
CREATE TABLE kept (token BLOB PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE release (phase INTEGER PRIMARY KEY, vector BLOB NOT NULL, weight REAL NOT NULL);
CREATE TABLE round (phase INTEGER, round INTEGER, online INTEGER NOT NULL, PRIMARY KEY (phase, round));
CREATE TABLE message (phase INTEGER, round INTEGER, number INTEGER, weight REAL NOT NULL, vector BLOB NOT NULL,
                      content BLOB NOT NULL, PRIMARY KEY (phase, round, number));
CREATE TABLE outbox (phase INTEGER, round INTEGER, receiver INTEGER, number INTEGER NOT NULL, status TEXT NOT NULL,
                     settled INTEGER, PRIMARY KEY (phase, round, receiver));
CREATE TABLE reported (party INTEGER PRIMARY KEY, known BLOB NOT NULL);
CREATE TABLE vote (party INTEGER PRIMARY KEY, digest BLOB NOT NULL, passes INTEGER NOT NULL);
CREATE TABLE final_log (party INTEGER PRIMARY KEY, log BLOB NOT NULL, known BLOB NOT NULL);
CREATE TABLE inbox (phase INTEGER, round INTEGER, sender INTEGER, weight REAL NOT NULL, vector BLOB, content BLOB,
                    PRIMARY KEY (phase, round, sender));
CREATE TABLE encapsulated (party INTEGER PRIMARY KEY, secret BLOB NOT NULL, ciphertext BLOB NOT NULL);
CREATE TABLE seen (phase INTEGER, round INTEGER, sender INTEGER, PRIMARY KEY (phase, round, sender));
"""


class Lasting(enum.Enum):
    """What a store outlives: a power cut, its process and no power cut, or nothing: then it is in memory, and what only a
    process after this one would read is not written at all.
    """

    POWER = "power"
    PROCESS = "process"
    NOTHING = "nothing"


class StoreDatabase:
    """Locked by this process. Raises :class:`InputError` if the file cannot be opened, is in use, or is something else.

    All methods raise :class:`StorageError` once the disk refused something, until :meth:`reopen`: nobody knows then if that is
    on the disk or not.
    """

    def __init__(self, path: Path, lasting: Lasting = Lasting.POWER) -> None:
        self._path = path
        self._lasting = lasting
        # Whether a process after this one may read it.
        self.is_read_again = lasting is not Lasting.NOTHING
        if self.is_read_again:
            require_store(path)
        self._outage: StorageError | None = None
        self._was_written = path.exists() and path.stat().st_size > 0
        self._open()
        self._was_written = True

    @property
    def path(self) -> Path:
        return self._path

    @property
    def stalled(self) -> bool:
        """Whether the disk has refused something since the file was opened."""
        return self._outage is not None

    def reopen(self) -> None:
        """Open the store again after an outage: what is on the disk counts, as for a new process.

        Raises :class:`StorageError` if it has not ended; what was in memory is lost with it.
        """
        if not self.is_read_again:
            raise self._outage or StorageError(f"store {self._path} was in memory and is lost. Begin the study anew.")
        self.close()
        self._outage = None
        self._open()

    def _open(self) -> None:
        self._blobs = BlobStore(
            self._path.with_name(self._path.name + ".vectors"),
            lasts=self._lasting is Lasting.POWER,
            large=LARGE if self.is_read_again else math.inf,
        )
        self._database = self._connected()
        with self.usable():
            self._prepare()
            if self.is_read_again:
                self._blobs.open(self._tokens())

    def _connected(self) -> sqlite3.Connection:
        try:
            return _connect(self._path) if self.is_read_again else sqlite3.connect(":memory:", isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            if (outage := self._outage_in(error)) is not None:
                raise outage from None
            raise InputError(f"store {self._path} cannot be opened ({reason_of(error)}). Choose a writable place.") from None

    @contextlib.contextmanager
    def usable(self) -> Iterator[None]:
        """Close the files if the body fails; errors of the database become an :class:`InputError` or an :class:`StorageError`."""
        try:
            with self._on_disk():
                yield
        except BaseException as error:
            self.close()
            if trouble_of(error) is Trouble.IN_USE:
                raise InputError(f"store {self._path} is in use: this party runs already. Stop that process first.") from None
            if isinstance(error, sqlite3.IntegrityError):
                raise self._damaged(reason_of(error).partition(":")[0]) from None
            if isinstance(error, sqlite3.Error):
                raise InputError(f"store {self._path} is not usable ({reason_of(error)}). Choose another file.") from None
            raise

    @contextlib.contextmanager
    def _on_disk(self) -> Iterator[None]:
        """The context in which it reads or writes: what the disk refuses is an :class:`StorageError` from here on."""
        if self._outage is not None:
            raise self._outage
        try:
            yield
        except (sqlite3.DatabaseError, OSError, MemoryError, UnicodeDecodeError) as error:
            self._outage = self._outage_in(error)
            if self._outage is not None:
                raise self._outage from None
            refuse_damage(error, f"store {self._path}", _DAMAGED)
            raise

    def _damaged(self, reason: str) -> InputError:
        return InputError(f"store {self._path} is damaged ({reason}). {as_sentence(_DAMAGED)}")

    def _decoded(self) -> AbstractContextManager[None]:
        """The context in which rows are made values: see :func:`quietmean.core.outage.reading_rows`."""
        return reading_rows(f"store {self._path}", _DAMAGED)

    def _outage_in(self, error: Exception) -> StorageError | None:
        # A place that forbids it is a mistake, unless it has this store: then a disk has failed.
        forbids = not self._was_written and is_forbidden(error, self._path)
        return None if forbids else outage_of(error, self._path)

    def close(self) -> None:
        # What cannot be put in order now is, when the file is opened next.
        with contextlib.suppress(sqlite3.OperationalError):
            self._database.close()
        self._blobs.close()

    def _prepare(self) -> None:
        # Exclusive: a second process on the same store must fail at once, not corrupt the store.
        lasts = self._lasting is Lasting.POWER
        synchronous = "FULL" if lasts else "OFF"
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", f"synchronous = {synchronous}", "secure_delete = ON"):
            self._database.execute(f"PRAGMA {setting}").fetchall()
        version = self._one("PRAGMA user_version")[0]
        if lasts:
            write_log_anew(self._path)
        if version == 0:
            tables = "".join(f"{statement};" for statement in _TABLES.split(";") if statement.strip())
            self._database.executescript(f"BEGIN EXCLUSIVE; {tables} PRAGMA user_version = {SCHEMA}; COMMIT;")
        elif version != SCHEMA:
            raise InputError(
                f"store {self._path} has schema version {version}, this version of quietmean knows {SCHEMA}. Finish it with the "
                "release that made it."
            )
        if lasts:
            sync_folder(self._path.parent)

    def _transaction(self) -> AbstractContextManager[None]:
        """The context of one change, which is kept whole when it is left."""
        return self._kept() if self.is_read_again else contextlib.nullcontext()

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        with self._on_disk():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._blobs.sync()
                self._database.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has done so itself.
                if self._database.in_transaction:
                    with contextlib.suppress(sqlite3.OperationalError):
                        self._database.execute("ROLLBACK")
                raise

    def keep_journal_short(self) -> None:
        """Use the write-ahead log again after some 16 pages, for a store that is changed many times and never large."""
        self._rows("PRAGMA wal_autocheckpoint = 16")

    def _forget_free_places(self, wipe: bool) -> None:
        """Free, after a commit, the slots of large vectors that no row names any longer, and wipe them if ``wipe``."""
        with self._on_disk():
            if self._blobs.in_use:
                self._blobs.keep_only(self._tokens())
                if wipe:
                    self._blobs.wipe()

    def _empty_journal(self) -> None:
        # Deleted rows are overwritten (secure_delete). Copies may be left where pages were rearranged, hence the file is written
        # anew from what is still in it; and in the write-ahead log, which has the old pages.
        if not self.is_read_again:
            return
        with self._on_disk():
            self._database.execute("VACUUM")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _tokens(self) -> list[bytes]:
        """All tokens of the blob file that a row names; short content lies in the rows and is not read for this."""
        query = """SELECT token FROM (SELECT state AS token FROM state UNION ALL SELECT vector FROM release
                   UNION ALL SELECT vector FROM message UNION ALL SELECT content FROM message
                   UNION ALL SELECT vector FROM inbox UNION ALL SELECT content FROM inbox UNION ALL SELECT content FROM kept)
                   WHERE substr(token, 1, 1) = ?"""
        return [row[0] for row in self._rows(query, LARGE_TAG)]

    def _note_statuses(self, phase: int, closed: ClosedRound) -> None:
        key, usual = (phase, closed.round), None
        sent = self._one("SELECT count(*) FROM outbox WHERE phase = ? AND round = ?", *key)[0]
        if closed.statuses and sent == len(closed.statuses):
            # In one statement what holds of nearly all.
            usual = Counter(closed.statuses.values()).most_common(1)[0][0]
            self._database.execute("UPDATE outbox SET status = ? WHERE phase = ? AND round = ?", (usual, *key))
        self._database.executemany(
            "UPDATE outbox SET status = ? WHERE phase = ? AND round = ? AND receiver = ?",
            [(status, *key, receiver) for receiver, status in closed.statuses.items() if status != usual],
        )

    def _rows(self, query: str, *arguments: object) -> list[Any]:
        with self._on_disk():
            return self._database.execute(query, arguments).fetchall()

    def _maybe(self, query: str, *arguments: object) -> Any:
        with self._on_disk():
            return self._database.execute(query, arguments).fetchone()

    def _one(self, query: str, *arguments: object) -> Any:
        row = self._maybe(query, *arguments)
        if row is None:
            raise self._damaged("an entry is missing")
        return row

    def _fact(self, name: str) -> bytes | None:
        row = self._maybe("SELECT value FROM fact WHERE name = ?", name)
        with self._decoded():
            return None if row is None else bytes(row[0])

    def _required_fact(self, name: str) -> bytes:
        row = self._one("SELECT value FROM fact WHERE name = ?", name)
        with self._decoded():
            return bytes(row[0])

    def _set_fact(self, name: str, value: bytes) -> None:
        self._database.execute("INSERT INTO fact VALUES (?, ?)", (name, value))

    def _replace_fact(self, name: str, value: bytes) -> None:
        self._database.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def _content(self, token: bytes) -> bytes:
        """What a token means."""
        with self._on_disk():
            return self._blobs.get(token)

    def _long_content(self, token: bytes) -> Payload:
        """The content of a token, of a vector."""
        with self._on_disk():
            return self._blobs.get_long(token)


# Of the disk, not of the store: no other one has its noise.
_DAMAGED = "check the disk. This party cannot go on with it, and must not begin this study anew"


def _connect(path: Path) -> sqlite3.Connection:
    # SQLite gives its side files the rights of the main file.
    os.close(open_private(path, os.O_RDWR | os.O_CREAT))
    return sqlite3.connect(path, timeout=0.5, isolation_level=None)


class KeptBesideValues(StoreDatabase):
    """What a store keeps beside values, in tables of their own, and facts. Secrets of pairs are deleted with the result."""

    # --- logs --------------------------------------------------------------------------------------------------------

    def gossip(self) -> list[bytes]:
        """The gossiped logs that each party last sent with a message, encoded."""
        with self._decoded():
            return [bytes(packed) for (packed,) in self._rows("SELECT known FROM reported ORDER BY party")]

    def keep_remarks(self, remarks: Sequence[str]) -> None:
        """The protocol's remarks on the mixing phase, which cannot be derived from its later state."""
        if tuple(remarks) != self.remarks():
            with self._transaction():
                self._database.execute("INSERT OR REPLACE INTO fact VALUES ('remarks', ?)", (json.dumps(list(remarks)).encode(),))

    def remarks(self) -> tuple[str, ...]:
        with self._decoded():
            return tuple(json.loads(self._fact("remarks") or b"[]"))

    def first_audit(self, audit: bytes) -> bytes:
        """How far the site's audit log had come when this was first asked for: whatever process sends it, it is the same."""
        kept = self._fact("audit")
        if kept is None:
            with self._transaction():
                self._set_fact("audit", audit)
        return audit if kept is None else kept

    def keep_gossip(self, sender: PartyId, gossip: bytes) -> None:
        """Keep gossiped logs that came without a message that counts."""
        with self._transaction():
            self._database.execute("INSERT OR REPLACE INTO reported VALUES (?, ?)", (sender, gossip))

    def save_log(self, party: PartyId, log: bytes, gossip: bytes) -> None:
        """A party's final log, and the gossiped logs that came with it; both encoded. Ignored once the result is stored."""
        if self.is_read_again and self._fact("result") is None:
            with self._transaction():
                self._database.execute("INSERT OR REPLACE INTO final_log VALUES (?, ?, ?)", (party, log, gossip))

    def received_logs(self) -> dict[PartyId, tuple[bytes, bytes]]:
        rows = self._rows("SELECT party, log, known FROM final_log ORDER BY party")
        with self._decoded():
            return {party: (bytes(log), bytes(gossip)) for party, log, gossip in rows}

    # --- votes at the gate -------------------------------------------------------------------------------------------

    def votes(self) -> dict[PartyId, tuple[bytes, bool]]:
        """The (digest, passes) of all votes at the gate that are known here, the own one included."""
        rows = self._rows("SELECT party, digest, passes FROM vote ORDER BY party")
        with self._decoded():
            return {party: (bytes(digest), bool(passes)) for party, digest, passes in rows}

    def save_vote(self, party: PartyId, digest: bytes, passes: bool) -> None:
        """A party's vote. There is only one of each party."""
        with self._transaction():
            self._database.execute("INSERT INTO vote VALUES (?, ?, ?)", (party, digest, passes))

    def cast_vote(self, party: PartyId, digest: bytes, passes: bool, history: bytes) -> None:
        """The own vote, with the ``history`` that it is about: it must be durable before anybody hears of it."""
        with self._transaction():
            self._set_fact("history", history)
            self._database.execute("INSERT INTO vote VALUES (?, ?, ?)", (party, digest, passes))

    def voted_history(self) -> bytes | None:
        """What :meth:`cast_vote` was given, if it was called."""
        return self._fact("history")

    def pass_gate(self, publish: bool) -> None:
        """Record the decision, durable before anything is published. If nothing is to be, the release is deleted for good."""
        with self._transaction():
            self._set_fact("publish", b"1" if publish else b"")
            if not publish:
                self._database.execute("DELETE FROM release WHERE phase = ?", (int(Phase.MIXING),))
        if not publish:
            self._forget_free_places(wipe=True)

    def passed_gate(self) -> bool | None:
        """What :meth:`pass_gate` was given, if it was called."""
        decided = self._fact("publish")
        return None if decided is None else bool(decided)

    # --- secrets of pairs --------------------------------------------------------------------------------------------

    def encapsulated(self) -> dict[PartyId, Encapsulated]:
        """What this party encapsulated to others, or they to it, by their place in the roster."""
        rows = self._rows("SELECT party, secret, ciphertext FROM encapsulated ORDER BY party")
        with self._decoded():
            return {party: Encapsulated(bytes(secret), bytes(ciphertext)) for party, secret, ciphertext in rows}

    def save_encapsulated(self, encapsulated: Mapping[PartyId, Encapsulated]) -> None:
        """Save encapsulated keys before any of it is sent, or before what came with it counts."""
        rows = [(party, pair.secret, pair.ciphertext) for party, pair in encapsulated.items()]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO encapsulated VALUES (?, ?, ?)", rows)


PENDING: Final = "pending"
# The sender cancelled the transfer and kept its share; whether the receiver had used it is not known yet. The words in the file
# are part of its format.
IN_DOUBT: Final = "reclaimed"
# The receiver had used it. The sender compensates: it takes the share out at the end of a later round, the column ``settled``.
COMMITTED: Final = "used"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it goes over the wire: ``dimension`` values of ``width`` bytes each, then the protocol's own content."""

    payload: Payload
    dimension: int
    weight: float
    width: int = 8


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """How a round ended: for each receiver, accepted, refused or in doubt; which earlier (round, receiver) were settled."""

    round: int
    statuses: Mapping[PartyId, str]
    settled: Sequence[tuple[int, PartyId]] = ()


def input_digest(key: Seed, nonce: bytes, value: Vector, weight: float) -> bytes:
    """Keyed, so that it reveals nothing about the value, even to a reader who tries all values."""
    # The value is read in place, so that no copy of it remains in memory.
    shape = ",".join(str(size) for size in np.shape(value))
    return key.derive("input", nonce, shape, hashlib.sha256(encode_vector(value)).digest(), weight.hex()).secret
