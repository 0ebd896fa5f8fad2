"""One row of a file, whatever bytes it has, changes how no other row is read: for random files and changes, with fixed seeds."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies.data import read_columns

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=110, missing="indicator", missing_codes=("-9",)),
        Column(name="arm", levels=("a", "ä", "1")),
        Column.model_validate({"name": "day", "low": "2001-01-01", "high": "2001-12-31", "missing": "indicator"}),
    ]
)
WORKLOAD = Workload(
    COLUMNS,
    tuple(parse_statistic(read_text(text)) for text in ("mean(age)", "mean(day)", "proportion(arm)", "histogram(age, bins=5)")),
    PrivacyUnit.RECORD,
)
NUMBERS = ["61,5", "61.5", "1.234", "1,234", "0.9", "0,9", "-9", "", "1e400", "9" * 400, "٣", "1 234", "inf", "nan", "x"]
ARMS = ["a", "ä", "1", "01", "1.0", "b", "", '"a"', '"a', 'a"b', "\x00", "ä".encode("latin-1").decode("latin-1")]
DAYS = ["2001-02-03", "01/12/2001", "13/04/2001", "04/13/2001", "3.4.2001", "99/99/2001", "20010203", "1-FEB-2001", ""]
ODD = [
    b"",
    b";;;;",
    b'"',
    b'""";',
    b"\xff\xfe",
    b"\xe4;\xe4",
    b"a\x00b;c",
    b"a\tb,c|d",
    b"\xc3",
    b"sep=,",
    b"<html>",
    b"age;arm;day",
]
FILES = 400


def row(rng: random.Random, delimiter: str) -> bytes:
    cells = [rng.choice(NUMBERS), rng.choice(ARMS), rng.choice(DAYS)]
    return delimiter.join(cells).encode("utf-8" if rng.random() < 0.8 else "cp1252", errors="replace")


def changed(rng: random.Random, delimiter: str) -> bytes:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(ODD)
    if kind < 0.6:
        return row(rng, delimiter)
    raw = bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
    return raw.replace(b"\n", b"").replace(b"\r", b"")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CR LF"])
