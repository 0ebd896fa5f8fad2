"""Tables with one odd cell, as every program that quietmean reads from can hold them: for tests that go over all of it."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import support.postgresql
from quietmean.core import sheets
from quietmean.statistics import Column, Columns
from quietmean.studies.data.isolated import EndedError

COLUMNS = Columns(
    [
        Column(name="age", low=0, high=110, missing_codes=("-9", "9999")),
        Column(name="visits", low=0, high=60, whole=True),
        Column(name="ill", boolean=True),
        Column(name="arm", levels=("a", "ä", "1", "01x"), missing_codes=("88",)),
        Column(name="site", levels=("a", "1"), finer=(("a", ("ä", "A b")),), other=True, missing_codes=("88",)),
        Column.model_validate({"name": "day", "low": "2001-01-01", "high": "2001-12-31", "missing_codes": ["1900-01-01"]}),
        Column.model_validate({"name": "root", "from": "sqrt(age)"}),
        Column.model_validate({"name": "share", "from": "visits / age", "low": 0, "high": 2}),
        Column.model_validate({"name": "often", "from": "visits >= 10"}),
    ]
)
# What a usual table has.
USUAL: dict[str, list[Any]] = {
    "age": [61.5, 40.0, 7.25, 99.0],
    "visits": [3, 0, 12, 7],
    "ill": [True, False, True, True],
    "arm": ["a", "ä", "1", "a"],
    "site": ["a", "ä", "1", "b"],
    "day": [dt.date(2001, 2, 3), dt.date(2001, 12, 31), dt.date(2001, 7, 1), dt.date(2001, 1, 1)],
}
ROWS = len(USUAL["age"])
PLACES = (0, ROWS // 2, ROWS - 1)


@dataclass(frozen=True)
class FarDay:
    """A day that Python has not, in a column of such days since 1970."""

    days: int


@dataclass(frozen=True)
class FarTime:
    """A time so many units after 1970, in a column of such times."""

    count: int
    unit: str
    zone: str | None = None


class _Spiteful:
    """An object that fails whatever is done with it."""

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("Sentinel-Spite")

    __eq__ = __ne__ = __str__ = __repr__ = __float__ = __bool__ = __hash__ = __lt__ = _fail


BERLIN = dt.timezone(dt.timedelta(hours=1))
TEXTS = [
    "", " ", "\t", "\u00a0", "\x00", "7\x007", "\x1f", "inf", "-Infinity", "nan", "1e400", "-1e400", "4611686018427387904",
    "9" * 400, "7" * 70_000, "Sentinel " * 9000, "\u200f61\u200e", "\u202e16", "1,234", "0.123", "0,123", "1.234", "1 234",
    "1'234", "1,234.5", "1.234,5", "1.2.3", "12.03.1999", "03/04/05", "13/04/2001", "04/13/2001", "99/99/2001", "20010203",
    "2001-02-30", "31-FEB-2001", "2001-02-03T25:61", "0000-00-00", "TRUE", "ja", "Wahr", "=1+1", "=cmd|' /C calc'!A0",
    "#DIV/0!", "#NAME?", "NULL", "NaT", "<NA>", "١٢", "\u0967\u0968", "½", "5e-324", "0x1F", "1_000", "61.5 mg", '"',
    '"open', 'a"b', "a;b", "a,b", "a\tb", "a|b", "\u2028", "é", "e\u0301", "\ud800", "😀", "<b>a</b>", "[1]", "{'a': 1}",
    "age", "age;visits;ill;arm;day", "sep=,", "-9", "-9.0", "88", "01", "1.0", "12:30", "P1D", "45322", "-0", "+7", "--7",
    ".5", "5.", "\ufeff61", "a\nb", "a\r\nb",
]  # fmt: skip
OBJECTS: list[Any] = [
    None, float("nan"), float("inf"), -float("inf"), 2**53 + 1, 2**62, -(2**63), 2**64, 10**400, 10**5000, -0.0, 1e300,
    5e-324, True, False, 0, 1, 45322, 20010203, 20010203.0, Decimal("7.10"), Decimal("NaN"), Decimal("sNaN"),
    Decimal("Infinity"), Decimal("1e5000"), Fraction(1, 3), 1 + 2j, dt.date(2001, 5, 6), dt.date.min, dt.date.max,
    dt.datetime(2001, 5, 6, 7, 8), dt.datetime.min, dt.datetime.max, dt.datetime(2001, 5, 6, 7, 8, tzinfo=BERLIN),
    dt.datetime.max.replace(tzinfo=BERLIN), dt.datetime(2001, 5, 6, 0, 30, tzinfo=BERLIN),
    dt.datetime(2001, 5, 6, 0, 30, tzinfo=dt.UTC), dt.time(12, 30), dt.timedelta(days=3),
    dt.timedelta.max, b"", b"a", b"\xff\xfe",
    b"7\x00", [], [1], ["a"], [[1], [2]], {}, {"a": 1}, {"a": {"b": [1]}}, (1, 2), {1}, object(), _Spiteful(), np.array([]),
    np.array([7.0]), np.array([1, 2]), np.float32(7.5), np.float16(7.5), np.longdouble(7.5), np.int8(7), np.uint64(2**63),
    np.bool_(True), np.complex128(1j), np.datetime64("2001-05-06"), np.datetime64("NaT"), np.datetime64(2**62, "s"),
    np.datetime64("2001-05-06T07:08:09.123456789"), np.timedelta64(3, "D"), np.timedelta64("NaT"), np.str_("a"),
    np.bytes_(b"a"), pd.NA, pd.NaT, pd.Timestamp("2001-05-06", tz="Europe/Berlin"),
    pd.Timestamp(2**36, unit="s").as_unit("s"), pd.Timedelta(days=3), pd.Period("2001-05"), pd.Interval(0, 1),
    pd.Timestamp("2001-05-06").as_unit("s"), FarDay(20_000 * 365), FarDay(-(2**31)), FarDay(2**30), FarTime(2**62, "s"),
    FarTime(2**62, "ms"), FarTime(-(2**62), "us", "Europe/Berlin"), FarTime(253402300799, "s", "Asia/Tokyo"),
    FarTime(2**62, "ns"),
]  # fmt: skip
CELLS: list[Any] = [*TEXTS, *OBJECTS]

Table: TypeAlias = Mapping[str, Sequence[Any]]


class CannotHoldError(Exception):
    """No cell of this kind can be in such a source."""


Writer: TypeAlias = Callable[[Path, Table], Any]


def with_cell(column: str, row: int, cell: Any) -> dict[str, list[Any]]:
    """The usual table, with one other cell."""
    cells = list(USUAL[column])
    cells[row] = cell
    return {**USUAL, column: cells}


def as_text(cell: Any) -> str:
    """As a program writes a cell into a text."""
    if cell is None or isinstance(cell, FarDay | FarTime):
        return ""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "surrogateescape")
    if isinstance(cell, bool):
        return "true" if cell else "false"
    try:
        return str(cell)
    except Exception:
        raise CannotHoldError from None


def height(table: Table) -> int:
    return len(next(iter(table.values())))


def _lines(table: Table) -> list[list[str]]:
    return [list(table), *([as_text(cells[row]) for cells in table.values()] for row in range(height(table)))]


def delimited(delimiter: str, encoding: str = "utf-8", end: str = "\n") -> Writer:
    """Of texts as they are, without quotation marks: one with an end of line cannot be in it."""

    def write(folder: Path, table: Table) -> Path:
        lines = _lines(table)
        if any("\n" in cell or "\r" in cell for line in lines for cell in line):
            raise CannotHoldError
        text = "".join(delimiter.join(line) + end for line in lines)
        errors = (
            "surrogatepass" if encoding.startswith("utf-16") else "surrogateescape" if "\ud800" not in text else "surrogatepass"
        )
        try:
            raw = text.encode(encoding, errors)
        except UnicodeEncodeError:
            raise CannotHoldError from None
        path = folder / "t.csv"
        path.write_bytes(raw)
        return path

    return write


def quoted(folder: Path, table: Table) -> str:
    out = io.StringIO(newline="")
    try:
        csv.writer(out).writerows(_lines(table))
    except csv.Error:
        raise CannotHoldError from None
    (folder / "t.csv").write_bytes(out.getvalue().encode("utf-8", "surrogatepass"))
    return f"{folder / 't.csv'}#multiline=true"


def excel(folder: Path, table: Table) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(list(table))
    try:
        for row in range(height(table)):
            for place, cells in enumerate(table.values(), 1):
                sheet.cell(row + 2, place, _for_excel(cells[row]))
        book.save(folder / "t.xlsx")
    # Whatever the library does with it.
    except Exception:
        raise CannotHoldError from None
    return folder / "t.xlsx"


def _for_excel(cell: Any) -> Any:
    if isinstance(cell, str) and "\ud800" in cell:
        raise CannotHoldError
    return cell


# Cells as XML that another program, or a person, wrote: not as they should be; and those with which a workbook is refused.
ODD_XML = [
    '<c{at} t="d"><v>Sentinel</v></c>', '<c{at} s="4000000"><v>7</v></c>', '<c{at}><v/></c>', '<c{at} t="inlineStr"/>',
    '<c{at} t="n"><v>1e999</v></c>', '<c{at} t="d"><v>99999-99-99T00</v></c>', '<c{at}><f>1+1</f></c>', '<c t="n"><v>7</v></c>',
    '<c{at} t="n" s="Sentinel"><v>7</v></c>', '<c{at} s="1"><v>-1e300</v></c>', '<c{at} t="e"><v>#REF!</v></c>',
]  # fmt: skip
DAMAGED_XML = [
    '<c{at} t="n"><v>Sentinel</v></c>', '<c{at} t="b"><v>Sentinel</v></c>', '<c{at} t="s"><v>99999</v></c>',
    '<c{at} t="s"><v>Sentinel</v></c>', '<c{at} t="zzz"><v>7</v></c>', '<c{at} t="e"><v>#Sentinel!</v></c>',
    '<c{at} t="n"><v>0x7</v></c>',
]  # fmt: skip


def excel_xml(folder: Path, column: str, row: int, cell: str) -> Path:
    """A workbook in which the XML of one cell is ``cell``, with {at} for its place."""
    path = excel(folder, USUAL)
    at = f"{chr(ord('A') + list(USUAL).index(column))}{row + 2}"
    with zipfile.ZipFile(path) as source:
        parts = {entry.filename: source.read(entry) for entry in source.infolist()}
    name = "xl/worksheets/sheet1.xml"
    xml = parts[name].decode()
    start = xml.index(f'<c r="{at}"')
    closed = xml.find("</c>", start) + len("</c>")
    parts[name] = (xml[:start] + cell.replace("{at}", f' r="{at}"') + xml[closed:]).encode()
    with zipfile.ZipFile(path, "w") as target:
        for part, content in parts.items():
            target.writestr(part, content)
    return path


def sqlite(folder: Path, table: Table) -> Path:
    path = folder / "t.sqlite"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA journal_mode = OFF")
        base.execute("PRAGMA synchronous = OFF")
        base.execute(f"CREATE TABLE t ({', '.join(table)})")
        for row in range(height(table)):
            marks, cells = zip(*(_for_sqlite(column[row]) for column in table.values()), strict=True)
            try:
                base.execute(f"INSERT INTO t VALUES ({', '.join(marks)})", cells)  # noqa: S608
            except (OverflowError, sqlite3.Error):
                raise CannotHoldError from None
        base.commit()
    return path


def _for_sqlite(cell: Any) -> tuple[str, Any]:
    if cell is None or isinstance(cell, int | float | bytes):
        return "?", cell
    # Any bytes may stand in a text.
    return "CAST(? AS TEXT)", as_text(cell).encode("utf-8", "surrogatepass" if "\ud800" in as_text(cell) else "surrogateescape")


def json_lines(folder: Path, table: Table) -> Path:
    """As a program writes objects: what JSON has no type for as a text."""
    path = folder / "t.jsonl"
    rows = ({name: cells[row] for name, cells in table.items()} for row in range(height(table)))
    try:
        text = "".join(json.dumps(row, default=as_text, ensure_ascii=False) + "\n" for row in rows)
    except (TypeError, ValueError):
        raise CannotHoldError from None
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def packed(pack: Callable[[bytes], bytes], ending: str) -> Writer:
    write = delimited(",")

    def writer(folder: Path, table: Table) -> Path:
        path = folder / f"t.csv.{ending}"
        path.write_bytes(pack(write(folder, table).read_bytes()))
        return path

    return writer


def foreign(write: str, ending: str) -> Writer:
    """SPSS, Stata or SAS: a column has texts, numbers, or days, and may have any number as a day."""

    def writer(folder: Path, table: Table) -> Path:
        path = folder / f"t.{ending}"
        frame = pd.DataFrame({name: pd.Series(_foreign_column(cells), dtype=object) for name, cells in table.items()})
        try:
            getattr(pytest.importorskip("pyreadstat"), write)(frame, path)
        # Whatever the library does with it.
        except Exception:
            raise CannotHoldError from None
        return path

    return writer


def _foreign_column(cells: Sequence[Any]) -> Sequence[Any]:
    if any(isinstance(cell, FarDay | FarTime) for cell in cells):
        raise CannotHoldError
    there = [cell for cell in cells if cell is not None]
    # A truth value among numbers would be one of them.
    if all(type(cell) in (int, float) for cell in there) or all(type(cell) is bool for cell in there):
        try:
            return [None if cell is None else float(cell) for cell in cells]
        except OverflowError:
            raise CannotHoldError from None
    if all(type(cell) is dt.date for cell in there):
        return cells
    texts = [None if cell is None else _storable(as_text(cell)) for cell in cells]
    # They end where a null byte or a blank is, and one that is too long is refused.
    if any(text is not None and ("\0" in text or len(text.encode()) > 200) for text in texts):
        raise CannotHoldError
    return texts


def postgresql(folder: Path, table: Table) -> str:
    """A table of its own for each folder, so that tests may run beside each other."""
    name = f"t{abs(hash(folder))}"
    with support.postgresql.connection().cursor() as cursor:
        try:
            cursor.adbc_ingest(name, arrow_table(table), mode="replace")
        # What it cannot hold, of Arrow's types.
        except Exception:
            raise CannotHoldError from None
    return f"{support.postgresql.server()}#table={name}"


# Cells of types that DuckDB has.
DUCKDB_CELLS = [
    "'infinity'::DATE", "'-infinity'::DATE", "'290000-01-01'::DATE", "'0044-03-15 (BC)'::DATE", "'infinity'::TIMESTAMP",
    "'290000-01-01'::TIMESTAMP", "'290000-01-01'::TIMESTAMP_S", "'290000-01-01'::TIMESTAMPTZ",
    "'2001-05-06 07:08+02'::TIMESTAMPTZ", "'12:00:00+02'::TIMETZ", "'24:00:00'::TIME", "INTERVAL 1000000000 DAYS",
    "INTERVAL 2000000000 MONTHS", "2::HUGEINT ** 120", "170141183460469231731687303715884105727::HUGEINT",
    "'\\xff\\x00'::BLOB", "[1, 2]", "[INTERVAL 2000000000 MONTHS]", "{'a': 1}", "MAP {'a': 1}", "'101'::BIT", "uuid()",
    "union_value(a := 1)", "1.5::DECIMAL(38, 10)", "'nan'::DOUBLE", "'inf'::FLOAT", "'a'::ENUM('a', 'b')", "'1'::JSON",
    "chr(0)", "18446744073709551615::UBIGINT", "true", "repeat('Sentinel', 20000)", "['290000-01-01'::DATE]", "1::TINYINT",
]  # fmt: skip


def duckdb_cells(folder: Path, column: str, row: int) -> Path:
    """The usual table in DuckDB for each of DUCKDB_CELLS, named c0 and so on: with it in one row of a ``column`` of its type."""
    path = folder / f"{column}.duckdb"
    frame = pa.table({name: pa.array(cells) for name, cells in USUAL.items()} | {"place": pa.array(range(ROWS))})
    others = ", ".join(name for name in USUAL if name != column)
    with closing(duckdb.connect(str(path))) as base:
        base.register("usual", frame)
        for number, expression in enumerate(DUCKDB_CELLS):
            odd = f"CASE WHEN place = {row} THEN {expression} END AS {column}"
            base.execute(f"CREATE TABLE c{number} AS SELECT {others}, {odd} FROM usual ORDER BY place")  # noqa: S608
    return path


def duck(folder: Path, table: Table) -> Path:
    path = folder / "t.duckdb"
    path.unlink(missing_ok=True)
    with closing(duckdb.connect(str(path))) as base:
        into_duckdb(base, "t", table)
    return path


def into_duckdb(base: duckdb.DuckDBPyConnection, name: str, table: Table) -> None:
    try:
        base.register("usual", arrow_table(table))
        base.execute(f"CREATE TABLE {name} AS SELECT * FROM usual")  # noqa: S608
    # What DuckDB cannot hold, of Arrow's types.
    except duckdb.Error:
        raise CannotHoldError from None


def arrow_table(table: Table) -> pa.Table:
    return pa.table({name: _arrow_column(cells) for name, cells in table.items()})


def _arrow_column(cells: Sequence[Any]) -> pa.Array:
    far = next((cell for cell in cells if isinstance(cell, FarDay | FarTime)), None)
    if isinstance(far, FarDay):
        days = [cell.days if isinstance(cell, FarDay) else _days(cell) for cell in cells]
        return pa.array(days, pa.int32()).view(pa.date32())
    if isinstance(far, FarTime):
        a_day = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}[far.unit]
        counts = [cell.count if isinstance(cell, FarTime) else a_day * _days(cell) for cell in cells]
        return pa.array(counts, pa.int64()).view(pa.timestamp(far.unit, far.zone))
    try:
        held = pa.array(list(cells))
        if _same(held.to_pylist(), cells):
            return held
    except Exception:  # noqa: S110
        pass
    # As a program writes a column whose cells have no type together.
    return pa.array([None if cell is None else _storable(as_text(cell)) for cell in cells])


def _same(held: Sequence[Any], cells: Sequence[Any]) -> bool:
    """Has a library kept all cells as they were? Some turn numbers into dates where one cell is a date."""
    return all(_kept(one, two) for one, two in zip(held, cells, strict=True))


def _kept(one: Any, two: Any) -> bool:
    if one is two or (isinstance(two, float) and two != two):
        return True
    try:
        # Nothing is in it.
        if one is None:
            return pd.isna(two) is True
        # A column has one zone, in which a time may be of another day.
        if isinstance(two, dt.datetime) and one.utcoffset() != two.utcoffset():
            return False
        numbers = isinstance(one, int | float) and isinstance(two, int | float | np.number)
        return bool(one == two) and (isinstance(two, type(one)) or (numbers and isinstance(one, bool) == isinstance(two, bool)))
    # What cannot be compared.
    except Exception:
        return False


def _days(cell: Any) -> int:
    if type(cell) is not dt.date:
        raise CannotHoldError
    return (cell - dt.date(1970, 1, 1)).days


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CannotHoldError from None
    return text


def _written(write: Callable[[pa.Table, Path], None], ending: str) -> Writer:
    def writer(folder: Path, table: Table) -> Path:
        path = folder / f"t.{ending}"
        try:
            write(arrow_table(table), path)
        except pa.ArrowException:
            raise CannotHoldError from None
        return path

    return writer


def polars_frame(folder: Path, table: Table) -> pl.DataFrame:
    try:
        return pl.DataFrame({name: _polars_column(cells) for name, cells in table.items()})
    # Polars panics, which is no Exception.
    except BaseException:
        raise CannotHoldError from None


def _polars_kept(cells: Sequence[Any]) -> pl.Series | None:
    kinds = {type(cell) for cell in cells if cell is not None}
    simple = {bool, int, float, str, bytes, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta, list, dict}
    # With others it fails in ways that nobody can catch.
    if not kinds <= simple or (str in kinds and len(kinds) > 1) or any(type(cell) is int and abs(cell) >> 127 for cell in cells):
        return None
    try:
        held = pl.Series(list(cells))
        return held if _same(held.to_list(), cells) else None
    except BaseException:
        return None


def _polars_column(cells: Sequence[Any]) -> pl.Series:
    if any(isinstance(cell, FarDay | FarTime) for cell in cells):
        return pl.Series(pl.from_arrow(_arrow_column(cells)))
    # A column of anything, where it has no type.
    held = _polars_kept(cells)
    return pl.Series(list(cells), dtype=pl.Object) if held is None else held


def polars_types(folder: Path, table: Table) -> pl.DataFrame:
    """As Polars infers them, where it does."""
    for cells in table.values():
        if any(isinstance(cell, FarDay | FarTime) for cell in cells):
            return polars_frame(folder, table)
    columns = {name: _polars_kept(cells) for name, cells in table.items()}
    if any(column is None for column in columns.values()):
        raise CannotHoldError
    return pl.DataFrame(columns)


def _pandas(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Writer:
    def writer(folder: Path, table: Table) -> pd.DataFrame:
        if any(isinstance(cell, FarDay | FarTime) for cells in table.values() for cell in cells):
            return arrow_table(table).to_pandas(types_mapper=pd.ArrowDtype)
        made = {name: pd.Series(_objects(cells), dtype=object) for name, cells in table.items()}
        try:
            changed = change(pd.DataFrame(made))
        except Exception:
            # What pandas itself does not do.
            raise CannotHoldError from None
        categories = [name for name in changed if isinstance(changed[name].dtype, pd.CategoricalDtype)]
        # For pandas False and 0 are one category.
        if not all(_same(changed[name].tolist(), table[name]) for name in categories):
            raise CannotHoldError
        return changed

    return writer


def _objects(cells: Sequence[Any]) -> np.ndarray[Any, Any]:
    held = np.empty(len(cells), dtype=object)
    for row, cell in enumerate(cells):
        held[row] = cell
    return held


# Every way in which a table gets to quietmean; UTF-16 as Excel writes it.
WRITERS: dict[str, Writer] = {
    "semicolon": delimited(";"),
    "comma": delimited(","),
    "comma, CR LF": delimited(",", end="\r\n"),
    "tab": delimited("\t"),
    "pipe": delimited("|"),
    "cp1252": delimited(";", "cp1252"),
    "UTF-16": delimited("\t", "utf-16", "\r\n"),
    "UTF-16, LF": delimited(",", "utf-16-be"),
    "quoted": quoted,
    "Excel": excel,
    "JSON lines": json_lines,
    "gzip": packed(gzip.compress, "gz"),
    "SPSS": foreign("write_sav", "sav"),
    "Stata": foreign("write_dta", "dta"),
    "SAS": foreign("write_xport", "xpt"),
    "SQLite": sqlite,
    "DuckDB": duck,
    "PostgreSQL": postgresql,
    "Parquet": _written(parquet.write_table, "parquet"),
    "Feather": _written(feather.write_feather, "feather"),
    "pandas, objects": _pandas(lambda frame: frame),
    "pandas, inferred": _pandas(lambda frame: frame.infer_objects()),
    "pandas, nullable": _pandas(lambda frame: frame.convert_dtypes()),
    "pandas, Arrow": _pandas(lambda frame: frame.convert_dtypes(dtype_backend="pyarrow")),
    "pandas, text": _pandas(lambda frame: frame.astype("string")),
    "pandas, categories": _pandas(lambda frame: frame.astype("category")),
    "Polars": polars_frame,
    "Polars, inferred": polars_types,
    "PyArrow": lambda folder, table: arrow_table(table),
}


def pieces_in_this_process(module: Any, arguments: Sequence[str]) -> Iterator[bytes]:
    """Instead of a process that reads a file, of which thousands take an hour."""
    try:
        if module is sheets:
            yield from sheets.pieces(arguments[0], int(arguments[1]))
        else:
            yield from module.pieces(arguments[0], arguments[1], int(arguments[2]), arguments[3:])
    except Exception:
        raise EndedError(1) from None


def read_files_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quietmean.studies.data.isolated.pieces_apart", pieces_in_this_process)
