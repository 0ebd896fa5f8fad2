"""What a party put, or is about to put: each message is durable here, with all its bytes, before it is anywhere else."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.node.folder.slot import Kind, Slot

_TABLES = """
CREATE TABLE IF NOT EXISTS session (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS file (kind TEXT, number INTEGER, receiver INTEGER, file BLOB, PRIMARY KEY (kind, number, receiver));
"""


class Outbox:
    """A file beside the store. The messages whose receipt was told keep their number only."""

    def __init__(self, path: Path, session: str, party: PartyId) -> None:
        self._party = party
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(_TABLES)
            self._database.execute("INSERT OR IGNORE INTO session VALUES (?)", (session,))
            sessions = [row[0] for row in self._database.execute("SELECT name FROM session")]
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"file {path} cannot be used ({error}): it is made by join, beside its store") from None
        if sessions != [session]:
            raise InputError(f"file {path} is of another study: give --store with another name")

    def next_number(self, receiver: PartyId) -> int:
        (last,) = self._database.execute(
            "SELECT MAX(number) FROM file WHERE kind = ? AND receiver = ?", (Kind.REQUEST, receiver)
        ).fetchone()
        return 1 if last is None else int(last) + 1

    def answered(self, receiver: PartyId) -> set[int]:
        """Numbers of the requests that this party has answered."""
        rows = self._database.execute("SELECT number FROM file WHERE kind = ? AND receiver = ?", (Kind.ANSWER, receiver))
        return {int(number) for (number,) in rows}

    def waiting(self) -> Iterator[tuple[Slot, bytes]]:
        """What was put, or not yet, and nobody told that it was received."""
        rows = self._database.execute("SELECT kind, number, receiver, file FROM file WHERE file IS NOT NULL ORDER BY number")
        for kind, number, receiver, file in rows:
            yield Slot(Kind(kind), number, self._party, receiver), file

    def add(self, slot: Slot, file: bytes) -> None:
        self._database.execute("INSERT INTO file VALUES (?, ?, ?, ?)", (slot.kind, slot.number, slot.receiver, file))

    def received(self, slot: Slot) -> None:
        self._database.execute(
            "UPDATE file SET file = NULL WHERE kind = ? AND number = ? AND receiver = ?", (slot.kind, slot.number, slot.receiver)
        )

    def close(self) -> None:
        self._database.close()
