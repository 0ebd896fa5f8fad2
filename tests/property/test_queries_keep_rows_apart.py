"""Queries of a grammar: what is computed keeps rows apart, or persons where these are the unit, to the last bit.

Of each query that is not refused neighbours are read: one row has arbitrary values, is there once more or not at all, or one
person has other rows, 0 to 5 of them in each table. What others get is the same byte for byte, and no value ends a query. The bar
is 2 000 queries of each unit, 100 neighbours of each (make test-all); seeds are fixed. Checks that are taken away are found.
"""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.studies.data import query_grouping, query_levels
from quietmean.studies.data.database import Listed, Tables, type_declared
from quietmean.studies.data.location import Location
from quietmean.studies.data.query import CheckedQuery, empty_database
from quietmean.studies.data.query_expressions import Relation
from quietmean.studies.data.table import Pieces, of_rows
from support.clinic import SETTINGS, TABLES, Rows, a_row, clinic
from support.query_grammar import Grammar

RECORD, PERSON = PrivacyUnit.RECORD, PrivacyUnit.PERSON
# Queries and neighbours of each, and some that are tried in every run.
MANY, SOME = (2_000, 100), (60, 10)
PERSONS = ["a", "b", "007", "c", None, "ä"]
LISTED = tomllib.loads((Path(__file__).parents[1] / "data" / "queries.toml").read_text())
DATA = ("visits", "labs", "persons")


@dataclass
class InMemory(Tables):
    """The clinic, with rows that change between two readings."""

    rows: Rows = field(default_factory=dict)
    place: str = "the clinic"

    def all(self) -> Collection[Listed]:
        return [Listed("main", name) for name in TABLES]

    def columns(self, table: Listed) -> list[tuple[str, str]]:
        return [(name, type_declared(kind)) for name, kind in (one.split() for one in TABLES[table.name].split(", "))]

    def pieces(self, table: Listed, column_names: Collection[str]) -> Pieces:
        names = [name for name, _ in self.columns(table)]
        yield of_rows(table.name, names, self.rows[table.name], range(len(self.rows[table.name])))

    def chosen(self, column_names: Collection[str]) -> Listed:
        raise AssertionError

    def selected(self, query: str, column_names: Collection[str]) -> Pieces:
        raise AssertionError


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Location:
    folder = tmp_path_factory.mktemp("clinic")
    (folder / "clinic.format.toml").write_text(SETTINGS)
    return replace(Location.of(folder / "clinic.duckdb"), settings={"query": "q.sql"})


@dataclass
class Found:
    """Of so many queries so many were computed, over so many pairs; and of which the rows of others changed, or which ended."""

    queries: int = 0
    computed: int = 0
    pairs: int = 0
    apart: list[str] = field(default_factory=list)


def rows_of(checked: CheckedQuery, base: Any, tables: InMemory, rows: Rows) -> list[tuple[str, ...]]:
    """What a query says, to the last bit."""
    for (name,) in base.execute("SELECT table_name FROM duckdb_tables() WHERE table_name LIKE 'table_%'").fetchall():
        base.execute(f"DELETE FROM {name}")  # noqa: S608
    tables.rows = rows
    checked.load_codes()
    checked.load_data(lambda sentence: None)
    names = [one.name for one in checked.relation.fields]
    columns = ", ".join(f"c{number}" for number in range(len(names)))
    found = base.execute(f"SELECT {columns} FROM {checked.relation.sql}").fetchall()  # noqa: S608
    return [tuple(map(repr, row)) for row in found]


def neighbour(rows: Rows, unit: PrivacyUnit, rng: random.Random) -> tuple[Rows, str | None]:
    """With another row, one more or one less; or with other rows of one person, who is named."""
    if unit == PERSON:
        person = rng.choice([one for one in PERSONS if one is not None])
        others = {table: [row for row in rows[table] if row[0] != person] for table in DATA}
        own = clinic(rng, [person])
        mixed = {table: list(others[table]) for table in DATA}
        for table in DATA:
            for row in own[table]:
                mixed[table].insert(rng.randint(0, len(mixed[table])), row)
        return {**rows, **mixed}, person
    table = rng.choice(DATA)
    changed, row = list(rows[table]), a_row(table, rng.choice(PERSONS), rng)
    where = rng.randrange(len(changed) + 1)
    if where < len(changed) and rng.random() < 0.7:
        changed[where : where + 1] = [row] if rng.random() < 0.8 else []
    else:
        changed.insert(where, row)
    return {**rows, table: changed}, None


