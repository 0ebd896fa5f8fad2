"""From files to the declared columns: processor time and memory, beside Polars' own scan to a matrix.

``pytest benchmarks/test_reading.py``. Ratios of one run, each in a process of its own: what a process takes to begin, and to
import what it needs, is in neither.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

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
print(json.dumps([after[0] - before[0], time.perf_counter() - begun, after[1], after[1] - before[1]]))
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
POLARS = "import polars as pl, numpy"
SCAN = """
scan = pl.scan_csv(path) if path.endswith(".csv") else pl.scan_parquet(path)
places = [pl.col(name).replace_strict(each, range(len(each)), return_dtype=pl.Float64) for name, each in levels.items()]
assert len(scan.select(*numbers, *places).collect().to_numpy())
"""


ENCODE = """
from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies.data.frames import GroupedFrame
from quietmean.studies.data.grouped import GroupedRows
from quietmean.studies.data.reading import read_records
import polars
every = [Column(name=name, low=0, high=100, missing="indicator") for name in numbers]
every += [Column(name=name, **({"boolean": True} if name == "smoker" else {"levels": each})) for name, each in levels.items()]
columns = Columns([column for column in every if column.name in STATISTIC])
work = Workload(columns, (parse_statistic(read_text(STATISTIC)),), PrivacyUnit.RECORD)
"""
BY_ROWS = "print(work.encode(read_records(path, columns), step=2.0**-20).vector.tobytes().hex())"
BY_GROUPS = (
    "print(work.encode(GroupedRows(GroupedFrame(polars.scan_parquet(path)), columns), step=2.0**-20).vector.tobytes().hex())"
)
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


def measured(path: Path, warm: str, what: str) -> list[float]:
    """Processor seconds, seconds, megabytes in all, and added."""
    program = MEASURE.replace("WARM", warm).replace("WHAT", what)
    arguments = [sys.executable, "-c", program, json.dumps([str(path), NUMBERS, LEVELS])]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(path: Path, name: str, table: Callable[[str], None], runs: int = 3) -> tuple[float, float]:
    """The ratio of processor times, each the least of some runs, and the megabytes of ours."""
    ours = min(measured(path, OURS, READ) for _ in range(runs))
    theirs = min(measured(path, POLARS, SCAN) for _ in range(runs))
    table(
        f"{name}: {ours[0]:.2f} s of processor, {ours[2]:.0f} MB (+{ours[3]:.0f}); Polars {theirs[0]:.2f} s, {theirs[2]:.0f} MB: "
        f"{ours[0] / theirs[0]:.1f} times"
    )
    return ours[0] / theirs[0], ours[2]


def test_a_csv_file(tmp_path: Path, table: Callable[[str], None]) -> None:
    table_of(ROWS, 1).write_csv(tmp_path / "t.csv")
    ratio, memory = compared(tmp_path / "t.csv", "CSV, 1e6 rows of 8 columns", table)
    assert ratio <= 3
    assert memory <= 300
    table_of(ROWS, 1).write_csv(tmp_path / "q.csv", quote_style="non_numeric")
    ratio, _ = compared(tmp_path / "q.csv", "the same with quotation marks around texts, as R writes it", table)
    assert ratio <= 4


@pytest.mark.slow
def test_a_csv_file_of_ten_million_rows(tmp_path: Path, table: Callable[[str], None]) -> None:
    with (tmp_path / "t.csv").open("wb") as file:
        for part in range(10):
            table_of(ROWS, part).write_csv(file, include_header=part == 0)
    _, memory = compared(tmp_path / "t.csv", "CSV, 1e7 rows", table, runs=1)
    assert memory <= 300


def test_a_parquet_file(tmp_path: Path, table: Callable[[str], None]) -> None:
    table_of(ROWS, 1).write_parquet(tmp_path / "t.parquet")
    compared(tmp_path / "t.parquet", "Parquet, 1e6 rows, the process that reads it included", table)


@pytest.mark.slow
def test_a_parquet_file_of_ten_million_rows(tmp_path: Path, table: Callable[[str], None]) -> None:
    pl.concat([table_of(ROWS, part) for part in range(10)]).write_parquet(tmp_path / "t.parquet")
    ratio, memory = compared(tmp_path / "t.parquet", "Parquet, 1e7 rows", table, runs=1)
    assert ratio <= 2
    # The least that its library reads ahead; no more of it for more rows.
    assert memory <= 700


@pytest.mark.parametrize("statistic", PUSHED)
def test_groups_that_polars_counts(statistic: str, tmp_path: Path, table: Callable[[str], None]) -> None:
    table_of(ROWS, 1).write_parquet(tmp_path / "t.parquet")
    # A study declares the columns that it uses.
    warm = ENCODE.replace("STATISTIC", repr(statistic))
    rows, groups = (min(measured(tmp_path / "t.parquet", warm, what) for _ in range(2)) for what in (BY_ROWS, BY_GROUPS))
    ratio = rows[0] / groups[0]
    table(
        f"{statistic}, 1e6 rows: {rows[0]:.2f} s by rows, {groups[0]:.3f} s by groups, {groups[2]:.0f} MB: {ratio:.0f} times less"
    )


def test_only_the_columns_of_the_study_are_read(tmp_path: Path, table: Callable[[str], None]) -> None:
    rng = np.random.default_rng(2)
    beside = pl.DataFrame({f"c{place}": rng.random(ROWS // 4) for place in range(BESIDE)})
    narrow = table_of(ROWS // 4, 1)
    narrow.write_parquet(tmp_path / "narrow.parquet")
    pl.concat([narrow, beside], how="horizontal").write_parquet(tmp_path / "wide.parquet")
    wide, alone = (min(measured(tmp_path / f"{name}.parquet", OURS, READ) for _ in range(3)) for name in ("wide", "narrow"))
    table(f"Parquet, 2.5e5 rows: {wide[0]:.2f} s of processor with {BESIDE} columns beside, {alone[0]:.2f} s without")
    assert wide[0] <= 1.5 * alone[0]
    assert wide[2] <= alone[2] + 50
