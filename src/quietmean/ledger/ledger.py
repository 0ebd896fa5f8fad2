"""The budget ledger: what was charged to a party's data over all studies, and what is left. One SQLite file.

An account is a data set with a budget, for one unit and neighbouring relation; an entry is a study that was charged to it, in the
three columns of :class:`~quietmean.privacy.Charge`, against the study's own adversary. A study is reserved, on disk, before its
first message leaves, at a bound on what it may cost, and settled with what it cost afterwards, so a crash can only leave too much
on the account, never too little. There is no way to take a reservation back: nobody can prove that nothing was sent.

The account is a privacy filter: whatever studies are chosen, also after the results of earlier ones, the budget holds at the end.
What is charged at a moment is no (epsilon, delta) of its own.

Several processes may use one ledger at once, on one machine (not over a network file system). The clock is an argument.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import filter as rules
from quietmean.ledger.account import Account, Budget, Freeze, LedgerEntry, Refund
from quietmean.ledger.database import Connect, LedgerDatabase
from quietmean.ledger.filter import SpendingRequest, StatedSpending
from quietmean.ledger.inputs import NO_INPUTS, Inputs
from quietmean.ledger.known_people import accounts_with, remember, sketches_of
from quietmean.ledger.people import Sketch
from quietmean.privacy.charge import Charge

_ENTRY = (
    "study, account, name, unit, relation, factor, refund, reserved_mu, reserved_beta, reserved_tv, mu, beta, tv, certified_mu, "
    "certified_beta, certified_tv, status, reserved_at, settled_at, note"
)
_BUDGET = "epsilon, delta, mu, set_at, additive_delta"
_FREEZE = "study, since, reason, lifted_at, lifted_reason"


class Ledger:
    """Use :meth:`open`, best in a ``with`` statement. What changes something is on disk when it returns."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database
        self._path = database.path

    @classmethod
    def open(cls, path: Path, *, create: bool = False, connect: Connect | None = None) -> Ledger:
        """Open a ledger. Raises :class:`InputError` if there is none (unless ``create``) or if it is of a newer version.

        A file of an older version is brought up to date, for good; its totals stay.
        """
        return cls(LedgerDatabase(path, create=create, connect=connect))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- accounts ----------------------------------------------------------------------------------------------------

    def set_budget(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        when: datetime,
        unit: PrivacyUnit | None = None,
        relation: Neighbouring | None = None,
        data_set: str | None = None,
        refund: Refund | None = None,
    ) -> Account:
        """Make an account, or change the budget of one.

        ``unit``, ``relation`` and ``data_set`` never change; a new account counts records under replacement, and its data set has
        its name. ``refund`` may change; studies that are reserved keep theirs. Raises :class:`InputError` for an empty name, an
        impossible budget, a unit, relation or data set other than the account's, a second account for the same three, or a
        smaller budget than what is charged to the account already.
        """
        if not name.strip():
            raise InputError("an account without a name cannot be found again: give it one")
        budget = Budget.of(epsilon, delta, _stamp(when))
        with self._database.transaction("IMMEDIATE"):
            if self._row_of(name) is None:
                kind = unit or PrivacyUnit.RECORD, relation or Neighbouring.REPLACEMENT
                self._make(name, data_set or name, *kind, refund or Refund.SETTLED)
            else:
                existing = self._account(name)
                rules.check_change(existing, budget, unit, relation, data_set)
                if refund is not None:
                    self._database.change("UPDATE account SET refund = ? WHERE name = ?", str(refund), name)
            last = self._database.row(
                "SELECT epsilon, delta, additive_delta FROM budget WHERE account = ? ORDER BY number DESC", name
            )
            if last != (epsilon, delta, budget.additive_delta):
                self._database.change(
                    f"INSERT INTO budget (account, {_BUDGET}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
                    name,
                    *astuple(budget),
                )
            return self._account(name)

    def accounts(self) -> tuple[Account, ...]:
        """All accounts by name, as of one instant."""
        with self._database.transaction("DEFERRED"):
            return tuple(self._account(name) for (name,) in self._database.rows("SELECT name FROM account ORDER BY name"))

    def account(self, name: str) -> Account:
        with self._database.transaction("DEFERRED"):
            return self._required_account(name)

    def trace(self, name: str) -> tuple[LedgerEntry, ...]:
        """The account's entries, in the order in which they were reserved."""
        return self.account(name).entries

    def remaining(self, name: str) -> tuple[float, float]:
        """(mu, epsilon at the account's delta) that a further study may cost; rounded down."""
        account = self.account(name)
        return account.remaining_mu, account.remaining_epsilon

    def lift(self, name: str, reason: str, *, when: datetime) -> Account:
        """Let studies be reserved again on a frozen account. The freeze stays in its history, with the reason given here.

        Raises :class:`InputError` for an account that is not frozen, or an empty reason.
        """
        if not reason.strip():
            raise InputError("a freeze is lifted for a reason only: say what was found out")
        stamp = _stamp(when)
        with self._database.transaction("IMMEDIATE"):
            if self._required_account(name).frozen is None:
                raise InputError(f"account {name!r} is not frozen: there is nothing to lift")
            self._database.change(
                "UPDATE freeze SET lifted_at = ?, lifted_reason = ? WHERE account = ? AND lifted_at IS NULL", stamp, reason, name
            )
            return self._account(name)

    def same_inputs(self, name: str, inputs: Inputs = NO_INPUTS) -> tuple[str, ...]:
        """The other accounts that were charged with a column that ``name`` was charged with, too, or with one of ``inputs``;
        or with some of its people.

        Two accounts for the same data are two budgets: together they allow more
        than either says.
        """
        with self._database.transaction("DEFERRED"):
            self._required_account(name)
            mine = {digest for (digest,) in self._database.rows(_DIGESTS_OF, name)} | set(self._digests(inputs))
            others = self._database.rows(
                "SELECT entry.account, input.digest FROM input JOIN entry USING (study) WHERE entry.account <> ?", name
            )
            same = {account for account, digest in others if digest in mine}
            for known in sketches_of(self._database, name):
                same |= {*accounts_with(self._database, known)} - {name}
            return tuple(sorted(same))

    def accounts_of(self, inputs: Inputs) -> tuple[str, ...]:
        """The accounts that were charged with one of these columns."""
        with self._database.transaction("DEFERRED"):
            mine = set(self._digests(inputs))
            charged = self._database.rows("SELECT entry.account, input.digest FROM input JOIN entry USING (study)")
            return tuple(sorted({account for account, digest in charged if digest in mine}))

    def accounts_with(self, people: Sketch) -> tuple[str, ...]:
        """The accounts that were charged with studies of some of these people: of 1 % of the smaller data set, 3 at least."""
        with self._database.transaction("DEFERRED"):
            return accounts_with(self._database, people)

    def people_of(self, name: str) -> tuple[Sketch, ...]:
        """What is known of an account's people; of each kind, and with each key."""
        with self._database.transaction("DEFERRED"):
            return sketches_of(self._database, name)

    def account_of(self, study: str) -> str | None:
        """The account that a study is charged to, if it is."""
        with self._database.transaction("DEFERRED"):
            entry = self._entry(study)
            return None if entry is None else entry.account

    def claim(self, name: str, text: str) -> None:
        """Remember what a person said of an account when it was made."""
        with self._database.transaction("IMMEDIATE"):
            self._required_account(name)
            self._database.change("INSERT OR IGNORE INTO fact VALUES (?, ?)", f"claim {name}", text.encode())

    def claims(self, name: str) -> str:
        """What a person said of the account when it was made, if anything."""
        with self._database.transaction("DEFERRED"):
            row = self._database.row("SELECT value FROM fact WHERE name = ?", f"claim {name}")
            return "" if row is None else bytes(row[0]).decode()

    # --- studies -----------------------------------------------------------------------------------------------------

    def reserve(
        self,
        account: str,
        study: str,
        charge: Charge,
        *,
        when: datetime,
        inputs: Inputs = NO_INPUTS,
        people: Sketch | None = None,
        **stated: Unpack[StatedSpending],
    ) -> LedgerEntry:
        """Charge a study before its first message is sent, at a bound on what it may cost whoever drops out or colludes.

        ``study`` identifies one execution with one noise. ``charge`` is for one ``unit`` under ``relation``; ``members``: so many
        units change together, for an account that counts per party, or a person who has so many records. ``refund``: false if the
        study gives nothing back. ``data_set``: which one it is about; checked if given. ``reason``: why no bound is known, for an
        infinite mu. ``inputs``: the columns that it uses, of which keyed digests are kept; ``people``: whose data they are.

        An account that counts add-remove takes a study of replacement, too: it counts that from then on, and what was charged to
        it before as two each.

        A second call for the same study charges nothing, with one exception: if it is not settled yet and ``charge`` is higher
        than before in some column, its entry is raised. Raises :class:`InputError` if the budget does not allow it; if mu is
        infinite; if the account is frozen, does not exist, is another data set's, or counts a unit or relation for which nothing
        follows from the study's; if another account is charged with the study; if it is settled and asks for more than was
        reserved.
        """
        request = SpendingRequest(study=study, charge=charge, **stated)
        stamp = _stamp(when)
        with self._database.transaction("IMMEDIATE"):
            payer, existing = self._for_relation(self._required_account(account), request.relation), self._entry(study)
            entry = rules.reserved(payer, existing, request, stamp, self._command(account))
            if entry is not existing:
                self._save(entry)
            for digest in self._digests(inputs):
                self._database.change("INSERT OR IGNORE INTO input VALUES (?, ?)", study, digest)
            if people is not None:
                remember(self._database, account, people)
            return entry

    def bind(self, study: str, content: bytes) -> None:
        """Remember, with a reserved study, the digest of the one thing that leaves for it; the same again changes nothing.

        Raises :class:`InputError` for another one, and for a study that was never reserved.
        """
        name = f"bound {study}"
        with self._database.transaction("IMMEDIATE"):
            if self._entry(study) is None:
                raise InputError(f"study {study} is not in ledger {self._path}: reserve it first")
            if self._database.row("SELECT 1 FROM fact WHERE name = ?", f"given back {study}") is not None:
                raise InputError(
                    f"study {study} was given back in ledger {self._path}, since nothing of it would ever leave: the party's "
                    "store is an older copy, it must not be restored"
                )
            bound = self._database.row("SELECT value FROM fact WHERE name = ?", name)
            if bound is not None and bytes(bound[0]) != content:
                raise InputError(
                    f"ledger {self._path} knows another contribution of this party to this study: each party contributes once, "
                    "a correction is a new study, charged anew"
                )
            self._database.change("INSERT OR IGNORE INTO fact VALUES (?, ?)", name, content)

    def give_back(self, study: str, *, when: datetime, note: str = "") -> bool:
        """Give all back that was reserved for a study of which nothing left and nothing ever will; idempotent.

        False for one of which something may have left: see :meth:`bind`. Raises :class:`InputError` for a study that was never
        reserved.
        """
        stamp = _stamp(when)
        with self._database.transaction("IMMEDIATE"):
            reserved = self._entry(study)
            if reserved is None:
                raise InputError(f"study {study} is not in ledger {self._path}: reserve it first")
            if self._database.row("SELECT 1 FROM fact WHERE name = ?", f"bound {study}") is not None:
                return False
            self._database.change("INSERT OR IGNORE INTO fact VALUES (?, ?)", f"given back {study}", b"")
            if reserved.settled:
                return True
            # Refunded also for studies that otherwise give nothing back.
            entry, _ = rules.settled(self._account(reserved.account), replace(reserved, refund=True), Charge(0.0), stamp, note)
            self._save(entry)
            return True

    def check(self, account: str, study: str, charge: Charge, **stated: Unpack[StatedSpending]) -> None:
        """Raise :class:`InputError` where :meth:`reserve` would; nothing is charged."""
        request = SpendingRequest(study=study, charge=charge, **stated)
        with self._database.transaction("DEFERRED"):
            payer = rules.for_relation(self._required_account(account), request.relation)
            rules.reserved(payer, self._entry(study), request, "", self._command(account))

    def settle(self, study: str, charge: Charge, *, when: datetime, note: str = "") -> LedgerEntry:
        """Replace what was reserved for a study by what it cost, for its own unit: less, unless it gives nothing back.

        After several calls the highest counts, column by column. More than was reserved contradicts that it was a bound: it is
        charged, and the account frozen until :meth:`lift`. Raises :class:`InputError` for a study that was never reserved.
        """
        stamp = _stamp(when)
        with self._database.transaction("IMMEDIATE"):
            reserved = self._entry(study)
            if reserved is None:
                raise InputError(f"study {study} is not in ledger {self._path}: reserve it first")
            entry, freeze = rules.settled(self._account(reserved.account), reserved, charge, stamp, note)
            if entry is not reserved:
                self._save(entry)
            if freeze is not None:
                self._database.change(
                    f"INSERT INTO freeze (account, {_FREEZE}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
                    reserved.account,
                    *astuple(freeze),
                )
            return entry

    # --- rows --------------------------------------------------------------------------------------------------------

    def _row_of(self, name: str) -> Any:
        return self._database.row("SELECT name, data_set, unit, relation, refund FROM account WHERE name = ?", name)

    def _account(self, name: str) -> Account:
        _, data_set, unit, relation, refund = self._row_of(name)
        budgets = self._database.rows(f"SELECT {_BUDGET} FROM budget WHERE account = ? ORDER BY number", name)  # noqa: S608
        entries = self._database.rows(f"SELECT {_ENTRY} FROM entry WHERE account = ? ORDER BY number", name)  # noqa: S608
        freezes = self._database.rows(f"SELECT {_FREEZE} FROM freeze WHERE account = ? ORDER BY number", name)  # noqa: S608
        return Account(
            name,
            data_set,
            PrivacyUnit(unit),
            Neighbouring(relation),
            Refund(refund),
            tuple(Budget(*row) for row in budgets),
            tuple(_entry_of(row) for row in entries),
            tuple(Freeze(*row) for row in freezes),
        )

    def _for_relation(self, account: Account, relation: Neighbouring) -> Account:
        """The account, in a form that takes studies under that relation; on disk, too."""
        changed = rules.for_relation(account, relation)
        if changed is not account:
            self._database.change("UPDATE account SET relation = ? WHERE name = ?", str(changed.relation), account.name)
            for entry in changed.entries:
                self._save(entry)
        return changed

    def _required_account(self, name: str) -> Account:
        if self._row_of(name) is None:
            accounts = (
                ", ".join(repr(account) for (account,) in self._database.rows("SELECT name FROM account ORDER BY name")) or "none"
            )
            raise InputError(
                f"account {name!r} is not in ledger {self._path} (it has {accounts}): name one of them, or make it with "
                f"{self._command(name)} --budget EPSILON DELTA"
            )
        return self._account(name)

    def _make(self, name: str, data_set: str, unit: PrivacyUnit, relation: Neighbouring, refund: Refund) -> None:
        twin = self._database.row(
            "SELECT name FROM account WHERE data_set = ? AND unit = ? AND relation = ?", data_set, str(unit), str(relation)
        )
        if twin is not None:
            raise InputError(
                f"data set {data_set!r} has a budget per {unit} under {relation} already, account {twin[0]!r}: use that one, as "
                "two accounts for one data set would be two budgets"
            )
        self._database.change(
            "INSERT INTO account (name, unit, data_set, relation, refund) VALUES (?, ?, ?, ?, ?)",
            name,
            str(unit),
            data_set,
            str(relation),
            str(refund),
        )

    def _entry(self, study: str) -> LedgerEntry | None:
        row = self._database.row(f"SELECT {_ENTRY} FROM entry WHERE study = ?", study)  # noqa: S608
        return None if row is None else _entry_of(row)

    def _save(self, entry: LedgerEntry) -> None:
        certified = (None, None, None) if entry.certified is None else astuple(entry.certified)
        fixed = (entry.study, entry.account, entry.name, str(entry.unit), str(entry.relation), entry.factor, entry.refund)
        changing = (*astuple(entry.reserved), *astuple(entry.charged), *certified, entry.status)
        self._database.change(
            f"""INSERT INTO entry ({_ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (study) DO UPDATE SET factor = excluded.factor,
                reserved_mu = excluded.reserved_mu, reserved_beta = excluded.reserved_beta, reserved_tv = excluded.reserved_tv,
                mu = excluded.mu, beta = excluded.beta, tv = excluded.tv, certified_mu = excluded.certified_mu,
                certified_beta = excluded.certified_beta, certified_tv = excluded.certified_tv, status = excluded.status,
                settled_at = excluded.settled_at, note = excluded.note""",  # noqa: S608
            *fixed,
            *changing,
            entry.reserved_at,
            entry.settled_at,
            entry.note,
        )

    def _digests(self, inputs: Inputs) -> tuple[bytes, ...]:
        return inputs.digests(self._database.row("SELECT value FROM fact WHERE name = 'key'")[0])

    def _command(self, account: str) -> str:
        return f"quietmean ledger --ledger {self._path} --account {account}"


_DIGESTS_OF = "SELECT input.digest FROM input JOIN entry USING (study) WHERE entry.account = ?"


def _entry_of(row: Any) -> LedgerEntry:
    study, account, name, unit, relation, factor, refund, *columns, status, reserved_at, settled_at, note = row
    reserved, charged, certified = (columns[first : first + 3] for first in (0, 3, 6))
    fixed = (study, account, name, PrivacyUnit(unit), Neighbouring(relation), factor, bool(refund))
    charges = (Charge(*reserved), Charge(*charged), None if certified[0] is None else Charge(*certified))
    return LedgerEntry(*fixed, *charges, status, reserved_at, settled_at, note)


def _stamp(when: datetime) -> str:
    if when.tzinfo is None:
        raise ValueError("a time without a time zone")
    return when.astimezone(UTC).isoformat(timespec="seconds")
