"""What may have left for a study, in a ledger's file: one thing of one store, or nothing, for good."""

from __future__ import annotations

from quietmean.core.errors import InputError
from quietmean.ledger.account import LedgerEntry
from quietmean.ledger.database import LedgerDatabase
from quietmean.ledger.filter import SpendingRequest

_KEEP = "INSERT OR IGNORE INTO fact VALUES (?, ?)"


def _fact(database: LedgerDatabase, name: str) -> bytes | None:
    row = database.row("SELECT value FROM fact WHERE name = ?", name)
    return None if row is None else bytes(row[0])


def bind(database: LedgerDatabase, study: str, content: bytes) -> None:
    """Remember the one thing that leaves for a study. Raises :class:`InputError` for another one, or if all was given back."""
    if was_given_back(database, study):
        raise InputError(
            f"study {study} was given back in ledger {database.path}, since nothing of it would ever leave: the party's store is "
            "an older copy, it must not be restored"
        )
    bound = _fact(database, f"bound {study}")
    if bound is not None and bound != content:
        raise InputError(
            f"ledger {database.path} knows another contribution of this party to this study: each party contributes once, a "
            "correction is a new study, charged anew"
        )
    database.change(_KEEP, f"bound {study}", content)


def is_bound(database: LedgerDatabase, study: str) -> bool:
    """Return whether something may have left for a study."""
    return _fact(database, f"bound {study}") is not None


def note_given_back(database: LedgerDatabase, study: str) -> None:
    """Remember that nothing ever leaves for a study."""
    database.change(_KEEP, f"given back {study}", b"")


def was_given_back(database: LedgerDatabase, study: str) -> bool:
    """Return whether nothing ever leaves for a study."""
    return _fact(database, f"given back {study}") is not None


def in_seat(database: LedgerDatabase, request: SpendingRequest) -> str | None:
    """Return the execution of another store that has the place of the same party in what was agreed on."""
    holder = _fact(database, f"seat {request.seat}") if request.seat else None
    return None if holder is None or holder.decode() == request.study else holder.decode()


def take_seat(database: LedgerDatabase, request: SpendingRequest) -> None:
    """Give the place of the party to this execution."""
    if request.seat:
        database.change("INSERT OR REPLACE INTO fact VALUES (?, ?)", f"seat {request.seat}", request.study.encode())


def refuse_second(database: LedgerDatabase, first: LedgerEntry) -> None:
    """Raises :class:`InputError` for a second store of a key, once something of the first may have left."""
    if is_bound(database, first.study):
        raise InputError(
            f"this key runs twice: this party takes part in study {first.name!r} with another store. Give that one with --store; "
            "this one takes no part, and nothing is charged for it"
        )
