"""300 spellings in every reader: one grammar decides, so each is the same value in all of them, or the setting is named.

A spelling with anything more before or behind it, or with less, is never read as the same value.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from quietmean.statistics import Column, Columns
from quietmean.studies.data import read_columns
from quietmean.studies.data.grouped import records_of
from quietmean.studies.data.isolated import GroupedFrame
from quietmean.studies.data.spellings import Numerals, date_of
from support.odd_cells import WRITERS, Writer, arrow_table, read_files_in_this_process
from support.workloads import workload_of

NAN = np.nan
LAST_OF_JANUARY, FIFTH_OF_MARCH = 30.0, 64.0
DAY = Column.model_validate(
    {"name": "day", "low": "2024-01-01", "high": "2024-12-31", "missing_codes": ["1900-01-01", "99999999"]}
)
NUMBER = Column(name="number", low=-1e9, high=1e9, missing_codes=("-9", "0.1"))
LEVELS = ("0.1", "0.5", "2.50", "7", "-3", "1000.5", "1E3", "007a", "a", "ä", "A b", "none", "2024-01-31", "x,y")
LEVEL = Column(name="level", levels=LEVELS, missing_codes=("-9.9", "88"))
TRUE = Column(name="true", boolean=True, missing_codes=("9",))

CLEAR_DATES: dict[str, float] = {
    **dict.fromkeys(
        [
            "2024-01-31", "2024-1-31", "2024/01/31", "2024/1/31", "2024.01.31", "20240131", "20240131.0", "2024-01-31 10:15",
            "2024-01-31T10:15:00", "2024-01-31 10:15:00.123456", "2024-01-31T10:15:00Z", "2024-01-31 10:15:00+00",
            "2024-01-31T23:59:59.999+01:00", "2024-01-31T10:15:00+01:00[Europe/Berlin]", "2024-01-31 10:15 PM", "31.01.2024",
            "31.1.2024", "31. 1. 2024", "31.01.2024 10:15", "31-JAN-2024", "31-Jan-2024", "31-jan-2024 10:15:00", "31 Jan 2024",
            "31 January 2024", "31JAN2024", "31jan2024:10:15:00", "31JAN2024:10:15:00.00", "31/Jan/2024", "31.Jan.2024",
            "31. Januar 2024", "31 janvier 2024", "31 de enero de 2024", "31 gennaio 2024", "31 januari 2024", "Jan 31, 2024",
            "January 31, 2024", "January 31 2024", "Jan. 31, 2024", "Jan 31st, 2024", "Jan-31-2024", "2024-Jan-31", "2024JAN31",
            "Wed, 31 Jan 2024 10:15:00 +0100", "Wednesday, 31 January 2024", "Wed Jan 31 10:15:00 2024",
            "Wed Jan 31 10:15:00 CET 2024", "20240131T101500", "20240131T1015", "20240131T101500Z", "20240131101500",
            "202401311015", "20240131 10:15", " 2024-01-31 ",
        ],
        LAST_OF_JANUARY,
    ),
    **dict.fromkeys(
        ["5-Mar-2024", "05MAR2024", "Mar 5, 2024", "5. März 2024", "5 mars 2024", "20240305T101500", "05.03.2024", "2024-3-5"],
        FIFTH_OF_MARCH,
    ),
}  # fmt: skip
# What is a date only by a setting: under which, and what it is then.
DATES_BY_SETTING: dict[str, dict[str, float]] = {
    "31-JAN-24": {"day-first": LAST_OF_JANUARY, "month-first": LAST_OF_JANUARY},
    "31jan24": {"day-first": LAST_OF_JANUARY, "month-first": LAST_OF_JANUARY},
    "Jan 31, 24": {"day-first": LAST_OF_JANUARY, "month-first": LAST_OF_JANUARY},
    "31-JAN-24 10.15.00.000000 AM": {"day-first": LAST_OF_JANUARY, "month-first": LAST_OF_JANUARY},
    "31/01/2024": {"day-first": LAST_OF_JANUARY},
    "31/1/24 10:15": {"day-first": LAST_OF_JANUARY},
    "31-01-2024": {"day-first": LAST_OF_JANUARY},
    "31.01.24": {"day-first": LAST_OF_JANUARY},
    "01/31/2024": {"month-first": LAST_OF_JANUARY},
    "1/31/2024 10:15:00 AM": {"month-first": LAST_OF_JANUARY},
    "05/03/2024": {"day-first": FIFTH_OF_MARCH, "month-first": 123.0},
    "45322": {"excel": LAST_OF_JANUARY},
    "45322.75": {"excel": LAST_OF_JANUARY},
    "43860": {"excel-1904": LAST_OF_JANUARY},
    "23406": {"sas": LAST_OF_JANUARY, "stata": LAST_OF_JANUARY},
    "2022278400": {"sas": LAST_OF_JANUARY},
    "2022278400000": {"stata": LAST_OF_JANUARY},
    "19753": {"unix": LAST_OF_JANUARY},
    "1706659200": {"unix": LAST_OF_JANUARY},
    "13926038400": {"spss": LAST_OF_JANUARY},
}
NO_DATES = [
    "2024-01-31 approx", "2024-01-31x", "2024-01-31T", "2024-01-31 25:61", "2024-02-30", "31-FEB-2024", "31 Marvel 2024",
    "2024-01", "31.01.2024?", "~2024-01-31", "2024-01-31/2024-02-02", "31JAN2024x", "20240131T10", "Mar 5", "unknown",
    "x",
    "2024-01-31 10:15 or so", "0000-00-00", "Wed",
]  # fmt: skip
# The value where the mark is a point, and where it is a comma; None of what may be two numbers.
NUMBERS: dict[str, tuple[float | None, float | None]] = {
    **{text: (value, value) for text, value in {
        "61": 61, "61.5": 61.5, "61,5": 61.5, ".5": 0.5, ",5": 0.5, "-.5": -0.5, "+,5": 0.5, "5.": 5, "5,": 5, "0.125": 0.125,
        "0,125": 0.125, "00.125": 0.125, "-0,125": -0.125, ".125": 0.125, ",125": 0.125, "+7": 7, "-7": -7, "007": 7,
        "\u22127": -7,
        "1e3": 1000, "1E3": 1000, "1.5e-3": 0.0015, "1,5e3": 1500, "1e+3": 1000, "1,234.50": 1234.5, "1.234,50": 1234.5,
        "1,234,567": 1234567, "1.234.567": 1234567, "1,234,567.5": 1234567.5, "1.234.567,5": 1234567.5, "1 234": 1234,
        "1 234,5": 1234.5, "1 234.5": 1234.5, "1\u00a0234": 1234, "1\u202f234,5": 1234.5, "1'234": 1234, "1\u2019234.5": 1234.5,
        "12 345 678": 12345678, " 61 ": 61, "1234.567": 1234.567, "1234,567": 1234.567, "61.2345": 61.2345, "61,25": 61.25,
        "1234": 1234, "0": 0, "0.0": 0, "-0": 0, "0,0": 0, "\u0661\u0662": 12,
    }.items()},
    "1.234": (1.234, None), "61.500": (61.5, None), "-1.234": (-1.234, None), "100.000": (100, None),
    "1,234": (None, 1.234), "61,500": (None, 61.5), "-1,234": (None, -1.234), "100,000": (None, 100),
}  # fmt: skip
# Neither a number nor two, in any reader.
NO_NUMBERS = [
    "61.5 mg", "61%", "$61", "61x", "x61", "1_000", "0x10", "1.2.3", "12.34,5", "0.123.456", "1,23,456", "--7", "7-", "(7)",
    "6 1", "1e", "e3", ",", "61.5.", "1e3.5", "1/2", "\u00bd", "12:30", "true", "2024-01-31",
]  # fmt: skip
NUMBER_CODES = ["-9", "-9.0", "-9,0", "-09", "0.1", ".1", "0,1", ",10", "0.10000000149011612"]
MISSING = ["", "NA", "N/A", "n/a", "nan", "NaN", "null", "None", "-", "--", "?", "#DIV/0!", "<NA>", "NaT", "missing", " "]
LEVEL_SPELLINGS: dict[str, int] = {
    **dict.fromkeys(["0.1", "0,1", ".1", ",1", "0.10", "00,100", "+0.1", "0.10000000149011612"], 0),
    **dict.fromkeys(["0.5", ".5", "0,5", ",5", "0.50", "0,50", "0.500", "00.5", "+.5", " 0.5 "], 1),
    **dict.fromkeys(["2.5", "2,5", "2.50", "2,50", "2.500000", "02.5"], 2),
    **dict.fromkeys(["7", "7.0", "7,0", "7.", "07", "+7", "7.000000"], 3),
    **dict.fromkeys(["-3", "-3.0", "-3,0", "-03", "-3."], 4),
    **dict.fromkeys(["1000.5", "1000,5", "1,000.5", "1.000,5", "1000.50"], 5),
    **dict.fromkeys(["1E3"], 6),
    **dict.fromkeys(["007a", " 007a"], 7),
    **dict.fromkeys(["a", " a", "a "], 8),
    **dict.fromkeys(["ä", "a\u0308"], 9),
    **dict.fromkeys(["A b"], 10),
    **dict.fromkeys(["none"], 11),
    **dict.fromkeys(["2024-01-31", "2024-01-31 00:00", "2024-01-31T00:00:00", "2024-01-31 00:00:00.000"], 12),
    **dict.fromkeys(["x,y"], 13),
}
NO_LEVELS = [
    "A",
    "1000",
    "1e3",
    "7a",
    "a b",
    "A  b",
    "0.5x",
    "x0.5",
    "0.51",
    "x;y",
    "0.1.",
    "2024-01-31 10:15",
    "Ä",
    "aa",
    "-0.5",
]
LEVEL_CODES = ["-9.9", "-9,9", "-9.90", "-9.899999618530273", "88", "88.0", "88,0", "088"]
TRUTHS = {
    **dict.fromkeys(
        ["yes", "Yes", "Y", "true", "TRUE", "T", "1", "1.0", "1,0", "01", "on", "ja", "JA", "oui", "si", " yes "], 1.0
    ),
    **dict.fromkeys(["no", "NO", "n", "false", "False", "F", "0", "0.0", "0,0", "00", "off", "nein", "non", "-0"], 0.0),
}
NO_TRUTHS = ["maybe", "2", "0.5", "-1", "yess", "truefalse", "yes no", "10", "1x"]


def by_csv(delimiter: str, said: str = "", **how: Any) -> Writer:
    """As a program writes it, with quotation marks where they are needed."""

    def write(folder: Path, table: Mapping[str, Sequence[Any]]) -> str:
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=delimiter, **how).writerows([list(table), *zip(*table.values(), strict=True)])
        (folder / "t.csv").write_text(out.getvalue(), encoding="utf-8", newline="")
        return f"{folder / 't.csv'}{said}"

    return write


READERS: Final[dict[str, Writer]] = {
    **{
        name: writer
        for name, writer in WRITERS.items()
        if name not in ("semicolon", "comma", "comma, CR LF", "tab", "pipe", "cp1252")
    },
    "comma": by_csv(","),
    "comma, LF": by_csv(",", lineterminator="\n"),
    "semicolon": by_csv(";"),
    "tab": by_csv("\t"),
    "pipe": by_csv("|", "#multiline=true"),
    "blanks": by_csv(" ", "#delimiter=blanks", quoting=csv.QUOTE_ALL),
}
# In these a cell of several columns cannot hold a delimiter.
UNQUOTED = {"UTF-16": "\t", "UTF-16, LF": ",", "gzip": ","}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    read_files_in_this_process(monkeypatch)


def read(
    reader: str, folder: Path, column: Column, spellings: Sequence[str], said: str = ""
) -> tuple[dict[str, float], list[str]]:
    """The value of each spelling that such a source can hold, and what its owner is told."""
    held = [text for text in spellings if UNQUOTED.get(reader, "\0") not in text]
    if reader in ("SPSS", "Stata", "SAS"):
        # Blanks behind a text are no part of it there, and an empty text is none.
        held = [text for text in held if text.strip()]
    source = READERS[reader](folder, {column.name: held, "beside": ["b"] * len(held)})
    if said:
        source = f"{source}{',' if '#' in str(source) else '#'}{said}"
    told: list[str] = []
    values = read_columns(source, Columns([column]), told.append).ravel()
    assert len(values) == len(held)
    return dict(zip(held, values.tolist(), strict=True)), told


def how_many(told: Sequence[str], words: str) -> int:
    """Of the sentence with these words, the number before them."""
    found = [one for one in told if words in one]
    return int(found[0].partition(words)[0].rsplit(" ", 1)[-1].replace(",", "")) if found else 0


def same(found: Mapping[str, float], expected: Mapping[str, float]) -> None:
    wrong = {text: value for text, value in found.items() if not np.array_equal(value, expected[text], equal_nan=True)}
    assert not wrong, {text: (value, expected[text]) for text, value in wrong.items()}


@pytest.mark.parametrize("reader", READERS)
def test_dates(reader: str, tmp_path: Path) -> None:
    expected = {**CLEAR_DATES, **dict.fromkeys([*DATES_BY_SETTING, *NO_DATES, *MISSING, "99999999", "1 Jan 1900"], NAN)}
    found, told = read(reader, tmp_path, DAY, list(expected))
    same(found, expected)
    by_setting = sum(text in found for text in DATES_BY_SETTING)
    assert how_many(told, " of these may be two dates") == by_setting
    assert how_many(told, " cells hold no date") == by_setting + sum(text in found for text in NO_DATES)
    frame = READERS[reader] is WRITERS.get(reader) and not isinstance(READERS[reader](tmp_path, {"a": ["b"]}), str | Path)
    remedy = "Make dates of its cells in the data frame" if frame else "#dates=day-first"
    assert any(remedy in one for one in told)
    if frame:
        return
    for setting in ("day-first", "month-first", "excel", "excel-1904", "sas", "stata", "spss", "unix"):
        meant = {text: days.get(setting, NAN) for text, days in DATES_BY_SETTING.items()}
        # Numbers of days are days of one kind under each of these settings.
        asked = [text for text, days in DATES_BY_SETTING.items() if setting in days or not text[:5].isdecimal()]
        found, _ = read(
            reader,
            tmp_path,
            DAY,
            [*asked, *(text for text in CLEAR_DATES if not text.removesuffix(".0").isdecimal())],
            f"dates={setting}",
        )
        same(found, {**meant, **CLEAR_DATES})


@pytest.mark.parametrize("reader", READERS)
def test_numbers(reader: str, tmp_path: Path) -> None:
    comma = reader == "semicolon"
    clear = {text: values[comma] for text, values in NUMBERS.items()}
    unclear = [text for text, value in clear.items() if value is None]
    expected = {text: NAN if value is None else value for text, value in clear.items()}
    expected |= dict.fromkeys([*NO_NUMBERS, *NUMBER_CODES, *MISSING], NAN)
    found, told = read(reader, tmp_path, NUMBER, list(expected))
    same(found, expected)
    assert how_many(told, " of these may be two numbers") == sum(text in found for text in unclear)
    assert how_many(told, " cells hold no number") == sum(text in found for text in [*unclear, *NO_NUMBERS])
    unclear = [text for text in unclear if text in found]
    if unclear and "data frame" not in " ".join(told):
        mark, place = ("comma", 1) if not comma else ("point", 0)
        found, _ = read(reader, tmp_path, NUMBER, unclear, f"decimal={mark}")
        same(found, {text: values[place] or NAN for text, values in NUMBERS.items()})


@pytest.mark.parametrize("reader", READERS)
def test_levels_and_truth_values(reader: str, tmp_path: Path) -> None:
    missing = [text for text in MISSING if text.lower() != "none"]
    expected: dict[str, float] = {
        **{text: float(place) for text, place in LEVEL_SPELLINGS.items()},
        **dict.fromkeys(NO_LEVELS, -1.0),
    }
    expected |= dict.fromkeys([*LEVEL_CODES, *missing, "None"], NAN)
    found, _ = read(reader, tmp_path, LEVEL, list(expected))
    same(found, expected)
    expected = {**TRUTHS, **dict.fromkeys(NO_TRUTHS, -1.0), **dict.fromkeys(["9", "9.0", "9,0", "09", *MISSING], NAN)}
    found, _ = read(reader, tmp_path, TRUE, list(expected))
    same(found, expected)


def test_there_are_as_many_spellings_as_are_promised() -> None:
    assert len(CLEAR_DATES) + len(DATES_BY_SETTING) >= 80
    assert len(NUMBERS) + len(NO_NUMBERS) >= 80
    assert len(LEVEL_SPELLINGS) + len(NO_LEVELS) >= 60
    assert len(TRUTHS) + len(NO_TRUTHS) + len(MISSING) + len(NUMBER_CODES) + len(LEVEL_CODES) >= 60


ENGINES: dict[str, Callable[[pa.Table], Any]] = {
    "Polars": lambda table: pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
    "DuckDB": lambda table: duckdb.connect().from_arrow(table),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("column", "statistic", "spellings"),
    [
        (DAY, "histogram(day, bins=4)", [*CLEAR_DATES, *DATES_BY_SETTING, *NO_DATES, *MISSING]),
        (NUMBER, "histogram(number, bins=7)", [*NUMBERS, *NO_NUMBERS, *NUMBER_CODES, *MISSING]),
        (LEVEL, "proportion(level)", [*LEVEL_SPELLINGS, *NO_LEVELS, *LEVEL_CODES, *MISSING]),
        (TRUE, "proportion(true)", [*TRUTHS, *NO_TRUTHS, *MISSING]),
    ],
)
def test_engines_that_count_groups_read_the_same(engine: str, column: Column, statistic: str, spellings: list[str]) -> None:
    columns, table = Columns([column]), arrow_table({column.name: spellings})
    workload = workload_of(columns, statistic)
    groups = workload.encode(records_of(GroupedFrame(ENGINES[engine](table)), columns, lambda sentence: None), step=2.0**-20)
    rows = workload.encode(read_columns(table, columns), step=2.0**-20)
    assert groups.vector.tobytes() == rows.vector.tobytes()


# --- numbers of another type ---------------------------------------------------------------------------------------------


def _in_parquet(table: pa.Table, folder: Path) -> Path:
    parquet.write_table(table, folder / "t.parquet")
    return folder / "t.parquet"


def _in_duckdb(table: pa.Table, folder: Path) -> Path:
    with duckdb.connect(str(folder / "t.duckdb")) as base:
        base.register("held", table)
        base.execute("CREATE TABLE t AS SELECT * FROM held")
    return folder / "t.duckdb"


SINGLE: dict[str, Callable[[pa.Table, Path], Any]] = {
    "PyArrow": lambda table, folder: table,
    "pandas": lambda table, folder: table.to_pandas(),
    "Polars": lambda table, folder: pl.from_arrow(table),
    "Parquet": _in_parquet,
    "DuckDB": _in_duckdb,
    "counted by Polars": lambda table, folder: GroupedFrame(pl.from_arrow(table).lazy()),  # type: ignore[union-attr]
    "counted by DuckDB": lambda table, folder: GroupedFrame(duckdb.connect().from_arrow(table)),
}


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.decimal128(5, 2)], ids=str)
@pytest.mark.parametrize("holder", SINGLE)
def test_levels_and_codes_in_single_precision(holder: str, kind: pa.DataType, tmp_path: Path) -> None:
    """0.1 in single precision is another number than in double precision, and the same level."""
    columns = Columns([LEVEL, Column(name="number", low=0, high=1, missing_codes=("-9.9", "0.3"))])
    texts = ["0.1", "0.5", "2.5", "-9.9", "0.3", "0.6"]
    cells = pa.array([Decimal(text) if pa.types.is_decimal(kind) else float(text) for text in texts], kind)
    source = SINGLE[holder](pa.table({"level": cells, "number": cells}), tmp_path)
    values = (
        np.vstack(list(records_of(source, columns, lambda sentence: None).rows()))
        if isinstance(source, GroupedFrame)
        else (read_columns(source, columns))
    )
    np.testing.assert_array_equal(values[:, 0], [0, 1, 2, NAN, -1, -1])
    np.testing.assert_allclose(values[:, 1], [0.1, 0.5, 2.5, NAN, NAN, 0.6], rtol=1e-6)


# --- days of programs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "number", "day"),
    [
        # Its 29 February 1900 never was.
        ("excel", "1", "1900-01-01"),
        ("excel", "59", "1900-02-28"),
        ("excel", "60", None),
        ("excel", "61", "1900-03-01"),
        ("excel", "45322,75", "2024-01-31"),
        ("excel", "2958465", "9999-12-31"),
        ("excel", "2958466", None),
        ("excel-1904", "0", "1904-01-01"),
        ("sas", "0", "1960-01-01"),
        ("sas", "-1", "1959-12-31"),
        ("sas", "-21916.5", "1899-12-29"),
        ("stata", "1706659200000", "2014-01-30"),
        ("spss", "13926038400", "2024-01-31"),
        ("unix", "-0.5", "1969-12-31"),
        ("unix", "1706745599", "2024-01-31"),
        ("unix", "1706745600", "2024-02-01"),
        ("unix", "99999999999999", None),
        ("unix", "0x4b", None),
        ("unix", "1e4", None),
    ],
)
def test_numbers_of_days(program: str, number: str, day: str | None) -> None:
    found = date_of(number, program)
    assert (None if found is None else found.isoformat()) == day


# --- nothing may stand behind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["x", "?", "0x", " approx", "/", "~", ":", "'", "\nx"])
def test_no_pattern_is_open_at_an_end(sign: str) -> None:
    for text in (*CLEAR_DATES, *DATES_BY_SETTING):
        for order in ("", "day-first", "month-first", "excel", "unix"):
            assert date_of(text.strip() + sign, order) is None, (text, order)
            assert date_of(sign + text.strip(), order) is None, (text, order)
    for text in NUMBERS:
        for mark in ",.":
            for more in (text + sign, sign + text):
                assert Numerals(mark).value(more.strip()) is None or "'" in sign, (more, mark)
