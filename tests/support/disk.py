"""A disk and a memory that refuse something: any statement of a store, any write and fsync of its large vectors, any handler.

The error is the one that the library raises which has the place. ``after``: what was asked is done all the same, and reported as
failed, as after an fsync that fails.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from quietmean.core.party import PartyId
from quietmean.node.party import Participant
from quietmean.node.storage import blob_store, database

Result = TypeVar("Result")


def _of_sqlite(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


# What each library makes of the same trouble; 778 and 1034: SQLite's extended codes of a write and of an fsync.
STATEMENT_ERRORS: dict[str, Callable[[], Exception]] = {
    "full": lambda: _of_sqlite("database or disk is full", sqlite3.SQLITE_FULL),
    "write": lambda: _of_sqlite("disk I/O error", 778),
    "fsync": lambda: _of_sqlite("disk I/O error", 1034),
    "read-only": lambda: _of_sqlite("attempt to write a readonly database", sqlite3.SQLITE_READONLY),
    "memory": MemoryError,
}
SYSTEM_ERRORS: dict[str, Callable[[], Exception]] = {
    "full": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "write": lambda: OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
    "fsync": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "read-only": lambda: OSError(errno.EROFS, os.strerror(errno.EROFS)),
    "memory": MemoryError,
}
KINDS = tuple(STATEMENT_ERRORS)
_READS = ("SELECT", "PRAGMA")


@dataclass(frozen=True)
class Trouble:
    """The ``place``-th thing that a party asks of its disk, or of its handlers, and the ``times - 1`` after it, fail."""

    party: PartyId
    place: int
    kind: str = "write"
    after: bool = False
    times: int = 1


@dataclass
class Machine:
    """Counts what is asked, of each party; raises where it is due. ``names``: what each place was, in its order."""

    trouble: Trouble | None = None
    names: dict[PartyId, list[str]] = field(default_factory=dict)

    def ask(self, party: PartyId, name: str, errors: dict[str, Callable[[], Exception]], work: Callable[[], Result]) -> Result:
        asked = self.names.setdefault(party, [])
        place, trouble = len(asked), self.trouble
        asked.append(name)
        due = trouble is not None and trouble.party == party and trouble.place <= place < trouble.place + trouble.times
        if trouble is None or not due:
            return work()
        if trouble.after:
            work()
        raise errors[trouble.kind]()


def _party_of(path: Path, names: Sequence[str]) -> PartyId | None:
    """Stores of a run are called by the names of their parties, or by their numbers."""
    name = path.name.partition(".")[0]
    return names.index(name) if name in names else int(name) if name.isdigit() else None


@contextlib.contextmanager
def failing_disk(trouble: Trouble | None = None, *, reads: bool = False, names: Sequence[str] = ()) -> Iterator[Machine]:
    """Everything that stores ask of the disk; without ``reads`` what only reads is left out, which a full disk still does."""
    machine = Machine(trouble)
    files: dict[int, PartyId] = {}

    def connect(path: Path) -> sqlite3.Connection:
        party = _party_of(path, names)

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
                return self._ask(sql, lambda: super(Connection, self).execute(sql, *rest))

            def executemany(self, sql: str, *rest: Any) -> sqlite3.Cursor:
                return self._ask(sql, lambda: super(Connection, self).executemany(sql, *rest))

            def executescript(self, sql: str) -> sqlite3.Cursor:
                return self._ask(sql, lambda: super(Connection, self).executescript(sql))

            def _ask(self, sql: str, work: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
                name = " ".join(sql.split()[:3])
                if party is None or (name.startswith(_READS) and not reads):
                    return work()
                return machine.ask(party, name, STATEMENT_ERRORS, work)

        return connected(path, Connection)

    def connected(path: Path, factory: type[sqlite3.Connection]) -> sqlite3.Connection:
        with patch(
            "quietmean.node.storage.database.sqlite3.connect", lambda *given, **more: opened(*given, **more, factory=factory)
        ):
            return plain(path)

    def open_private(path: Path, flags: int) -> int:
        handle = own["open_private"](path, flags)
        party = _party_of(path, names)
        if party is not None:
            files[handle] = party
        return int(handle)

    def failing(name: str) -> Callable[..., Any]:
        def ask(handle: int, *rest: Any) -> Any:
            party = files.get(handle)
            if party is None or (name == "read_at" and not reads):
                return own[name](handle, *rest)
            return machine.ask(party, name, SYSTEM_ERRORS, lambda: own[name](handle, *rest))

        return ask

    plain, opened = database._connect, sqlite3.connect
    own = {name: getattr(blob_store, name) for name in ("open_private", "write_at", "sync_data", "read_at")}
    with contextlib.ExitStack() as patches:
        patches.enter_context(patch.object(database, "_connect", connect))
        patches.enter_context(patch.object(blob_store, "open_private", open_private))
        for name in ("write_at", "sync_data", "read_at"):
            patches.enter_context(patch.object(blob_store, name, failing(name)))
        yield machine


@contextlib.contextmanager
def failing_handlers(trouble: Trouble | None = None) -> Iterator[Machine]:
    """Every request that a party answers."""
    machine, handle = Machine(trouble), Participant.handle

    async def failing(self: Participant, sender: PartyId, request: Any, payload: Any) -> Any:
        party = self.settings.party
        name = type(request).__name__
        if trouble is not None and trouble.after:
            answer = await handle(self, sender, request, payload)
            return machine.ask(party, name, SYSTEM_ERRORS, lambda: answer)
        machine.ask(party, name, SYSTEM_ERRORS, lambda: None)
        return await handle(self, sender, request, payload)

    with patch.object(Participant, "handle", failing):
        yield machine
