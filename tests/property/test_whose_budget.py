"""Whose budget a study is charged to: a year of exports, and what each person really lost, added up apart from the ledger.

An export has some persons of before and some new ones; it is charged to an account that is there or to one beside it, by records
or by persons; some studies say nothing about whose data they are. Nobody's loss is ever above the budget, and whether somebody is
in the exports makes no difference to anybody else. Wrong ledgers must be found out by the same checks.
"""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import Ledger, SpendingRequest, people
from quietmean.ledger import filter as rules
from quietmean.ledger.people import PERSONS, Identities, Sketch, digests_of, in_both, name_of_key
from quietmean.privacy import Charge, mu_of_budget

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
KEY = bytes(range(32))
EPSILON, DELTA = 2.0, 1e-6
PERSONS_IN_ALL = 24
# Of each person, 128 bits.
WORDS = np.random.default_rng(5).integers(1, 2**63, (5000, 2)).astype(np.uint64)
DIGESTS = digests_of(WORDS, PERSONS, KEY)
Mutant = Callable[[pytest.MonkeyPatch], None]


def sketch(persons: list[int], column: str = "pid", key: bytes = KEY) -> Sketch:
    return Sketch.of(WORDS[persons], PERSONS, key, column)


def delta_of(costs: list[Charge]) -> float:
    """What the studies of one person come to at the budget's epsilon."""
    mu = math.sqrt(sum(cost.mu**2 for cost in costs))
    gaussian = 0.0 if not mu else norm.cdf(-EPSILON / mu + mu / 2) - math.exp(EPSILON) * norm.cdf(-EPSILON / mu - mu / 2)
    return float(gaussian) + sum(cost.beta + (1 + math.exp(EPSILON)) * cost.tv for cost in costs)


@dataclass(frozen=True)
class Export:
    """One study: who is in it, which account is named, what one unit of it costs, and how many of them are one person's."""

    study: str
    persons: tuple[int, ...]
    account: str
    charge: Charge
    members: int
    column: str | None
    refund: float | None


def exports(seed: int, weeks: int = 52, *, unknown: bool = True) -> list[Export]:
    rng = random.Random(seed)
    accounts = ["wards"]
    out = []
    for week in range(weeks):
        count = rng.choice([0, 1, 2, 5, 12])
        # Of one account columns may change; of several, another column proves nothing, and the ledger does not say that it does.
        if seed % 2 and rng.random() < 0.3:
            accounts.append(f"wards/{len(accounts) + 1}")
        column = (
            None
            if unknown and rng.random() < 0.1
            else rng.choice(["pid", "pid", "pid", "insurance"] if unknown and not seed % 2 else ["pid"])
        )
        cost = Charge(rng.choice([0.05, 0.1, 0.15, 0.2]), rng.choice([0.0, 0.0, 1e-9]), rng.choice([0.0, 1e-10]))
        members = rng.choice([1, 1, 2])
        cost = cost if members == 1 else Charge(cost.mu, 0.0, cost.tv)
        persons = tuple(rng.sample(range(PERSONS_IN_ALL), count))
        refund = rng.choice([None, None, 1.0, 0.5])
        out.append(Export(f"s{week}", persons, rng.choice(accounts), cost, members, column, refund))
    return out


