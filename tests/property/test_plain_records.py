"""A library that splits records and reads numbers does as the one by one reader, whatever stands in a file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.statistics import Column, Columns
from quietmean.studies.data import read_columns, read_table, table, text_files, text_records
from quietmean.studies.data.spellings import Numerals
from quietmean.studies.data.text_records import PolarsTexts

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=110, missing_codes=("-9", "x")),
        Column(name="arm", levels=("a", "ä", "1", "NA")),
        Column.model_validate({"name": "day", "low": "2001-01-01", "high": "2001-12-31"}),
    ]
)
CELLS = [
    b"61,5", b"61.5", b"1.234", b"1,234", b"-9", b"x", b"", b" 7 ", b"1e400", b"inf", b"NaN", b"nan", b"+7", b"1e3", b".5", b"5.",
    b"9" * 70, b"0" * 70, b"1_000", b"0x10", b"\xd9\xa3", b"a", b"\xc3\xa4", b"\xe4", b"NA", b'"a"', b'""', b'"61.5"', b'"a',
    b'a"b', b'"a""b"', b'" a"', b' "a"', b'"a" ', b'"a"b', b"\x00", b"\xef\xbb\xbf", b"\r", b"2001-02-03", b'"2001-02-03"', b"#",
    b"sep=,", b"'a'", b"\xff", b"1.0", b"01", b"null", b"-", b"\x1f", b"\xe2\x80\xa8", b"\x85", b"\x0b7",
]  # fmt: skip
FILES, SOME = 3000, 100


def some_file(rng: random.Random) -> tuple[bytes, str]:
    """A file of few records, most of which are plain in most files, and what is said of it."""
    delimiter = rng.choice([b";", b",", b"\t", b"|"])
    end = rng.choice([b"\n", b"\r\n"])
    closed = rng.choice([b"", b"", b"", delimiter])
    odd = rng.choice([0.02, 0.3, 1.0])
    usual = [[b"61.5", b"7", b"7,25", b'"8"'], [b"a", b"1", b'"a"'], [b"2001-02-03", b"2001-12-31"], [b"", b"note", b'"note"']]
    lines = [delimiter.join([b"age", b"arm", b"day", b"note"]) + closed]
    for _ in range(rng.randrange(12)):
        cells = [rng.choice(CELLS if rng.random() < odd else column) for column in usual]
        if rng.random() < odd / 3:
            cells = cells[: rng.randrange(5)] + [rng.choice(CELLS)] * rng.randrange(4)
        lines.append(delimiter.join(cells) + (closed if rng.random() < 0.95 else b""))
        if rng.random() < odd / 5:
            lines.append(rng.choice([b"", b" ", delimiter, b"\n" if end == b"\r\n" else b"", b'"']))
    said = rng.choice(["", "", "", "#decimal=comma", "#decimal=point", "#thousands=point", "#rownames=true", "#rownames=false"])
    return end.join(lines) + (end if rng.random() < 0.8 else b""), said


def read(source: str) -> tuple[Any, ...]:
    """Values, where rows stand, cells, and what is told."""
    told: list[str] = []
    try:
        values = read_columns(source, COLUMNS, told.append)
    except Exception as error:
        return (str(error),)
    table = read_table(source, COLUMNS.names)
    cells = [["" if cell is None else cell for cell in table.column(name)] for name in COLUMNS.names]
    return values, [int(line) for line in table.lines], cells, told


def differ(path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range) -> Iterator[int]:
    """The seeds of files that are not read in both ways as the same."""
    for seed in seeds:
        rng = random.Random(seed)
        content, said = some_file(rng)
        path.write_bytes(content)
        found = []
        for fast in (True, False):
            with monkeypatch.context() as patch:
                # Blocks of some records, and of parts of one.
                patch.setattr(table, "_CHUNK", rng.choice([7, 40, 2**20]))
                patch.setattr(text_files, "is_installed", lambda *modules, fast=fast: fast)
                found.append(read(f"{path}{said}"))
        one, two = found
        same = len(one) == len(two) and one[1:] == two[1:]
        if not same or (len(one) > 1 and not np.array_equal(one[0], two[0], equal_nan=True)) or (len(one) == 1 and one != two):
            yield seed


@pytest.mark.parametrize("count", [pytest.param(FILES, marks=pytest.mark.slow), SOME])
def test_both_ways_are_one(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(differ(tmp_path / "t.csv", monkeypatch, range(count))) == []


def _all_plain(plain: Any, *more: Any) -> None:
    """Quotation marks are never looked at."""


def _any_bytes(block: bytes) -> bool:
    return True


@pytest.mark.parametrize(
    ("name", "mutant"), [("_strike_out", _all_plain), ("_is_utf_8", _any_bytes), ("_CR", 1), ("_ASCII", 256)]
)
def test_records_that_are_taken_for_plain_are_found(
    name: str, mutant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_records, name, mutant)
    assert next(differ(tmp_path / "t.csv", monkeypatch, range(FILES)), None) is not None


NUMBER_SIGNS = st.text("0123456789+-.,eEinfatyINFNA_ '\t\u2212\u00a0\u0661", max_size=12)


@given(st.lists(st.one_of(NUMBER_SIGNS, st.text(max_size=8), st.none()), max_size=20), st.sampled_from(".,"))
def test_what_is_read_as_a_number_is_that_number(cells: list[str | None], mark: str) -> None:
    kept = [None if cell is None else cell.encode("utf-8", "replace").decode() for cell in cells]
    found = PolarsTexts(polars.Series(kept, dtype=polars.String)).numbers(mark)
    for cell, value in zip(kept, found, strict=True):
        for groups in (None, "", "," if mark == "." else "."):
            number = None if cell is None else Numerals(mark, groups).value(cell.strip())
            assert np.isnan(value) or number == value, (cell, mark, groups)
    # And nothing usual is left over.
    usual = PolarsTexts(polars.Series(["61", f"61{mark}5", "-7", f"1{mark}5e3", f"0{mark}125"])).numbers(mark)
    assert usual.tolist() == [61, 61.5, -7, 1500, 0.125]
