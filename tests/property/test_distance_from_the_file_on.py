"""From the file on: two sources that differ in one row, whatever is in it, are no farther apart than the sensitivity.

For every reader, every setting and every registered kind of statistic, where a record is replaced and where there is one more.
The bar is 20 000 pairs for each reader (make test-all), some of them always; seeds are fixed. Sources have 0 to 5 rows. Ways to
read in which rows decide about other rows, as there have been, are put back and found.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies.data import cells, database, delimited, json_lines, read_columns
from quietmean.studies.data.fields import Record
from quietmean.studies.data.location import _CHOICES
from quietmean.studies.data.numerals import Numerals
from quietmean.studies.data.text import Encoding, unpacked
from support.every_kind import COLUMNS as NUMBERS_AND_LEVELS
from support.every_kind import all_statistics
from support.odd_cells import CELLS, WRITERS, CannotHoldError, Table, as_text, into_duckdb, read_files_in_this_process

PAIRS, SOME = 20_000, 30
# Read together, for statistics of them all at once.
BATCH = 500
MOST_ROWS = 5
DAY = Column.model_validate({"name": "day", "low": "2001-01-01", "high": "2001-12-31"})
COLUMNS = Columns([*NUMBERS_AND_LEVELS, DAY])
ALSO = [
    "mean(day)",
    "histogram(day, bins=4)",
    "mean(weight, where=age >= 50 or smoker)",
    "crosstab(sex, smoker, where=day > '2001-07-01')",
]
STATISTICS = [*all_statistics(), *(parse_statistic(read_text(text)) for text in ALSO)]
REPLACED = [Workload(COLUMNS, (one,), PrivacyUnit.RECORD) for one in STATISTICS]
ONE_MORE = [Workload(COLUMNS, (one,), PrivacyUnit.RECORD, count=CountVisibility.PRIVATE, most_records=9) for one in STATISTICS]

# What may be said of every source but a frame, and of a text.
OF_CELLS = [
    "", "", "", "decimal=comma", "decimal=point", "thousands=point", "thousands=comma", "thousands=none", "dates=day-first",
    "dates=month-first", "dates=excel", "dates=excel-1904", "dates=sas", "dates=stata", "dates=spss", "dates=unix",
    "format=FORMAT",
]  # fmt: skip
OF_TEXTS = ["multiline=true", "multiline=3", "rownames=true", "rownames=false", "skip=2", "delimiter=SAME", "encoding=SAME"]
DELIMITERS = {";": "semicolon", ",": "comma", "\t": "tab", "|": "pipe", " ": "blanks"}
FORMAT = """dates = "day-first"
[mapping]
person = "sex"
[mapping.columns.age]
codes = { 61 = "", x = "50", "0,5" = "7" }
factor = 0.5
[mapping.columns.sex]
codes = { 1 = "f", a = "m" }
"""
# Beginnings that mean something in other kinds of files, and signs that mean something in a text.
BEGINNINGS = [
    b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\x00", b"{\x00", b"PK\x03\x04", b"PAR1", b"ARROW1", b"\x1f\x8b", b"BZh",
    b"SQLite format 3\x00", b"12345678DUCK", b"$FL2", b"sep=,", b"#", b"<",
]  # fmt: skip
SIGNS = [
    b'"',
    b'""',
    b'",',
    b',"',
    b",",
    b";",
    b"\t",
    b"|",
    b" ",
    b"\r",
    b"\n",
    b"\x00",
    b"\xff",
    b"a",
    b"1",
    b".",
    b"{",
    b"}",
    b":",
]
TELLING = ["13/04/2001", "04/13/2001", "01/12/2001", "61,5", "1.234", "0,123", "0.9", "0,9", "ja", "ä", 0.9, 20010203]

Values: TypeAlias = NDArray[np.float64]
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """What was read of two sources that differ in one row, and the seed that made them."""

    seed: int
    one: Values
    two: Values


def usual(rng: random.Random, mixed: bool = False) -> Row:
    """A record; of a ``mixed`` source one as people write it, in more than one way."""
    row: Row = {
        "age": rng.choice([round(rng.uniform(0, 100), 1), round(rng.uniform(0, 9), 3), rng.randrange(100), None]),
        "weight": round(rng.uniform(40, 140), 2),
        "chance": round(rng.random(), 3),
        "sex": rng.choice(["f", "m"]),
        "ended": rng.choice(["alive", "moved", "dead", "älter"]),
        "smoker": rng.choice([True, False]),
        "day": dt.date(2001, 1, 1) + dt.timedelta(days=rng.randrange(365)),
    }
    if mixed:
        row |= {"age": rng.choice(["61,5", "1.234", "70,25", 40]), "weight": rng.choice(["82.5", "61,5", "99.999"])}
        row |= {"chance": rng.choice(["0,123", "0.5", "1"]), "day": rng.choice(["01/12/2001", "02/11/2001", "2001-03-04"])}
    return row


def odd(rng: random.Random) -> Row:
    """With some cells that are no more than odd, or that would tell how a file is written."""
    row = usual(rng)
    for name in rng.sample(list(row), rng.randrange(1, 4)):
        kind = rng.random()
        row[name] = rng.choice(TELLING if kind < 0.4 else CELLS) if kind < 0.9 else rng.randbytes(rng.randrange(9))
    return row


def any_bytes(rng: random.Random) -> bytes:
    kind = rng.random()
    signs = rng.randbytes(rng.randrange(60)) if kind < 0.4 else b"".join(rng.choices(SIGNS, k=rng.randrange(20)))
    return rng.choice(BEGINNINGS) + signs if kind > 0.8 else signs


def some_rows(rng: random.Random) -> list[Row]:
    mixed = rng.random() < 0.5
    return [odd(rng) if rng.random() < 0.1 else usual(rng, mixed) for _ in range(rng.randrange(1, MOST_ROWS + 1))]


def two_tables(rng: random.Random) -> tuple[Table, Table]:
    """The second has another row in the place of one, or none."""
    rows = some_rows(rng)
    place = rng.randrange(len(rows))
    other = [*rows[:place], *([] if rng.random() < 0.2 else [odd(rng)]), *rows[place + 1 :]]
    one, two = ({name: [row[name] for row in some] for name in COLUMNS.names} for some in (rows, other))
    return one, two


def of_tables(*names: str) -> Callable[[Path], Iterator[Pair]]:
    """Pairs of sources that hold cells, as these writers make them."""

    def pairs(folder: Path) -> Iterator[Pair]:
        for seed in range(10**9):
            rng = random.Random(seed)
            writer, tables, said = rng.choice(names), two_tables(rng), rng.choice([*OF_CELLS, *ALSO_SAID.get(names[0], [])])
            with suppress(CannotHoldError):
                if said.startswith(("decimal=", "thousands=")) and names[0] in COLUMN_TYPES:
                    tables = _of_texts(tables[0]), _of_texts(tables[1])
                one, two = (read_columns(_with(WRITERS[writer](folder, table), said, folder), COLUMNS) for table in tables)
                yield Pair(seed, one, two)

    return pairs


def _of_texts(table: Table) -> Table:
    """With columns that are declared to hold texts: marks are said of these, and a program infers no other type from a row."""
    return {name: ["" if cell is None else as_text(cell) for cell in cells] for name, cells in table.items()}


def _with(source: Any, said: str, folder: Path) -> Any:
    """A source with a setting, of which a frame has none."""
    if not said or not isinstance(source, str | Path):
        return source
    (folder / "f.toml").write_text(FORMAT)
    return f"{source}{',' if '#' in str(source) else '#'}{said.replace('FORMAT', str(folder / 'f.toml'))}"


# In these a column has one type for all of its cells.
COLUMN_TYPES = {"Parquet", "Feather", "SPSS", "Stata", "SAS", "PostgreSQL"}
# Of some sources something more may be said.
ALSO_SAID = {
    "Excel": ["sheet=1", "sheet=Sheet", "skip=0"],
    "OpenDocument": ["sheet=A"],
    "SQLite": ["table=t"],
    "gzip": ["multiline=true", "skip=0", "delimiter=comma", "encoding=utf-8"],
    "quoted": ["rownames=false"],
}


def of_texts(folder: Path) -> Iterator[Pair]:
    """Pairs of texts in which the other row is of any bytes but the end of a line."""
    path = folder / "t.csv"
    for seed in range(10**9):
        rng = random.Random(seed)
        delimiter, encoding = rng.choice(list(DELIMITERS)), rng.choice(["utf-8", "utf-8", "cp1252", "utf-16-le", "utf-16-be"])
        end = rng.choice(["\n", "\r\n", "\r"])
        said = [one for one in {rng.choice(OF_CELLS), rng.choice([*OF_TEXTS, "", ""])} if one]
        said += ["delimiter=blanks"] if delimiter == " " and "delimiter=SAME" not in said else []
        kept = "utf-8" if encoding == "cp1252" else encoding
        as_said = ",".join(said).replace("delimiter=SAME", f"delimiter={DELIMITERS[delimiter]}")
        as_said = as_said.replace("encoding=SAME", f"encoding={kept}")
        named, several = "rownames=true" in said, any(one.startswith("multiline=") for one in said)

        def line(row: Row, names: str = "r" if named else "", several: bool = several, delimiter: str = delimiter) -> str:
            texts = [names, *map(as_text, row.values())][not names :]
            if several:
                return _as_a_program_writes(texts, delimiter)
            return delimiter.join(re.sub("[\r\n]", " ", text) for text in texts)

        try:
            rows = [line(row).encode(kept, "replace") for row in some_rows(rng)]
            changed = line(odd(rng)).encode(kept, "replace") if rng.random() < 0.5 else any_bytes(rng)
        except CannotHoldError:
            continue
        ending, behind = end.encode(kept), "\n".encode(kept)
        # A record that begins with LF behind a heading that ends with CR makes another heading of it, which ends with CR LF.
        while end == "\r" and changed.startswith(behind):
            changed = changed.removeprefix(behind)
        if ending in changed or (not several and any(ending in row for row in rows)):
            continue
        place = rng.randrange(len(rows))
        heading = end.join([*(["a title", "x;y"] if "skip=2" in said else []), delimiter.join(COLUMNS.names)]).encode(kept)
        if encoding.startswith("utf-16"):
            heading = "\ufeff".encode(encoding) + heading
        other = [*rows[:place], *([] if rng.random() < 0.2 else [changed]), *rows[place + 1 :]]
        read = []
        for some in (rows, other):
            path.write_bytes(ending.join([heading, *some]) + ending)
            read.append(read_columns(_with(path, as_said, folder), COLUMNS))
        yield Pair(seed, *read)


def _as_a_program_writes(cells: list[str], delimiter: str) -> str:
    out = io.StringIO(newline="")
    try:
        csv.writer(out, delimiter=delimiter).writerow(cells)
    except csv.Error:
        raise CannotHoldError from None
    return out.getvalue().removesuffix("\r\n")


def of_objects(folder: Path) -> Iterator[Pair]:
    """Pairs of JSON lines in which the other line, which may be the first, is of any bytes but LF."""
    for seed in range(10**9):
        rng = random.Random(seed)
        one, _ = two_tables(rng)
        with suppress(CannotHoldError):
            path = WRITERS["JSON lines"](folder, one)
            lines = path.read_bytes().split(b"\n")[:-1]
            place = rng.randrange(len(lines))
            said, read = rng.choice(OF_CELLS), []
            for some in (lines, [*lines[:place], any_bytes(rng).replace(b"\n", b""), *lines[place + 1 :]]):
                path.write_bytes(b"\n".join(some) + b"\n")
                read.append(read_columns(_with(path, said, folder), COLUMNS))
            yield Pair(seed, *read)


def of_duckdb(folder: Path) -> Iterator[Pair]:
    """Many tables in one file, which takes long to make; it stays open beside each reading, which takes long to open, too."""
    path = folder / "t.duckdb"
    for first in range(0, 10**9, 50):
        path.unlink(missing_ok=True)
        made = []
        with closing(duckdb.connect(str(path))) as base:
            for seed in range(first, first + 50):
                with suppress(CannotHoldError):
                    for name, table in zip(("one", "two"), two_tables(random.Random(seed)), strict=True):
                        into_duckdb(base, f"{name}_{seed}", table)
                    made.append(seed)
        with closing(duckdb.connect(str(path), read_only=True, config={**database.CLOSED})):
            for seed in made:
                yield Pair(seed, *(read_columns(f"{path}#table={name}_{seed}", COLUMNS) for name in ("one", "two")))


READERS: dict[str, Callable[[Path], Iterator[Pair]]] = {
    "text": of_texts,
    "cells of several lines": of_tables("quoted"),
    "Excel": of_tables("Excel"),
    "OpenDocument": of_tables("OpenDocument"),
    "compressed": of_tables("gzip", "bzip2", "xz", "zip"),
    "JSON lines": of_tables("JSON lines"),
    "JSON lines of any bytes": of_objects,
    "SPSS": of_tables("SPSS"),
    "Stata": of_tables("Stata"),
    "SAS": of_tables("SAS"),
    "SQLite": of_tables("SQLite"),
    "DuckDB": of_duckdb,
    "PostgreSQL": of_tables("PostgreSQL"),
    "Parquet": of_tables("Parquet"),
    "Feather": of_tables("Feather"),
    "pandas": of_tables(*(name for name in WRITERS if name.startswith("pandas"))),
    "Polars": of_tables("Polars", "Polars, inferred"),
    "PyArrow": of_tables("PyArrow"),
}


def farthest(pairs: Sequence[Pair]) -> tuple[float, str]:
    """The largest distance over its sensitivity, and of what it is."""
    found = [(0.0, "nothing")]
    for workloads, some in (
        (REPLACED, [pair for pair in pairs if len(pair.one) == len(pair.two)]),
        (ONE_MORE, [pair for pair in pairs if len(pair.one) != len(pair.two)]),
    ):
        if not some:
            continue
        if any(abs(len(pair.one) - len(pair.two)) > 1 for pair in some):
            return np.inf, "the number of records"
        heights = np.array([[len(pair.one), len(pair.two)] for pair in some]).ravel()
        whose = np.repeat(np.arange(len(heights)), heights)
        records = np.vstack([values for pair in some for values in (pair.one, pair.two)])
        for workload in workloads:
            encoded = workload.of_records(records)
            sums = np.zeros((len(heights), encoded.shape[1]))
            np.add.at(sums, whose, encoded)
            distances = np.linalg.norm(sums[::2] - sums[1::2], axis=1) / workload.sensitivity
            worst = int(distances.argmax())
            found.append((float(distances[worst]), f"{workload.statistics[0].text}, seed {some[worst].seed}"))
    return max(found)


# Polars says so where Python cannot write a number.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    read_files_in_this_process(monkeypatch)


def test_every_setting_of_the_page_is_drawn() -> None:
    """But queries, which have a test of their own, what is declared of them, and groups, which are compared with rows."""
    page = (Path(__file__).parents[2] / "docs/how-to/data.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| `\S*#\w+=|\| `\S+#\w+=", line)]
    named = {name for row in rows for name in re.findall(r"#(\w+)=", row)} - {"query", "query_mixes_rows", "grouped"}
    drawn = [*OF_CELLS, *OF_TEXTS, *(said for some in ALSO_SAID.values() for said in some)]
    assert named == {said.partition("=")[0] for said in drawn if said}
    choices = {
        f"{name}={value}"
        for name, values in _CHOICES.items()
        for value in values
        if name not in ("delimiter", "grouped", "query_mixes_rows")
    }
    assert choices <= set(drawn)


@pytest.mark.parametrize("count", [pytest.param(PAIRS, marks=pytest.mark.slow), SOME])
@pytest.mark.parametrize("reader", READERS)
def test_no_farther_apart_than_the_sensitivity(
    reader: str, count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = islice(READERS[reader](tmp_path), count)
    done = 0
    while batch := list(islice(made, BATCH)):
        distance, what = farthest(batch)
        assert distance <= 1 + 1e-9, f"{reader}: {distance:g} times the sensitivity of {what}"
        done += len(batch)
        capfd.readouterr()
    assert done == count
    with capfd.disabled():
        print(f"\n{reader}: {count} pairs of seed 0 on, none farther apart than the sensitivity", end=" ")


# --- what the search is worth: ways to read in which rows decide about others, as there have been --------------------


def _mark_of_most(cells_of: Any, numerals: Numerals) -> Values:
    texts = [cell for cell in cells_of if isinstance(cell, str)]
    clear = [mark for text in texts for mark in ",." if re.search(rf"\{mark}\d(\d|\d{{3}})?$", text)]
    mark = Counter(clear).most_common(1)[0][0] if clear else "."
    return NUMBERS(cells_of, Numerals(mark, ""))


def _all_or_nothing(cells_of: Any, numerals: Numerals) -> Values:
    values = NUMBERS(cells_of, numerals)
    strange = any(isinstance(cell, str) and np.isnan(value) for cell, value in zip(cells_of, values, strict=True))
    return np.full(len(values), np.nan) if strange else values


def _order_that_fits(cells_of: Any, column: Column, location: Any) -> Values:
    firsts = [int(cell[:2]) for cell in cells_of if isinstance(cell, str) and re.match(r"\d\d/\d\d/", cell)]
    order = "day-first" if any(first > 12 for first in firsts) else "month-first"
    return DAYS(cells_of, column, type(location)(location.path, {**location.settings, "dates": order}))


def _one_encoding(encoding: Encoding, chunks: Iterable[bytes], end: str) -> Iterator[str | None]:
    raw = b"".join(chunks)
    try:
        text = raw.decode(encoding.name)
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace") if encoding.name == "utf-8" else raw.decode(encoding.name, "replace")
    yield from text.split(end)


def _delimiter_of_first(texts: Iterable[str | None], heading: Any, line: int) -> Iterator[Any]:
    kept = list(texts)
    counts = Counter({sign: (kept[0] or "").count(sign) for sign in ";,\t|"})
    other = type(heading)(**{**vars(heading), "delimiter": counts.most_common(1)[0][0]})
    yield from RECORDS(kept, other, line)


def _one_reader_of_all(lines: Iterable[str | None], delimiter: str, widths: range, most: int, line: int) -> Iterator[Record]:
    text = "\n".join(text or "" for text in lines)
    yield from (
        Record(cells, line) for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or "\x1f") if cells
    )


def _by_first_bytes(path: Path, by_name: bool) -> Iterator[bytes]:
    return unpacked(path)


NUMBERS, DAYS, RECORDS = cells._numbers, cells._days, delimited._records
MUTANTS: list[tuple[str, Any, str, Any]] = [
    ("text", cells, "_numbers", _mark_of_most),
    ("Polars", cells, "_numbers", _mark_of_most),
    ("text", cells, "_days", _order_that_fits),
    ("pandas", cells, "_numbers", _all_or_nothing),
    ("SQLite", cells, "_numbers", _all_or_nothing),
    ("text", Encoding, "records", _one_encoding),
    ("text", delimited, "_records", _delimiter_of_first),
    ("text", delimited, "MultilineRecords", _one_reader_of_all),
    ("JSON lines of any bytes", json_lines, "unpacked", _by_first_bytes),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("reader", "place", "name", "mutant"), MUTANTS, ids=lambda one: getattr(one, "__name__", None))
def test_a_row_that_decides_about_others_is_found(
    reader: str, place: Any, name: str, mutant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, mutant)
    # Of a text that is read record by record: where plain ones are split at once, nothing is left for the mutant to decide.
    monkeypatch.setattr(delimited, "is_installed", lambda *modules: False)
    pairs = READERS[reader](tmp_path)
    # Nor does a row decide whether a study goes on.
    with suppress(InputError):
        assert any(farthest(list(islice(pairs, 5 * SOME)))[0] > 1.5 for _ in range(20))
