"""The files that people have: each ends right, with the same records or with one sentence that says what to do."""

from __future__ import annotations

import bz2
import datetime
import gzip
import itertools
import json
import lzma
import math
import re
import sqlite3
import zipfile
from collections.abc import Callable, Collection
from contextlib import closing
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core import columnar
from quietmean.core.errors import InputError
from quietmean.core.extensions import command_for
from quietmean.statistics import Column, Columns
from quietmean.studies.data import Location, database, formats, read_columns, text_files
from quietmean.studies.data import table as bytes_of_texts
from quietmean.studies.data.sources import parties_of_table
from quietmean.studies.data.table import Pieces, of_rows
from support.refusals import refused, refused_rows

AGE = Columns([Column(name="age", low=0, high=110)])
COLUMNS = Columns(
    [
        Column.model_validate(one)
        for one in (
            {"name": "age", "low": 0, "high": 110},
            {"name": "dose", "low": 0, "high": 5000},
            {"name": "smoker", "boolean": True},
            {"name": "größe", "levels": ["klein", "groß"]},
            {"name": "visit", "low": "2024-01-01", "high": "2024-12-31"},
        )
    ]
)
NAN = np.nan
RECORDS = np.array([[34, 61.5, 1, 0, 30], [51, 1082.25, 0, 1, 59], [67, NAN, 1, NAN, 60], [45, 70, NAN, 0, NAN]])
HEADING = ["age", "dose", "smoker", "größe", "visit", "note"]
ROWS = [
    ["34", "61.5", "yes", "klein", "2024-01-31", "x"],
    ["51", "1082.25", "no", "groß", "2024-02-29 08:30", "y, z"],
    ["67", "", "TRUE", "NA", "2024-03-01T00:00:00", ""],
    ["45", "70", "", "klein", "", ""],
]
CELLS: list[list[Any]] = [
    [34, 61.5, True, "klein", datetime.date(2024, 1, 31), "x"],
    [51, 1082.25, False, "groß", datetime.date(2024, 2, 29), "y"],
    [67, None, True, None, datetime.date(2024, 3, 1), None],
    [45, 70.0, None, "klein", None, None],
]


def text(rows: list[list[str]] = ROWS, delimiter: str = ",", end: str = "\n", heading: list[str] = HEADING) -> str:
    def field(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"' if delimiter in cell or '"' in cell or "\n" in cell else cell

    return "".join(delimiter.join(map(field, row)) + end for row in [heading, *rows])


def german(rows: list[list[str]] = ROWS) -> list[list[str]]:
    """As a spreadsheet of that language writes it: decimal comma, points between thousands, dates with points."""
    dose = {"61.5": "61,5", "1082.25": "1.082,25"}
    truth = {"yes": "ja", "no": "nein", "TRUE": "WAHR"}
    days = {"2024-01-31": "31.01.2024", "2024-02-29 08:30": "29.02.2024 08:30", "2024-03-01T00:00:00": "1.3.2024"}
    return [
        [row[0], dose.get(row[1], row[1]), truth.get(row[2], row[2]), row[3], days.get(row[4], row[4]), row[5]] for row in rows
    ]


def frame_columns() -> dict[str, list[Any]]:
    return {name: [row[place] for row in CELLS] for place, name in enumerate(HEADING)}


def written(content: bytes | str, name: str = "t.csv", encoding: str = "utf-8") -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return str(path)

    return make


def workbook(folder: Path, sheets: dict[str, list[list[Any]]]) -> str:
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    path = folder / "t.xlsx"
    book.save(path)
    return str(path)


def two_sheets(folder: Path) -> str:
    return workbook(folder, {"About": [["made by", "me"]], "Visits": [[], ["A title"][:0], HEADING, *CELLS, [None] * 6]})


def below_a_title(folder: Path) -> str:
    """As people write reports: nothing of the title is a record."""
    return workbook(folder, {"Other": [["ward", "beds"], [1, 2]], "Visits": [["Report"], [], ["made by", "me"], HEADING, *CELLS]})


def two_tables(folder: Path) -> str:
    return workbook(folder, {"2023": [HEADING, CELLS[0]], "2024": [HEADING, *CELLS]})


def columnar_file(write: str, ending: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        frame = pytest.importorskip("polars").DataFrame(frame_columns())
        getattr(frame, write)(folder / f"t.{ending}")
        return str(folder / f"t.{ending}")

    return make


def sqlite(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "clinic.db")) as base:
        names = ", ".join(f'"{name}"' for name in HEADING)
        base.execute(f"CREATE TABLE visits ({names})")
        base.execute("CREATE TABLE staff (name, ward)")
        base.executemany(
            "INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)",
            [[cell.isoformat() if isinstance(cell, datetime.date) else cell for cell in row] for row in CELLS],
        )
        base.commit()
    return str(folder / "clinic.db")


def query(folder: Path) -> str:
    file = folder / "visits.sql"
    file.write_text('SELECT age, dose, smoker, "größe", visit AS "visit" FROM visits WHERE age > 0;', "utf-8")
    return f"{sqlite(folder)}#query={file}"


def duck(folder: Path) -> str:
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect(str(folder / "t.duckdb"))) as base:
        base.execute(
            'CREATE TABLE visits (age INTEGER, dose DECIMAL(8, 2), smoker BOOLEAN, "größe" VARCHAR, visit TIMESTAMP, note TEXT)'
        )
        base.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)", CELLS)
    return f"{folder / 't.duckdb'}#table=visits"


