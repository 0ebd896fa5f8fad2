"""From files to the declared columns: processor time and memory, beside Polars' and DuckDB's own scans to a matrix.

``pytest benchmarks/test_reading.py``. Ratios of one run, each in a process of its own: what a process takes to begin, and to
import what it needs, is in neither.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from pyarrow import parquet as pq

import support.postgresql
from support.bars import Bar

ROWS = 10**6
LEVELS = {"sex": ["f", "m"], "arm": ["placebo", "drug a", "drug b"], "smoker": ["no", "yes"]}
NUMBERS = ["age", "bmi", "glucose", "days"]
# Columns beside the study's seven, of the wide table.
BESIDE = 60

MEASURE = """
import json, resource, sys, time

def used():
    both = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    # Of this process alone: the other figure is of the one that began it, too.
    own = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
    return sum(one.ru_utime + one.ru_stime for one in both), max(own, both[1].ru_maxrss) / 1024

path, numbers, levels = json.loads(sys.argv[1])
WARM
before = used()
begun = time.perf_counter()
WHAT
after = used()
print(json.dumps([after[0] - before[0], time.perf_counter() - begun, after[1], after[1] - before[1], after[0]]))
"""
OURS = """
from quietmean.statistics import Column, Columns
from quietmean.studies.data.reading import read_records
import polars
columns = Columns(
    [Column(name=name, low=0, high=1000) for name in numbers] + [Column(name=name, levels=each) for name, each in levels.items()]
)
"""
READ = "rows = sum(len(piece) for piece in read_records(path, columns))\nassert rows"
# The library that reads Parquet in the process that wants its columns, as Polars' own scan does.
HERE = """
from quietmean.core import columnar
from quietmean.studies.data import isolated
import narwhals
isolated.pieces_apart = lambda module, said: module.pieces(said[0], said[1], int(said[2]), said[3:])
"""
POLARS = "import polars as pl, numpy"
SCAN = """
scan = pl.scan_csv(path) if path.endswith(".csv") else pl.scan_parquet(path)
places = [pl.col(name).replace_strict(each, range(len(each)), return_dtype=pl.Float64) for name, each in levels.items()]
assert len(scan.select(*numbers, *places).collect().to_numpy())
"""

DUCKDB = "import duckdb, numpy"
SCAN_BY_DUCKDB = """
places = [f"list_position({each!r}, {name}) - 1 AS {name}" for name, each in levels.items()]
texts = dict.fromkeys(levels, "VARCHAR")
source = f"read_csv('{path}', types={texts})" if path.endswith(".csv") else f"'{path}'"
read = duckdb.connect().sql(f"SELECT {', '.join([*numbers, *places])} FROM {source}").fetchnumpy()
assert len(numpy.column_stack([read[name] for name in (*numbers, *levels)]))
"""
# A table of few rows in a file, large or not.
FEW = """
from quietmean.statistics import Column, Columns
from quietmean.studies.data.reading import read_records
import duckdb, sqlite3
columns = Columns([Column(name="age", low=0, high=1000)])
"""
READ_FEW = "assert sum(len(piece) for piece in read_records(path + '#table=few', columns)) == 1000"
A_TENTH_OF_A_GIGABYTE = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT randomblob(1000000) FROM n",
    "duckdb": "SELECT random() FROM range(12500000)",
}
PERSONS = """
import numpy
from quietmean.statistics import Column, Columns
from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Workload, parse_statistic, read_text
from quietmean.studies.data.records import Records
import polars
columns = Columns([Column(name=name, low=0, high=1000) for name in numbers])
work = Workload(columns, tuple(parse_statistic(read_text(f"mean({name})")) for name in numbers), PrivacyUnit.PERSON)
"""
READ_PERSONS = "work.encode(Records(path, columns, print, 'mean'), step=2.0**-20)"

ENCODE = """
from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies.data.isolated import GroupedFrame
from quietmean.studies.data.grouped import records_of
from quietmean.studies.data.reading import read_records
import polars, duckdb, pyarrow, narwhals, pandas, adbc_driver_postgresql.dbapi
# What it imports of itself for a library, and for tables of Arrow, in which DuckDB's groups come.
for tried in (polars.LazyFrame({"a": [1]}), duckdb.sql("SELECT 1 AS a")):
    narwhals.from_native(tried).lazy().group_by("a").agg(narwhals.len()).collect().select("a")
