"""Whose data an account is about, and in which of its studies each person was: keyed digests, cut to 64 bits, keep nobody.

Of persons all digests are kept, 8 bytes each, so that who is known is found for certain: one digest in common is one person. The
key is in a file of its own and never in the ledger: who has both can test whether somebody with a known identifier is one of
the persons.

Who names no persons is known by whole rows, and only where nearly all of them differ. These are thinned out above a size, by a
threshold that is a power of two: a part of a data set is found in the whole and the other way round. That suggests an account to
a person, and proves nothing.

Persons of one account with the same studies are one group, with the numbers of these entries as its history. A study that is
known by another identifier, or by none, may be of anybody in the account that was named: it counts for all groups of others.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import filter as rules
from quietmean.ledger.account import OTHERS, Account, Budget, Freeze, LedgerEntry, Refund, Rule
from quietmean.ledger.database import BUDGET, ENTRY, FREEZE, LedgerDatabase, entry_of, save_entry
from quietmean.ledger.filter import SpendingRequest

Identities = NDArray[np.uint64]

PERSONS, ROWS = "person", "row"
# Persons of other accounts who took part in studies for which this one was named.
GUESTS = "guest"
# All digests are kept of so many rows; of more, between half as many and these.
MOST_KEPT: Final = 100_000
# From this part of the smaller data set on, and so many of its digests, an overlap of rows is reported.
LEAST_PART, LEAST_COMMON = 0.01, 3
# Rows tell data sets apart where at least this part of them is distinct.
DISTINCT_ROWS = 0.99
_LABELS = {PERSONS: b"quietmean-people-1", ROWS: b"quietmean-rows-1"}
_BYTES = 8
_KEY_LABEL = b"quietmean-people-key-1"


@dataclass(frozen=True, eq=False)
class Sketch:
    """A sketch of the people or rows of a data set, by which overlaps of data sets are estimated.

    ``kind``: of persons or of rows. ``key``: the name of the key, not the key. ``level``: digests below 2^(64 - level) are
    kept. ``members``: these, sorted and each once, (kept,). ``count``: about how many there are in all. ``identifier``: of which
    column under which key the digests are; empty where that is not known, and then nobody is proven to be absent.
    """

    kind: str
    key: bytes
    level: int
    members: Identities = field(repr=False)
    count: int
    identifier: bytes = b""

    @classmethod
    def of(cls, identities: Identities, kind: str, key: bytes, column: str = "") -> Sketch:
        """Make a sketch of persons or rows, given by 128 bits each, (units, 2). ``column``: the one that tells persons apart."""
        members = np.unique(digests_of(identities, kind, key))
        return cls(kind, name_of_key(key), 0, members, len(identities), name_of_key(key, column) if column else b"")._thinned()

    def joined(self, other: Sketch) -> Sketch:
        """Return a sketch of the persons of either: what an account is about after both were charged to it."""
        level = max(self.level, other.level)
        members = np.union1d(self.at(level), other.at(level))
        count = max(len(members) << level, self.count, other.count) if level else len(members)
        return Sketch(self.kind, self.key, level, members, count, self.identifier)._thinned()

    def common(self, other: Sketch) -> tuple[int, float]:
        """How many kept digests both have, and which part of the data set of which more is found in the other.

        Nothing in common with one of another kind or key: then nobody knows.
        """
        if not self.comparable(other):
            return 0, 0.0
        level = max(self.level, other.level)
        mine, others = self.at(level), other.at(level)
        both = len(in_both(mine, others))
        return both, both / max(min(len(mine), len(others)), 1)

    def overlaps(self, other: Sketch) -> bool:
        """Is a person in both? Or are so many rows that these are probably the same data, or a part of them?"""
        both, part = self.common(other)
        if self.kind == PERSONS:
            return both > 0
        return both >= LEAST_COMMON and part >= LEAST_PART

    def comparable(self, other: Sketch) -> bool:
        return (self.kind, self.key) == (other.kind, other.key)

    def at(self, level: int) -> Identities:
        """The digests that are kept at that level, at least this one's."""
        return self.members if not level else self.members[self.members < np.uint64(1 << (64 - level))]

    def _thinned(self) -> Sketch:
        if self.kind != ROWS:
            return self
        level = self.level
        while len(self.at(level)) > MOST_KEPT:
            level += 1
        return Sketch(self.kind, self.key, level, self.at(level), self.count)


def digests_of(identities: Identities, kind: str, key: bytes) -> Identities:
    """Return 64 bits for each person or row, (units,), from its 128 bits, (units, 2)."""
    words = np.ascontiguousarray(identities, dtype="<u8").tobytes()
    inputs = (words[start : start + 16] for start in range(0, len(words), 16))
    label = _LABELS[kind]
    digests = b"".join(hmac.digest(key, label + identity, hashlib.sha256)[:_BYTES] for identity in inputs)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def in_both(one: Identities, other: Identities) -> Identities:
    """Return what is in both of two sorted arrays of distinct digests."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    if not len(few):
        return few
    places = np.minimum(np.searchsorted(many, few), len(many) - 1)
    common: Identities = few[many[places] == few]
    return common


def name_of_key(key: bytes, column: str = "") -> bytes:
    """By which digests under the same key, of the same column, know each other; it says nothing about the key."""
    return hmac.digest(key, _KEY_LABEL + column.encode(errors="surrogatepass"), hashlib.sha256)[:_BYTES]


class Inputs:
    """The columns that a study uses, as pieces of shape (records, columns), one below the other; gone over once for each key."""

    def __init__(self, pieces: Iterable[Array] = ()) -> None:
        self._pieces = pieces
        self._digests: dict[bytes, tuple[bytes, ...]] = {}

    def digests(self, key: bytes) -> tuple[bytes, ...]:
        """HMAC-SHA256 of each column, without its name: one that was renamed is found, one that was sorted is not.

        A column of one value only is left out: many data sets have it.
        """
        if key not in self._digests:
            self._digests[key] = self._computed(key)
        return self._digests[key]

    def _computed(self, key: bytes) -> tuple[bytes, ...]:
        codes: list[hmac.HMAC] = []
        first, same = np.empty(0), np.empty(0, dtype=bool)
        for piece in self._pieces:
            if not len(piece):
                continue
            if not codes:
                codes = [hmac.new(key, b"quietmean-input-1", hashlib.sha256) for _ in piece.T]
                first, same = piece[0].copy(), np.ones(piece.shape[1], dtype=bool)
            same &= (piece == first).all(axis=0)
            for code, column in zip(codes, piece.T, strict=True):
                # Adding 0.0 makes the two zeros one.
                code.update(np.ascontiguousarray(column + 0.0, dtype="<f8").tobytes())
        return tuple(code.digest() for code, is_same in zip(codes, same, strict=True) if not is_same)


NO_INPUTS = Inputs()


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
            raise InputError("another study was charged to this ledger at the same moment. Give the same command again.")
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
        whose = persons.whose(payer, request, stamp, "quietmean site budget")
        if len(whose.silent):
            raise InputError(
                f"study {request.name!r} does not say whose data they are, and account {payer.name!r} has the "
                "persons. Name the column of persons, or another account."
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


def _budget_of(epsilon: float, delta: float, limit: float, set_at: str, additive_delta: float, rule: str) -> Budget:
    return Budget(float(epsilon), float(delta), float(limit), set_at, float(additive_delta), Rule(rule))
