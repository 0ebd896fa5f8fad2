"""The cohort of the page about OMOP: one query makes the same records of a database like Eunomia in every system."""

from __future__ import annotations

import datetime as dt
import random
import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.statistics import Columns
from quietmean.studies import StudyTerms
from quietmean.studies.data import Preview, read_columns
from support.postgresql import execute, server

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "omop.md"
PERSONS, SEED = 400, 20261126
CELECOXIB, DICLOFENAC, BLEEDING, ULCER = 1118084, 1124300, 192671, 4000609
# Products of a drug, a kind of bleeding, and what is none of these.
PRODUCTS = {CELECOXIB: [CELECOXIB, 44923712], DICLOFENAC: [DICLOFENAC, 40162359]}
KINDS, OTHERS = [BLEEDING, 4274025], [1125315, 8]
Row: TypeAlias = tuple[Any, ...]
TABLES = {
    "person": "person_id INTEGER, gender_concept_id INTEGER, year_of_birth INTEGER",
    "drug_exposure": ("drug_exposure_id INTEGER, person_id INTEGER, drug_concept_id INTEGER, drug_exposure_start_date DATE"),
    "condition_occurrence": (
        "condition_occurrence_id INTEGER, person_id INTEGER, condition_concept_id INTEGER, condition_start_date DATE"
    ),
    "concept_ancestor": "ancestor_concept_id INTEGER, descendant_concept_id INTEGER",
}


def eunomia() -> tuple[dict[str, list[Row]], list[list[Any]]]:
    """The rows of all tables, and the cohort as it is by definition, in no order."""
    rng = random.Random(SEED)
    ancestors = [(drug, one) for drug, products in PRODUCTS.items() for one in products] + [(BLEEDING, one) for one in KINDS]
    rows: dict[str, list[Row]] = {"person": [], "drug_exposure": [], "condition_occurrence": [], "concept_ancestor": [*ancestors]}
    cohort: list[list[Any]] = []
    for person in range(1, PERSONS + 1):
        sex, born = rng.choice([8507, 8532, 8521]), rng.randrange(1925, 1990)
        rows["person"].append((person, sex, born))
        days = [dt.date(2010, 1, 1) + dt.timedelta(days=rng.randrange(40)) for _ in range(rng.randrange(4))]
        exposures = [(day, rng.choice([*PRODUCTS[CELECOXIB], *PRODUCTS[DICLOFENAC], *OTHERS])) for day in days]
        drugs = []
        for day, concept in exposures:
            number = len(rows["drug_exposure"]) + 1
            rows["drug_exposure"].append((number, person, concept, day.isoformat()))
            drugs += [(day, number, place) for place, products in enumerate(PRODUCTS.values()) if concept in products]
        later = [dt.date(2010, 1, 1) + dt.timedelta(days=rng.randrange(60)) for _ in range(rng.randrange(3))]
        diagnoses = [(day, rng.choice([*KINDS, ULCER])) for day in later]
        for day, concept in diagnoses:
            rows["condition_occurrence"].append((len(rows["condition_occurrence"]) + 1, person, concept, day.isoformat()))
        if drugs:
            started, _, drug = min(drugs)
            bled = any(concept in KINDS and day >= started for day, concept in diagnoses)
            known = {8532: 0.0, 8507: 1.0}.get(sex, np.nan)
            cohort.append([started.year - born, known, drug, (started - dt.date(2000, 1, 1)).days, bled])
    return rows, cohort


def sqlite(folder: Path, rows: dict[str, list[Row]]) -> str:
    with closing(sqlite3.connect(folder / "omop.sqlite")) as base:
        base.executescript(";".join(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()))
        for name, some in rows.items():
            base.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(some[0]))})", some)  # noqa: S608
        base.commit()
    return str(folder / "omop.sqlite")


def duckdb(folder: Path, rows: dict[str, list[Row]]) -> str:
    with closing(pytest.importorskip("duckdb").connect(str(folder / "omop.duckdb"))) as base:
        for statement in inserts(rows):
            base.execute(statement)
    return str(folder / "omop.duckdb")


def postgresql(folder: Path, rows: dict[str, list[Row]]) -> str:
    address = server()
    execute("DROP SCHEMA IF EXISTS cdm CASCADE", "CREATE SCHEMA cdm", *inserts(rows, "cdm."))
    return f"{address}&options=-csearch_path%3Dcdm"


def inserts(rows: dict[str, list[Row]], schema: str = "") -> Iterable[str]:
    for name, some in rows.items():
        yield f"CREATE TABLE {schema}{name} ({TABLES[name]})"
        values = ", ".join("(" + ", ".join(repr(cell) for cell in row) + ")" for row in some)
        yield f"INSERT INTO {schema}{name} VALUES {values}"  # noqa: S608


def columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Columns:
    """As the command of the page declares them."""
    import shlex

    from quietmean.cli.main import main

    (command,) = re.findall(r"^    (quietmean new .*?[^\\])$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(folder)
    main(shlex.split(command.replace("\\\n", " "))[1:])
    return StudyTerms.load(folder / "study.toml").workload.columns


def in_order(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[np.lexsort(values.T)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", [sqlite, duckdb, postgresql])
def test_the_query_makes_the_cohort(
    make: Callable[[Path, dict[str, list[Row]]], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, cohort = eunomia()
    assert 100 < len(cohort) < PERSONS
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "cohort.sql").write_text(query)
    declared = columns(tmp_path, monkeypatch)
    source = f"{make(tmp_path, rows)}#query={tmp_path / 'cohort.sql'}"
    expected = np.array(cohort, dtype=float)
    np.testing.assert_array_equal(in_order(read_columns(source, declared)), in_order(expected))
    preview = Preview.of(source, declared)
    assert preview.records == len(cohort)
    assert [column.strange for column in preview.columns] == [0] * 5
    assert {column.name: column.missing for column in preview.columns}["sex"] == int(np.isnan(expected[:, 1]).sum())
    # Each of the four is in the cohort: else the query could leave out any.
    assert len({(row[2], row[4]) for row in cohort}) == 4