every = [Column(name=name, low=0, high=100, missing="indicator") for name in numbers]
every += [Column(name=name, **({"boolean": True} if name == "smoker" else {"levels": each})) for name, each in levels.items()]
columns = Columns([column for column in every if column.name in STATISTIC])
work = Workload(columns, (parse_statistic(read_text(STATISTIC)),), PrivacyUnit.RECORD)
"""
BY_ROWS = "print(work.encode(read_records(path, columns), step=2.0**-20).vector.tobytes().hex())"
BY_GROUPS = "print(work.encode(records_of(GroupedFrame({}), columns, print), step=2.0**-20).vector.tobytes().hex())"
ENGINES = {
    "Polars": "polars.scan_parquet(path)",
    "DuckDB": "duckdb.read_parquet(path)",
    "PostgreSQL": "path",
}
# The engine's own question, of which ours cannot take less: the columns of the study as they are.
BARE = {
    "Polars": "print(len(polars.scan_parquet(path).group_by(columns.names).len().collect()))",
    "DuckDB": "print(len(duckdb.read_parquet(path).aggregate(str.join(',', [*columns.names, 'count(*)'])).fetchall()))",
}
# What push-down is for; days are whole numbers in the table.
PUSHED = (
    "crosstab(sex, arm)",
    "group-means(days, by=arm)",
    "survival(days, smoker, by=arm, horizon=90, bins=16)",
)


def table_of(rows: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    numbers = {name: rng.gamma(4, 10, rows).round(digits) for name, digits in zip(NUMBERS, (1, 2, 3, 0), strict=True)}
    return pl.DataFrame({"id": np.arange(rows), **numbers, **{name: rng.choice(each, rows) for name, each in LEVELS.items()}})


def measured(path: Path | str, warm: str, what: str) -> tuple[list[float], str]:
    """Processor seconds, seconds, megabytes in all, and added, processor seconds of the whole process; and what was printed."""
    program = MEASURE.replace("WARM", warm).replace("WHAT", what)
    arguments = [sys.executable, "-c", program, json.dumps([str(path), NUMBERS, LEVELS])]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    *printed, figures = done.stdout.splitlines()
    return json.loads(figures), "".join(printed)


def least(path: Path | str, warm: str, what: str, runs: int) -> list[float]:
    return min(measured(path, warm, what)[0] for _ in range(runs))


def compared(path: Path, name: str, table: Callable[[str], None], runs: int = 3) -> tuple[float, float]:
    """The ratio of processor times to that of Polars, each the least of some runs, and the megabytes of ours."""
    ours = least(path, OURS, READ, runs)
    polars, duckdb = least(path, POLARS, SCAN, runs), least(path, DUCKDB, SCAN_BY_DUCKDB, runs)
    table(
        f"{name}: {ours[0]:.2f} s of processor, {ours[2]:.0f} MB (+{ours[3]:.0f}); Polars {polars[0]:.2f} s, {polars[2]:.0f} MB; "
        f"DuckDB {duckdb[0]:.2f} s, {duckdb[2]:.0f} MB: {ours[0] / polars[0]:.1f} and {ours[0] / duckdb[0]:.1f} times"
    )
    return ours[0] / polars[0], ours[2]


def test_a_csv_file(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    table_of(ROWS, 1).write_csv(tmp_path / "t.csv")
    ratio, memory = compared(tmp_path / "t.csv", "CSV, 1e6 rows of 8 columns", table)
    bar("CSV, 1e6 rows, times Polars", ratio, 3)
    bar("CSV, 1e6 rows, MB", memory, 300)
    table_of(ROWS, 1).write_csv(tmp_path / "q.csv", quote_style="non_numeric")
    ratio, _ = compared(tmp_path / "q.csv", "the same with quotation marks around texts, as R writes it", table)
    bar("CSV with quotation marks, 1e6 rows, times Polars", ratio, 4)


@pytest.mark.slow
def test_a_csv_file_of_ten_million_rows(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    with (tmp_path / "t.csv").open("wb") as file:
        for part in range(10):
            table_of(ROWS, part).write_csv(file, include_header=part == 0)
    _, memory = compared(tmp_path / "t.csv", "CSV, 1e7 rows", table, runs=1)
    bar("CSV, 1e7 rows, MB", memory, 300)


def test_a_parquet_file(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    table_of(ROWS, 1).write_parquet(tmp_path / "t.parquet")
    compared(tmp_path / "t.parquet", "Parquet, 1e6 rows, the process that reads it included", table)
    path, asked = tmp_path / "t.parquet", ((OURS, READ), (OURS + HERE, READ), (POLARS, SCAN))
    runs = [[measured(path, warm, what)[0] for _ in range(3)] for warm, what in asked]
    (apart, here, polars), (our_processes, _, its_process) = (
        [min(one[place] for one in each) for each in runs] for place in (0, 4)
    )
    table(
        f"the same: {here:.2f} s in one process, {here / polars:.1f} times Polars there; {apart:.2f} s with the process that "
        f"reads it, imports included, beside such a process of Polars, {its_process:.2f} s: {apart / its_process:.1f} times; "
        f"whole processes {our_processes:.2f} s: {our_processes / its_process:.1f} times"
    )
    # Where both import what they need.
    bar("Parquet, 1e6 rows, times Polars", apart / its_process, 2)


@pytest.mark.slow
def test_a_parquet_file_of_ten_million_rows(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    pl.concat([table_of(ROWS, part) for part in range(10)]).write_parquet(tmp_path / "t.parquet")
    ratio, memory = compared(tmp_path / "t.parquet", "Parquet, 1e7 rows", table, runs=1)
    bar("Parquet, 1e7 rows, times Polars", ratio, 2)
    # What its library reads ahead.
    bar("Parquet, 1e7 rows, MB", memory, 450)


@pytest.mark.slow
@pytest.mark.long
def test_a_parquet_file_of_a_hundred_million_rows(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    """What is in memory does not grow with the rows."""
    with pq.ParquetWriter(tmp_path / "t.parquet", table_of(1, 0).to_arrow().schema) as writer:
        for part in range(100):
            writer.write_table(table_of(ROWS, part).to_arrow(), row_group_size=ROWS // 4)
    figures = least(tmp_path / "t.parquet", OURS, READ, 1)
    table(f"Parquet, 1e8 rows: {figures[0]:.0f} s of processor, {figures[2]:.0f} MB (+{figures[3]:.0f})")
    bar("Parquet, 1e8 rows, MB", figures[2], 450)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("statistic", PUSHED)
@pytest.mark.parametrize("millions", [1, pytest.param(10, marks=[pytest.mark.slow, pytest.mark.long])])
def test_groups_that_an_engine_counts(
    millions: int, statistic: str, engine: str, tmp_path: Path, table: Callable[[str], None], bar: Bar
) -> None:
    # A study declares the columns that it uses.
    warm = ENCODE.replace("STATISTIC", repr(statistic))
    path: Path | str = tmp_path / "t.parquet"
    rows = pl.concat([table_of(ROWS, part) for part in range(millions)])
    if engine == "PostgreSQL":
        path = f"{support.postgresql.server()}#table=public.wards"
        with support.postgresql.connection().cursor() as cursor:
            cursor.adbc_ingest("wards", rows.to_arrow(compat_level=pl.CompatLevel.oldest()), mode="replace")
    else:
        rows.write_parquet(path)
    del rows
    runs = 2 if millions == 1 else 1
    # By rows as they are read, and without what a process of its own for them takes to begin.
    asked = [(warm, BY_ROWS), (warm + HERE, BY_ROWS), (warm, BY_GROUPS.format(ENGINES[engine]))]
    done = [[measured(path, *each) for _ in range(runs)] for each in asked]
    assert len({vector for each in done for _, vector in each}) == 1
    # What the server computes is in none; there the time that passes is compared, too.
    by_rows, here, groups = (min(figures for figures, _ in each) for each in done)
    table(
        f"{statistic} in {engine}, {millions}e6 rows: {by_rows[0]:.2f} s of processor by rows, {here[0]:.2f} s of these in one "
        f"process, {groups[0]:.3f} s by groups ({by_rows[1]:.2f}, {here[1]:.2f} and {groups[1]:.3f} s pass), {groups[2]:.0f} MB: "
        f"{by_rows[0] / groups[0]:.0f} and {here[0] / groups[0]:.0f} times less"
    )
    bar(f"{statistic} in {engine}, {millions}e6 rows, twentieths of the time by rows", 20 * groups[0] / by_rows[0], 1)
    if engine in BARE:
        bare = least(path, warm, BARE[engine], runs)[0]
        table(f"the engine's own GROUP BY of these columns takes {bare:.3f} s: {groups[0] / bare:.2f} times")


def test_a_small_table_of_a_large_database(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    """Beside what a file with nothing else takes."""
    few = [[float(age)] for age in range(1000)]
    for kind in ("sqlite", "duckdb"):
        for name, pieces in (("alone", 0), ("large", 16)):
            opened = sqlite3.connect if kind == "sqlite" else duckdb.connect
            with closing(opened(str(tmp_path / f"{name}.{kind}"))) as base:
                base.execute("CREATE TABLE few (age DOUBLE)")
                base.executemany("INSERT INTO few VALUES (?)", few)
                base.execute("CREATE TABLE large (content)" if kind == "sqlite" else "CREATE TABLE large (content DOUBLE)")
                for _ in range(pieces):
                    base.execute(f"INSERT INTO large {A_TENTH_OF_A_GIGABYTE[kind]}")
                base.commit()
        alone, large = (least(tmp_path / f"{name}.{kind}", FEW, READ_FEW, 2) for name in ("alone", "large"))
        size = (tmp_path / f"large.{kind}").stat().st_size / 1e9
        table(
            f"1000 rows of a {kind} file of {size:.1f} GB: {large[2]:.0f} MB, {large[2] - alone[2]:.0f} more than of these alone"
        )
        bar(f"1000 rows of a large {kind} file, MB more than of these alone", large[2] - alone[2], 50)


def test_persons_take_little_memory(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    """Memory of a table whose rows are not kept: 64 MiB of rows at a time, and 40 bytes for each person."""
    taken = {}
    for rows in (ROWS, 4 * ROWS):
        frame = pl.concat([table_of(ROWS, part) for part in range(rows // ROWS)])
        frame = frame.with_columns(id=pl.Series(np.random.default_rng(4).integers(0, rows // 5, rows)))
        frame.write_parquet(tmp_path / "visits.parquet")
        (tmp_path / "visits.format.toml").write_text('[mapping]\nperson = "id"\n')
        taken[rows] = figures = least(tmp_path / "visits.parquet", PERSONS, READ_PERSONS, 1)
        table(
            f"unit person, {rows:.0e} rows of {rows // 5:.0e} persons: {figures[0]:.1f} s of processor, {figures[2]:.0f} MB "
            f"(+{figures[3]:.0f})"
        )
    bar("persons, 4 times the rows, MB more", taken[4 * ROWS][2] - taken[ROWS][2], 150)


def test_only_the_columns_of_the_study_are_read(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    rng = np.random.default_rng(2)
    beside = pl.DataFrame({f"c{place}": rng.random(ROWS // 4) for place in range(BESIDE)})
    narrow = table_of(ROWS // 4, 1)
    narrow.write_parquet(tmp_path / "narrow.parquet")
    pl.concat([narrow, beside], how="horizontal").write_parquet(tmp_path / "wide.parquet")
    wide, alone = (least(tmp_path / f"{name}.parquet", OURS, READ, 3) for name in ("wide", "narrow"))
    table(f"Parquet, 2.5e5 rows: {wide[0]:.2f} s of processor with {BESIDE} columns beside, {alone[0]:.2f} s without")
    bar(f"Parquet with {BESIDE} columns beside, times the time without", wide[0] / alone[0], 1.5)
    bar(f"Parquet with {BESIDE} columns beside, MB more", wide[2] - alone[2], 50)