@dataclass
class Year:
    """What became of the exports: what each person really lost, who was silent in each, and which ones were refused."""

    costs: dict[int, list[Charge]] = field(default_factory=dict)
    silent: list[frozenset[int]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    worst: float = 0.0

    @classmethod
    def of(cls, path: Path, all_exports: list[Export], without: int | None = None) -> Year:
        year = cls()
        members: dict[str, set[int]] = {}
        with Ledger.open(path, create=True) as book:
            for export in all_exports:
                persons = [person for person in export.persons if person != without]
                year._take(book, export, persons, members)
        return year

    def _take(self, book: Ledger, export: Export, persons: list[int], members: dict[str, set[int]]) -> None:
        if export.account not in [account.name for account in book.accounts()]:
            book.set_budget(export.account, EPSILON, DELTA, when=NOON, unit=PrivacyUnit.PERSON)
        people = None if export.column is None else sketch(persons, export.column)
        rules: Any = {"unit": PrivacyUnit.RECORD, "members": export.members, "counts": PrivacyUnit.PERSON}
        request = SpendingRequest(export.study, export.study, export.charge, **rules)
        here = members.setdefault(export.account, set())
        try:
            none = book.check(export.account, request, people=people)
            book.reserve(export.account, request, when=NOON, people=people, silent=none)
        except InputError:
            self.refused.append(export.study)
            return
        quiet = frozenset(person for person in persons if DIGESTS[person] in set(none.tolist()))
        self.silent.append(quiet)
        # Of a study that does not say whose data they are: anybody in the account, as who named it says.
        touched = here if people is None else set(persons) - quiet
        cost = Charge(export.charge.mu * export.members, export.charge.beta, export.charge.tv)
        if export.refund is not None:
            given = Charge(export.charge.mu * export.refund, export.charge.beta * export.refund, export.charge.tv * export.refund)
            book.settle(export.study, given, when=NOON)
            cost = Charge(cost.mu * export.refund, given.beta, given.tv)
        for person in touched:
            self.costs.setdefault(person, []).append(cost)
        here |= set(persons) - quiet if people is not None else set()
        self.worst = max([self.worst, *(delta_of(self.costs[person]) for person in touched)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_nobody_loses_more_than_the_budget_in_a_year_of_exports(tmp_path: Path, seed: int) -> None:
    year = Year.of(tmp_path / "ledger", exports(seed))
    print(f"seed {seed}: worst {year.worst / DELTA:.4f} of delta, {len(year.refused)} refused")
    assert year.worst <= DELTA * (1 + 1e-9)
    # It is a year in which budgets end.
    assert any(year.silent)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [3, 1, 2, 5, 7, 9])
def test_nobodys_presence_decides_about_anybody_else(tmp_path: Path, seed: int) -> None:
    """Neighbours: the same exports without one person. Nothing is refused for it, and the same others have no value."""
    known = exports(seed, weeks=30, unknown=False)
    everybody = Year.of(tmp_path / "all", known)
    assert any(everybody.silent)
    for person in range(0, PERSONS_IN_ALL, 7):
        less = Year.of(tmp_path / f"without {person}", known, without=person)
        assert less.refused == everybody.refused
        assert less.silent == [silent - {person} for silent in everybody.silent]


def guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known from three persons and 1 % on, as a suggestion is."""
    monkeypatch.setattr(people, "in_both", lambda a, b: both if len(both := in_both(a, b)) >= 3 else both[:0])


def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies that say nothing about whose data they are count for nobody."""
    monkeypatch.setattr(people, "common", lambda entries, identifier: frozenset())


def anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody has room."""
    monkeypatch.setattr(rules, "has_room", lambda account, wanted, path: True)


def unmarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was in another account's export is charged in its own account, but not marked as charged."""
    right = people.PersonsFilter.charge

    def charge(self: Any, whose: people.Whose, *named: Any) -> None:
        right(self, people.Whose([], whose.fresh, whose.silent), *named)

    monkeypatch.setattr(people.PersonsFilter, "charge", charge)


def one_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person with several records pays for one."""
    monkeypatch.setattr(Charge, "of_group", lambda self, members, epsilon=None: self)


@pytest.mark.parametrize("mutant", [guessed, forgotten, anybody, unmarked, one_unit])
def test_wrong_ledgers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Mutant) -> None:
    mutant(monkeypatch)
    years = (Year.of(tmp_path / f"{seed}", exports(seed)) for seed in range(12))
    assert any(year.worst > DELTA * (1 + 1e-9) for year in years)


@pytest.mark.slow
def test_an_account_without_room_for_all_would_be_seen_by_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong ledger whose accounts, and not persons, have room: somebody's presence decides about others."""
    right = people.PersonsFilter.whose

    def whose(self: Any, main: Any, request: Any, stamp: str, command: str) -> people.Whose:
        mine = right(self, main, request, stamp, command)
        full = {name for name in {group.account for group, _ in mine.known} if not _room(self._load(name)[0], request, stamp)}
        more: list[Identities] = [present for group, present in mine.known if group.account in full]
        return mine.without(np.unique(np.concatenate([mine.silent, *more])))

    monkeypatch.setattr(people.PersonsFilter, "whose", whose)
    for seed in (3, 1, 5, 7):
        some = exports(seed, weeks=30, unknown=False)
        everybody = Year.of(tmp_path / f"all {seed}", some)
        for person in range(0, PERSONS_IN_ALL, 3):
            less = Year.of(tmp_path / f"{seed} without {person}", some, without=person)
            if less.silent != [silent - {person} for silent in everybody.silent]:
                return
    pytest.fail("nobody's presence decided about others")


def _room(account: Any, request: Any, stamp: str) -> bool:
    return rules.has_room(account, rules.asked(account, None, request, stamp), account.entries)


def many(first: int, count: int) -> Sketch:
    """Digests of so many persons, the same whenever they are asked for."""
    members = np.unique(np.random.default_rng(first).integers(0, 2**64, count, dtype=np.uint64))
    return Sketch(PERSONS, name_of_key(KEY), 0, members, count, name_of_key(KEY, "pid"))


def reserve(
    book: Ledger, account: str, study: str, people: Sketch, mu: float = 0.1, counts: PrivacyUnit = PrivacyUnit.PERSON
) -> int:
    """How many take part without a value."""
    request = SpendingRequest(study, study, Charge(mu), unit=counts, counts=counts)
    silent = book.check(account, request, people=people)
    book.reserve(account, request, when=NOON, people=people, silent=silent)
    return len(silent)


@pytest.mark.slow
def test_one_of_two_thousand_is_found_among_a_million_in_ten_bytes_each(tmp_path: Path) -> None:
    find_one_of_two_thousand(tmp_path / "ledger", 10**6, draws=20)


def test_one_of_two_thousand_is_found_in_ten_bytes_each(tmp_path: Path) -> None:
    find_one_of_two_thousand(tmp_path / "ledger", 10**5, draws=2)


def find_one_of_two_thousand(path: Path, known_persons: int, draws: int) -> None:
    with Ledger.open(path, create=True) as book:
        for name in ("wards", "new"):
            book.set_budget(name, EPSILON, DELTA, when=NOON, unit=PrivacyUnit.PERSON)
        everybody = many(1, known_persons)
        assert reserve(book, "wards", "first", everybody) == 0
        (known,) = book.people_of("wards")
        assert len(known.members) == known_persons
        for draw in range(draws):
            one = everybody.members[draw * 4_999 : draw * 4_999 + 1]
            members = np.union1d(many(100 + draw, 1999).members, one)
            export = Sketch(PERSONS, everybody.key, 0, members, 2000, everybody.identifier)
            assert book.accounts_with(export)[-1] == "wards"
            assert reserve(book, "new", f"week {draw}", export, mu=0.01) == 0
            assert f"week {draw}" in [entry.study for entry in book.account("wards").entries]
        persons = sum(len(each.members) for name in ("wards", "new") for each in book.people_of(name))
    with sqlite3.connect(path) as database:
        database.execute("VACUUM")
    database.close()
    assert persons == known_persons + draws * 1999
    assert path.stat().st_size <= 10 * persons


def test_a_thousand_exports_of_others_are_charged_to_nobody_else(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", create=True) as book:
        for name in ("wards", "new"):
            book.set_budget(name, EPSILON, DELTA, when=NOON, unit=PrivacyUnit.PERSON)
        reserve(book, "wards", "first", many(1, 10**5))
        assert [book.accounts_with(many(100 + week, 100)) for week in range(1000)] == [()] * 1000
        # Each costs all that there is, and is of others than the last one: nobody lacks room.
        most = book.account("new").remaining
        assert [reserve(book, "new", f"week {week}", many(100 + week, 100), mu=most) for week in range(30)] == [0] * 30
        assert len(book.account("wards").entries) == 1


def test_an_account_says_its_unit_from_the_first_study_on_and_never_mixes(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", create=True) as book:
        book.set_budget("wards", EPSILON, DELTA, when=NOON)
        book.set_budget("records", EPSILON, DELTA, when=NOON)
        assert reserve(book, "wards", "a", sketch([1, 2])) == 0
        assert book.account("wards").unit == PrivacyUnit.PERSON
        book.reserve("records", SpendingRequest("b", "b", Charge(0.1)), when=NOON)
        with pytest.raises(InputError, match=r"account 'records' counts records.*--new-account.*an account never mixes units"):
            reserve(book, "records", "c", sketch([3]))
        with pytest.raises(InputError, match="protects one record, account 'wards' counts per person"):
            book.reserve("wards", SpendingRequest("d", "d", Charge(0.1)), when=NOON)


@pytest.mark.parametrize("members", [0, 1, 2])
def test_a_file_with_nobody_or_the_only_person_is_charged_like_any_other(tmp_path: Path, members: int) -> None:
    """What is charged to the account that was named, and what is left for somebody else, is the same."""
    with Ledger.open(tmp_path / "ledger", create=True) as book:
        book.set_budget("wards", EPSILON, DELTA, when=NOON, unit=PrivacyUnit.PERSON)
        most = book.account("wards").remaining
        assert reserve(book, "wards", "a", sketch(list(range(members))), mu=most) == 0
        assert reserve(book, "wards", "b", sketch([7]), mu=most) == 0
        # Who was in both lacks room, and is alone with that.
        assert reserve(book, "wards", "c", sketch([0, 7, 8]), mu=most) == (2 if members else 1)
        assert [entry.study for entry in book.account("wards").entries] == ["a", "b", "c"]


def test_a_restart_has_the_same_persons_without_a_value(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", create=True) as book:
        book.set_budget("wards", EPSILON, DELTA, when=NOON, unit=PrivacyUnit.PERSON)
        most = book.account("wards").remaining
        reserve(book, "wards", "a", sketch([0, 1]), mu=most)
        for _ in range(2):
            assert reserve(book, "wards", "b", sketch([1, 2, 3]), mu=most) == 1
        # Somebody who was not in the file at first was never charged for it.
        assert reserve(book, "wards", "b", sketch([1, 2, 3, 4]), mu=most) == 2
        assert book.account("wards").charged_mu == most


def test_people_of_another_key_or_column_are_never_taken_for_others(tmp_path: Path) -> None:
    """In the account that was named a study of unknown people may be of anybody: all have it, and nobody a fresh budget."""
    for way, sketched in {"key": sketch([0], key=KEY[::-1]), "column": sketch([0], "insurance")}.items():
        with Ledger.open(tmp_path / way, create=True) as book:
            book.set_budget("wards", EPSILON, DELTA, when=NOON, unit=PrivacyUnit.PERSON)
            most = book.account("wards").remaining
            reserve(book, "wards", "a", sketch([0]), mu=most)
            # By the digests somebody else, or the same person: without a value, and no refusal.
            assert reserve(book, "wards", "b", sketched, mu=most) == 1


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-9), (5.0, 1e-4)])
def test_a_budget_of_exactly_a_study_pays_for_exactly_that_study(tmp_path: Path, epsilon: float, delta: float) -> None:
    """And two of half of it fit, whatever they need beside mu."""
    with Ledger.open(tmp_path / "ledger", create=True) as book:
        for number, (beta, tv) in enumerate(
            [(0.0, 0.0), (0.0, 1e-30), (0.0, 1e-5 * delta), (0.3 * delta, 0.0), (0.9 * delta, 0.01 * delta)]
        ):
            for parts in (1, 2):
                name = f"{number} {parts}"
                book.set_budget(name, epsilon, delta, when=NOON)
                for study in range(parts):
                    rest = (delta - beta - (1 + math.exp(epsilon)) * tv) / parts
                    if rest > 0:
                        charge = Charge(mu_of_budget(epsilon / parts, rest), beta / parts, tv / parts)
                        book.reserve(name, SpendingRequest(f"{name} {study}", name, charge), when=NOON)
                account = book.account(name)
                # The same budget again is no less than what is charged.
                assert book.set_budget(name, epsilon, delta, when=NOON) == account
                if parts == 1 and rest > 0:
                    for more in (Charge(1e-3 * account.budget.limit), Charge(0.0, 0.05 * delta)):
                        with pytest.raises(InputError, match=rf"account '{name}' has .* left of"):
                            book.reserve(name, SpendingRequest(f"{name} more", name, more), when=NOON)
