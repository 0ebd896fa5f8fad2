"""Queries over the sources that sites have: types by declaration, views, codes with a key, persons, what an owner declares."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.core.domain import MEAN_OF_ROWS, PrivacyUnit
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies.data import query, query_statement, read_columns
from quietmean.studies.data.persons import identifier
from quietmean.studies.data.reading import read_person_rows
from support.clinic import clinic, written
from support.command_lines import fails
from support.refusals import refused

pytest.importorskip("duckdb")
Z = Columns([Column(name="z", low=-3, high=3)])
WIDE = Columns([Column(name="z", low=-1e9, high=1e9)])
STANDARDIZED = "SELECT (x - avg(x) OVER ()) / stddev(x) OVER () AS z FROM (SELECT TRY_CAST(crp AS DOUBLE) AS x FROM data) s"
FROM_MEDIAN = "SELECT crp::DOUBLE - (SELECT median(crp::DOUBLE) FROM data) AS z FROM data"
PER_ROW = "SELECT (crp::DOUBLE - 50) / 30 AS z FROM data"


def over(path: Path, text: str, settings: str = "") -> str:
    """The source with this query."""
    file = path.with_suffix(".sql")
    file.write_text(text)
    return f"{path}#query={file}{settings}"


def values(source: str, columns: Columns = WIDE) -> list[float]:
    return [float(one) for one in read_columns(source, columns).ravel()]


def of_persons(source: str, columns: Columns = WIDE, told: list[str] | None = None) -> list[float]:
    pieces = read_person_rows(source, columns, print if told is None else told.append, MEAN_OF_ROWS)
    return sorted(float(one) for piece in pieces for one in piece.values.ravel())


# --- distances --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "least"), [(STANDARDIZED, 30.0), (FROM_MEDIAN, 30.0), (PER_ROW, 0.0)])
def test_a_query_moves_no_more_than_the_sensitivity_or_is_declared(text: str, least: float, tmp_path: Path) -> None:
    """What is declared to mix rows is tens of times beyond: so much was charged too little before there was this list."""
    workload = Workload(Z, (parse_statistic(read_text("mean(z)")),), PrivacyUnit.RECORD)
    path, vectors, rng = tmp_path / "c.csv", [], np.random.default_rng(3)
    rows = rng.normal(50, 20 if text == STANDARDIZED else 1e-3, 400)
    # Half of all others are on either side of the median, and it moves from one to the other.
    rows = np.where(np.arange(400) % 2, 49.0, 51.0) if text == FROM_MEDIAN else rows
    for last in ("0", "1000000"):
        path.write_text("crp\n" + "\n".join([*map(str, rows[:399]), last]) + "\n")
        if least:
            refused(r"a window|a subquery in an expression", read_columns, over(path, text), Z)
        source = over(path, text, ",query_mixes_rows=true" if least else "")
        vectors.append(workload.encode(read_columns(source, Z)).vector)
    ratio = float(np.linalg.norm(vectors[0] - vectors[1])) / workload.sensitivity
    assert ratio > least if least else ratio <= 1.000001


# --- types and values -------------------------------------------------------------------------------------------------


def test_types_follow_from_declarations_and_a_cell_of_another_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE t (n INTEGER, x REAL, s TEXT, d DATE, free)")
        rows: Sequence[Any] = [(1, 2.5, "a", "2020-01-01", "7"), ("abc", "x", 3, "no day", 8), (61.5, None, b"\xff", 5, None)]
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        base.commit()
    np.testing.assert_array_equal(values(over(path, "SELECT n AS z FROM t")), [1, np.nan, np.nan])
    np.testing.assert_array_equal(values(over(path, "SELECT x * 2 AS z FROM t")), [5, np.nan, np.nan])
    np.testing.assert_array_equal(
        values(over(path, "SELECT year(d) AS z FROM t WHERE year(d) > 0 OR d IS NULL")), [2020, np.nan, np.nan]
    )
    np.testing.assert_array_equal(values(over(path, "SELECT free AS z FROM t WHERE free > 7.5")), [8])


def test_nothing_of_a_duckdb_file_but_its_rows_is_there(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "t.duckdb"
    with closing(duckdb.connect(str(path))) as base:
        base.execute("CREATE TYPE mood AS ENUM ('a', 'b')")
        base.execute("CREATE TABLE t AS SELECT n AS x, 'a'::mood AS m, [n] AS list FROM range(3) r(n)")
        for name in ("lower(s)", "abs(x)", "trim(s)", "isfinite(x)"):
            base.execute(f"CREATE MACRO {name} AS (SELECT count(*) FROM t)")  # noqa: S608
        base.execute("CREATE SEQUENCE s")
    assert values(over(path, "SELECT abs(x) AS z FROM t WHERE lower(m) = 'a' AND trim(m) = 'a' AND isfinite(x)")) == [0, 1, 2]
    for text in ("SELECT nextval('s') AS z FROM t", "SELECT enum_code(m) AS z FROM t", "SELECT CAST(m AS mood) AS z FROM t"):
        refused("is not allowed", values, over(path, text))


def test_views_are_checked_as_queries_are(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as base:
        base.executescript("""
            CREATE TABLE t (x REAL, pid TEXT); INSERT INTO t VALUES (1, 'a'), (5, 'b');
            CREATE VIEW plain AS SELECT x * 2 AS z FROM t WHERE x > 1;
            CREATE VIEW mixed AS SELECT x - (SELECT avg(x) FROM t) AS z FROM t;
            CREATE VIEW over_mixed AS SELECT z AS z FROM mixed;
            CREATE VIRTUAL TABLE words USING fts5(z);
        """)
    assert values(f"{path}#table=plain") == values(over(path, "SELECT z FROM plain")) == [10]
    for name in ("mixed", "over_mixed"):
        for source in (f"{path}#table={name}", over(path, f"SELECT z FROM {name}")):  # noqa: S608
            refused("a subquery in an expression", values, source)
            assert values(f"{source},query_mixes_rows=true") == [-2, 2]
    refused(r"the virtual table 'words' of t\.sqlite is not read row by row", values, over(path, "SELECT z FROM words"))


def test_what_no_json_line_has_is_missing_in_a_query(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    text = "SELECT coalesce(TRY_CAST(age AS DOUBLE), 0) + 1 AS z FROM data WHERE smoker IS NULL"
    for lines, expected in (('{"age": 3}\n{"age": 4, "smoker": "yes"}\n', [4]), ('{"age": 3}\n{"age": 4}\n', [4, 5])):
        path.write_text(lines)
        assert values(over(path, text)) == expected


@pytest.mark.parametrize("cell", ["", "abc", "\ud800", "9" * 400, "x" * 40_000, "2020-13-01", "'", "\x00", "%_%_%"])
def test_no_value_ends_a_query(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"a": cell}) + '\n{"a": "7"}\n')
    for text in (
        "SELECT CAST(a AS DOUBLE) AS z FROM data", "SELECT ln(CAST(a AS BIGINT) - 6) AS z FROM data",
        "SELECT year(CAST(a AS DATE)) AS z FROM data", "SELECT length(replace(a, 'x', 'xxxxxxxxxx')) AS z FROM data",
        "SELECT date_diff('day', strptime(a, '%Y'), DATE '2020-01-01') AS z FROM data",
        "SELECT 1 AS z FROM data WHERE a LIKE '%x_'",
    ):  # fmt: skip
        assert len(values(over(path, text))) == (2 if "WHERE" not in text else ("x" in cell))


# --- persons and codes ------------------------------------------------------------------------------------------------


def test_persons_have_one_spelling_and_rows_of_nobody_are_none(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("pid,x\n7,1\n007,2\n7.0,3\n,4\nNA,5\nä,6\n")
    (tmp_path / "t.format.toml").write_text('[mapping]\nperson = "pid"\n')
    assert of_persons(over(path, "SELECT pid, sum(x::DOUBLE) AS z FROM data GROUP BY pid")) == [6, 6]
    for text in ("7", "007", "7.0", "ä", "2024-01-31", "31.01.2024", "x y", "1e3"):
        same = identifier(text)
        assert same is not None
        assert identifier(same) == same


def test_a_person_with_too_many_joined_rows_is_left_out_and_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MOST_ROWS_OF_A_PERSON", 20)
    path = tmp_path / "t.csv"
    (tmp_path / "t.format.toml").write_text('[mapping]\nperson = "pid"\n')
    text = "SELECT a.pid, count(*) AS z FROM data a JOIN data b ON a.pid = b.pid GROUP BY a.pid"
    for rows, expected in ((4, [16, 4]), (5, [4])):
        path.write_text("pid,x\n" + "one,1\n" * rows + "two,1\n" * 2)
        told: list[str] = []
        assert of_persons(over(path, text), told=told) == sorted(expected)
        assert any("1 person has more than 20 joined rows" in one for one in told) == (rows == 5)


def test_codes_have_one_row_of_a_key_and_a_digest(tmp_path: Path) -> None:
    rows = clinic(random.Random(3), "abc")
    path = written(tmp_path / "clinic.duckdb", rows)
    source = over(path, "SELECT u.factor AS z FROM labs l LEFT JOIN units u ON u.code = l.code")
    first = query_statement(source, WIDE, PrivacyUnit.RECORD)
    assert len(first.codes) == 1
    assert not first.mixes_rows
    written(path, {**rows, "labs": [], "units": list(reversed(rows["units"]))})
    assert query_statement(source, WIDE, PrivacyUnit.RECORD) == first
    written(path, {**rows, "units": [*rows["units"][1:], ("crp", 0.2)]})
    assert query_statement(source, WIDE, PrivacyUnit.RECORD) != first
    written(path, {**rows, "units": [*rows["units"], ("crp", 0.2)]})
    refused("two rows of the codes 'units' have the same code", query_statement, source, WIDE, PrivacyUnit.RECORD)
    (tmp_path / "clinic.format.toml").write_text('[codes]\nunits = ["none"]\n')
    refused("column 'none' is not one of the 2 columns of the codes 'units'", query_statement, source, WIDE, PrivacyUnit.RECORD)
    for said in ('codes = "x"', "[codes]\nunits = 3", "[codes]\nunits = []"):
        (tmp_path / "clinic.format.toml").write_text(said)
        refused(r"codes", query_statement, source, WIDE, PrivacyUnit.RECORD)


def test_a_constant_of_a_join_is_what_it_is_and_not_rounded(tmp_path: Path) -> None:
    path = written(tmp_path / "clinic.duckdb", {**clinic(random.Random(3), "abc"), "visits": [("a", 1, None, 1.0, "f", 2, None)]})
    join = "SELECT c.concept_id AS z FROM visits v LEFT JOIN concept c ON c.concept_id = v.drug AND c.concept_id = {}"
    for constant, found in (("2", 2.0), ("2.0", 2.0), ("1.6", np.nan), ("'2'", 2.0)):
        np.testing.assert_array_equal(values(over(path, join.format(constant))), [found])


# --- what is declared -------------------------------------------------------------------------------------------------


def test_what_is_declared_stands_in_receipt_and_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.csv"
    path.write_text("crp\n" + "".join(f"{n}\n" for n in range(400)))
    line = ["mean(z in -3..3)", "--parties", "3", "--protocol", "local-dp", "--epsilon", "4", "--out", "out"]
    fails(["run", "--data", over(path, STANDARDIZED), *line], capsys, "a window")
    main(["run", "--data", over(path, STANDARDIZED, ",query_mixes_rows=true"), *line, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [one["key"] for one in document["certificate"]["assumptions"]][-1] == "query"
    receipt = Path(document["receipt"])
    assert json.loads(receipt.read_text())["origin"]["query"] == {"mixes_rows": True, "codes": []}
    for page in receipt.parent.glob("*.html"):
        assert "declares that the query mixes rows" in page.read_text()
    main(["verify", "receipt", str(receipt), "--details"])
    assert "declares that the query mixes rows" in capsys.readouterr().out