def zipped(*names: str, ending: str = "") -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        with zipfile.ZipFile(folder / f"t{ending}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, text())
        return str(folder / f"t{ending}.zip")

    return make


def json_lines(ending: str = "jsonl", extra: str = "") -> Callable[[Path], str]:
    """With a name of no column; of the last object one is missing."""
    lines = [json.dumps(dict(zip(HEADING, row, strict=True)), default=str, ensure_ascii=False) for row in CELLS]
    return written("\n".join([*lines, extra]), f"t.{ending}")


def foreign(write: str, ending: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        import pyreadstat

        # The library itself is happy with fewer names and warns of others.
        frame = pandas_frame()
        getattr(pyreadstat, write)(frame, folder / f"t.{ending}")
        return str(folder / f"t.{ending}")

    return make


def pandas_frame() -> Any:
    import pandas

    columns = dict(zip(HEADING, map(list, zip(*CELLS, strict=True)), strict=True))
    columns["smoker"] = [None if cell is None else float(cell) for cell in columns["smoker"]]
    return pandas.DataFrame(columns)


def packed_by_gzip(source: str) -> str:
    path = Path(source)
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return str(packed)


ENGLISH = [[row[0], {"1082.25": "1,082.25"}.get(row[1], row[1]), *row[2:]] for row in ROWS]
THREE = [[row[0], {"61.5": "1.500", "1082.25": "2.250"}.get(row[1], row[1]), *row[2:]] for row in ROWS]
SLASHES = [[*row[:4], {"2024-01-31": "03/04/2024"}.get(row[4], ""), row[5]] for row in ROWS]
MONTH_FIRST = {"2024-01-31": "01/31/2024", "2024-02-29 08:30": "2/29/2024 08:30", "2024-03-01T00:00:00": "3/1/2024"}
AMERICAN = [[*row[:4], MONTH_FIRST.get(row[4], row[4]), row[5]] for row in ROWS]
NOTES = [[*row[:5], 'two\nlines, and "quotes"'] for row in ROWS]
EMPTY_ROWS = text(german(), ";") + ";;;;;\n" * 3
# Of a record with nothing in it, and where numbers have three digits behind the other mark.
EMPTY = np.full((1, 5), NAN)
THREE_DIGITS = np.array([[column == 1 and row < 2 for column in range(5)] for row in range(4)])
Outcome = NDArray[np.float64] | str

# What people have, and how it ends: with the records, or with words of the one sentence that refuses it.
FILES: dict[str, tuple[Callable[[Path], str], Outcome]] = {
    "plain CSV": (written(text()), RECORDS),
    "semicolons and decimal comma": (written(text(german(), ";")), RECORDS),
    "semicolons and decimal point": (written(text(ROWS, ";")), RECORDS),
    "TSV": (written(text(ROWS, "\t"), "t.tsv"), RECORDS),
    "TSV with decimal comma": (written(text(german(), "\t"), "t.txt"), RECORDS),
    "pipes": (written(text(ROWS, "|")), RECORDS),
    "thousands and decimal point": (written(text(ENGLISH)), RECORDS),
    "byte order mark": (written("\ufeff" + text(german(), ";")), RECORDS),
    "UTF-16 of a spreadsheet": (written("\ufeff" + text(german(), "\t"), "t.txt", "utf-16-le"), RECORDS),
    "UTF-16 without a mark": (written(text(), encoding="utf-16-be"), RECORDS),
    "Latin-1": (written(text(german(), ";"), encoding="latin-1"), RECORDS),
    "ends of lines of Windows": (written(text(end="\r\n")), RECORDS),
    "compressed": (written(gzip.compress(text().encode()), "t.csv.gz"), RECORDS),
    "notes of several lines": (lambda folder: written(text(NOTES))(folder) + "#multiline=true", RECORDS),
    # A record is a line, unless somebody said otherwise: what is behind the end of a line is a record of its own.
    "notes of several lines, not said": (written(text(NOTES[:1])), np.vstack([RECORDS[:1], EMPTY])),
    "notes of several lines of a spreadsheet": (written(text(NOTES, end="\r\n")), RECORDS),
    "hint above the table": (written("sep=;\r\n" + text(german(), ";", "\r\n")), RECORDS),
    "rows without a value at the end": (written(EMPTY_ROWS), np.vstack([RECORDS, EMPTY, EMPTY, EMPTY])),
    "empty lines": (written(text() + "\n\n"), RECORDS),
    "lines above the names": (written("Export of the ward\nmade by; me\n" + text()), RECORDS),
    "delimiters at the ends of lines": (written(text(end=",\n")), RECORDS),
    "dates with the month first": (lambda folder: written(text(AMERICAN))(folder) + "#dates=month-first", RECORDS),
    "an .xls that is text": (written(text(ROWS, "\t"), "t.xls"), RECORDS),
    "a name with a hash": (written(text(), "clinic #7.csv"), RECORDS),
    "Excel, one of two sheets": (two_sheets, RECORDS),
    "Excel, a named sheet": (lambda folder: two_tables(folder) + "#sheet=2024", RECORDS),
    "Excel, below a title": (below_a_title, RECORDS),
    "Excel, two tables": (two_tables, "2 sheets of t.xlsx have the columns of the study: .*#sheet=NAME"),
    "Parquet": (columnar_file("write_parquet", "parquet"), RECORDS),
    "Feather": (columnar_file("write_ipc", "feather"), RECORDS),
    "SQLite": (sqlite, RECORDS),
    "SQLite by a query": (query, RECORDS),
    "DuckDB": (duck, RECORDS),
    "commas between and within": (written(text([[row[0], row[1].replace(".", ","), *row[2:]] for row in ROWS])), RECORDS),
    "duplicate names": (
        written(text(heading=["age", "dose", "smoker", "größe", "visit", "age"])),
        "columns 1 and 6 of t.csv have the same name. Give each column a name of its own",
    ),
    "numbers that may be thousands": (written(text(THREE, ";")), np.where(THREE_DIGITS, NAN, RECORDS)),
    "dates that may be either": (written(text(SLASHES)), np.column_stack([RECORDS[:, :4], [NAN] * 4])),
    "a row cut short": (written(text() + "88,1\n"), np.vstack([RECORDS, [88, 1, NAN, NAN, NAN]])),
    "a quotation mark left open": (written(text() + '88,"1,2,3\n'), np.vstack([RECORDS, [88, NAN, NAN, NAN, NAN]])),
    "names of rows, of R": (
        written(text([[str(place), *row[:-1], "x"] for place, row in enumerate(ROWS)])),
        np.full((4, 5), NAN),
    ),
    "no names above the columns": (
        written(text(ROWS[1:], heading=ROWS[0])),
        "column 'age' is not one of the 6 columns of t.csv. ",
    ),
    "a web page": (
        written("<html><table><tr><td>age</td></tr></table></html>", "t.xls"),
        "t.xls holds a page for a browser, not a table of data. Open it and save its table as CSV.",
    ),
    "an archive": (zipped("t.csv"), "t.zip is a zip archive. Unpack it, and give the table in it, or install a package"),
    "OpenDocument": (
        zipped("content.xml"),
        "t.zip is a table of OpenDocument. Save it as .xlsx, or as CSV, or install",
    ),
    "bzip2": (written(bz2.compress(text().encode()), "t.csv.bz2"), "t.csv.bz2 is compressed by bzip2. Unpack it"),
    "xz": (written(lzma.compress(text().encode()), "t.csv.xz"), "t.csv.xz is compressed by xz. Unpack it"),
    "gzip in two parts": (written(gzip.compress(text().encode()[:40]) + gzip.compress(text().encode()[40:]) + bytes(9)), RECORDS),
    "JSON lines": (json_lines(), RECORDS),
    "JSON lines, ndjson with empty lines": (json_lines("ndjson", "\n  \n"), RECORDS),
    "JSON lines, compressed": (lambda folder: packed_by_gzip(json_lines()(folder)), RECORDS),
    "JSON lines that are none": (json_lines(extra="[1]\n{\n7"), np.vstack([RECORDS, np.full((3, 5), NAN)])),
    "JSON": (written("[\n{}]", "t.json"), "t.json is JSON, not a table. Save it with one object a line as t.jsonl"),
    "SPSS": (foreign("write_sav", "sav"), RECORDS),
    "SPSS, compressed": (foreign("write_sav", "zsav"), RECORDS),
    "Stata": (foreign("write_dta", "dta"), RECORDS),
    "a damaged file of SPSS": (
        written(b"$FL2@(#) and then nothing", "t.sav"),
        "t.sav cannot be read as a table. Check that it is not a damaged",
    ),
    "a damaged file of Stata": (
        written(b"<stata_dta> and nothing", "t.dta"),
        "t.dta cannot be read as a table. Check that it is not a damaged",
    ),
    "a damaged file of SAS": (
        written(b"HEADER RECORD*******LIBRARY HEADER RECORD!!!!!!!" + b"0" * 90, "t.xpt"),
        "t.xpt cannot be read as a table. Check that it is not a damaged",
    ),
    "no file of SAS": (written(bytes(99), "t.sas7bdat"), "t.sas7bdat cannot be read as a table: it is damaged or not a SAS file"),
    "a damaged archive": (written(gzip.compress(text().encode())[:40], "t.csv.gz"), "t.csv.gz is compressed by gzip and damaged"),
    "a damaged Parquet file": (written(b"PAR1 and then nothing", "t.parquet"), "t.parquet cannot be read as a table"),
    "a damaged workbook": (
        written(b"PK\x03\x04 and then nothing", "t.xlsx"),
        "t.xlsx cannot be read as a workbook. Save it again",
    ),
    "an empty file": (written(""), "t.csv is empty. Write the names"),
    "a picture": (
        written(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 20, "t.csv"),
        "t.csv cannot be read as a table, it holds binary",
    ),
}
# Of these the owner is told something.
TOLD = {
    "notes of several lines, not said",
    "numbers that may be thousands",
    "dates that may be either",
    "a quotation mark left open",
    "names of rows, of R",
    "JSON lines that are none",
}
EXTRAS = {
    "SPSS": "pyreadstat",
    "Stata": "pyreadstat",
    "Excel": "python_calamine",
    "workbook": "python_calamine",
    "Parquet": "polars",
    "Feather": "polars",
    "DuckDB": "duckdb",
}


def ages(source: str, told: list[str] | None = None) -> NDArray[np.float64]:
    return read_columns(source, AGE, (told if told is not None else []).append).ravel()


def needed(kind: str) -> None:
    for word, module in EXTRAS.items():
        if word in kind:
            pytest.importorskip(module)


def every_kind() -> list[Any]:
    """Texts in every run; of those that take a library, which is slow to start, the first of each."""
    first = {next(kind for kind in FILES if word in kind) for word in EXTRAS}
    takes_library = {kind for kind in FILES if any(word in kind for word in EXTRAS)} - first
    return [pytest.param(kind, marks=pytest.mark.slow) if kind in takes_library else kind for kind in FILES]


@pytest.mark.parametrize("kind", every_kind())
def test_every_file_ends_right(kind: str, tmp_path: Path) -> None:
    needed(kind)
    make, outcome = FILES[kind]
    source, told = make(tmp_path), list[str]()
    if isinstance(outcome, str):
        refused(outcome, read_columns, source, COLUMNS, told.append)
        return
    np.testing.assert_allclose(read_columns(source, COLUMNS, told.append), outcome)
    assert bool(told) == (kind in TOLD)


@pytest.mark.parametrize("kind", ["Parquet", "Feather"])
@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_columnar_files_need_one_library_of_two(kind: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    source = FILES[kind][0](tmp_path)
    monkeypatch.setattr(
        "quietmean.studies.data.isolated.pieces_apart",
        lambda module, said: module.pieces(said[0], said[1], int(said[2]), said[3:]),
    )
    monkeypatch.setattr(columnar, "_LIBRARIES", {library: columnar._LIBRARIES[library]})
    np.testing.assert_allclose(read_columns(source, COLUMNS), RECORDS)


def test_there_are_at_least_twenty_five() -> None:
    assert len(FILES) >= 25


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_data_frames_go_the_same_way(library: str) -> None:
    module = pytest.importorskip(library)
    pytest.importorskip("narwhals")
    columns = frame_columns()
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    np.testing.assert_allclose(read_columns(frame, COLUMNS), RECORDS)
    with pytest.raises(InputError, match=r"column 'length' is not one of the 6 columns of the data frame"):
        read_columns(frame, Columns([Column(name="length", low=0, high=1)]))


def test_what_is_no_data_frame() -> None:
    pytest.importorskip("narwhals")
    with pytest.raises(
        InputError, match=r"Data of type dict are not a table\. Give a path, or a data frame of pandas, Polars or PyArrow"
    ):
        read_columns(cast("Any", {"age": [1, 2]}), COLUMNS)


def test_categories_and_whole_numbers_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "arm": pandas.Categorical(["a", None, "b"]),
            # With a missing value, pandas makes whole numbers floats.
            "stage": [1, None, 2],
            "when": pandas.to_datetime(["2024-01-02", None, "2024-01-03T10:00"], format="ISO8601"),
        }
    )
    columns = Columns(
        [
            Column(name="arm", levels=("a", "b")),
            Column(name="stage", levels=("1", "2")),
            Column.model_validate({"name": "when", "low": "2024-01-01", "high": "2024-12-31"}),
        ]
    )
    np.testing.assert_allclose(read_columns(frame, columns), np.array([[0.0, 0, 1], [NAN, NAN, NAN], [1, 1, 2]]))


def test_cells_that_are_not_understood_are_told_by_line_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('age,sex\n40,f\n"12 Sentinel",f\n,Sentinel\n"a\nSentinel",m\n-9,f\nn/a,\nx,f\ny,f\n')
    columns = Columns([Column(name="age", low=0, high=1, missing_codes=("-9",)), Column(name="sex", levels=("f", "m"))])
    told: list[str] = []
    values = read_columns(f"{path}#multiline=true", columns, told.append)
    assert np.isnan(values[1:, 0]).all()
    assert told == [
        "t.csv, column 'age': 4 cells hold no number and count as missing (lines 3, 5, 9 and 1 more)",
        "t.csv, column 'sex': 1 cell holds none of the declared levels (line 4)",
    ]


def test_a_name_that_no_object_has_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"age": 41}\n{"Dose": 7}\n')
    told: list[str] = []
    found = read_columns(tmp_path / "t.jsonl", Columns(list(COLUMNS)[:2]), told.append)
    np.testing.assert_array_equal(found, [[41, NAN], [NAN, NAN]])
    assert told == ["t.jsonl: no record has 'dose', which counts as missing throughout. Check its name."]


