"""What is in the tables of a ledger's file, column by column; entries as rows."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger.account import LedgerEntry
from quietmean.ledger.database import LedgerDatabase
from quietmean.privacy.charge import Charge

ENTRY = (
    "study, account, name, unit, relation, factor, refund, reserved_mu, reserved_beta, reserved_tv, mu, beta, tv, certified_mu, "
    "certified_beta, certified_tv, status, reserved_at, settled_at, note, part, known"
)
BUDGET = "epsilon, delta, mu, set_at, additive_delta"
FREEZE = "study, since, reason, lifted_at, lifted_reason"


def entry_of(row: Any) -> LedgerEntry:
    """Return the entry of a row with the columns :data:`ENTRY`."""
    study, account, name, unit, relation, factor, refund, *columns, status, reserved_at, settled_at, note, part, known = row
    fixed = (study, account, name, PrivacyUnit(unit), Neighbouring(relation), factor, bool(refund))
    certified = None if columns[6] is None else _charge_of(*columns[6:])
    charges = (_charge_of(*columns[:3]), _charge_of(*columns[3:6]), certified)
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
        raise InputError(f"study {study} is not in ledger {database.path}: reserve it first")
    return entries


def _charge_of(mu: float, beta: float, tv: float) -> Charge:
    return Charge(float(mu), float(beta), float(tv))


def save_entry(database: LedgerDatabase, entry: LedgerEntry) -> None:
    """Write an entry, anew or in place of what is there of the study on its account."""
    certified = (None, None, None) if entry.certified is None else astuple(entry.certified)
    fixed = (entry.study, entry.account, entry.name, str(entry.unit), str(entry.relation), entry.factor, entry.refund)
    changing = (*astuple(entry.reserved), *astuple(entry.charged), *certified, entry.status)
    database.change(
        f"""INSERT INTO entry ({ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (study, account) DO UPDATE SET factor = excluded.factor, part = excluded.part,
            reserved_mu = excluded.reserved_mu, reserved_beta = excluded.reserved_beta, reserved_tv = excluded.reserved_tv,
            mu = excluded.mu, beta = excluded.beta, tv = excluded.tv, certified_mu = excluded.certified_mu,
            certified_beta = excluded.certified_beta, certified_tv = excluded.certified_tv, status = excluded.status,
            settled_at = excluded.settled_at, note = excluded.note""",  # noqa: S608
        *fixed,
        *changing,
        entry.reserved_at,
        entry.settled_at,
        entry.note,
        entry.part,
        entry.known,
    )
