"""A vector is the same, to the last bit, however its records come; and of a large source only a piece is in memory."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.statistics import Columns, Workload, parse_statistic, read_text
from quietmean.studies.data import Records, read_columns, records
from support.every_kind import COLUMNS, all_statistics
from support.refusals import refused

SEED = 20261126
OF_PARTIES = ["mean(age)", "proportion(sex)", "correlation(age, weight)"]


def cut(rows: NDArray[np.float64], rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Into pieces of any height, some of none."""
    place = 0
    while place < len(rows):
        size = int(rng.choice([0, 1, 7, 4096, 5000]))
        yield rows[place : place + size]
        place += size


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("unit", "count"),
    [
        (PrivacyUnit.RECORD, CountVisibility.PUBLIC),
        (PrivacyUnit.RECORD, CountVisibility.PRIVATE),
        (PrivacyUnit.PARTY, CountVisibility.PUBLIC),
    ],
)
def test_the_vector_of_pieces_is_that_of_the_whole(unit: PrivacyUnit, count: CountVisibility) -> None:
    rng = np.random.default_rng(SEED)
    statistics = all_statistics() if unit == PrivacyUnit.RECORD else [parse_statistic(read_text(one)) for one in OF_PARTIES]
    workload = Workload(
        COLUMNS, tuple(statistics), unit, count=count, most_records=9000 if count == CountVisibility.PRIVATE else 0
    )
    limits = [(one.low - 1, one.high + 1) if one.numeric else (-1, len(one.categories)) for one in COLUMNS]
    rows = np.column_stack([rng.uniform(low, high, 9100) for low, high in limits])
    rows[rng.random(rows.shape) < 0.1] = np.nan
    rows[:, [not one.numeric for one in COLUMNS]] = np.round(rows[:, [not one.numeric for one in COLUMNS]])
    for step in (0.0, 2.0**-30):
        whole, pieces = workload.encode(rows, step=step), workload.encode(cut(rows, rng), step=step)
        np.testing.assert_array_equal(whole.vector, pieces.vector)
        assert (whole.weight, whole.clamped, whole.missing, whole.beyond) == (
            pieces.weight, pieces.clamped, pieces.missing, pieces.beyond,
        )  # fmt: skip
    nothing = workload.encode(iter([]))
    missing = workload.encode(np.full((1, len(limits)), np.nan))
    if unit == PrivacyUnit.PARTY:
        # Its number of records is protected with all else: it counts once, as a record with all values missing.
        np.testing.assert_array_equal(nothing.vector, missing.vector)
    else:
        assert not nothing.vector.any()
    assert nothing.weight == {PrivacyUnit.PARTY: 1.0}.get(unit, 9000.0 if count == CountVisibility.PRIVATE else 0.0)


def wards(folder: Path, rows: int) -> Path:
    path = folder / "wards.csv"
    path.write_text("age,note\n" + "".join(f"{place % 90}.5,x\n" for place in range(rows)))
    return path


def test_records_are_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, columns = wards(tmp_path, 300), Columns([COLUMNS["age"]])
    monkeypatch.setattr("quietmean.studies.data.table._CHUNK", 512)
    monkeypatch.setattr("quietmean.studies.data.text_files._HEAD", 64)
    expected = read_columns(path, columns)
    for most in (2**20, 10):
        monkeypatch.setattr(records, "MOST_KEPT", most)
        told: list[str] = []
        held = Records(path, columns, told.append)
        assert len(held) == 300
        assert len(list(held.in_order)) > 3
        for _ in range(2):
            np.testing.assert_array_equal(np.vstack(list(held.in_order)), expected)
        path.write_text(path.read_text() + "7,x\n")
        if most > 10:
            np.testing.assert_array_equal(np.vstack(list(held.in_order)), expected)
            held.wipe()
            assert not np.vstack(list(held.in_order)).any()
        else:
            refused(r"^wards\.csv was changed while it was read. Wait until", list, held)
        wards(tmp_path, 300)


MEMORY = """
import resource, sys
from quietmean.statistics import Column, Columns
from quietmean.studies.data import read_columns
columns = Columns([Column(name="age", low=0, high=110)])
read_columns(sys.argv[1], columns)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert len(read_columns(sys.argv[2], columns)) == 1000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in kB there")
def test_a_small_table_in_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    """A table of 1000 rows beside one of 200 MB, against one alone: less than 50 MB more."""
    duckdb = pytest.importorskip("duckdb")
    for name, blobs in (("small", 0), ("large", 200)):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as base:
            base.execute(
                "CREATE TABLE wards AS WITH RECURSIVE n(age) AS (SELECT 0 UNION ALL SELECT age + 1 FROM n) "
                "SELECT age % 90 AS age FROM n LIMIT 1000"
            )
            base.execute("CREATE TABLE images (image)")
            base.executemany("INSERT INTO images VALUES (randomblob(1000000))", [()] * blobs)
            base.commit()
        with closing(duckdb.connect(str(tmp_path / f"{name}.duckdb"))) as base:
            base.execute("CREATE TABLE wards AS SELECT range % 90 AS age FROM range(1000)")
            base.execute(f"CREATE TABLE images AS SELECT random() AS a, random() AS b FROM range({blobs * 60_000})")  # noqa: S608
    for kind in ("sqlite", "duckdb"):
        sources = [str(tmp_path / f"{name}.{kind}") for name in ("small", "large")]
        done = subprocess.run([sys.executable, "-c", MEMORY, *sources], capture_output=True, text=True, check=True)
        assert int(done.stdout) < 50_000, kind
