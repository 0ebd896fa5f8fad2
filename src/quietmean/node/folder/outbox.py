"""What a party put, or is about to put: each message is durable here, with all its bytes, before it is anywhere else."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from quietmean.core.errors import InputError, named, reason_of
from quietmean.core.outage import outage_of, reading_rows, refuse_damage, refuse_outage
from quietmean.core.party import PartyId
from quietmean.core.portability import open_private
from quietmean.node.folder.slot import Slot, SlotKind

_TABLES = """
CREATE TABLE IF NOT EXISTS session (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS file (
    kind TEXT, number INTEGER, receiver INTEGER, file BLOB, request BLOB, answer BLOB, PRIMARY KEY (kind, number, receiver)
);
"""


class OtherSession(InputError):
    """The file is of another session."""


class Outbox:
    """A file beside the store. Messages whose receipt was confirmed keep number, digest of what was asked, and answer.

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
            raise InputError(f"file {path} cannot be used ({reason_of(error)}): it is made by join, beside its store") from None
        if sessions != [session]:
            self.close()
            raise OtherSession(f"file {path} is of another study: give {named('store')} with another name")

    @classmethod
    def of_round(cls, path: Path, session: str, party: PartyId) -> Self:
        """In place of the one of a round before, whose files nobody waits for any more."""
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
_DAMAGED = "check the disk; what this party sent through the folder is in no other"
