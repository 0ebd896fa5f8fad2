"""The cohort of the page about OMOP: one query makes the same records of a database like Eunomia in every system."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.cli.main import main
from quietmean.core.domain import MEAN_OF_ROWS
from quietmean.statistics import Columns
from quietmean.studies import StudyTerms
from quietmean.studies.data import Preview
from quietmean.studies.data.reading import read_person_rows
from support.omop import PERSONS, TABLES, Row, eunomia, inserts, new_of_the_page, query_of_the_page, settings_of_the_page
from support.postgresql import execute, server


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


def columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Columns:
    """As the command of the page declares them."""
    monkeypatch.chdir(folder)
    main(shlex.split(new_of_the_page())[1:])
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
    (tmp_path / "cohort.sql").write_text(query_of_the_page())
    (tmp_path / "omop.format.toml").write_text(settings_of_the_page())
    declared = columns(tmp_path, monkeypatch)
    source = f"{make(tmp_path, rows)}#query={tmp_path / 'cohort.sql'},format={tmp_path / 'omop.format.toml'}"
    expected = np.array(cohort, dtype=float)
    found = np.vstack([piece.values for piece in read_person_rows(source, declared, print, MEAN_OF_ROWS)])
    # The page declares its columns in another order.
    names = [column.name for column in declared]
    found = found[:, [names.index(name) for name in ("age", "sex", "drug", "started", "bleeding")]]
    np.testing.assert_array_equal(in_order(found), in_order(expected))
    preview = Preview.of(source, declared)
    assert preview.records == len(cohort)
    assert [column.strange for column in preview.columns] == [0] * 5
    assert {column.name: column.missing for column in preview.columns}["sex"] == int(np.isnan(expected[:, 1]).sum())
    # Each of the four is in the cohort: else the query could leave out any.
    assert len({(row[2], row[4]) for row in cohort}) == 4