def kept_apart(one: list[tuple[str, ...]], other: list[tuple[str, ...]], person: str | None, place: int) -> bool:
    """Do two readings differ in that person's rows only, or in one row?"""
    if person is None:
        first, second = Counter(one), Counter(other)
        return (first - second).total() <= 1 and (second - first).total() <= 1
    own = repr(person.lstrip("0"))
    return Counter(row for row in one if row[place] != own) == Counter(row for row in other if row[place] != own)


def drawn(unit: PrivacyUnit, queries: int) -> Iterator[str]:
    return (Grammar(random.Random(f"{unit} {number}"), unit == PERSON).query() for number in range(queries))


def tried(place: Location, unit: PrivacyUnit, texts: Iterable[str], neighbours: int = SOME[1]) -> Found:
    found, tables = Found(), InMemory()
    with empty_database(place) as base:
        for text in texts:
            found.queries += 1
            try:
                checked = CheckedQuery(base, place, tables, text, unit)
            except InputError:
                continue
            found.computed += 1
            rng = random.Random(text)
            rows = clinic(rng, PERSONS)
            try:
                before = rows_of(checked, base, tables, rows)
                persons = [one.person for one in checked.relation.fields]
                column = persons.index(True) if unit == PERSON else 0
                for _ in range(neighbours):
                    other, person = neighbour(rows, unit, rng)
                    found.pairs += 1
                    if not kept_apart(before, rows_of(checked, base, tables, other), person, column):
                        raise AssertionError
            # Whatever it is: a value has ended a query, or moved the rows of others.
            except Exception as error:
                found.apart.append(f"{type(error).__name__}: {text}")
    return found


@pytest.mark.parametrize("unit", [RECORD, PERSON])
@pytest.mark.parametrize(("queries", "neighbours"), [SOME, pytest.param(*MANY, marks=pytest.mark.slow)])
def test_others_get_the_same_to_the_last_bit(unit: PrivacyUnit, queries: int, neighbours: int, place: Location) -> None:
    found = tried(place, unit, drawn(unit, queries), neighbours)
    assert found.apart == []
    # Both kinds are drawn.
    assert queries * 0.08 < found.computed < queries * 0.8
    assert found.pairs == found.computed * neighbours


@pytest.mark.parametrize("unit", [RECORD, PERSON])
def test_usual_queries_keep_others_apart(unit: PrivacyUnit, place: Location) -> None:
    usual = [one["query"] for one in LISTED["computed"] if one["unit"] == unit]
    found = tried(place, unit, usual)
    assert found.apart == []
    assert found.computed == len(usual) > 20


def _grouped_by_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    made = query_grouping.Computed.__init__

    def of_anybody(self: Any, inner: Any, source: Any, where: Any, person: Any, types: Any) -> None:
        made(self, inner, source, where, None, types)

    monkeypatch.setattr(query_grouping.Computed, "__init__", of_anybody)


def _joined_on_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_levels._Select, "_require_join", lambda *_: None)


def _not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def item(self: Any, name: str, node: Any) -> tuple[str, str, None]:
        return name, self._outer.term(node).sql, None

    monkeypatch.setattr(query_grouping.Computed, "_item", item)


def _read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    find = CheckedQuery._find

    def found(self: CheckedQuery, schema: str, name: str) -> Any:
        relation = find(self, schema, name)
        return replace(relation, tables=Counter()) if isinstance(relation, Relation) else relation

    monkeypatch.setattr(CheckedQuery, "_find", found)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], PrivacyUnit, list[str]]] = [
    (
        _grouped_by_anything,
        RECORD,
        ["SELECT count(*) OVER (PARTITION BY sex) AS z FROM visits", "SELECT sum(nr) AS z FROM visits"],
    ),
    (_grouped_by_anything, PERSON, ["SELECT pid, rank() OVER (ORDER BY crp) AS z FROM visits"]),
    (_joined_on_anything, RECORD, ["SELECT t.nr, k.above FROM visits t JOIN ancestor k ON k.below = t.drug"]),
    (_joined_on_anything, PERSON, ["SELECT t.pid, u.val FROM visits t JOIN labs u ON t.sex = u.code"]),
    (_not_tried, RECORD, ["SELECT CAST(note AS DOUBLE) AS z FROM visits", "SELECT nr * drug AS z FROM visits"]),
    (_read_again, RECORD, ["SELECT crp AS z FROM visits UNION ALL SELECT crp FROM visits"]),
]


@pytest.mark.parametrize(("mutant", "unit", "texts"), MUTANTS)
def test_a_check_that_is_taken_away_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None],
    unit: PrivacyUnit,
    texts: list[str],
    place: Location,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each is drawn as well: what the grammar makes is checked on neighbours as these are.
    mutant(monkeypatch)
    assert tried(place, unit, texts).apart
