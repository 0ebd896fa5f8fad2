"""From the file on: two sources that differ in one row, whatever is in it, are no farther apart than the sensitivity.

For every reader, every setting and every registered kind of statistic, where a record is replaced and where there is one more.
The bar is 20 000 pairs for each reader (make test-all), some of them always; seeds are fixed. Sources have 0 to 5 rows. They come
in families that differ in one row: each reading is compared with several others. Ways to read in which rows decide about other
rows, as there have been, are put back and found.
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
from functools import partial
from itertools import accumulate, chain, combinations, islice
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

import support.postgresql
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.studies.data import cells, database, postgresql, read_columns, text_files
from quietmean.studies.data.location import _CHOICES, Location
from quietmean.studies.data.spellings import Numerals
from quietmean.studies.data.table import Cells, Encoding, unpacked
from quietmean.studies.data.text_records import Record
from support.every_kind import COLUMNS as NUMBERS_AND_LEVELS
from support.every_kind import all_statistics
from support.odd_cells import CELLS, WRITERS, CannotHoldError, Table, as_text, into_duckdb, read_files_in_this_process

PAIRS, SOME = 20_000, 100
# Sources of a family, and families that are read together, for statistics of them all at once.
FAMILY, BATCH = 5, 100
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
Understood: TypeAlias = tuple[Values, NDArray[np.bool_]]
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """What was read of sources of which any two differ in one row, and the seed that made them."""

    seed: int
    read: Sequence[Values]


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


def changed_in_one_row(rng: random.Random, rows: Sequence[Any], other: Callable[[], Any]) -> Iterator[list[Any]]:
    """A family: the rows, with one that :func:`other` makes in the place of one, and often without it."""
    place = rng.randrange(len(rows))
    yield list(rows)
    for number in range(1, FAMILY):
        none = number == FAMILY - 1 and rng.random() < 0.5
        yield [*rows[:place], *([] if none else [other()]), *rows[place + 1 :]]


def tables(rng: random.Random) -> list[Table]:
    """A family of them."""
    family = changed_in_one_row(rng, some_rows(rng), lambda: odd(rng))
    return [{name: [row[name] for row in rows] for name in COLUMNS.names} for rows in family]


def read_family(seed: int, sources: Iterable[Callable[[], Any]]) -> Iterator[Family]:
    """Of those that can hold their cells; none where these are less than two."""
    read = []
    for source in sources:
        with suppress(CannotHoldError):
            read.append(read_columns(source(), COLUMNS))
    if len(read) > 1:
        yield Family(seed, read)


def of_tables(*names: str) -> Callable[[Path], Iterator[Family]]:
    """Families of sources that hold cells, as these writers make them."""

    def one(folder: Path, seed: int) -> Iterator[Family]:
        rng = random.Random(seed)
        writer, family = WRITERS[rng.choice(names)], tables(rng)
        said = rng.choice([*OF_CELLS, *ALSO_SAID.get(names[0], [])])
        texts = said.startswith(("decimal=", "thousands=")) and names[0] in COLUMN_TYPES

        def source(table: Table) -> Any:
            return _with(writer(folder, _of_texts(table) if texts else table), said, folder)

        return read_family(seed, (partial(source, table) for table in family))

    return lambda folder: chain.from_iterable(one(folder, seed) for seed in range(10**9))


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
    "SQLite": ["table=t"],
    "gzip": ["multiline=true", "skip=0", "delimiter=comma", "encoding=utf-8"],
    "quoted": ["rownames=false"],
}


def of_texts(folder: Path) -> Iterator[Family]:
    """Families of texts in which the other row is of any bytes but the end of a line."""
    return chain.from_iterable(_texts(folder, seed) for seed in range(10**9))


def _texts(folder: Path, seed: int) -> Iterator[Family]:
    path, rng = folder / "t.csv", random.Random(seed)
    delimiter, encoding = rng.choice(list(DELIMITERS)), rng.choice(["utf-8", "utf-8", "cp1252", "utf-16-le", "utf-16-be"])
    end = rng.choice(["\n", "\r\n", "\r"])
    said = [one for one in {rng.choice(OF_CELLS), rng.choice([*OF_TEXTS, "", ""])} if one]
    said += ["delimiter=blanks"] if delimiter == " " and "delimiter=SAME" not in said else []
    kept = "utf-8" if encoding == "cp1252" else encoding
    as_said = ",".join(said).replace("delimiter=SAME", f"delimiter={DELIMITERS[delimiter]}")
    as_said = as_said.replace("encoding=SAME", f"encoding={kept}")
    named, several = "rownames=true" in said, any(one.startswith("multiline=") for one in said)
    ending, behind = end.encode(kept), "\n".encode(kept)

    def line(row: Row) -> bytes:
        names = "r" if named else ""
        texts = [names, *map(as_text, row.values())][not names :]
        if several:
            return _as_a_program_writes(texts, delimiter).encode(kept, "replace")
        return delimiter.join(re.sub("[\r\n]", " ", text) for text in texts).encode(kept, "replace")

    def other() -> bytes:
        while True:
            with suppress(CannotHoldError):
                changed = line(odd(rng)) if rng.random() < 0.5 else any_bytes(rng)
                # A record that begins with LF makes another heading of one that ends with CR, which then ends with CR LF.
                while end == "\r" and changed.startswith(behind):
                    changed = changed.removeprefix(behind)
                if ending not in changed:
                    return changed

    heading = end.join([*(["a title", "x;y"] if "skip=2" in said else []), delimiter.join(COLUMNS.names)]).encode(kept)
    if encoding.startswith("utf-16"):
        heading = "\ufeff".encode(encoding) + heading

    def source(rows: list[bytes]) -> Any:
        path.write_bytes(ending.join([heading, *rows]) + ending)
        return _with(path, as_said, folder)

    with suppress(CannotHoldError):
        rows = [line(row) for row in some_rows(rng)]
        if several or not any(ending in row for row in rows):
            yield from read_family(seed, (partial(source, some) for some in changed_in_one_row(rng, rows, other)))


def _as_a_program_writes(cells: list[str], delimiter: str) -> str:
    out = io.StringIO(newline="")
    try:
        csv.writer(out, delimiter=delimiter).writerow(cells)
    except csv.Error:
        raise CannotHoldError from None
    return out.getvalue().removesuffix("\r\n")


def of_objects(folder: Path) -> Iterator[Family]:
    """Families of JSON lines in which the other line, which may be the first, is of any bytes but LF."""
    return chain.from_iterable(_objects(folder, seed) for seed in range(10**9))


def _objects(folder: Path, seed: int) -> Iterator[Family]:
    rng = random.Random(seed)
    table, said = tables(rng)[0], rng.choice(OF_CELLS)

    def source(lines: list[bytes]) -> Any:
        path.write_bytes(b"\n".join(lines) + b"\n")
        return _with(path, said, folder)

    with suppress(CannotHoldError):
        path = WRITERS["JSON lines"](folder, table)
        lines = path.read_bytes().split(b"\n")[:-1]
        family = changed_in_one_row(rng, lines, lambda: any_bytes(rng).replace(b"\n", b""))
        yield from read_family(seed, (partial(source, some) for some in family))


class Lent:
    """A connection that stays open where a reader closes it, as to make one takes longer than to read."""

    def __init__(self, connection: Any, ended: Callable[[], Any] = lambda: None) -> None:
        self._connection, self.close = connection, ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def lends(base: Any, failure: type[Exception]) -> Callable[[Location], Any]:
    """In the place of what connects to a DuckDB file."""
    return lambda location: (lambda path: Lent(base), failure)


def of_duckdb(folder: Path) -> Iterator[Family]:
    """Many tables in one file, which takes long to make."""
    path = folder / "t.duckdb"
    one_thread: dict[str, Any] = {"threads": "1"}
    for first in range(0, 10**9, 4):
        path.unlink(missing_ok=True)
        made: dict[int, list[str]] = {}
        with closing(duckdb.connect(str(path), config=one_thread)) as base:
            for seed in range(first, first + 4):
                for number, table in enumerate(tables(random.Random(seed))):
                    with suppress(CannotHoldError):
                        into_duckdb(base, f"of_{seed}_{number}", table)
                        made.setdefault(seed, []).append(f"{path}#table=of_{seed}_{number}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database, "CLOSED", {**database.CLOSED, **one_thread})
            connect, failure = database._duckdb(Location.of(path))
            with closing(connect(path)) as base:
                patch.setattr(database, "_duckdb", lends(base, failure))
                for seed, sources in made.items():
                    yield from read_family(seed, (partial(str, source) for source in sources))


def of_postgresql(folder: Path) -> Iterator[Family]:
    support.postgresql.connection()
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with closing(dbapi.connect(support.postgresql.server(), postgresql._BUILT_IN_TYPES, autocommit=True)) as connection:

        def undone() -> None:
            with closing(connection.cursor()) as cursor:
                cursor.execute("ROLLBACK")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dbapi, "connect", lambda *_, **given: Lent(connection, undone))
            yield from of_tables("PostgreSQL")(folder)


READERS: dict[str, Callable[[Path], Iterator[Family]]] = {
    "text": of_texts,
    "cells of several lines": of_tables("quoted"),
    "Excel": of_tables("Excel"),
    "compressed": of_tables("gzip"),
    "JSON lines": of_tables("JSON lines"),
    "JSON lines of any bytes": of_objects,
    "SPSS": of_tables("SPSS"),
    "Stata": of_tables("Stata"),
    "SAS": of_tables("SAS"),
    "SQLite": of_tables("SQLite"),
    "DuckDB": of_duckdb,
    "PostgreSQL": of_postgresql,
    "Parquet": of_tables("Parquet"),
    "Feather": of_tables("Feather"),
    "pandas": of_tables(*(name for name in WRITERS if name.startswith("pandas"))),
    "Polars": of_tables("Polars", "Polars, inferred"),
    "PyArrow": of_tables("PyArrow"),
}


def pairs_of(families: Sequence[Family]) -> list[tuple[int, int]]:
    """Any two sources of a family, by their places among all sources."""
    ends = accumulate(len(family.read) for family in families)
    return [
        pair for family, end in zip(families, ends, strict=True) for pair in combinations(range(end - len(family.read), end), 2)
    ]


def farthest(families: Sequence[Family]) -> tuple[float, str]:
    """The largest distance over its sensitivity, and of what it is."""
    seeds = [family.seed for family in families for _ in family.read]
    records = [values for family in families for values in family.read]
    heights = np.array([len(values) for values in records])
    whose, found = np.repeat(np.arange(len(heights)), heights), [(0.0, "nothing")]
    one, two = np.array(pairs_of(families)).T
    more = np.abs(heights[one] - heights[two])
    if more.max() > 1:
        return np.inf, f"the number of records, seed {seeds[one[more.argmax()]]}"
    for workloads, some in ((REPLACED, more == 0), (ONE_MORE, more == 1)):
        for workload in workloads if some.any() else ():
            encoded = workload.of_records(np.vstack(records))
            sums = np.zeros((len(heights), encoded.shape[1]))
            np.add.at(sums, whose, encoded)
            distances = np.linalg.norm(sums[one[some]] - sums[two[some]], axis=1) / workload.sensitivity
            worst = int(distances.argmax())
            found.append((float(distances[worst]), f"{workload.statistics[0].text}, seed {seeds[one[some][worst]]}"))
    return max(found)


# Polars says so where Python cannot write a number.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    read_files_in_this_process(monkeypatch)


def test_every_setting_of_the_page_is_drawn() -> None:
    """But queries, which have a test of their own, what is declared of them, and groups, which are compared with rows."""
    page = (Path(__file__).parents[2] / "docs/analyse/data.md").read_text(encoding="utf-8")
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
    made, sources, pairs, farthest_apart = READERS[reader](tmp_path), 0, 0, 0.0
    while pairs < count:
        families = list(islice(made, min(BATCH, count // 10)))
        distance, what = farthest(families)
        assert distance <= 1 + 1e-9, f"{reader}: {distance:g} times the sensitivity of {what}"
        farthest_apart = max(farthest_apart, distance)
        sources, pairs = sources + sum(len(one.read) for one in families), pairs + len(pairs_of(families))
        capfd.readouterr()
    with capfd.disabled():
        print(
            f"\n{reader}: {pairs} pairs of {sources} sources, at most {farthest_apart:.9f} times the sensitivity apart", end=" "
        )


# --- what the search is worth: ways to read in which rows decide about others, as there have been --------------------


def _mark_of_most(cells_of: Cells, column: Column, numerals: Numerals, location: Location) -> Understood:
    texts = [cell for cell in cells_of.values if isinstance(cell, str)]
    clear = [mark for text in texts for mark in ",." if re.search(rf"\{mark}\d(\d|\d{{3}})?$", text)]
    mark = Counter(clear).most_common(1)[0][0] if clear else "."
    return ONE_BY_ONE(cells_of, column, Numerals(mark, ""), location)


def _all_or_nothing(cells_of: Cells, column: Column, numerals: Numerals, location: Location) -> Understood:
    values, strange = ONE_BY_ONE(cells_of, column, numerals, location)
    return np.full(len(values), np.nan) if column.numeric and strange.any() else values, strange


def _order_that_fits(cells_of: Cells, column: Column, numerals: Numerals, location: Location) -> Understood:
    firsts = [int(cell[:2]) for cell in cells_of.values if isinstance(cell, str) and re.match(r"\d\d/\d\d/", cell)]
    order = "day-first" if any(first > 12 for first in firsts) else "month-first"
    return ONE_BY_ONE(cells_of, column, numerals, Location(location.path, {**location.settings, "dates": order}))


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


ONE_BY_ONE, RECORDS = cells._read_one_by_one, text_files._records
MUTANTS: list[tuple[str, Any, str, Any]] = [
    ("text", cells, "_read_one_by_one", _mark_of_most),
    ("Polars", cells, "_read_one_by_one", _mark_of_most),
    ("text", cells, "_read_one_by_one", _order_that_fits),
    ("pandas", cells, "_read_one_by_one", _all_or_nothing),
    ("SQLite", cells, "_read_one_by_one", _all_or_nothing),
    ("text", Encoding, "records", _one_encoding),
    ("text", text_files, "_records", _delimiter_of_first),
    ("text", text_files, "MultilineRecords", _one_reader_of_all),
    ("JSON lines of any bytes", text_files, "unpacked", _by_first_bytes),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("reader", "place", "name", "mutant"), MUTANTS, ids=lambda one: getattr(one, "__name__", None))
def test_a_row_that_decides_about_others_is_found(
    reader: str, place: Any, name: str, mutant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, mutant)
    # Of a text that is read record by record: where plain ones are split at once, nothing is left for the mutant to decide.
    monkeypatch.setattr(text_files, "is_installed", lambda *modules: False)
    families = READERS[reader](tmp_path)
    # Nor does a row decide whether a study goes on.
    with suppress(InputError):
        assert any(farthest(list(islice(families, 30)))[0] > 1.5 for _ in range(20))