def test_a_declared_level_may_be_called_as_missing_is(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("drug\nnone\nNA\nmuch\n")
    levels = Columns([Column(name="drug", levels=("none", "much"))])
    np.testing.assert_allclose(read_columns(path, levels).ravel(), np.array([0, NAN, 1]))


@pytest.mark.parametrize(
    ("content", "said", "found"),
    [
        ("age\n61,5\n2\n", "", [61.5, 2]),
        ("age\n61.5\n2\n", "", [61.5, 2]),
        ("age;b\n1.234;1\n1.234.567;1\n", "", [NAN, 1234567]),
        ("age;b\n0.123;1\n1.2345;1\n", "", [0.123, 1.2345]),
        ("age;b\n1.234,5;1\n1,234.5;1\n12.34,5;1\n", "", [1234.5, 1234.5, NAN]),
        ("age;b\n1.234;1\n", "#decimal=point", [1.234]),
        ("age;b\n1.234;1\n", "#decimal=comma", [1234]),
        ('age,b\n"61,5",1\n', "", [61.5]),
        ('age,b\n"61,5",1\n', "#decimal=comma", [61.5]),
        ('age,b\n"1,234",1\n2,1\n', "", [NAN, 2]),
        ("age,b\n1.234,1\n2.345,1\n", "", [1.234, 2.345]),
        ('age,b\n"1,234",1\n"2,345",1\n', "#decimal=point", [1234, 2345]),
        ("age;b\n1 234,5;1\n1'234;1\n-7;1\n", "", [1234.5, 1234, -7]),
        ("age;b\n1_000;1\n١٢;1\n0x10;1\n1e3;1\n", "", [NAN, 12, NAN, 1000]),
        ("# a title\n\nage;b\n7;1\n", "#skip=1", [7]),
        # One cell among many decides nothing.
        ("age;b\n" + "1,5;1\n" * 30 + "2.5;1\n", "", [1.5] * 30 + [2.5]),
        ("age;b\n" + "1.5;1\n" * 30 + "2.5;1\n", "#thousands=point", [NAN] * 31),
    ],
)
def test_how_numbers_are_written(content: str, said: str, found: list[float], tmp_path: Path) -> None:
    np.testing.assert_allclose(ages(written(content)(tmp_path) + said), found)


@refused_rows("what_is_said_of_a_file_must_make_sense")
def test_what_is_said_of_a_file_must_make_sense(said: str, words: str, tmp_path: Path) -> None:
    refused(words, read_columns, written("age;b\n1;2\n")(tmp_path) + said, AGE)


def test_rows_without_a_party_are_in_nobodys_records(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,clinic\n1,a\n2,\n3,b\n4,\n5,a\n")
    told: list[str] = []
    names, records = parties_of_table(path, AGE, None, "clinic", told.append)
    assert names == ["a", "b"]
    assert [part.ravel().tolist() for part in records] == [[1, 5], [3]]
    assert told == ["t.csv, column 'clinic': 2 rows name no party and are in nobody's records (lines 3, 5)"]
    path.write_text("age,clinic\n1,\n")
    refused("column 'clinic' names no party. Name at least 2", parties_of_table, path, AGE, None, "clinic")


@pytest.mark.parametrize(
    ("said", "found"), [("", [NAN, NAN, 3]), ("#rownames=true", [61, 62, NAN]), ("#rownames=false", [1, 2, 3])]
)
def test_names_of_rows_as_r_writes_them(said: str, found: list[float], tmp_path: Path) -> None:
    """Its heading has no name for them: where the last cell is empty nobody knows what the first one is, unless it is said."""
    told: list[str] = []
    source = written('"age","sex"\n"1",61,\n"2",62,\n3,m\n')(tmp_path)
    np.testing.assert_array_equal(ages(source + said, told), found)
    assert [said in ("", "#rownames=true")] == [any("rownames=true" in one or "no number" in one for one in told)]


def test_a_delimiter_behind_the_last_name_stands_behind_the_last_cell(tmp_path: Path) -> None:
    source = written("age;sex;\n61;m;\n62;;\n63;m;;;\n64;m\n65;m;x\n")(tmp_path)
    np.testing.assert_array_equal(ages(source), [61, 62, 63, 64, NAN])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_the_heading_does(end: str, encoding: str, tmp_path: Path) -> None:
    told: list[str] = []
    for rows in (["61,a", "62,b", "", "63,ä"], ['61,"a"', '"62",b', '63,"x, y"']):
        source = written(end.join(["age,arm", *rows, ""]), encoding=encoding)(tmp_path)
        assert ages(f"{source}#encoding={encoding}", told).tolist() == [61, 62, 63]
    assert not told


def test_what_is_cut_off_is_said_by_its_name(tmp_path: Path) -> None:
    """An archive is a workbook or not; of one that has lost its list of files its name says which."""
    with zipfile.ZipFile(tmp_path / "whole.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", "age\n61\n" * 1000)
    content = (tmp_path / "whole.zip").read_bytes()
    for kept in (30, len(content) // 2, len(content) - 1):
        for name, said in (("t.csv.zip", "is a zip archive"), ("t.xlsm", "cannot be read as a workbook")):
            (tmp_path / name).write_bytes(content[:kept])
            refused(f"{name} {said}", read_columns, tmp_path / name, AGE)


@pytest.mark.parametrize(
    ("content", "said", "where"),
    [
        ('[\n {"age": 61},\n {"age": 62}\n]\n', "3 lines are not objects of JSON and count", "(lines 1, 2, 4)"),
        ('{"age": 61}\n{"age": 6', "1 line is not an object of JSON and counts", "(line 2)"),
        ('{"age": 61,}\n\n{"age": 61}\n[61]\n', "2 lines are not objects of JSON and count", "(lines 1, 4)"),
        ('{"age": 61} {"age": 62}\n', "1 line is not an object of JSON and counts", "(line 1)"),
        ("[" * 10_000 + '\n{"age": 61}\n', "1 line is not an object of JSON and counts", "(line 1)"),
    ],
)
def test_a_line_that_is_no_object_is_told(content: str, said: str, where: str, tmp_path: Path) -> None:
    told: list[str] = []
    ages(written(content, "t.jsonl")(tmp_path), told)
    assert told[0].startswith(f"t.jsonl: {said} as missing throughout {where}. ")
    assert "61" not in told[0]


@pytest.mark.parametrize(
    "encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "shift_jis", "gb18030", "utf-7", "iso2022_jp"]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_row_of_any_bytes_says_nothing_about_the_next(encoding: str, end: str, tmp_path: Path) -> None:
    """Half a sign, the first byte of a sign of two, a shift to other signs that is never taken back."""
    columns = Columns([Column(name="age", low=0, high=110), Column(name="arm", levels=("a", "b"))])
    path = tmp_path / "t.csv"
    lines = [f"{line}{end}".encode(encoding) for line in ("age;arm", "61;a", "62;b", "63;a")]
    ending = end.encode(encoding)
    for odd in (b"x", b"\x81", b"\x1b$B", b"+", b"62", b"\x00", b"\xff\xfe\xff", b"6;b\xd8", b'"', b"\x0a\x01", b"\xd8"):
        path.write_bytes(lines[0] + lines[1] + odd + ending + lines[3])
        values = read_columns(f"{path}#encoding={encoding}", columns)
        assert values[0].tolist() == [61, 0]
        assert values[-1].tolist() == [63, 0], odd
        assert len(values) == 3


def test_a_record_beyond_all_bounds_is_one_of_missing_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However its end lies to the pieces that are read at once."""
    monkeypatch.setattr(bytes_of_texts, "MOST_RECORD", 40)
    monkeypatch.setattr(text_files, "_HEAD", 8)
    for chunk, size, end in itertools.product((7, 16, 64), range(30, 56), ("\n", "\r\n")):
        monkeypatch.setattr(bytes_of_texts, "_CHUNK", chunk)
        values = ages(written(f"age{end}61{end}{'6' * size}{end}62{end}63")(tmp_path)).tolist()
        assert [values[0], *values[2:]] == [61, 62, 63]
        assert math.isnan(values[1]) == (size > 40), (chunk, size)


def read_upside_down(location: Location, column_names: Collection[str] | None) -> Pieces:
    """A reader as another distribution adds one: of a table with the heading below its rows."""
    *rows, heading = [line.split(";") for line in location.path.read_text().splitlines()]
    yield of_rows(location.name, heading, rows, range(1, len(rows) + 1))


@pytest.mark.parametrize("name", ["t.flipped.csv", "t.flipped.csv.bz2"])
def test_another_distribution_adds_a_reader(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ending, group = name.removeprefix("t.").upper(), "quietmean.readers"
    known = {group: [EntryPoint(ending, f"{__name__}:read_upside_down", group)]}
    monkeypatch.setattr(formats, "entry_points", lambda group: known[group])
    formats._added_readers.cache_clear()
    try:
        (tmp_path / name).write_text("40;a\n50;b\nage;note\n")
        np.testing.assert_array_equal(read_columns(tmp_path / name, AGE).ravel(), [40, 50])
        known[group] = [EntryPoint(ending, "quietmean.nowhere:read", group)]
        formats._added_readers.cache_clear()
        refused(
            r"^reader '.*' \(quietmean.nowhere:read\) cannot be loaded \(.*\)\. Repair or uninstall it\.$",
            read_columns,
            tmp_path / name,
            AGE,
        )
    finally:
        formats._added_readers.cache_clear()


@pytest.mark.parametrize(
    ("name", "content", "extra"),
    [("t.parquet", b"PAR1", "tables"), ("t.xlsx", b"PK\x03\x04", "excel"), ("t.duckdb", b"--------DUCK", "sql")],
)
def test_a_missing_extra_is_named(name: str, content: bytes, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("quietmean.core.extensions.import_module", absent)
    monkeypatch.setattr("quietmean.core.extensions.find_spec", lambda module: None)
    (tmp_path / name).write_bytes(content)
    remedy = re.escape(command_for(extra))
    refused(
        rf"{name} is a.*needs the extra '{extra}', which is not installed. Run {remedy}\.$",
        read_columns,
        tmp_path / name,
        COLUMNS,
    )


@pytest.mark.parametrize("asked", [["b", "a"], ["c", "b"], []])
def test_columns_of_parquet_are_read_in_the_order_of_the_file(asked: list[str], tmp_path: Path) -> None:
    """In another one, Polars holds several times as much of a large file in memory."""
    polars = pytest.importorskip("polars")
    path = tmp_path / "t.parquet"
    polars.DataFrame({"c": [3.0], "a": [1.0], "b": [2.0]}).write_parquet(path)
    (heading, places), *rest = map(msgspec.msgpack.decode, columnar.pieces("parquet", str(path), 100, asked))
    assert places == sorted(places)
    read = [float(cells[0]) for cells, _ in columnar.unpacked(rest[0])]
    assert dict(zip((heading[place] for place in places), read, strict=True)) == {
        name: "abc".index(name) + 1 for name in asked or heading
    }


def test_instants_of_duckdb_are_of_the_same_day_on_every_machine() -> None:
    duckdb = pytest.importorskip("duckdb")
    handed_over = database._handed_over("visit", "TIMESTAMP WITH TIME ZONE", "duckdb")
    with closing(duckdb.connect()) as base:
        base.execute("CREATE TABLE t AS SELECT unnest(['2024-01-31 03:08+00', 'infinity']::TIMESTAMPTZ[]) AS visit")
        for zone in ("America/New_York", "Asia/Tokyo"):
            base.execute(f"SET TimeZone = '{zone}'")
            visits = base.execute(f"SELECT {handed_over} FROM t").fetchall()  # noqa: S608
            assert visits == [(datetime.datetime(2024, 1, 31, 3, 8),), (None,)]


def test_nothing_is_no_strange_time(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    times = pandas.Series(pandas.to_datetime(["2024-01-31", None])).astype("datetime64[us]")
    told = list[str]()
    values = read_columns(pandas.DataFrame({"visit": times}), Columns([COLUMNS["visit"]]), told.append)
    np.testing.assert_array_equal(values.ravel(), [30, NAN])
    assert told == []