def test_no_other_row_is_read_otherwise(delimiter: str, end: bytes, tmp_path: Path) -> None:
    heading = delimiter.join(COLUMNS.names).encode()
    path = tmp_path / "t.csv"
    for seed in range(FILES // 6):
        rng = random.Random(seed)
        rows = [row(rng, delimiter) for _ in range(rng.randrange(2, 12))]
        place = rng.randrange(len(rows))
        other = [*rows[:place], changed(rng, delimiter), *rows[place + 1 :]]
        read = []
        for content in (rows, other):
            path.write_bytes(end.join([heading, *content]) + end)
            # An empty row is no record; all others are, and none is refused.
            values = read_columns(path, COLUMNS)
            there = [at for at, one in enumerate(content) if one]
            assert len(values) == len(there), (seed, content[place])
            read.append(dict(zip(there, values, strict=True)))
        for at in set(read[0]) - {place}:
            np.testing.assert_array_equal(read[0][at], read[1][at], err_msg=f"seed {seed}, changed to {other[place]!r}")
        if place in read[0] and place in read[1]:
            one, two = (WORKLOAD.of_records(np.array(list(kept.values()))).sum(axis=0) for kept in read)
            assert np.linalg.norm(one - two) <= WORKLOAD.sensitivity * (1 + 1e-9), (seed, other[place])


JSON_CELLS = [
    "61.5", '"61,5"', "-9", '"-9"', "null", "true", "1e400", "-1e400", "NaN", "9" * 400, "9" * 5000, '"\\ud800"', '"a"', '"ä"',
    "[1]", '{"a": 1}', '"\\udfff"', '"\\udce4"', '"2001-02-03"',
]  # fmt: skip
JSON_ODD = [
    b"", b" ", b"{", b"}", b"[]", b"7", b'"age"', b"{}", b"{" * 3000, b"[" * 9000, b"\xff\xfe", b"\xef\xbb\xbf{}", b"\x00",
    b"null", b'{"\\ud800": 1, "age": 7}', b"\x00{}", b"{\x00", b"\xff\xfe{\x00", b"\xfe\xff", b"\xef\xbb\xbf", b"\x1f\x8b",
    b"BZh", b"\xfd7zXZ\x00", b"PK\x03\x04", b"PAR1", b"ARROW1", b"$FL2", b"12345678DUCK", b"SQLite format 3\x00", b"<stata_dta>",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"\x00\x00\xfe\xff", b"sep=,", b"age,arm,day",
    json.dumps({f"n{place}": place for place in range(10_001)}).encode(),
]  # fmt: skip


def test_no_other_object_is_read_otherwise(tmp_path: Path) -> None:
    """The same of JSON lines: a line of any bytes is one record, or none where it is empty."""
    path = tmp_path / "t.jsonl"

    def line(rng: random.Random) -> bytes:
        names = rng.sample(["age", "arm", "day", "age", "other"], rng.randrange(1, 5))
        cells = [rng.choice(JSON_CELLS) for _ in names]
        text = ", ".join(f'"{name}": {cell}' for name, cell in zip(names, cells, strict=True))
        return f"{{{text}}}".encode("utf-8" if rng.random() < 0.8 else "cp1252", errors="replace")

    for seed in range(FILES):
        rng = random.Random(seed)
        rows = [line(rng) for _ in range(rng.randrange(2, 12))]
        place = rng.randrange(len(rows))
        raw = rng.randbytes(rng.randrange(40)).replace(b"\n", b"")
        other = [*rows[:place], rng.choice([line(rng), rng.choice(JSON_ODD), raw]), *rows[place + 1 :]]
        read = []
        for content in (rows, other):
            path.write_bytes(b"\n".join(content) + b"\n")
            values = read_columns(path, COLUMNS)
            there = [at for at, one in enumerate(content) if one.decode("utf-8", "surrogateescape").strip()]
            assert len(values) == len(there), (seed, content[place])
            read.append(dict(zip(there, values, strict=True)))
        for at in set(read[0]) - {place}:
            np.testing.assert_array_equal(read[0][at], read[1][at], err_msg=f"seed {seed}, changed to {other[place]!r}")


@pytest.mark.parametrize("odd", JSON_ODD, ids=lambda odd: repr(odd[:12]))
def test_the_first_line_of_json_decides_nothing(odd: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join([odd, *[b'{"age": 61, "arm": "a", "day": "2001-02-03"}'] * 200]))
    values = read_columns(path, COLUMNS)
    assert len(values) == 200 + bool(odd.decode("utf-8", "surrogateescape").strip())
    np.testing.assert_array_equal(values[-200:], [[61, 0, 33]] * 200)


# --- records of several lines -------------------------------------------------------------------------------------------

NAMED = Columns([Column(name="age", low=0, high=999), Column(name="arm", levels=("a", "b"))])
ENDS = ["\n", "\r\n", "\r"]
NOTES = ["x", "two%lines", "%below", "above%", "a, b%, c", 'said "so"%x', '"%"', "%%", "1,a%2,b%", 'a",%b', '"', "6 inches"]
ODD_RECORDS = [
    b'30,a,"open', b'"', b'""', b'"""', b'a"b', b"30,a", b"30,a,x,y", b'30,"a', b'x"', b'30,a,"a""', b'30,a,6" pipe', b"\r\r",
    b"30\r,a,x", b'30,a,"a\rb"', b'"open,a,x', b'30,a,"x"y', b'"30","a"', b"\x00", b'30,a,","', b'30,","a', b",,,,", b'"\r"',
    b'30,a,"x",', b"\xff\xfe", b'30,a,"x" ', b"'30,a,'", b'30,a,"say \\"so\\""', b"30,a,x\\", b'";"',
]  # fmt: skip
SIGNS = [b'"', b",", b"a", b"1", b"\r", b'""', b'",', b',"', b" ", b"\n", b"\xff", b"b", b'",a,"']


def as_a_program_writes(age: int, note: str) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerow([age, "ab"[age % 2], note])
    return out.getvalue().removesuffix("\r\n").encode()


def of_several_lines(path: Path, end: str, records: list[bytes]) -> NDArray[np.float64]:
    path.write_bytes(b"".join(record + end.encode() for record in [b"age,arm,note", *records]))
    return read_columns(f"{path}#multiline=true", NAMED)


@pytest.mark.parametrize("end", ENDS, ids=["LF", "CR LF", "CR"])
@pytest.mark.parametrize("place", [0, 150, 299])
def test_an_odd_record_moves_none_of_several_lines(end: str, place: int, tmp_path: Path) -> None:
    for note in NOTES:
        records = [as_a_program_writes(100 + age, note.replace("%", end)) for age in range(300)]
        expected = np.array([[100 + age, age % 2] for age in range(300)], dtype=float)
        for odd in rng_sample(ODD_RECORDS, f"{note}{end}{place}"):
            if end == "\r" and b"\r" in odd:
                continue
            values = of_several_lines(tmp_path / "t.csv", end, [*records[:place], odd, *records[place + 1 :]])
            assert len(values) == 300, (odd, note)
            others = np.arange(300) != place
            np.testing.assert_array_equal(values[others], expected[others], err_msg=f"{odd!r} beside {note!r}")


def rng_sample(some: list[bytes], seed: str) -> list[bytes]:
    return random.Random(seed).sample(some, 5)


@pytest.mark.parametrize("count", [pytest.param(20_000, marks=pytest.mark.slow), 150])
def test_any_bytes_move_at_most_one_record_of_several_lines(count: int, tmp_path: Path) -> None:
    """Where they close what the record before them leaves open, that one is missing, too: nobody can tell these apart."""
    moved = Counter[int]()
    for seed in range(count):
        rng = random.Random(seed)
        end = rng.choice(ENDS)
        ages = range(100, 100 + rng.randrange(1, 6))
        records = [as_a_program_writes(age, rng.choice(NOTES).replace("%", end)) for age in ages]
        place = rng.randrange(len(records))
        changed = rng.choice([rng.choice(ODD_RECORDS), b"".join(rng.choices(SIGNS, k=rng.randrange(1, 12)))])
        changed = changed.replace(end.encode(), b"")
        changed = changed.lstrip(b"\n") if end == "\r" else changed
        if changed:
            values = of_several_lines(tmp_path / "t.csv", end, [*records[:place], changed, *records[place + 1 :]])
            assert len(values) == len(records), (seed, records, changed)
            there = values[:, 0].tolist()
            moved[sum(age not in there for at, age in enumerate(ages) if at != place)] += 1
    assert set(moved) <= {0, 1}, moved
    assert moved[1] <= 0.05 * moved[0], moved


@pytest.mark.parametrize(
    ("notes", "changed"),
    [
        # A line that is a record stands between a mark that is left open and one that would close it.
        (["x", "x", "%below", "x"], b'30,a,"open'),
        (["x", "x", "two%lines", "%below"], b'30,a,"'),
        (["%below", "x", "x", "%%"], b'30,a,"open'),
        # It closes what the record before it leaves open, of which several lines are left.
        (["x", "1,a%2,b%", "x", "x"], b'x",a,9'),
        (["1,a%2,b%", "one%two%three%", "two%lines", "x"], b'x",a,9'),
    ],
)
@pytest.mark.parametrize("end", ENDS, ids=["LF", "CR LF", "CR"])
def test_what_a_damaged_record_would_take(notes: list[str], changed: bytes, end: str, tmp_path: Path) -> None:
    for place in range(4):
        records = [as_a_program_writes(100 + at, note.replace("%", end)) for at, note in enumerate(notes)]
        records[place] = changed
        values = of_several_lines(tmp_path / "t.csv", end, records)
        assert len(values) == 4, (place, records)
        lost = {at for at in range(4) if at != place and 100.0 + at not in values[:, 0]}
        assert lost <= {place - 1}
        assert not lost or changed.startswith(b"x")


@pytest.mark.parametrize("most", [2, 3, 64])
def test_a_record_has_as_many_lines_as_the_setting_allows(most: int, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for lines in (most, most + 1):
        note = "\n".join("x" * lines)
        path.write_text(f'age,arm,note\n61,a,"{note}"\n62,b,x\n')
        values = read_columns(f"{path}#multiline={'true' if most == 64 else most}", NAMED)
        assert len(values) == (2 if lines == most else lines + 1)
        assert values[-1].tolist() == [62, 1]
        assert np.isnan(values[0, 0]) == (lines > most)


# --- ends of lines, and empty ones --------------------------------------------------------------------------------------


def test_whether_any_line_ends_as_the_heading_decides_nothing(tmp_path: Path) -> None:
    """Below a heading with CR LF no line that ends with LF alone is a record: such a file is one record, and no refusal."""
    path, columns = tmp_path / "t.csv", Columns([Column(name="age", low=0, high=110)])
    for rows, records in ((b"61,x\n62,x\n63,x\n", 1), (b"61,x\n62,x\r\n63,x\n", 2), (b"61,x\r\n62,x\n63,x\n", 2)):
        path.write_bytes(b"age,note\r\n" + rows)
        told: list[str] = []
        assert len(read_columns(path, columns, told.append)) == records
        assert any("an end of a line that is not CR LF" in one for one in told)


@pytest.mark.parametrize("said", ["", "#multiline=true", "#delimiter=comma"])
@pytest.mark.parametrize("end", ENDS, ids=["LF", "CR LF", "CR"])
def test_an_empty_line_of_one_column_is_a_record(end: str, said: str, tmp_path: Path) -> None:
    path, columns = tmp_path / "t.csv", Columns([Column(name="age", low=0, high=110)])
    for place in range(4):
        for empty in ("", '""', " ", "x"):
            rows = ["61", "62", "63", "64"]
            rows[place] = empty
            path.write_bytes(end.join(["age", *rows, ""]).encode())
            values = read_columns(f"{path}{said}", columns).ravel()
            assert [None if np.isnan(value) else value for value in values] == [
                None if at == place else 61 + at for at in range(4)
            ]
