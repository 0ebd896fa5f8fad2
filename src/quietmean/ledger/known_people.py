"""The sketches of accounts' people in a ledger's file."""

from __future__ import annotations

import numpy as np

from quietmean.ledger.database import LedgerDatabase
from quietmean.ledger.people import Sketch


def sketches_of(database: LedgerDatabase, account: str) -> tuple[Sketch, ...]:
    rows = database.rows("SELECT kind, key, level, count, members FROM people WHERE account = ?", account)
    return tuple(
        Sketch(kind, bytes(key), level, np.frombuffer(members, dtype="<u8").astype(np.uint64), count)
        for kind, key, level, count, members in rows
    )


def remember(database: LedgerDatabase, account: str, sketch: Sketch) -> None:
    """The account is about these people, too."""
    known = [old for old in sketches_of(database, account) if old.comparable(sketch)]
    joined = known[0].joined(sketch) if known else sketch
    members = joined.members.astype("<u8").tobytes()
    database.change(
        "INSERT OR REPLACE INTO people VALUES (?, ?, ?, ?, ?, ?)",
        account,
        joined.kind,
        joined.key,
        joined.level,
        joined.count,
        members,
    )


def accounts_with(database: LedgerDatabase, sketch: Sketch) -> tuple[str, ...]:
    """Those with people of the sketch."""
    names = [name for (name,) in database.rows("SELECT name FROM account ORDER BY name")]
    return tuple(name for name in names if any(old.overlaps(sketch) for old in sketches_of(database, name)))
