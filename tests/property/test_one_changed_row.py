"""One row of a file, whatever bytes it has, changes how no other row is read: for random files and changes, with fixed seeds."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

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
    b"null", b'{"\\ud800": 1, "age": 7}',
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
            # The first bytes may be a mark of an order of bytes, which is said of the file and not of its first record.
            path.write_bytes(b"\n".join([b"{}", *content]) + b"\n")
            values = read_columns(path, COLUMNS)[1:]
            there = [at for at, one in enumerate(content) if one.decode("utf-8", "surrogateescape").strip()]
            assert len(values) == len(there), (seed, content[place])
            read.append(dict(zip(there, values, strict=True)))
        for at in set(read[0]) - {place}:
            np.testing.assert_array_equal(read[0][at], read[1][at], err_msg=f"seed {seed}, changed to {other[place]!r}")
