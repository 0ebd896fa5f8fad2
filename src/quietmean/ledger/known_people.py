"""Which persons an account is about, and which of its studies each of them was in: sketches in a ledger's file.

Persons of one account with the same studies are one group, with the numbers of these entries as its history. A study that is
known by another identifier, or by none, may be of anybody in the account that was named: it counts for all groups of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import filter as rules
from quietmean.ledger.account import OTHERS, Account, Budget, Freeze, LedgerEntry, Refund
from quietmean.ledger.database import BUDGET, ENTRY, FREEZE, LedgerDatabase, entry_of, save_entry
from quietmean.ledger.filter import SpendingRequest
from quietmean.ledger.people import GUESTS, PERSONS, Identities, Sketch, in_both

# Entries of one account, by their numbers.
Numbered: TypeAlias = dict[int, LedgerEntry]
_COLUMNS = "account, kind, key, identifier, history, level, count, members"
_NOBODY: Identities = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class Cohort:
    """Persons of an ``account`` with the same ``history``, the numbers of entries; or the rows of a data set, without one."""

    account: str
    sketch: Sketch
    history: frozenset[int] = frozenset()


def groups(database: LedgerDatabase, where: str, *arguments: object) -> Iterator[Cohort]:
    for row in database.rows(f"SELECT {_COLUMNS} FROM people WHERE {where} ORDER BY rowid", *arguments):  # noqa: S608
        # Not while it waits for its caller, whose errors are others.
        with database.decoded():
            group = _cohort(*row)
        yield group


def sketches_of(database: LedgerDatabase, account: str) -> tuple[Sketch, ...]:
    return tuple(group.sketch for group in groups(database, "account = ? AND kind <> ?", account, GUESTS))


def remember(database: LedgerDatabase, account: str, sketch: Sketch) -> None:
    """The account is about these people, too: whichever of its studies they were in."""
    _add(database, Cohort(account, sketch))


def accounts_with(database: LedgerDatabase, sketch: Sketch) -> tuple[str, ...]:
    """The accounts with people of the sketch."""
    comparable = groups(database, "kind = ? AND key = ?", sketch.kind, sketch.key)
    return tuple(sorted({group.account for group in comparable if group.sketch.overlaps(sketch)}))


def common(entries: Numbered, identifier: bytes) -> frozenset[int]:
    """Return the studies that may be of anybody of whom this identifier is known."""
    return frozenset(
        number for number, entry in entries.items() if entry.known is None or entry.known not in (OTHERS, identifier)
    )


def shares(database: LedgerDatabase, account: str, entries: Numbered) -> tuple[frozenset[str], ...]:
    """Return the different sets of studies that persons of the account were in; none where nothing says whose data they are."""
    rows = database.rows("SELECT DISTINCT identifier, history FROM people WHERE account = ? AND kind = ?", account, PERSONS)
    named = {entry.known for entry in entries.values() if entry.known not in (None, OTHERS)}
    histories = {(bytes(identifier), _read(history)) for identifier, history in rows}
    histories |= {(identifier, frozenset()) for identifier in named if identifier is not None}
    sets = {common(entries, identifier) | history for identifier, history in histories}
    return tuple(frozenset(entries[number].study for number in numbers) for numbers in sorted(sets, key=sorted))


def knows_all(database: LedgerDatabase, account: str, entries: Numbered, people: Sketch) -> bool:
    """Whether all studies and persons of an account are known by the identifier of the people, and none by a part of them."""
    if any(entry.known not in (OTHERS, people.identifier) for entry in entries.values()):
        return False
    sketches = [group.sketch for group in groups(database, "account = ? AND kind <> ?", account, GUESTS)]
    return all((known.kind, known.identifier, known.level) == (PERSONS, people.identifier, 0) for known in sketches)


@dataclass(frozen=True, eq=False)
class Whose:
    """Whose budgets a study is charged to. ``known``: groups, and who of each takes part with a value; ``fresh``: who is in no
    account yet; ``silent``: who takes part without a value, since an account of theirs has no room."""

    known: Sequence[tuple[Cohort, Identities]]
    fresh: Identities = field(repr=False)
    silent: Identities = field(repr=False)

    def without(self, silent: Identities) -> Whose:
        """Return these groups with ``silent`` taking part without a value.

        Raises :class:`InputError` where others have no room.
        """
        if len(np.setdiff1d(self.silent, silent)):
            raise InputError("another study was charged to this ledger at the same moment: give the same command again")
        known = [(group, np.setdiff1d(present, silent)) for group, present in self.known]
        return Whose([each for each in known if len(each[1])], np.setdiff1d(self.fresh, silent), silent)


class PersonsFilter:
    """The privacy filter of each person by itself: what a person was charged decides about this person alone.

    ``load``: an account by its name, with its entries by their numbers.
    """

    def __init__(self, database: LedgerDatabase, people: Sketch, load: Callable[[str], tuple[Account, Numbered]]) -> None:
        self._database, self._people, self._load = database, people, cache(load)

    def whose(self, main: Account, request: SpendingRequest, stamp: str, command: str) -> Whose:
        """Who of the people has room, where the study is charged to ``main``.

        Raises :class:`InputError` only where somebody who is in no account yet could not pay.
        """
        wanted = rules.asked(main, None, request, stamp)
        rules.require_room(main, wanted, request, command, [()])
        asked: dict[str, tuple[Account, LedgerEntry | None]] = {main.name: (main, wanted)}

        def has_room(name: str, identifier: bytes, history: frozenset[int]) -> bool:
            if name not in asked:
                account = self._load(name)[0]
                asked[name] = account, _wanted(account, request, stamp)
            account, entry = asked[name]
            entries = self._load(name)[1]
            studies = frozenset(entries[number].study for number in history | common(entries, identifier))
            return entry is not None and rules.has_room(account, entry, account.share(studies))

        known, found, silent = [], [_NOBODY], [_NOBODY]
        for group, present in self._present():
            found.append(present)
            if has_room(group.account, group.sketch.identifier, group.history):
                known.append((group, present))
            else:
                silent.append(present)
        fresh = np.setdiff1d(self._people.members, np.concatenate(found))
        if not has_room(main.name, self._people.identifier, frozenset()):
            silent.append(fresh)
        everybody = np.unique(np.concatenate(silent))
        return Whose(known, fresh, everybody).without(everybody)

    def of_charged(self, study: str) -> Whose:
        """Return whose budgets a study was charged to already: who was not charged for it takes part without a value."""
        numbers = {number for (number,) in self._database.rows("SELECT number FROM entry WHERE study = ?", study)}
        charged = [present for group, present in self._present() if group.history & numbers]
        return Whose((), _NOBODY, np.setdiff1d(self._people.members, np.concatenate([_NOBODY, *charged])))

    def charge(self, whose: Whose, main: str, request: SpendingRequest, stamp: str) -> None:
        """Charge the study to their other accounts, and remember that they were in it. ``main`` has its entry."""
        for name in {group.account for group, _ in whose.known} - {main}:
            if self._number(request.study, name) is None:
                wanted = rules.asked(self._load(name)[0], None, request, stamp)
                save_entry(self._database, replace(wanted, known=OTHERS))
        numbers = dict(self._database.rows("SELECT account, number FROM entry WHERE study = ?", request.study))
        for group, present in whose.known:
            history = group.history | {numbers[group.account]}
            if group.sketch.identifier != self._people.identifier:
                history |= common(self._load(group.account)[1], group.sketch.identifier)
            self._take(group, present)
            self._put(group.account, present, history)
        if len(whose.fresh):
            self._put(main, whose.fresh, frozenset({numbers[main]}))
        guests = [present for group, present in whose.known if group.account != main]
        if guests:
            members = np.unique(np.concatenate(guests))
            sketch = replace(self._people, kind=GUESTS, members=members, count=len(members))
            _add(self._database, Cohort(main, sketch))

    def _number(self, study: str, account: str) -> Any:
        return self._database.row("SELECT number FROM entry WHERE study = ? AND account = ?", study, account)

    def _present(self) -> list[tuple[Cohort, Identities]]:
        """The groups that have persons of the people, and which."""
        comparable = groups(self._database, "kind = ? AND key = ?", PERSONS, self._people.key)
        both = ((group, in_both(group.sketch.members, self._people.members)) for group in comparable)
        return [(group, present) for group, present in both if len(present)]

    def _take(self, group: Cohort, gone: Identities) -> None:
        """These persons are in the group no more. What was left of it may have changed since it was read."""
        where = "account = ? AND kind = ? AND key = ? AND identifier = ? AND history = ?"
        place = _place(group)
        for current in list(groups(self._database, where, *place)):
            left = np.setdiff1d(current.sketch.members, gone)
            self._database.change(f"DELETE FROM people WHERE {where}", *place)  # noqa: S608
            if len(left):
                _write(self._database, replace(current, sketch=replace(current.sketch, members=left, count=len(left))))

    def _put(self, account: str, members: Identities, history: frozenset[int]) -> None:
        people = self._people
        sketch = Sketch(PERSONS, people.key, 0, members, len(members), people.identifier)
        _add(self._database, Cohort(account, sketch, history))


def guests_in(
    database: LedgerDatabase,
    payer: Account,
    request: SpendingRequest,
    stamp: str,
    load: Callable[[str], tuple[Account, Numbered]],
) -> list[tuple[PersonsFilter, Whose]]:
    """Return the persons of other accounts who may be in a study of ``payer`` that does not say whose data they are.

    Raises :class:`InputError` where one of them has no room: nobody can tell who would have to take part without a value.
    """
    found = []
    for guests in groups(database, "account = ? AND kind = ?", payer.name, GUESTS):
        persons = PersonsFilter(database, replace(guests.sketch, kind=PERSONS), load)
        whose = persons.whose(payer, request, stamp, "quietmean ledger")
        if len(whose.silent):
            raise InputError(
                f"study {request.name!r} does not say whose data they are. Persons of account {payer.name!r} have no room in "
                "another account: name the column of persons, or another account"
            )
        others = [(group, present) for group, present in whose.known if group.account != payer.name]
        found.append((persons, Whose(others, _NOBODY, _NOBODY)))
    return found


def _wanted(account: Account, request: SpendingRequest, stamp: str) -> LedgerEntry | None:
    """The entry that the study asks of the account; None where the account takes none of its kind."""
    try:
        return None if account.frozen is not None else rules.asked(account, None, request, stamp)
    except InputError:
        return None


def _add(database: LedgerDatabase, group: Cohort) -> None:
    place = _place(group)
    where = "account = ? AND kind = ? AND key = ? AND identifier = ? AND history = ?"
    for known in list(groups(database, where, *place)):
        group = replace(group, sketch=known.sketch.joined(group.sketch))
    _write(database, group)


def _write(database: LedgerDatabase, group: Cohort) -> None:
    sketch = group.sketch
    members = sketch.members.astype("<u8").tobytes()
    database.change(
        f"INSERT OR REPLACE INTO people ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        *_place(group),
        sketch.level,
        sketch.count,
        members,
    )


def _place(group: Cohort) -> tuple[str, str, bytes, bytes, str]:
    history = ",".join(map(str, sorted(group.history)))
    return group.account, group.sketch.kind, group.sketch.key, group.sketch.identifier, history


def _read(history: str) -> frozenset[int]:
    return frozenset(map(int, history.split(","))) if history else frozenset()


def _cohort(account: str, kind: str, key: bytes, identifier: bytes, history: str, level: int, count: int, members: bytes) -> Any:
    numbers = np.frombuffer(members, dtype="<u8").astype(np.uint64)
    return Cohort(account, Sketch(kind, bytes(key), level, numbers, count, bytes(identifier)), _read(history))


def read_account(database: LedgerDatabase, name: str) -> tuple[Account, Numbered]:
    """Return the account, and its entries by their numbers. Raises :class:`InputError` for a file that is damaged."""
    budgets = database.rows(f"SELECT {BUDGET} FROM budget WHERE account = ? ORDER BY number", name)  # noqa: S608
    rows = database.rows(f"SELECT number, {ENTRY} FROM entry WHERE account = ? ORDER BY number", name)  # noqa: S608
    freezes = database.rows(f"SELECT {FREEZE} FROM freeze WHERE account = ? ORDER BY number", name)  # noqa: S608
    about = database.row("SELECT data_set, unit, relation, refund FROM account WHERE name = ?", name)
    with database.decoded():
        data_set, unit, relation, refund = about
        if not budgets:
            raise ValueError("an account is made with its budget")
        entries = {number: entry_of(row) for number, *row in rows}
        account = Account(
            name,
            data_set,
            PrivacyUnit(unit),
            Neighbouring(relation),
            Refund(refund),
            tuple(_budget_of(*row) for row in budgets),
            tuple(entries.values()),
            tuple(Freeze(*row) for row in freezes),
            shares(database, name, entries),
        )
    return account, entries


def _budget_of(epsilon: float, delta: float, mu: float, set_at: str, additive_delta: float) -> Budget:
    return Budget(float(epsilon), float(delta), float(mu), set_at, float(additive_delta))
