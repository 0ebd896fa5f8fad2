"""Files whose lines end in several ways are read as pandas, Polars and DuckDB do, or nobody is left in doubt: random files."""

from __future__ import annotations

import csv
import io
import random
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from quietmean.statistics import Column, Columns
from quietmean.studies.data import read_columns, text_files, text_records
from quietmean.studies.data.grouped import records_of
from quietmean.studies.data.isolated import GroupedFrame
from support.workloads import workload_of

COLUMNS = Columns([Column(name="age", low=0, high=110), Column(name="arm", levels=("a", "b"))])
WORKLOAD = workload_of(COLUMNS, "group-means(age, by=arm)")
NAMES = ("age", "arm", "note")
NOTES = ["", "x", "two words", "one\nand two", "one\r\nand two", "one\rand two", 'said "so"', "x, y"]
ENDS = ("\n", "\r\n", "\r")
MARKED = {"utf-8": "", "utf-8-sig": "", "utf-16": "", "utf-16-be": "\ufeff"}
# Without what DuckDB would guess from the rows.
BY_DUCKDB = """
SELECT * FROM read_csv('{}', auto_detect = false, header = true, delim = ',', quote = '"', escape = '"', strict_mode = false,
                       columns = {{'age': 'VARCHAR', 'arm': 'VARCHAR', 'note': 'VARCHAR'}})
"""
FILES, SOME = 4000, 200


def some_file(rng: random.Random) -> tuple[bytes, str, str]:
    """Its bytes, its encoding, and its text, whose lines end in one way in most files."""
    usual, mixed = rng.choice(ENDS), rng.choice([0, 0, 0.2, 1])

    def end() -> str:
        return rng.choice(ENDS) if rng.random() < mixed else usual

    text = ",".join(f"{name}{rng.choice(['', '', ' '])}" for name in NAMES) + end()
    for _ in range(rng.randrange(1, 9)):
        note = rng.choice(NOTES if rng.random() < 0.3 else NOTES[:3])
        always = rng.random() < 0.3
        cells = [str(rng.randrange(111)), rng.choice("ab"), note]
        text += ",".join(quoted(cell) if always or set(cell) & set('",\r\n') else cell for cell in cells) + end()
    text = text if rng.random() < 0.7 else text.rstrip("\r\n")
    encoding = rng.choice([*MARKED, "utf-8", "utf-8"])
    return (MARKED[encoding] + text).encode(encoding), encoding, text


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def by_pandas(content: bytes, encoding: str) -> np.ndarray:
    frame = pd.read_csv(io.BytesIO(content), encoding=encoding.removesuffix("-be"), skipinitialspace=True)
    frame.columns = frame.columns.str.strip()
    return np.column_stack([frame["age"], frame["arm"].map({"a": 0, "b": 1})]).astype(float)


def followed(path: Path, encoding: str, text: str) -> tuple[np.ndarray, int]:
    """What is read once all that the owner is told was done, and how many times something was."""
    said = ""
    for times in range(4):
        told = list[str]()
        found = read_columns(f"{path}{said}", COLUMNS, told.append)
        if not told:
            return found, times
        end = re.search(r"Write (CR LF|CR|LF) behind each record", " ".join(told))
        if end is not None:
            out = io.StringIO(newline="")
            writer = csv.writer(out, lineterminator={"CR LF": "\r\n", "LF": "\n", "CR": "\r"}[end[1]])
            writer.writerows(csv.reader(io.StringIO(text, newline="")))
            path.write_bytes((MARKED[encoding] + out.getvalue()).encode(encoding))
        else:
            assert any(f"{path.name}#multiline=true" in one for one in told), told
            said = "#multiline=true"
    raise AssertionError(told)


def differing(path: Path, seeds: range) -> Iterator[int]:
    """The seeds of files that are read otherwise than by pandas, with nothing said; or otherwise when it is done as was said."""
    for seed in seeds:
        content, encoding, text = some_file(random.Random(seed))
        path.write_bytes(content)
        found, _ = followed(path, encoding, text)
        if not np.array_equal(found, by_pandas(content, encoding)):
            yield seed


@pytest.mark.parametrize("count", [pytest.param(FILES, marks=pytest.mark.slow), SOME])
@pytest.mark.parametrize("fast", [True, False], ids=["at once", "one by one"])
def test_any_ends_of_lines(fast: bool, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "is_installed", lambda *modules: fast)
    assert list(differing(tmp_path / "t.csv", range(count))) == []


def test_what_nobody_tells_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_records, "has_lines", lambda record, delimiter: False)
    with pytest.raises(AssertionError):
        assert list(differing(tmp_path / "t.csv", range(SOME))) == []


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_engines_that_count_groups_of_such_a_file(engine: str, tmp_path: Path) -> None:
    """Where they read it as records that end as its heading does."""
    path, read = tmp_path / "t.csv", 0
    for seed in range(SOME):
        content, encoding, text = some_file(random.Random(seed))
        # Neither of them takes lines that end with CR alone, or another encoding.
        if not encoding.startswith("utf-8") or "\r" in text.replace("\r\n", ""):
            continue
        path.write_bytes(content.replace(b" \n", b"\n").replace(b" \r", b"\r").replace(b" ,", b","))
        frame = pl.scan_csv(path) if engine == "polars" else duckdb.sql(BY_DUCKDB.format(path))
        groups = WORKLOAD.encode(records_of(GroupedFrame(frame), COLUMNS, lambda sentence: None), step=2.0**-20)
        told = list[str]()
        rows = WORKLOAD.encode(read_columns(f"{path}#multiline=true", COLUMNS, told.append), step=2.0**-20)
        # They take lines that end otherwise than the heading, too.
        if told:
            continue
        assert groups.vector.tobytes() == rows.vector.tobytes(), seed
        read += 1
    assert read > SOME // 10
