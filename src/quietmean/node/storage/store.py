"""The durable state of a party: one SQLite file per party and study.

Every method that changes something is one transaction, on disk when the method returns. The private value is not in it, only
its keyed digest, so that a restart with other data is noticed. Vectors of closed rounds are wiped. Large vectors are in a file
beside it (see :mod:`.blob_store`). Once the result is stored, the secrets are deleted: what is left is the result and the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any, Self

import numpy as np

from quietmean.core.codec import StableBytes, dump_state
from quietmean.core.errors import InputError
from quietmean.core.party import Message, PartyId, Release, Step, Vector
from quietmean.node.net import ACCEPTED, Payload, VectorCodec
from quietmean.node.phase import Phase
from quietmean.node.storage.database import (
    COMMITTED,
    IN_DOUBT,
    PENDING,
    ClosedRound,
    KeptBesideValues,
    Lasting,
    Outgoing,
    StoreDatabase,
    input_digest,
)
from quietmean.randomness import Seed

# The first byte of a token of kept bytes: are they in it, as short ones are, or in the table?
_INLINE, _BY_TOKEN, _SHORT = b"\0", b"\1", 64


class Store(KeptBesideValues):
    """The durable store of one party in one study; use :meth:`open`."""

    def __init__(self, path: Path, dimension: int, grid: float, lasting: Lasting = Lasting.POWER) -> None:
        super().__init__(path, lasting)
        self._owned = False
        self._dimension = dimension
        self._codec = VectorCodec(dimension, grid)
        # Caches of what is on disk and needed before the round is over.
        self._sent: dict[tuple[int, int], dict[PartyId, Outgoing]] = {}
        self._arrived: dict[tuple[int, int], dict[PartyId, Message | None]] = {}

    @classmethod
    def open(
        cls,
        path: Path,
        study: str,
        value: Vector,
        weight: float,
        fresh: Callable[[], Seed] = Seed.from_os,
        owner: Seed | None = None,
        grid: float = 0.0,
        lasting: Lasting = Lasting.POWER,
    ) -> Self:
        """Open or make the store of a study for this input. Raises :class:`InputError` if it belongs to something else.

        ``value``: the party's private vector, shape (d,); only a keyed digest of it and of ``weight`` is stored.
        ``fresh`` gives the seed and the nonce of a new store. ``owner``: a secret of the party that is not in the store, so that
        other data are noticed even after the end, when the store's own secrets are gone; without it they are not, from then on.
        ``grid``: that of the plan.
        """
        store = cls(path, int(np.size(value)), grid, lasting)
        with store.usable():
            store._owned = owner is not None
            store._check_owner(path, study, value, weight, fresh, owner)
            store._load()
        return store

    @classmethod
    def nonce_of(cls, path: Path) -> bytes | None:
        """Return the nonce of what has begun in a store, whatever the party's input is; None where nothing has."""
        database = StoreDatabase(path)
        try:
            nonce: bytes | None = database._fact("nonce")
            return nonce
        finally:
            database.close()

    def reopen(self) -> None:
        """See :meth:`Database.reopen`. The input was compared when the store was opened first."""
        super().reopen()
        with self.usable():
            self._load()

    def _load(self) -> None:
        self._sent, self._arrived = {}, {}
        for phase, round_, sender in self._rows("SELECT phase, round, sender FROM inbox"):
            self._arrived.setdefault((phase, round_), {})[sender] = None
        if self.result() is not None:
            # The process may have died after the result was stored and before this.
            self._empty_journal()

    def _check_owner(
        self, path: Path, study: str, value: Vector, weight: float, fresh: Callable[[], Seed], owner: Seed | None
    ) -> None:
        with self._transaction():
            new = self._fact("study") is None
            if new:
                seed = fresh()
                self._set_fact("study", study.encode())
                self._set_fact("seed", seed.secret)
                self._set_fact("nonce", fresh().secret)
                self._set_fact("input", input_digest(owner or seed, self.nonce, value, weight))
        if self._fact("study") != study.encode():
            raise InputError(f"store {path} belongs to another study, plan or roster. Choose another file for this one.")
        if new:
            # A long value is not read twice.
            return
        kept, key = self._fact("input"), owner or (self.seed if self.result() is None else None)
        if key is not None and kept is not None and kept != input_digest(key, self.nonce, value, weight):
            raise InputError(f"this study was started with other data, see store {path}. Start again with the same data.")

    @property
    def study(self) -> str | None:
        """Whose store it is; None of an empty one."""
        study = self._fact("study")
        return None if study is None else study.decode()

    # --- secrets -----------------------------------------------------------------------------------------------------

    @property
    def seed(self) -> Seed:
        """The party's secret seed: written before anything that depends on it is sent."""
        return Seed(self._required_fact("seed"))

    @property
    def nonce(self) -> bytes:
        """The party's nonce for the study's public seed."""
        return self._required_fact("nonce")

    # --- the start ---------------------------------------------------------------------------------------------------

    def progress(self) -> bytes | None:
        """Where this party is in the attempts to start, as :meth:`save_standing` was given it."""
        return self._fact("progress")

    def save_standing(self, progress: bytes, seed: bytes | None = None) -> None:
        """Save where this party is in the attempts to start.

        ``seed``: this party's secret one from here on, of an attempt that it went on to.
        """
        with self._transaction():
            self._replace_fact("progress", progress)
            if seed is not None:
                self._replace_fact("seed", seed)

    def use_grid(self, grid: float) -> None:
        """Vectors are on this grid: that of the plan for the parties who are in."""
        self._codec = VectorCodec(self._dimension, grid)

    # --- many rounds -------------------------------------------------------------------------------------------------

    def series(self) -> bytes | None:
        """Where this party is in a series of rounds, as :meth:`save_series` was given it."""
        return self._fact("series")

    def save_series(self, record: bytes) -> None:
        with self._transaction():
            self._replace_fact("series", record)

    # --- rounds ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[int, int, bytes] | None:
        """The state as (phase, round in progress, the machine's), or None before the first phase.

        :meth:`kept` has parts of it.
        """
        row = self._maybe("SELECT phase, round, state FROM state")
        return None if row is None else (row[0], row[1], self._content(row[2]))

    def kept(self, token: bytes) -> bytes:
        """What stands in a state for bytes that stay the same: short ones themselves, or the token of others."""
        if token[:1] == _INLINE:
            return token[1:]
        return self._content(self._one("SELECT content FROM kept WHERE token = ?", token)[0])

    def _dump(self, phase: int, state: Any) -> bytes:
        """The state; what it keeps is written if it is not there, and deleted if it is not kept any more."""
        if not self.is_read_again:
            return b""
        tokens: set[bytes] = set()

        def keep(kept: StableBytes) -> bytes:
            if len(kept.content) < _SHORT:
                return _INLINE + kept.content
            token = _BY_TOKEN + kept.digest
            if token not in tokens and self._maybe("SELECT 1 FROM kept WHERE token = ?", token) is None:
                written = self._blobs.put(kept.content, _is_public(phase))
                self._database.execute("INSERT INTO kept VALUES (?, ?)", (token, written))
            tokens.add(token)
            return token

        dumped = dump_state(state, keep)
        gone = [row for row in self._rows("SELECT token FROM kept") if row[0] not in tokens]
        self._database.executemany("DELETE FROM kept WHERE token = ?", gone)
        return dumped

    def release(self, phase: int) -> Release | None:
        row = self._release_row(phase)
        return None if row is None else Release(self._codec.decode(self._long_content(row[0])), row[1])

    def _release_row(self, phase: int) -> tuple[bytes, float] | None:
        row = self._maybe("SELECT vector, weight FROM release WHERE phase = ?", phase)
        return None if row is None else (row[0], row[1])

    def required_release(self, phase: int) -> Release:
        release = self.release(phase)
        if release is None:
            raise self._damaged("a release is missing")
        return release

    def own_release(self) -> Outgoing | None:
        """What this party released after the mixing rounds, if it did, as it goes to the others."""
        row = self._release_row(Phase.MIXING)
        return None if row is None else self._outgoing(self._content(row[0]), b"", row[1])

    def record(
        self,
        phase: int,
        step: Step[Any],
        closed: ClosedRound | None = None,
        missed: Sequence[int] = (),
        *,
        withheld: bool = False,
    ) -> None:
        """Record one step: how the last round ended, which rounds were missed, the new state and what it sends.

        ``withheld``: its release, if there is one, is not public, and may never be.
        """
        sent: dict[tuple[int, int], dict[PartyId, Outgoing]] = {}
        with self._transaction():
            if closed is not None:
                self._close(phase, closed)
            self._database.executemany("INSERT INTO round VALUES (?, ?, 0)", [(phase, round_) for round_ in missed])
            self._database.execute(
                "INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?)",
                (phase, step.state.round, self._blobs.put(self._dump(phase, step.state), _is_public(phase))),
            )
            self._send(phase, step.send, sent)
            if step.release is not None:
                token = self._blobs.put(self._codec.encode(step.release.vector), public=not withheld)
                released = (phase, token, step.release.weight)
                self._database.execute("INSERT INTO release VALUES (?, ?, ?)", released)
        # After the commit: fill the caches, and free what is not needed any more.
        self._sent = sent
        if closed is not None:
            key = (phase, closed.round)
            self._arrived[key] = dict.fromkeys(self._arrived.get(key, ()))
        self._forget_free_places(wipe=step.release is not None)

    def _close(self, phase: int, closed: ClosedRound) -> None:
        key = (phase, closed.round)
        self._database.execute("INSERT INTO round VALUES (?, ?, 1)", key)
        self._note_statuses(phase, closed)
        self._database.executemany(
            "UPDATE outbox SET settled = ? WHERE phase = ? AND round = ? AND receiver = ?",
            [(closed.round, phase, round_, receiver) for round_, receiver in closed.settled],
        )
        # The ids stay, so that a late copy is recognised; the contents are no longer needed.
        self._database.execute("UPDATE inbox SET vector = NULL, content = NULL WHERE phase = ? AND round = ?", key)
        self._wipe_messages(phase, closed.round)

    def _wipe_messages(self, phase: int, last_round: int) -> None:
        """Delete what was sent up to a closed round, except shares that may still have to be settled."""
        self._database.execute(
            """DELETE FROM message WHERE phase = ?1 AND round <= ?2 AND (round, number) NOT IN (
                 SELECT round, number FROM outbox WHERE phase = ?1 AND round <= ?2
                 AND (status = ?3 OR (status = ?4 AND settled IS NULL)))""",
            (phase, last_round, IN_DOUBT, COMMITTED),
        )

    def _send(self, phase: int, messages: Sequence[Message], sent: dict[tuple[int, int], dict[PartyId, Outgoing]]) -> None:
        """Write what is sent, and put it into ``sent`` by (phase, round) and receiver."""
        rows, receivers = list[tuple[object, ...]](), list[tuple[object, ...]]()
        for number, message in enumerate(messages):
            key, vector = (phase, message.round), self._codec.encode(message.vector)
            # A share that was kept here and used there is read again in this process, too.
            tokens = (self._blobs.put(part, _is_public(phase)) for part in (vector, message.content))
            rows.append((*key, number, message.weight, *tokens))
            receivers += [(*key, receiver, number, PENDING) for receiver in message.recipients]
            outgoing = self._outgoing(vector, message.content, message.weight)
            sent.setdefault(key, {}).update(dict.fromkeys(message.recipients, outgoing))
        self._database.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)
        self._database.executemany("INSERT INTO outbox VALUES (?, ?, ?, ?, ?, NULL)", receivers)

    def outgoing(self, phase: int, round_: int) -> dict[PartyId, Outgoing]:
        """The message of the round in progress for each receiver."""
        if (phase, round_) in self._sent:
            return self._sent[phase, round_]
        query = "SELECT number, vector, weight, content FROM message WHERE phase = ? AND round = ?"
        messages = {
            number: self._outgoing(self._content(vector), self._content(content), weight)
            for number, vector, weight, content in self._rows(query, phase, round_)
        }
        query = "SELECT receiver, number FROM outbox WHERE phase = ? AND round = ? ORDER BY receiver"
        # Of a round that is over only the receivers are kept.
        return {receiver: messages[number] for receiver, number in self._rows(query, phase, round_) if number in messages}

    def _outgoing(self, vector: Payload, content: bytes, weight: float) -> Outgoing:
        width = self._codec.width(vector)
        payload = vector if not content else bytes(vector) + content if len(vector) else content
        return Outgoing(payload, len(vector) // width, weight, width)

    def sent_status(self, phase: int, round_: int, receiver: PartyId) -> str | None:
        row = self._maybe("SELECT status FROM outbox WHERE phase = ? AND round = ? AND receiver = ?", phase, round_, receiver)
        return None if row is None else str(row[0])

    def in_doubt(self, phase: int) -> tuple[tuple[int, PartyId], ...]:
        """The cancelled messages of which it is not known whether they had been used, as (round, receiver)."""
        query = "SELECT round, receiver FROM outbox WHERE phase = ? AND status = ? ORDER BY round, receiver"
        return tuple((row[0], row[1]) for row in self._rows(query, phase, IN_DOUBT))

    def resolve(self, phase: int, round_: int, receiver: PartyId, status: str) -> None:
        """Record what became of a message in doubt: REFUSED or COMMITTED. Nothing happens if it is not in doubt."""
        with self._transaction():
            self._database.execute(
                "UPDATE outbox SET status = ? WHERE phase = ? AND round = ? AND receiver = ? AND status = ?",
                (status, phase, round_, receiver, IN_DOUBT),
            )

    def unsettled(self, phase: int, party: PartyId) -> list[Message]:
        """Own messages whose shares were kept here and used there, and not settled yet; one for each receiver."""
        query = """SELECT round, receiver, vector, weight FROM outbox JOIN message USING (phase, round, number)
                   WHERE phase = ? AND status = ? AND settled IS NULL ORDER BY round, receiver"""
        return [
            Message(party, (receiver,), round_, self._codec.decode(self._content(vector)), weight)
            for round_, receiver, vector, weight in self._rows(query, phase, COMMITTED)
        ]

    def accept(self, phase: int, message: Message, encoded: Payload, gossip: bytes = b"") -> None:
        """Make a transfer durable; once this returns it counts.

        ``encoded``: the vector's bytes as received, which are stored; ``gossip``: the logs that came with it, encoded.
        """
        if self.is_read_again:
            with self._transaction():
                if gossip:
                    self._database.execute("INSERT OR REPLACE INTO reported VALUES (?, ?)", (message.sender, gossip))
                tokens = (self._blobs.put(part, _is_public(phase)) for part in (encoded, message.content))
                self._database.execute(
                    "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?)", (phase, message.round, message.sender, message.weight, *tokens)
                )
        self._arrived.setdefault((phase, message.round), {})[message.sender] = message

    def forget(self, phase: int, round_: int, sender: PartyId) -> None:
        """Undo :meth:`accept` for a transfer of the round in progress: it does not count, but was seen."""
        with self._transaction():
            self._database.execute("DELETE FROM inbox WHERE phase = ? AND round = ? AND sender = ?", (phase, round_, sender))
            self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (phase, round_, sender))
        self._arrived.get((phase, round_), {}).pop(sender, None)

    def note_seen(self, messages: Sequence[tuple[int, int, PartyId]]) -> None:
        """Note that these messages, (phase, round, sender), were handed to this party, though it does not use them."""
        with self._transaction():
            self._database.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", messages)

    def has_accepted(self, phase: int, round_: int, sender: PartyId) -> bool:
        return sender in self._arrived.get((phase, round_), ())

    def accepted_from(self, phase: int, round_: int) -> Set[PartyId]:
        """Whose messages of a round were accepted."""
        return self._arrived.get((phase, round_), {}).keys()

    def contradicts(self, phase: int, message: Message) -> bool:
        """Whether the sender said something else before, in a round that is still in progress."""
        before = self._arrived.get((phase, message.round), {}).get(message.sender)
        return before is not None and (before.content, before.weight) != (message.content, message.weight)

    def latest_from(self, sender: PartyId) -> tuple[int, int]:
        """The latest (phase, round) of which a message of this party was accepted; (0, 0) before the first."""
        return max((position for position, senders in self._arrived.items() if sender in senders), default=(0, 0))

    def received(self, phase: int, round_: int, receiver: PartyId) -> list[Message]:
        """The accepted messages of the round in progress, by sender."""
        arrived = self._arrived.get((phase, round_), {})
        return [arrived[sender] or self._read_arrival(phase, round_, sender, receiver) for sender in sorted(arrived)]

    def _read_arrival(self, phase: int, round_: int, sender: PartyId, receiver: PartyId) -> Message:
        query = "SELECT vector, weight, content FROM inbox WHERE phase = ? AND round = ? AND sender = ?"
        vector, weight, content = self._one(query, phase, round_, sender)
        values = self._codec.decode(self._content(vector))
        return Message(sender, (receiver,), round_, values, weight, self._content(content))

    # --- the log -----------------------------------------------------------------------------------------------------

    def rounds_online(self, phase: int) -> tuple[int, ...]:
        return tuple(row[0] for row in self._rows("SELECT round FROM round WHERE phase = ? AND online ORDER BY round", phase))

    def arrived_there(self, phase: int) -> tuple[tuple[int, PartyId], ...]:
        """The own messages that were accepted, as (round, receiver)."""
        query = "SELECT round, receiver FROM outbox WHERE phase = ? AND status IN (?, ?) ORDER BY round, receiver"
        return tuple((row[0], row[1]) for row in self._rows(query, phase, ACCEPTED, COMMITTED))

    def settled(self, phase: int) -> tuple[tuple[int, PartyId, int], ...]:
        """The shares kept here though used there, as (round, receiver, round in which it was settled, 0 if it never was)."""
        query = """SELECT round, receiver, coalesce(settled, 0) FROM outbox WHERE phase = ? AND status = ?
                   ORDER BY round, receiver"""
        return tuple((row[0], row[1], row[2]) for row in self._rows(query, phase, COMMITTED))

    def arrived_here(self, phase: int) -> tuple[tuple[int, PartyId], ...]:
        """The messages that were taken in, as (round, sender)."""
        rounds = {round_: senders for (at, round_), senders in self._arrived.items() if at == phase}
        return tuple((round_, sender) for round_ in sorted(rounds) for sender in sorted(rounds[round_]))

    def seen_here(self, phase: int) -> tuple[tuple[int, PartyId], ...]:
        """The messages that were handed to this party and not taken in, as (round, sender)."""
        rows = self._rows("SELECT round, sender FROM seen WHERE phase = ? ORDER BY round, sender", phase)
        return tuple((round_, sender) for round_, sender in rows if not self.has_accepted(phase, round_, sender))

    def taken_back(self, status: str) -> tuple[tuple[int, int, PartyId], ...]:
        """The cancelled messages that are COMMITTED and not settled, or IN_DOUBT, as (phase, round, receiver)."""
        query = "SELECT phase, round, receiver FROM outbox WHERE status = ? AND settled IS NULL ORDER BY phase, round, receiver"
        return tuple((row[0], row[1], row[2]) for row in self._rows(query, status))

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self, phase: int, result: bytes) -> None:
        """Keep the result, of which the release of ``phase`` is a part, and delete what is secret and no longer needed.

        Left are the study, what was revealed at its start, the digest of the input, the log and the result.
        """
        with self._transaction():
            self._database.execute("DELETE FROM fact WHERE name = 'seed'")
            if not self._owned:
                # Its key was the seed.
                self._database.execute("DELETE FROM fact WHERE name = 'input'")
            self._database.execute("DELETE FROM release WHERE phase != ?", (phase,))
            self._database.execute("UPDATE inbox SET vector = NULL, content = NULL")
            self._database.execute("DELETE FROM fact WHERE name IN ('history', 'publish')")
            for table in ("state", "kept", "message", "reported", "final_log", "vote", "encapsulated"):
                self._database.execute(f"DELETE FROM {table}")  # noqa: S608
            self._set_fact("result", result)
        self._empty_journal()
        self._forget_free_places(wipe=True)

    def result(self) -> bytes | None:
        """What :meth:`finish` was given, if it was called."""
        return self._fact("result")


def _is_public(phase: int) -> bool:
    """Whether vectors of a phase are public, so that they need not be wiped: releases, and everything computed from them."""
    return phase > Phase.MIXING
