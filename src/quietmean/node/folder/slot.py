"""One message as one file: sealed to the mailbox key of its receiver, signed by the identity key of its sender.

``8 bytes magic | 64 bytes signature | HPKE ciphertext``. HPKE alone says nothing of who wrote a file: anybody can seal to a
public key. So the sender signs the place of the file and the digest of its ciphertext; HPKE binds the same place as its ``info``.
The place is session, number of the message between these two parties, sender and receiver with their identity keys:
what is valid in one place is valid in no other.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from quietmean.core.errors import InputError, PeerError, named, reason_of
from quietmean.core.outage import outage_of, reading_rows, refuse_damage, refuse_outage
from quietmean.core.party import PartyId
from quietmean.core.portability import open_private
from quietmean.node.mailbox import SEAL_BYTES, Mailbox, open_with, seal_to
from quietmean.node.net import Identity, Purpose, is_signed, public_key_bytes
from quietmean.node.phase import GATE_STAGES, Phase, Position
from quietmean.planning.plan import Plan

_MAGIC: Final = b"qmfile1\0"
_SIGNATURE: Final = 64
_DIGITS: Final = 32
# Bytes of a file beside its content: what comes before the ciphertext, the encapsulated keys and the tag of HPKE.
OVERHEAD: Final = len(_MAGIC) + _SIGNATURE + SEAL_BYTES


class SlotKind(StrEnum):
    """Each request has a number of its own, of those of its sender to one receiver; its answer has the same."""

    REQUEST = "q"
    ANSWER = "a"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one message is due."""

    kind: SlotKind
    number: int
    sender: PartyId
    receiver: PartyId

    @property
    def round(self) -> str:
        """The folder, within that of the session, in which all messages with this number are."""
        return f"{self.kind}{self.number:08d}"

    @property
    def prefix(self) -> str:
        return f"{self.sender}-{self.receiver}-"

    def name(self, file: bytes) -> str:
        return self.prefix + hashlib.sha256(file).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class Parties:
    """Who writes to whom in one session: public keys by party, ``mailboxes`` as bytes."""

    session: str
    identities: Sequence[str]
    mailboxes: Mapping[PartyId, bytes] = field(repr=False)

    def info(self, slot: Slot) -> bytes:
        """The encoding of a place as bytes; no two places have the same."""
        sender, receiver = (public_key_bytes(self.identities[party]) for party in (slot.sender, slot.receiver))
        # A zero comes first: attempts to start have no places of their own.
        fields = [0, str(slot.kind), slot.number, slot.sender, sender, slot.receiver, receiver]
        return msgspec.msgpack.encode(["quietmean file 1", self.session, *fields])


def seal_file(parties: Parties, slot: Slot, content: bytes, identity: Identity) -> bytes:
    """The file of a message. No two are equal, so that a file is made once, kept, and put as often as needed."""
    info = parties.info(slot)
    sealed = seal_to(parties.mailboxes[slot.receiver], info, content)
    return _MAGIC + identity.sign(Purpose.FILE, info + hashlib.sha256(sealed).digest()) + sealed


def is_valid(parties: Parties, slot: Slot, name: str, file: bytes) -> bool:
    """Whether the sender of the slot signed this file for this slot. Nothing is opened for that."""
    if not file.startswith(_MAGIC) or len(file) < OVERHEAD or not hmac.compare_digest(name.encode(), slot.name(file).encode()):
        return False
    signature, sealed = file[len(_MAGIC) : len(_MAGIC) + _SIGNATURE], file[len(_MAGIC) + _SIGNATURE :]
    signed = parties.info(slot) + hashlib.sha256(sealed).digest()
    return is_signed(parties.identities[slot.sender], Purpose.FILE, signed, signature)


def open_file(parties: Parties, slot: Slot, name: str, file: bytes, mailbox: Mailbox) -> bytes:
    """The content. Raises :class:`PeerError` for a file that was not signed for this slot, or not sealed to this key."""
    if not is_valid(parties, slot, name, file):
        raise PeerError("the file is not signed for its place")
    try:
        return open_with(mailbox, parties.info(slot), file[len(_MAGIC) + _SIGNATURE :])
    except ValueError:
        raise PeerError("the file is not sealed to this party's key for this study") from None


_TABLES = """
CREATE TABLE IF NOT EXISTS session (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS file (
    kind TEXT, number INTEGER, receiver INTEGER, file BLOB, request BLOB, answer BLOB, PRIMARY KEY (kind, number, receiver)
);
"""


class OtherSession(InputError):
    """The file is of another session."""


