"""The cohort of the page about OMOP: one query makes the same records of a database like Eunomia in every system."""

from __future__ import annotations

import re
import shlex
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.domain import MEAN_OF_ROWS, CountVisibility, Neighbouring
from quietmean.statistics import Columns
from quietmean.studies import StudyTerms
from quietmean.studies.data import Preview
from quietmean.studies.data.reading import read_person_rows
from support.omop import PAGE, PERSONS, TABLES, Row, eunomia, inserts, new_of_the_page, query_of_the_page, settings_of_the_page
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


def test_how_many_match_at_three_hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command of the page: private counts and Laplace noise; off by more than 60 less than once in 1e9 runs by chance."""
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r'^(quietmean study new .*"count\(where=.*)$', PAGE.read_text(), re.MULTILINE)
    main(shlex.split(line)[1:])
    study = qm.Study.load("match.toml")
    assert study.terms.count == CountVisibility.PRIVATE
    (tmp_path / "cohort.sql").write_text(query_of_the_page())
    (tmp_path / "omop.format.toml").write_text(settings_of_the_page())
    sites, matching = {}, 0
    for seed, name in enumerate(("north", "south", "east")):
        tables, cohort = eunomia(seed)
        (tmp_path / name).mkdir()
        sites[name] = f"{sqlite(tmp_path / name, tables)}#query=cohort.sql,format=omop.format.toml"
        matching += sum(row[4] and row[0] >= 65 for row in cohort)
    result = study.run(sites)
    (answer,) = result.outcome.answers
    assert matching > 20
    assert abs(float(answer.estimates.value[0]) - matching) < 60
    document = answer.to_json()
    assert document["noise_law"]["kind"] == "laplace"
    assert result.outcome.target.neighbouring == Neighbouring.ADD_REMOVE
    # Nobody learns how many persons a site has.
    assert len(set(result.execution.weights.tolist())) == 1
