"""The budget ledger: what was charged to a party's data over all studies, and what is left. One SQLite file.

An account is a data set with a budget, for one unit and neighbouring relation; an entry is a study that was charged to it, in the
three columns of :class:`~quietmean.privacy.Charge`, against the study's own adversary. A study is reserved, on disk, before its
first message leaves, at a bound on what it may cost, and settled with what it cost afterwards, so a crash can only leave too much
on the account, never too little. A reservation cannot be taken back: nobody can prove that nothing was sent.

The account is a privacy filter: whatever studies are chosen, also after the results of earlier ones, the budget holds at the end.
Where it is known whose data a study is of, the filter is that of each person: the study is charged to every account that has one
of them, and who has no room there takes part without a value. What is charged at a moment is no (epsilon, delta) of its own.

Several processes may use one ledger at once, on one machine (not over a network file system). The clock is an argument.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any, Self

import numpy as np

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import filter as rules
from quietmean.ledger.account import Account, Budget, LedgerEntry, Refund, Rule
from quietmean.ledger.database import BUDGET, FREEZE, Connect, LedgerDatabase, entries_of, is_there, required_entries, save_entry
from quietmean.ledger.filter import SpendingRequest
from quietmean.ledger.people import (
    NO_INPUTS,
    PERSONS,
    Identities,
    Inputs,
    Numbered,
    PersonsFilter,
    Sketch,
    accounts_with,
    guests_in,
    knows_all,
    read_account,
    remember,
    sketches_of,
)
from quietmean.privacy.charge import Charge

_NOBODY: Identities = np.empty(0, dtype=np.uint64)


class Ledger:
    """Use :meth:`open`, best in a ``with`` statement. What changes something is on disk when it returns."""

    def __init__(self, database: LedgerDatabase) -> None:
        self._database = database
        self._path = database.path

    @classmethod
    def open(cls, path: Path, *, create: bool = False, connect: Connect | None = None) -> Ledger:
        """Open a ledger. Raises :class:`InputError` if there is none (unless ``create``) or if it is of another version.

        An empty file is none: it stays as it is.
        """
        return cls(LedgerDatabase(path, create=create, connect=connect))

    @staticmethod
    def is_there(path: Path) -> bool:
        """Is there something to open? An empty file may be left by a process that ended while it made one."""
        return is_there(path)

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
        rule: Rule | None = None,
    ) -> Account:
        """Make an account, or change the budget of one.

        ``unit``, ``relation``, ``data_set`` and ``rule`` never change; a new account counts records under replacement, its data
        set has its name, and it adds up squares of mu. ``refund`` may change; studies that are reserved keep theirs. Raises
        :class:`InputError` for an empty name, an impossible budget, a unit, relation, data set or rule other than the account's,
        a second account for the same data set, unit and relation, or a smaller budget than what is charged to it already.
        """
        if not name.strip():
            raise InputError("an account without a name cannot be found again. Give it one.")
        with self._database.transaction("IMMEDIATE"):
            is_new = self._row_of(name) is None
            budget = Budget.of(epsilon, delta, _stamp(when), rule or (Rule.GAUSS if is_new else self._account(name).rule))
            if is_new:
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
                    f"INSERT INTO budget (account, {BUDGET}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
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
        """What the rule adds up, and the epsilon at the account's delta, that a further study may cost; rounded down."""
        account = self.account(name)
        return account.remaining, account.remaining_epsilon

    def lift(self, name: str, reason: str, *, when: datetime) -> Account:
        """Let studies be reserved again on a frozen account. The freeze stays in its history, with the reason given here.

        Raises :class:`InputError` for an account that is not frozen, or an empty reason.
        """
        if not reason.strip():
            raise InputError("a freeze is lifted for a reason only. Say what was found out.")
        stamp = _stamp(when)
        with self._database.transaction("IMMEDIATE"):
            if self._required_account(name).frozen is None:
                raise InputError(f"account {name!r} is not frozen. Leave lift out.")
            self._database.change(
                "UPDATE freeze SET lifted_at = ?, lifted_reason = ? WHERE account = ? AND lifted_at IS NULL", stamp, reason, name
            )
            return self._account(name)

    def same_inputs(self, name: str, inputs: Inputs = NO_INPUTS) -> tuple[str, ...]:
        """The other accounts that were charged with a column that ``name`` was charged with, too, or with one of ``inputs``;
        or with some of its people. Two accounts for the same data are two budgets: together they allow more than either says.
        """
        with self._database.transaction("DEFERRED"):
            self._required_account(name)
            mine = {digest for (digest,) in self._database.rows(_DIGESTS_OF, name)} | set(self._digests(inputs))
            others = self._database.rows(_CHARGED_WITH)
            same = {account for account, digest in others if digest in mine} - {name}
            for known in sketches_of(self._database, name):
                same |= {*accounts_with(self._database, known)} - {name}
            return tuple(sorted(same))

    def accounts_of(self, inputs: Inputs) -> tuple[str, ...]:
        """The accounts that were charged with one of these columns."""
        with self._database.transaction("DEFERRED"):
            mine = set(self._digests(inputs))
            charged = self._database.rows(_CHARGED_WITH)
            return tuple(sorted({account for account, digest in charged if digest in mine}))

    def accounts_with(self, people: Sketch) -> tuple[str, ...]:
        """The accounts that have one of these persons; or some of these rows, 1 % of the smaller data set, 3 at least."""
        with self._database.transaction("DEFERRED"):
            return accounts_with(self._database, people)

    def people_of(self, name: str) -> tuple[Sketch, ...]:
        """What is known of an account's people; of each kind, and with each key."""
        with self._database.transaction("DEFERRED"):
            return sketches_of(self._database, name)

    def knows_all(self, people: Sketch) -> bool:
        """Whether everybody of whom an account is about is known by the same identifier: who is not found is in none."""
        with self._database.transaction("DEFERRED"):
            names = [name for (name,) in self._database.rows("SELECT name FROM account")]
            return all(knows_all(self._database, name, self._numbered(name)[1], people) for name in names)

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
            with self._database.decoded():
                return "" if row is None else bytes(row[0]).decode()

    # --- studies -----------------------------------------------------------------------------------------------------

    def reserve(
        self,
        account: str,
        request: SpendingRequest,
        *,
        when: datetime,
        inputs: Inputs = NO_INPUTS,
        people: Sketch | None = None,
        silent: Identities | None = None,
    ) -> LedgerEntry:
        """Charge a study before its first message is sent, at a bound on what it may cost for any dropouts and coalition.

        ``inputs``: the columns that it uses, of which keyed digests are kept; ``people``: whose data they are. ``silent``: what
        :meth:`check` returned, who takes part without a value, (persons,).

        The same again changes nothing, unless it asks for more before it is settled, which is charged. Returns the entry of
        ``account``; accounts that have some of the people are charged, too. Raises :class:`InputError` if the budget does not
        allow it (where the people are known, that of somebody who is in no account yet); if mu is infinite; if the account is
        frozen, does not exist, is another data set's, or counts a unit or relation for which nothing follows from the study's; if
        another account was named for the study; if it is settled and asks for more than was reserved.
        """
        study, stamp, command = request.study, _stamp(when), self._command(account)
        with self._database.transaction("IMMEDIATE"):
            if before := self._before(request):
                self._give_back(before, stamp, "another store of this party takes part in its place: nothing left the first one")
            rules.take_seat(self._database, request)
            payer, existing = self._for_study(self._required_account(account), request), self._entry(study)
            known = None if people is None or people.kind != PERSONS else people
            if existing is None and known is not None:
                persons = PersonsFilter(self._database, known, self._numbered)
                whose = persons.whose(payer, request, stamp, command).without(_NOBODY if silent is None else silent)
                entry = replace(rules.asked(payer, None, request, stamp), known=known.identifier or None)
                save_entry(self._database, entry)
                persons.charge(whose, account, request, stamp)
            else:
                entry = rules.reserved(payer, existing, request, stamp, command)
                guests = [] if existing is not None else guests_in(self._database, payer, request, stamp, self._numbered)
                if entry is not existing:
                    save_entry(self._database, entry)
                    self._grow(request, account, stamp)
                for persons, whose in guests:
                    persons.charge(whose, account, request, stamp)
                if people is not None and existing is None:
                    remember(self._database, account, people)
            for digest in self._digests(inputs):
                self._database.change("INSERT OR IGNORE INTO input VALUES (?, ?)", study, digest)
            return entry

    def check(
        self,
        account: str,
        request: SpendingRequest,
        *,
        people: Sketch | None = None,
        opening: Account | None = None,
    ) -> Identities:
        """Return who of the people would take part without a value, (persons,): digests. Nothing is charged.

        ``opening``: the account, where it is yet to be made. Raises :class:`InputError` where :meth:`reserve` would.
        """
        study = request.study
        with self._database.transaction("DEFERRED"):
            self._before(request)
            virtual = opening if self._row_of(account) is None else None
            payer = rules.for_unit(self._required_account(account) if virtual is None else virtual, request)
            payer = rules.for_relation(payer, request.relation)
            existing, command = self._entry(study), self._command(account)

            def load(name: str) -> tuple[Account, Numbered]:
                return self._numbered(name) if virtual is None or name != account else (virtual, {})

            known = None if people is None or people.kind != PERSONS else PersonsFilter(self._database, people, load)
            if existing is None and known is not None:
                return known.whose(payer, request, "", command).silent
            rules.reserved(payer, existing, request, "", command)
            if existing is None:
                guests_in(self._database, payer, request, "", load)
            return _NOBODY if known is None else known.of_charged(study).silent

    def _before(self, request: SpendingRequest) -> list[LedgerEntry]:
        """Return what another store of the party has reserved for the same, if nothing of it has left and it has not ended.

        Raises :class:`InputError` where something may have left.
        """
        before = rules.in_seat(self._database, request)
        entries = [] if before is None else self._entries(before)
        if not entries or entries[0].settled:
            return []
        rules.refuse_second(self._database, entries[0])
        return entries

    def bind(self, study: str, content: bytes) -> None:
        """Remember, with a reserved study, the digest of the one thing that leaves for it; the same again changes nothing.

        Raises :class:`InputError` for another one, and for a study that was never reserved.
        """
        with self._database.transaction("IMMEDIATE"):
            required_entries(self._database, study)
            rules.bind(self._database, study, content)

    def give_back(self, study: str, *, when: datetime, note: str = "") -> bool:
        """Give all back that was reserved for a study of which nothing left and nothing ever will; idempotent.

        False for one of which something may have left: see :meth:`bind`. Raises :class:`InputError` for a study that was never
        reserved.
        """
        stamp = _stamp(when)
        with self._database.transaction("IMMEDIATE"):
            reserved = required_entries(self._database, study)
            if rules.is_bound(self._database, study):
                return False
            self._give_back(reserved, stamp, note)
            return True

    def _give_back(self, reserved: list[LedgerEntry], stamp: str, note: str) -> None:
        """Put nothing in place of what was reserved, whatever the protocol gives back, and let nothing leave any more."""
        rules.note_given_back(self._database, reserved[0].study)
        for each in reserved if not reserved[0].settled else ():
            entry, _ = rules.settled(self._account(each.account), replace(each, refund=True), Charge(0.0), stamp, note)
            save_entry(self._database, entry)

    def was_given_back(self, study: str) -> bool:
        """Return whether all of a study was given back, see :meth:`give_back`: it is never bound."""
        return rules.was_given_back(self._database, study)

    def settle(self, study: str, charge: Charge, *, when: datetime, note: str = "") -> LedgerEntry:
        """Replace what was reserved for a study by what it cost, for its own unit: less, unless it gives nothing back.

        After several calls the highest counts, column by column. More than was reserved contradicts that it was a bound: it is
        charged, and the account frozen until :meth:`lift`. Raises :class:`InputError` for a study that was never reserved.
        """
        stamp = _stamp(when)
        with self._database.transaction("IMMEDIATE"):
            reserved = required_entries(self._database, study)
            # The account that was named comes first, and it alone is frozen: persons of others do not pay for each other.
            settled = [rules.settled(self._account(each.account), each, charge, stamp, note) for each in reserved]
            for each, _ in settled:
                save_entry(self._database, each)
            entry, freeze = settled[0]
            if freeze is not None:
                self._database.change(
                    f"INSERT INTO freeze (account, {FREEZE}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
                    entry.account,
                    *astuple(freeze),
                )
            return entry

    # --- rows --------------------------------------------------------------------------------------------------------

    def _row_of(self, name: str) -> Any:
        return self._database.row("SELECT name, data_set, unit, relation, refund FROM account WHERE name = ?", name)

    def _account(self, name: str) -> Account:
        return self._numbered(name)[0]

    def _numbered(self, name: str) -> tuple[Account, Numbered]:
        return read_account(self._database, name)

    def _grow(self, request: SpendingRequest, named: str, stamp: str) -> None:
        """The other accounts that are charged with a study which asks for more. Raises :class:`InputError` without room."""
        for each in self._entries(request.study):
            if each.account != named:
                account = self._account(each.account)
                save_entry(self._database, rules.reserved(account, each, request, stamp, self._command(each.account)))

    def _for_study(self, account: Account, request: SpendingRequest) -> Account:
        """The account, in a form that takes studies of that unit and under that relation; on disk, too."""
        changed = rules.for_relation(rules.for_unit(account, request), request.relation)
        if changed is not account:
            about = str(changed.unit), str(changed.relation)
            self._database.change("UPDATE account SET unit = ?, relation = ? WHERE name = ?", *about, account.name)
            for entry in changed.entries:
                save_entry(self._database, entry)
        return changed

    def _required_account(self, name: str) -> Account:
        if self._row_of(name) is None:
            accounts = (
                ", ".join(repr(account) for (account,) in self._database.rows("SELECT name FROM account ORDER BY name")) or "none"
            )
            raise InputError(
                f"account {name!r} is not in ledger {self._path} (it has {accounts}). Name one of them, or make it with "
                f"{self._command(name)} --budget EPSILON DELTA."
            )
        return self._account(name)

    def _make(self, name: str, data_set: str, unit: PrivacyUnit, relation: Neighbouring, refund: Refund) -> None:
        twin = self._database.row(
            "SELECT name FROM account WHERE data_set = ? AND unit = ? AND relation = ?", data_set, str(unit), str(relation)
        )
        if twin is not None:
            raise InputError(
                f"data set {data_set!r} has a budget per {unit} under {relation} already, account {twin[0]!r}. Use that account. "
                "Two accounts for one data set would be two budgets."
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
        """Return the entry of the account that was named for the study."""
        return next(iter(self._entries(study)), None)

    def _entries(self, study: str) -> list[LedgerEntry]:
        return entries_of(self._database, study)

    def _digests(self, inputs: Inputs) -> tuple[bytes, ...]:
        row = self._database.row("SELECT value FROM fact WHERE name = 'key'")
        with self._database.decoded():
            return inputs.digests(row[0])

    def _command(self, account: str) -> str:
        return f"quietmean site budget --ledger {quote(str(self._path))} --account {quote(account)}"


# Of accounts that were named, and not of those that have some of a study's persons.
_NAMED = "FROM input JOIN entry USING (study) WHERE ifnull(entry.known, x'') <> x'2a'"
_CHARGED_WITH = f"SELECT entry.account, input.digest {_NAMED}"
_DIGESTS_OF = f"SELECT input.digest {_NAMED} AND entry.account = ?"


def _stamp(when: datetime) -> str:
    if when.tzinfo is None:
        raise ValueError("a time without a time zone")
    return when.astimezone(UTC).isoformat(timespec="seconds")