class Outbox:
    """A file beside the store with the messages that this party sends by the folder.

    A process that is started again, by hand or by cron, asks the same as the one before: it goes on waiting for that answer.
    """

    def __init__(self, path: Path, session: str, party: PartyId) -> None:
        self._party = party
        self._path = path
        try:
            os.close(open_private(path, os.O_RDWR | os.O_CREAT))
            self._database = sqlite3.connect(path, isolation_level=None)
            # Its journal's end is what makes a change count: EXTRA has that on the disk, too.
            self._database.execute("PRAGMA synchronous = EXTRA")
            self._database.executescript(_TABLES)
            self._database.execute("INSERT OR IGNORE INTO session VALUES (?)", (session,))
            sessions = [row[0] for row in self._database.execute("SELECT name FROM session")]
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            refuse_outage(error, path)
            refuse_damage(error, f"file {path}", _DAMAGED)
            raise InputError(
                f"file {path} cannot be used ({reason_of(error)}). Use the one that join makes beside its store."
            ) from None
        if sessions != [session]:
            self.close()
            raise OtherSession(f"file {path} is of another study. Give {named('store')} with another name.")

    @classmethod
    def of_round(cls, path: Path, session: str, party: PartyId) -> Self:
        """Make an outbox in place of that of a round before, whose files nobody waits for any more."""
        try:
            return cls(path, session, party)
        except OtherSession:
            path.unlink()
            return cls(path, session, party)

    def next_number(self, receiver: PartyId) -> int:
        ((last,),) = self._rows("SELECT MAX(number) FROM file WHERE kind = ? AND receiver = ?", SlotKind.REQUEST, receiver)
        with self._decoded():
            return 1 if last is None else int(last) + 1

    def answered(self, receiver: PartyId) -> set[int]:
        """Numbers of the requests that this party has answered."""
        rows = self._rows("SELECT number FROM file WHERE kind = ? AND receiver = ?", SlotKind.ANSWER, receiver)
        with self._decoded():
            return {int(number) for (number,) in rows}

    def waiting(self) -> Iterator[tuple[Slot, bytes]]:
        """What was put, or not yet, and nobody confirmed that it was received."""
        rows = self._rows("SELECT kind, number, receiver, file FROM file WHERE file IS NOT NULL ORDER BY number")
        with self._decoded():
            return iter(
                [(Slot(SlotKind(kind), int(number), self._party, int(to)), bytes(file)) for kind, number, to, file in rows]
            )

    def add(self, slot: Slot, file: bytes, request: bytes | None = None) -> None:
        """``request``: the digest of what is asked, of a request."""
        row = slot.kind, slot.number, slot.receiver, file, request
        self._execute("INSERT INTO file VALUES (?, ?, ?, ?, ?, NULL)", row)

    def received(self, slot: Slot, answer: bytes | None = None) -> None:
        """The receiver has it; ``answer``: to a request."""
        key = slot.kind, slot.number, slot.receiver
        self._execute("UPDATE file SET file = NULL, answer = ? WHERE kind = ? AND number = ? AND receiver = ?", (answer, *key))

    def last_request(self, receiver: PartyId, request: bytes) -> tuple[int, bytes | None] | None:
        """The number of the last request with this digest, and its answer if that has come."""
        rows = self._rows(
            "SELECT number, answer FROM file WHERE kind = ? AND receiver = ? AND request = ? ORDER BY number DESC LIMIT 1",
            SlotKind.REQUEST,
            receiver,
            request,
        )
        with self._decoded():
            return next(((int(number), answer if answer is None else bytes(answer)) for number, answer in rows), None)

    def close(self) -> None:
        with contextlib.suppress(sqlite3.OperationalError):
            self._database.close()

    def _execute(self, statement: str, values: tuple[object, ...]) -> None:
        """One statement, which is a transaction. Raises :class:`StorageError` for what the disk refuses."""
        self._rows(statement, *values)

    def _rows(self, statement: str, *values: object) -> list[Any]:
        try:
            return self._database.execute(statement, values).fetchall()
        except (sqlite3.Error, OSError, MemoryError, UnicodeDecodeError) as error:
            if (outage := outage_of(error, self._path)) is not None:
                raise outage from None
            refuse_damage(error, f"file {self._path}", _DAMAGED)
            raise

    def _decoded(self) -> contextlib.AbstractContextManager[None]:
        return reading_rows(f"file {self._path}", _DAMAGED)


# No other file has what others may have seen of this one.
_DAMAGED = "check the disk. What this party sent through the folder is in no other"


@dataclass(frozen=True)
class Timetable:
    """The times at which parties that exchange files wait for each other.

    ``waits``: at which positions parties wait for each other, in order. Times are in seconds since 1970, UTC.

    The first wait, for the start, ends at ``first``; each of the others ``interval`` seconds after the one before.
    """

    waits: tuple[Position, ...]
    first: float
    interval: float

    @classmethod
    def of(cls, plans: Iterable[Plan], first: float, interval: float) -> Self:
        """The timetable of the rounds that any of the plans has, with one more to resolve shares that are in doubt at the end.

        Where one has a gate, its stages are waits like rounds.
        """
        rounds = {Phase.MIXING: 0, Phase.GATE: 0, Phase.DISSEMINATION: 0}
        for plan in plans:
            mixing, releases = plan.protocol, plan.dissemination
            rounds[Phase.MIXING] = max(rounds[Phase.MIXING], mixing.rounds + mixing.traits.transfers_mass)
            if plan.gated:
                rounds[Phase.GATE] = GATE_STAGES
            if mixing.traits.releases_are_public:
                last = releases.rounds + releases.transfers_mass
                rounds[Phase.DISSEMINATION] = max(rounds[Phase.DISSEMINATION], last)
        between = [(int(phase), round_) for phase, last in rounds.items() for round_ in range(1, last + 1)]
        return cls(((int(Phase.AGREEMENT), 0), *between, (int(Phase.FINALIZATION), 0)), first, interval)

    def of_round(self, number: int) -> Timetable:
        """The timetable of one round of many, from 1, in which each has the same waits after one start for all."""
        return replace(self, first=self.first + (number - 1) * self.round_seconds)

    @property
    def round_seconds(self) -> float:
        """How long the waits of one round are together."""
        return self.interval * (len(self.waits) - 1)

    def end(self, position: Position) -> float:
        """When the wait at this position ends. Raises ValueError where parties do not wait for each other."""
        return self.first + self.interval * self.waits.index(position)

    def last_end(self, rounds: int) -> float:
        """When all of so many rounds are over."""
        return self.first + rounds * self.round_seconds

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Each wait in words, with its end."""
        for phase, round_ in self.waits:
            label = Phase(phase).label
            yield f"{label} {round_}" if round_ else label, self.end((phase, round_))
