"""Every kind of source x everything that can be wrong with it: exit code 2, one sentence that names the data, and no cell."""

from __future__ import annotations

import datetime as dt
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import support.postgresql
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns
from quietmean.studies.data import formats, postgresql, read_columns
from quietmean.studies.data.grouped import records_of
from support.hostile_numbers import has_remedy
from support.odd_cells import WRITERS
from support.workloads import workload_of

# Cells that stand in no sentence, wherever they are from.
SECRET = "Sentinel"  # noqa: S105
ROWS = 40
WHOLE: dict[str, list[Any]] = {
    "age": [20.5 + row for row in range(ROWS)],
    "arm": [f"{SECRET}{row % 7}" for row in range(ROWS)],
    "day": [dt.date(2001, 1, 1 + row % 28) for row in range(ROWS)],
}
AGE = Columns([Column(name="age", low=0, high=110)])
FILES = {
    "semicolon": "csv", "UTF-16": "csv", "quoted": "csv", "Excel": "xlsx", "JSON lines": "jsonl",
    "gzip": "csv.gz", "SPSS": "sav", "Stata": "dta", "SAS": "xpt",
    "SQLite": "sqlite", "DuckDB": "duckdb", "Parquet": "parquet", "Feather": "feather",
}  # fmt: skip
# Any cut of these leaves lines of text; of others the end is missed.
TEXTS = {"semicolon", "UTF-16", "quoted", "JSON lines"}
PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A file of each kind, as its bytes."""
    contents = {}
    for kind in FILES:
        written = WRITERS[kind](tmp_path_factory.mktemp("whole"), WHOLE)
        contents[kind] = Path(str(written).partition("#")[0]).read_bytes()
    return contents


def at(folder: Path, kind: str, content: bytes) -> Path:
    path = folder / f"wards.{FILES[kind]}"
    path.write_bytes(content)
    return path


def refused(source: Any, columns: Columns = AGE) -> str:
    """What is said of a source that is refused: one sentence, without a cell, and with what to do."""
    with pytest.raises(InputError) as caught:
        read_columns(source, columns)
    said = str(caught.value)
    assert SECRET not in said
    assert "\n" not in said
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert has_remedy(said), said
    return said


# --- what is wrong with a file ----------------------------------------------------------------------------------------


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_damaged_is_refused_in_one_sentence(kind: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    content = whole[kind]
    name = f"wards.{FILES[kind]}"
    cases = {"empty": b"", "foreign": b"\x7fELF" + bytes(range(256)) * 20}
    if kind == "JSON lines":
        # A line that is no object is a record of missing cells; without a header, no line is no record.
        assert len(read_columns(at(tmp_path, kind, cases.pop("empty")), AGE)) == 0
        told: list[str] = []
        assert all(value != value for value in read_columns(at(tmp_path, kind, cases.pop("foreign")), AGE, told.append).ravel())
        assert any(name in sentence and "'age'" in sentence for sentence in told)
    if kind not in TEXTS:
        cases |= {"truncated": content[: len(content) // 2], "head": content[:40]}
        cases |= {"zeros": content[: len(content) // 3] + bytes(len(content) // 3) + content[2 * (len(content) // 3) :]}
    for case, damaged in cases.items():
        try:
            said = refused(at(tmp_path, kind, damaged))
        except pytest.fail.Exception:
            # What is left may still be a table; then its rows are read as they stand.
            assert case == "zeros", f"{kind}, {case}"
            continue
        assert name in said, f"{kind}, {case}: {said}"


@pytest.mark.sampled(9)
@pytest.mark.parametrize("kind", FILES)
def test_a_column_that_is_absent_and_one_of_another_type(kind: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    path = at(tmp_path, kind, whole[kind])
    told: list[str] = []
    absent = Columns([Column(name="agee", low=0, high=110)])
    if kind == "JSON lines":
        # What no object has is missing in all of them.
        read_columns(path, absent, told.append)
        assert any("'agee'" in sentence and SECRET not in sentence for sentence in told)
        told.clear()
    else:
        said = refused(path, absent)
        assert f"wards.{FILES[kind]}" in said
        assert "agee" in said or "columns of the study" in said
    # Texts and days are no numbers: they count as missing, and their owner alone is told where they are.
    read = read_columns(path, Columns([Column(name="arm", low=0, high=1)]), told.append)
    assert len(read) == ROWS
    assert [bool(value == value) for value in read.ravel()] == [False] * ROWS
    assert any("hold no number and count as missing" in sentence for sentence in told)
    assert not any(SECRET in sentence for sentence in told)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", FILES)
def test_what_is_no_file_that_can_be_read(
    kind: str, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"wards.{FILES[kind]}"
    assert "does not exist. Check the path" in refused(tmp_path / name)
    (tmp_path / "folder" / name).mkdir(parents=True)
    assert "is a folder and cannot be read as a table. Give a file" in refused(tmp_path / "folder" / name)
    if os.name == "posix":
        (tmp_path / "pipe").mkdir()
        os.mkfifo(tmp_path / "pipe" / name)
        assert "is a pipe or a device" in refused(tmp_path / "pipe" / name)
        (tmp_path / "loop").mkdir()
        (tmp_path / "loop" / name).symlink_to(name)
        assert "cannot be read" in refused(tmp_path / "loop" / name)
    path = at(tmp_path, kind, whole[kind])

    def forbidden(self: Path, *arguments: Any, **more: Any) -> Any:
        raise PermissionError(13, "Permission denied", SECRET)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", forbidden)
        assert "cannot be read (Permission denied). Check it" in refused(path)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", [kind for kind in FILES if kind not in ("SQLite", "DuckDB")])
def test_a_file_that_goes_or_changes_while_it_is_read(
    kind: str, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disturbed(what: Callable[[Path], Any]) -> str:
        path = at(tmp_path, kind, whole[kind])
        reader = formats._reader

        def reading(location: Any, kind: str, tell: Any) -> Any:
            inner = reader(location, kind, tell)

            def pieces(*arguments: Any) -> Iterator[Any]:
                yield from inner(*arguments)
                what(path)

            return pieces

        with monkeypatch.context() as patched:
            patched.setattr(formats, "_reader", reading)
            return refused(path)

    assert "was changed while it was read. Wait until" in disturbed(lambda path: path.write_bytes(whole[kind] + b"\n"))
    assert "does not exist. Check the path" in disturbed(Path.unlink)


@pytest.mark.parametrize("kind", PACKERS)
def test_what_is_packed_is_no_table_either(kind: str, tmp_path: Path) -> None:
    for content in (b"", b"\0\1\2" * 500, f"arm\n{SECRET}\n".encode()):
        assert "wards.csv" in refused(at(tmp_path, kind, PACKERS[kind](content)))


# --- as a person meets it: the command -------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", FILES)
def test_a_command_ends_with_2_and_one_sentence(
    kind: str, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cut = whole[kind][:40] if kind not in TEXTS else b""
    path = at(tmp_path, kind, cut)
    for source in (path.name, f"none.{FILES[kind]}"):
        command = ["run", source, "mean(age in 0..110)", *["--parties", "3", "--epsilon", "1", "--out", "none"]]
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 2
        captured = capsys.readouterr()
        assert not captured.out
        lines = captured.err.strip().splitlines()
        assert SECRET not in captured.err
        assert "Traceback" not in captured.err
        assert len(lines) == 1, captured.err
        assert source in lines[0], captured.err
        assert not Path("none").exists()


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def test_a_server_whose_tables_are_no_tables_postgresql(tmp_path: Path) -> None:
    address = support.postgresql.server()
    support.postgresql.execute(
        "DROP SCHEMA IF EXISTS bad CASCADE",
        "CREATE SCHEMA bad",
        "CREATE TABLE bad.empty (age float8, arm text)",
        "CREATE TABLE bad.other (years float8)",
        f"CREATE TABLE bad.texts AS SELECT '{SECRET}' AS age",
        f"CREATE VIEW bad.failing AS SELECT CAST('{SECRET}' || n AS float8) AS age FROM generate_series(1, 3) n",  # noqa: S608
        "CREATE TABLE bad.closed (age float8)",
        "DROP ROLE IF EXISTS stranger",
        "CREATE ROLE stranger LOGIN",
    )
    query = tmp_path / "q.sql"
    for settings, words in (
        ("#table=bad.other", "column 'age' is not one of the 1 column of the database"),
        ("#table=bad.none", "has no table 'bad.none'"),
        ("#table=bad.failing,query_mixes_rows=true", "a table of it cannot be read from the database"),
    ):
        for grouped in ("", ",grouped=true"):
            assert words in refused_by(f"{address}{settings}{grouped}")
    stranger = address.replace("user=owner", "user=stranger")
    assert "that this user may read" in refused_by(f"{stranger}#table=bad.closed")
    for statement in ("SELECT 1 / 0 AS age", "DROP TABLE bad.empty", "SELECT", "SELECT age FROM bad.closed WHERE"):
        query.write_text(statement)
        assert "the query in" in refused_by(f"{address}#query={query}") or statement == "SELECT"
    assert read_columns(f"{address}#table=bad.texts", AGE).shape == (1, 1)


def test_a_server_that_goes_while_it_is_read_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    address = support.postgresql.server()
    support.postgresql.execute(
        "DROP TABLE IF EXISTS going", "CREATE TABLE going AS SELECT n::float8 AS age FROM generate_series(1, 3) n"
    )
    rows = postgresql._rows

    def ended(cursor: Any, statement: str) -> Any:
        answer = rows(cursor, statement)
        ((mine,),) = rows(cursor, "SELECT pg_backend_pid()")
        support.postgresql.execute(f"SELECT pg_terminate_backend({int(mine)})")
        return answer

    monkeypatch.setattr(postgresql, "_rows", ended)
    for grouped in ("", ",grouped=true"):
        assert "cannot be read from the database" in refused_by(f"{address}#table=going{grouped}")


def refused_by(source: str) -> str:
    """Of a database, read by rows or by groups."""
    work = workload_of(AGE, "mean(age)")
    with pytest.raises(InputError) as caught:
        work.encode(records_of(source, AGE, print))
    said = str(caught.value)
    assert SECRET not in said
    assert "host=" not in said
    assert "\n" not in said
    return said
