"""Neighbours with and without the only unit: nothing that others see, and no refusal, tells whether a site has 0, 1 or 2 rows.

Every reader and every other source, with records, persons or whole parties as the unit, numbers public or private. What can be
seen of a source is whether it is refused and why, and the weight and the size of its vector.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from quietmean.core.errors import InputError
from quietmean.planning import Plan
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.data import records_of
from quietmean.studies.data.isolated import GroupedFrame
from quietmean.studies.data.location import FrameOfPersons
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.party import Policy, require_number
from support.odd_cells import WRITERS, CannotHoldError, Table, postgresql, read_files_in_this_process

Source = Callable[[Path, Table], Any]
PARTIES, ROOM = 5, 100
# A plan takes seconds, and depends on nothing here.
PROTOCOL = {"protocol": "local-dp", "epsilon": 4.0, "accept_wide": True}
COLUMNS = [{"name": "age", "low": 0, "high": 100, "missing": "indicator"}, {"name": "sex", "levels": ["f", "m"]}]
MAPPING = '[mapping]\nperson = "id"\n'


def rows(count: int, *, of: str = "id", named: bool = True) -> Table:
    """So many rows; ``named``: each of somebody."""
    return {
        "age": [50.0, 61.5][:count],
        "sex": ["f", "m"][:count],
        of: ([7, 8] if named else [None, None])[:count],
    }


def blank(ends: str) -> Source:
    def written(folder: Path, table: Table) -> Path:
        path = folder / "t.csv"
        lines = [f"{age},{sex},{'' if who is None else who}" for age, sex, who in zip(*table.values(), strict=True)]
        path.write_text("\n".join([",".join(table), *lines]) + ends)
        return path

    return written


def queried(where: str) -> Source:
    def written(folder: Path, table: Table) -> str:
        path = blank("\n")(folder, table)
        query = folder / "q.sql"
        query.write_text(f"SELECT {', '.join(table)} FROM data {where}")  # noqa: S608
        return f"{path}#query={query}"

    return written


def array(folder: Path, table: Table) -> Any:
    sexes = [["f", "m"].index(sex) for sex in table["sex"]]
    return np.array([table["age"], sexes], dtype=np.float64).T.reshape(-1, 2)


def by_duckdb(folder: Path, table: Table) -> GroupedFrame:
    kinds = (pl.Float64, pl.String, pl.Int64)
    frame = pl.DataFrame(table, schema=dict(zip(table, kinds, strict=True))).to_arrow()  # noqa: F841
    connection = duckdb.connect(str(folder / "d.duckdb"))
    connection.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM frame")
    return GroupedFrame(connection.table("t"))


# Beside the readers of every kind of file and frame.
OTHERS: dict[str, Source] = {
    "blank lines": blank("\n\n\n\n"),
    "no end of the last line": blank(""),
    "a query": queried(""),
    "a query of few rows": queried("WHERE TRY_CAST(age AS DOUBLE) > 55"),
    "an array": array,
    "groups in Polars": lambda folder, table: GroupedFrame(pl.DataFrame(table).lazy()),
    "groups in DuckDB": by_duckdb,
    "groups in PostgreSQL": lambda folder, table: f"{postgresql(folder, table)},grouped=true",
}
SOURCES = {**WRITERS, **OTHERS}
# These hand over no persons.
NO_PERSONS = {name for name in OTHERS if name.startswith("groups")} | {"an array"}
COUNTS: dict[str, dict[str, Any]] = {"public": {}, "private": {"count": "private", "most_records": ROOM}}
PLANS: dict[tuple[str, str], tuple[StudyTerms, Plan]] = {}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    read_files_in_this_process(monkeypatch)


def study(unit: str, count: str) -> tuple[StudyTerms, Plan]:
    if (unit, count) not in PLANS:
        more = {"statistic": [{"kind": "mean", "column": "age"}]} if unit == "party" else {}
        terms = StudyTerms.parse({"name": "s", "column": COLUMNS, "unit": unit, **COUNTS[count], **PROTOCOL, **more})
        PLANS[unit, count] = terms, terms.choice(PARTIES).plan
    return PLANS[unit, count]


def seen(source: Any, unit: str, count: str) -> tuple[float, int]:
    """What others see: the weight, and the size of what is sent. As the commands of a party do it."""
    terms, plan = study(unit, count)
    notes: list[str] = []
    records = records_of(source, terms.workload.columns, notes.append, terms.rows)
    require_number(len(records), terms, [plan], Policy())
    encoded = terms.workload.encode(records, step=plan.value_step)
    admitted = plan.admit(encoded.vector, encoded.weight)
    assert np.isfinite(admitted.vector).all()
    return admitted.weight, admitted.vector.size


def with_persons(source: Any, folder: Path) -> Any:
    """The same, with the column that tells persons apart."""
    if not isinstance(source, str | Path):
        return FrameOfPersons(source, person="id")
    mapping = folder / "persons.format.toml"
    mapping.write_text(MAPPING)
    text = str(source)
    return f"{text}{',' if '#' in text else '#'}format={mapping}"


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("unit", ["record", "party"])
@pytest.mark.parametrize("name", SOURCES)
def test_rows_of_a_source(name: str, unit: str, count: str, tmp_path: Path) -> None:
    if unit == "party" and (count == "private" or name.startswith("groups")):
        # A study that says so is none; groups are of records.
        return
    found = []
    for number in (0, 1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(seen(SOURCES[name](folder, rows(number)), unit, count))
    there = [0, 1, 2] if name != "a query of few rows" else [0, 0, 1]
    weights = {"record": {"public": there, "private": [ROOM] * 3}, "party": {"public": [1, 1, 1]}}[unit][count]
    assert [weight for weight, _ in found] == weights
    assert len({size for _, size in found}) == 1


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", [name for name in SOURCES if name not in NO_PERSONS])
def test_persons_of_a_source(name: str, count: str, tmp_path: Path) -> None:
    found = []
    for number, named in ((0, True), (1, False), (1, True), (2, True)):
        folder = tmp_path / f"{number}{named}"
        folder.mkdir()
        with suppress(CannotHoldError):
            source = with_persons(SOURCES[name](folder, rows(number, named=named)), folder)
            found.append(seen(source, "person", count))
    there = [0, 0, 1, 2] if name != "a query of few rows" else [0, 0, 0, 1]
    if name == "pandas, categories":
        # It holds no column of nothing.
        del there[1]
    assert [weight for weight, _ in found] == (there if count == "public" else [ROOM] * len(there))
    assert len({size for _, size in found}) == 1


@pytest.mark.parametrize("absent", ["age", "id"])
@pytest.mark.parametrize("name", [name for name in SOURCES if name not in {"an array", "JSON lines"}])
def test_a_column_that_is_not_there_is_missed_with_rows_and_without(name: str, absent: str, tmp_path: Path) -> None:
    """What may be refused is the source as such, in the same words."""
    if absent == "id" and name in NO_PERSONS:
        return
    said = []
    for number in (0, 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        table = {("years" if column == absent else column): cells for column, cells in rows(number).items()}
        source = SOURCES[name](folder, table)
        source, unit = (with_persons(source, folder), "person") if absent == "id" else (source, "record")
        with pytest.raises(InputError) as error:
            seen(source, unit, "private")
        said.append(str(error.value).replace(str(folder), ""))
    assert said[0] == said[1]


@pytest.mark.parametrize("count", COUNTS)
def test_what_is_expected_of_no_records_is_said_too(count: str) -> None:
    terms, plan = study("record", count)
    forecast = Forecast(terms, plan, 0.0, studies=2)
    assert len(forecast.sentences()) == len(forecast.to_json()) == len(terms.workload.statistics)
