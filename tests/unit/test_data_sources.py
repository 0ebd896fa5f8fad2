"""Databases on servers, and queries over any file: what is read, what is refused, and what nobody is shown."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns
from quietmean.studies.data import Location, Preview, account_name, read_columns
from support.odd_cells import COLUMNS, USUAL, WRITERS, read_files_in_this_process
from support.postgresql import PASSWORD, by_network, execute, server
from support.refusals import refused

AGE = Columns([Column(name="age", low=0, high=110)])
QUERY = """
-- Over 30, by another name.
SELECT CASE WHEN TRY_CAST(age AS DOUBLE) > 30 THEN age END AS age, visits, ill, arm, site, day FROM data;
"""


def query(folder: Path, text: str) -> Path:
    path = folder / "wards.sql"
    path.write_text(text)
    return path


# --- a query over any file --------------------------------------------------------------------------------------------


# Frames have no name behind which to say anything, and databases have queries of their own.
NO_FILES = ("pandas", "Polars", "PyArrow", "quoted", "SQLite", "DuckDB", "PostgreSQL")
SOME = ("semicolon", "JSON lines", "Parquet")


@pytest.mark.parametrize(
    "name",
    [one if one in SOME else pytest.param(one, marks=pytest.mark.slow) for one in WRITERS if not one.startswith(NO_FILES)],
)
def test_every_file_is_one_table_of_a_query(name: str, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    source = WRITERS[name](tmp_path, USUAL)
    plain = read_columns(source, COLUMNS)
    found = read_columns(f"{source}#query={query(tmp_path, QUERY)}", COLUMNS)
    young = plain[:, 0] <= 30
    assert young.any()
    assert np.isnan(found[young, 0]).all()
    np.testing.assert_array_equal(found[~young], plain[~young])
    np.testing.assert_array_equal(found[:, 1:6], plain[:, 1:6])


@pytest.mark.parametrize("name", ["semicolon", "Parquet", "SQLite", "DuckDB"])
def test_a_column_that_a_query_has_twice_is_refused_and_no_other(name: str, tmp_path: Path) -> None:
    """Which one is meant nobody knows; of one that is not asked for it does not matter, as a join of all columns has it."""
    pytest.importorskip("duckdb")
    source = str(WRITERS[name](tmp_path, USUAL))
    table = source.partition("#table=")[2] or ("data" if name in ("semicolon", "Parquet") else "t")
    path = source.partition("#")[0]
    twice = f"SELECT one.*, age FROM {table} one -- of all"  # noqa: S608
    for text in (twice, f"SELECT 41 AS age, 42 AS age FROM {table}"):  # noqa: S608
        with pytest.raises(InputError, match=r"^columns \d+ and \d+ of \S+ have the same name. Give .* or in the query.$"):
            read_columns(f"{path}#query={query(tmp_path, text)}", AGE)
    other = f'SELECT 41 AS age, 1 AS x, 2 AS x, 3 AS "y:1" FROM {table} -- x'  # noqa: S608
    assert set(read_columns(f"{path}#query={query(tmp_path, other)}", AGE).ravel()) == {41.0}


@pytest.mark.sampled(18)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('{other}')",
        "SELECT * FROM '{other}'",
        "SELECT * FROM read_parquet('{other}')",
        "SELECT content AS age FROM read_text('{other}')",
        "SELECT 1 AS age FROM data); COPY data TO '{other}'; SELECT (1",
        "SELECT age FROM secret",
        "INSTALL httpfs",
        "SELECT * FROM read_xlsx('{other}')",
        "SELECT * FROM postgres_scan('host=127.0.0.1', 'public', 't')",
        "SELECT * FROM 'https://127.0.0.1/{other}.csv'",
        "SET enable_external_access = true",
        "ATTACH '{other}' AS x",
        "SELECT 'Sentinel'::INTEGER AS age",
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_query_reads_nothing_but_its_file(text: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    read_files_in_this_process(monkeypatch)
    secret = polars.DataFrame({"age": [77.0]})
    path, other = tmp_path / f"t.{ending}", tmp_path / "other"
    for one in (path, other):
        (secret.write_csv if ending == "csv" else secret.write_parquet)(one)
    before = other.read_bytes()
    with pytest.raises(InputError, match=r"is not allowed|cannot be (read|computed)") as caught:
        read_columns(f"{path}#query={query(tmp_path, text.format(other=other))}", AGE)
    assert "Sentinel" not in str(caught.value)
    with pytest.raises(InputError, match=r"is refused by the database. Check the query") as caught:
        read_columns(f"{path}#query={query(tmp_path, text.format(other=other))},query_mixes_rows=true", AGE)
    assert "Sentinel" not in str(caught.value)
    assert other.read_bytes() == before


@pytest.mark.parametrize("name", ["t[1].parquet", "*.parquet", "it's?.parquet", "year=2020.parquet"])
def test_the_name_of_a_file_is_no_pattern_of_a_query(name: str, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    polars.DataFrame({"age": [99.0]}).write_parquet(tmp_path / "t1.parquet")
    with (tmp_path / name).open("wb") as file:
        polars.DataFrame({"age": [41.0]}).write_parquet(file)
    assert read_columns(f"{tmp_path / name}#query={query(tmp_path, 'SELECT age FROM data')}", AGE).tolist() == [[41]]  # noqa: S608


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


def one_table(*statements: str) -> str:
    execute("DROP SCHEMA IF EXISTS clinic CASCADE", "CREATE SCHEMA clinic", *statements)
    return server()


def test_the_only_table_that_fits_is_taken() -> None:
    address = one_table("CREATE TABLE clinic.v AS SELECT 41 AS age, 'x' AS clinic_note", "CREATE TABLE clinic.w AS SELECT 1 AS n")
    columns = Columns([*AGE, Column(name="clinic_note", levels=("x", "y"))])
    assert read_columns(address, columns).tolist() == [[41, 0]]
    for said in ("v", "clinic.v"):
        assert read_columns(f"{address}#table={said}", AGE).tolist() == [[41]]
    with pytest.raises(InputError, match=r"^the database postgres has no table 'wv' that this user may read. Say #table="):
        read_columns(f"{address}#table=wv", AGE)
    with pytest.raises(InputError, match=r"^none of the \d+ tables of the database postgres have the columns of the study"):
        read_columns(address, Columns([Column(name="no such thing", low=0, high=1)]))
    with pytest.raises(InputError, match=r"^column 'ages' is not one of the 2 columns of the database postgres"):
        read_columns(f"{address}#table=v", Columns([Column(name="ages", low=0, high=1)]))
    assert account_name(address) == "postgres"


def test_a_query_of_a_server_and_what_it_may_not(tmp_path: Path) -> None:
    address = one_table("CREATE TABLE clinic.v AS SELECT 41 AS age", "CREATE SEQUENCE clinic.s")
    said = f"{address}#query={query(tmp_path, 'SELECT age + 1 AS age FROM clinic.v;')}"  # noqa: S608
    mixed = f"{said},query_mixes_rows=true"
    assert read_columns(said, AGE).tolist() == read_columns(mixed, AGE).tolist() == [[42]]
    for text in (
        "SELECT nextval('clinic.s') AS age",
        "SELECT 1 AS age); DELETE FROM clinic.v; SELECT (1",
        "WITH gone AS (DELETE FROM clinic.v RETURNING age) SELECT age FROM gone",
        "SELECT 'Sentinel'::int AS age",
        "SELECT 1 / (age - 41) AS age FROM clinic.v",
    ):
        query(tmp_path, text)
        with pytest.raises(
            InputError, match=r"^the query in \S+ cannot be read from the database postgres. Check the query"
        ) as caught:
            read_columns(mixed, AGE)
        assert "Sentinel" not in str(caught.value)
        # A value that cannot be computed is missing.
        if "/" in text:
            assert not np.isfinite(read_columns(said, AGE)).any()
        else:
            with pytest.raises(InputError, match=r"is not allowed|cannot be (read|computed)") as caught:
                read_columns(said, AGE)
            assert "Sentinel" not in str(caught.value)
    query(tmp_path, "SELECT count(*) AS age FROM clinic.v")
    assert read_columns(mixed, AGE).tolist() == [[1]]
    refused("GROUP BY or an aggregate", read_columns, said, AGE)


@pytest.mark.sampled(15)
@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1e400::numeric", np.inf),
        ("-1e400::numeric", -np.inf),
        ("1e-400::numeric", 0),
        ("'NaN'::numeric", np.nan),
        ("7.10::numeric(10, 2)", 7.1),
        ("'infinity'::float8", np.inf),
        ("9223372036854775807", 2.0**63),
        ("'41,5'::text", 41.5),
        ("'7   '::char(9)", 7),
        ("'\\x3431'::bytea", 41),
        ("NULL::int", np.nan),
        ("ARRAY[1, 2]", np.nan),
        ("'{\"a\": 1}'::jsonb", np.nan),
        ("true", np.nan),
        ("interval '3 days'", np.nan),
        ("'infinity'::date", np.nan),
        ("money '12'", 12),
        ("repeat('7', 70000)", np.nan),
    ],
)
def test_a_cell_of_any_type_of_postgresql(expression: str, value: float) -> None:
    address = one_table(f"CREATE TABLE clinic.v AS SELECT {expression} AS age")
    np.testing.assert_array_equal(read_columns(f"{address}#table=v", AGE), [[value]])


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("expression", "day"),
    [
        ("date '2001-05-06'", 125),
        ("timestamp '2001-05-06 23:59:59'", 125),
        ("timestamptz '2001-05-06 00:30+02'", 124),
        ("'infinity'::timestamp", np.nan),
        ("date '0044-03-15 BC'", np.nan),
        ("date '294000-01-01'", np.nan),
        ("'06.05.2001'::text", 125),
    ],
)
def test_a_day_of_postgresql_is_the_same_on_every_machine(expression: str, day: float, monkeypatch: pytest.MonkeyPatch) -> None:
    address = one_table(f"CREATE TABLE clinic.v AS SELECT {expression} AS day")
    days = Columns([Column.model_validate({"name": "day", "low": "2001-01-01", "high": "2001-12-31"})])
    for zone, style in (("Asia/Tokyo", "German"), ("America/New_York", "SQL, DMY")):
        monkeypatch.setenv("PGTZ", zone)
        monkeypatch.setenv("PGDATESTYLE", style)
        np.testing.assert_array_equal(read_columns(f"{address}#table=v", days), [[day]])


def test_a_table_of_many_pieces_is_read_from_one_point_in_time() -> None:
    address = one_table("CREATE TABLE clinic.v AS SELECT n AS age FROM generate_series(1, 200000) n")
    assert read_columns(f"{address}#table=v", AGE).sum() == 200_000 * 200_001 / 2
    assert one_table("CREATE TABLE clinic.v (age int)")
    assert read_columns(f"{address}#table=v", AGE).shape == (0, 1)


@pytest.fixture
def password_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pgpass"
    path.write_text(f"127.0.0.1:*:*:owner:{PASSWORD}\n")
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    monkeypatch.setenv("PGPASSFILE", str(path))
    return path


def test_the_password_is_where_libpq_looks(password_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_table("CREATE TABLE clinic.v AS SELECT 41 AS age")
    address = by_network()
    assert read_columns(f"{address}#table=v", AGE).tolist() == [[41]]
    services = tmp_path / "services.conf"
    port = address.rpartition(":")[2].partition("/")[0]
    services.write_text(f"[wards]\nhost=127.0.0.1\nport={port}\nuser=owner\ndbname=postgres\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    for said in ("service=wards", "postgresql://?service=wards"):
        assert read_columns(f"{said}#table=v", AGE).tolist() == [[41]]
        assert account_name(said) == "wards"
    password_file.write_text("127.0.0.1:*:*:owner:wrong\n")
    caught = refused(r"^the database postgres cannot be reached, or does not let this user in. Check", read_columns, address, AGE)
    assert "owner" not in caught


ADDRESSES: list[Callable[[str], str]] = [
    lambda secret: f"postgresql://ada:{secret}@localhost/wards",
    lambda secret: f"postgres://ada:{secret}@localhost:1/wards#table=v",
    lambda secret: f"postgresql://localhost/wards?user=ada&password={secret}",
    lambda secret: f"postgresql://localhost/wards?pass%77ord={secret}",
    lambda secret: f"postgresql://ada:@{secret}@localhost/wards",
    lambda secret: f"postgresql:/ada:{secret}@localhost/wards",
]


SECRET = "Sentinel%2FPassword"  # noqa: S105


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_a_password_is_refused(address: Callable[[str], str]) -> None:
    for make in (Location.of, account_name):
        assert "Sentinel" not in refused(r"^the address of the database has a password", make, address(SECRET))


OTHERS: list[Callable[[str], str]] = [
    lambda secret: f"mysql://ada:{secret}@localhost/wards",
    lambda secret: f"jdbc:postgresql://localhost/wards?user=ada&password={secret}",
    lambda secret: f"postgresql+psycopg://ada:{secret}@localhost/wards#table=v",
    lambda secret: f"https://ada:{secret}@clinic.example/wards.csv",
    lambda secret: f"s3://{secret}:key@bucket/wards.parquet#skip=1",
    lambda secret: f"ada:{secret}@localhost/wards",
    lambda secret: f"postgresql//ada:{secret}@localhost/wards",
    lambda secret: f"PGPASSWORD={secret} postgresql://localhost/wards",
    lambda secret: f"host=localhost dbname=wards PASSWORD = {secret}",
    lambda secret: f"service=wards password={secret}",
    lambda secret: f"Driver=x;Server=y;Uid=ada;Pwd={secret};",
]


@pytest.mark.parametrize("address", OTHERS)
def test_no_address_of_anything_else_is_shown(address: Callable[[str], str]) -> None:
    """Nor of what has a password without an address."""
    for make in (Location.of, account_name, lambda source: read_columns(source, AGE)):
        assert "Sentinel" not in refused(r"^The data's address is not a file", make, address(SECRET))


def test_a_file_may_be_called_like_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ada:x@y.csv").write_text("age\n41\n")
    for source in ("ada:x@y.csv", "ada:x@y.csv#decimal=point"):
        assert read_columns(source, AGE).tolist() == [[41.0]]


@pytest.mark.parametrize("command", ["join", "check", "send", "run", "site data"])
@pytest.mark.parametrize("address", [ADDRESSES[0], OTHERS[0], OTHERS[-1]])
def test_no_command_shows_a_password(
    command: str,
    address: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    study = tmp_path / "study.toml"
    study.write_text('[study]\nname = "s"\n[[column]]\nname = "age"\nlow = 0\nhigh = 110\n')
    secret = address(SECRET)
    arguments = {
        "run": ["--data", secret, "--parties", "2", "mean(age in 0..110)", "--accept-wide"],
        "site data": [secret, str(study)],
    }.get(command, [str(study), "--data", secret])
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), *arguments])
    said = "".join(capsys.readouterr())
    assert stop.value.code == 2
    assert "Sentinel" not in said
    if command in ("run", "site data"):
        assert re.search("the address of the database has a password|address is not a file", said)


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("adbc_driver_postgresql")
    for address in ("postgresql://ada@127.0.0.1:1/wards", "service=no_such_service", "postgresql:///wards?host=/nowhere"):
        assert "ada" not in refused(r"^the database \w+ cannot be reached", read_columns, address, AGE)


def test_what_is_said_of_a_database() -> None:
    assert Location.of("postgresql:///wards#table=v").settings == {"table": "v"}
    assert Location.of("postgresql://h:1/wards").path == Path("wards")
    with pytest.raises(InputError, match="#skip= has no meaning for the database wards, which is a database"):
        read_columns("postgresql://h:1/wards#skip=1", AGE)
    with pytest.raises(InputError, match=r"^file nothing\.toml does not exist, and #format= names it"):
        Location.of("postgresql:///wards#format=nothing.toml")


def test_a_preview_of_a_database(tmp_path: Path) -> None:
    address = one_table("CREATE TABLE clinic.v AS SELECT unnest(ARRAY['41', '61,525', '1,234']) AS age")
    preview = Preview.of(f"{address}#table=v", AGE)
    assert dict(preview.proposed) == {"decimal": "comma"}
    (tmp_path / "f.toml").write_text('decimal = "comma"\n')
    assert read_columns(f"{address}#table=v,format={tmp_path / 'f.toml'}", AGE).ravel().tolist() == [41, 61.525, 1.234]


def test_without_its_driver_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str) -> Any:
        raise ModuleNotFoundError(name=module.partition(".")[0])

    monkeypatch.setattr("quietmean.core.extensions.import_module", absent)
    refused(r"needs the extra 'postgresql', which is not installed", read_columns, "postgresql:///wards", AGE)
