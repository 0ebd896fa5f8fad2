"""Which queries are computed, and which are refused: by a list of what is known, each with a name and a remedy."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from quietmean.core.codec import decode_json
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.studies.data import query_grammar as listed
from quietmean.studies.data.database import open_database
from quietmean.studies.data.location import Location
from quietmean.studies.data.query import CheckedQuery, empty_database
from support.clinic import clinic, written

Checked: TypeAlias = Callable[[str, PrivacyUnit], CheckedQuery]
RECORD, PERSON = PrivacyUnit.RECORD, PrivacyUnit.PERSON


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checked]:
    source = written(tmp_path_factory.mktemp("clinic") / "clinic.duckdb", clinic(random.Random(1), "abc"))
    location = replace(Location.of(source), settings={"query": "q.sql"})
    with open_database(location, "duckdb") as tables, empty_database(location) as base:
        yield lambda text, unit: CheckedQuery(base, location, tables, text, unit)


LISTED = tomllib.loads((Path(__file__).parents[1] / "data" / "queries.toml").read_text())
REFUSED = [(one["says"], one["query"], PrivacyUnit(one["unit"])) for one in LISTED["refused"]] + [
    ("a text of more than 1000 signs", "SELECT replace(note, '{}', '') AS z FROM visits".format("x" * 1001), RECORD),  # noqa: S608
    ("a text of more than 100 signs", "SELECT replace(note, 'x', '{}') AS z FROM visits".format("y" * 101), RECORD),  # noqa: S608
    ("an expression within so many others", "SELECT {} AS z FROM visits".format(" + ".join(["crp"] * 400)), RECORD),  # noqa: S608
]
COMPUTED = [(one["query"], PrivacyUnit(one["unit"])) for one in LISTED["computed"]]


def refused(checked: Checked, text: str, unit: PrivacyUnit) -> str:
    with pytest.raises(InputError) as caught:
        checked(text, unit)
    return str(caught.value)


@pytest.mark.parametrize(("words", "text", "unit"), REFUSED)
def test_what_mixes_rows_or_persons_is_refused_by_its_name(words: str, text: str, unit: PrivacyUnit, checked: Checked) -> None:
    sentence = refused(checked, text, unit)
    assert re.search(words, sentence), sentence
    # What it is, and what to do.
    assert "q.sql" in sentence
    assert re.search(
        r"\. (Correct|Mend|Check|Compare|Name|Write|Leave|Cast|Make|Give|Read|Join|Use|Take|Shorten|Declare|Carry|Group|Part)",
        sentence,
    )
    assert len(sentence.split()) < 50


@pytest.mark.parametrize(("name", "call"), LISTED["calls"].items())
def test_functions_are_listed_by_name_and_number_of_arguments(name: str, call: str, checked: Checked) -> None:
    sentence = refused(checked, f"SELECT {call} AS z FROM visits", RECORD)  # noqa: S608
    assert re.search(rf"the (function|aggregate) {name} |'{name}' that is not a column", sentence), sentence


@pytest.mark.parametrize(("text", "unit"), COMPUTED)
def test_usual_queries_are_computed(text: str, unit: PrivacyUnit, checked: Checked) -> None:
    checked(text, unit)


def test_there_are_as_many_as_are_asked_for() -> None:
    assert len(REFUSED) + len(LISTED["calls"]) >= 160
    assert len(COMPUTED) >= 60


def test_what_is_listed_is_a_scalar_function_of_the_library_and_fails_on_no_setting() -> None:
    """Of the empty database: no name is an aggregate, a macro or volatile there."""
    operators = {"**": "^", "@": "abs"}
    found: dict[str, set[tuple[str, str]]] = {}
    with empty_database(Location(Path("x"))) as base:
        for name, *kind in base.execute("SELECT function_name, function_type, stability FROM duckdb_functions()").fetchall():
            found.setdefault(name, set()).add(tuple(kind))
    for name in listed.FUNCTIONS:
        assert found[operators.get(name, listed.CALLED.get(name, name))] == {("scalar", "CONSISTENT")}, name


def places(node: Any) -> Iterator[dict[str, Any]]:
    """All objects of a tree."""
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from places(value)


def test_a_key_that_nobody_knows_is_refused_wherever_it_stands(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "WITH f AS (SELECT * EXCLUDE (note) FROM visits WHERE sex IN ('f') AND nr BETWEEN 1 AND 3) "
        "SELECT f.pid, f.crp, CASE WHEN k.name LIKE 'A%' THEN CAST(1 AS DOUBLE) ELSE lower(f.sex)::DOUBLE END AS z, "
        "row_number() OVER (PARTITION BY f.pid ORDER BY f.day) AS n, coalesce(g.m, 1) AS m "
        "FROM f LEFT JOIN concept k ON k.concept_id = f.drug "
        "JOIN (SELECT pid, max(val) FILTER (WHERE val > 1) AS m, first(val ORDER BY taken) AS o FROM labs GROUP BY pid HAVING "
        "count(*) > 1) g ON g.pid = f.pid UNION ALL SELECT DISTINCT pid, val, val, 3::BIGINT, val FROM labs"
    )
    checked(text, PERSON)
    number, refusals = 0, set[str]()

    def with_a_key(raw: Any, kind: Any, refuse: Any, deepest: int) -> Any:
        made = decode_json(raw, kind, refuse, deepest)
        nodes = list(places(made["statements"]))
        if number < len(nodes):
            nodes[number]["of_tomorrow"] = None
        return made

    monkeypatch.setattr("quietmean.studies.data.query_grammar.decode_json", with_a_key)
    while True:
        try:
            checked(text, PERSON)
        except InputError as error:
            refusals.add(str(error))
            number += 1
        else:
            break
    # Every one was refused, until there was none left.
    assert number > 100
    assert any("the key 'of_tomorrow' of a node 'WINDOW'" in sentence for sentence in refusals)
    assert len(refusals) > 20
