"""Cells of a declared column as floats: numbers, days, places of levels; and what their owner should know of the others."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.cells import STRANGE, in_single, plain, plain_name
from quietmean.core.errors import InputError
from quietmean.statistics import Column
from quietmean.statistics.columns import TRUTH
from quietmean.statistics.dates import is_number
from quietmean.statistics.names import quoted
from quietmean.studies.data.location import Location
from quietmean.studies.data.spellings import Numerals, date_of, days_of, is_unclear_date, stated_order
from quietmean.studies.data.table import Cells, NoticedRows, Notify, Table

# Texts for a missing value, in small letters. A declared level of that name takes precedence.
MISSING_TEXTS = frozenset(
    ["", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", ".", "-", "--", "?", "#value!", "#div/0!", "<na>", "nat"]
)
_NUMBER = re.compile(r"[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})", re.ASCII)
# The forms of a day, and of a day in a column that has times, too.
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MIDNIGHT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]00:00(:00(\.0+)?)?", re.ASCII)
# A column of days since 1970.
_EPOCH = Column(name="day", low=0.0, high=1.0, since="1970-01-01")
# Numbers outside this range are neither codes nor levels.
_LARGEST, _SMALLEST = 1e300, 1e-30
Value = TypeVar("Value")
# What is said of cells that cannot be read; and of a column of which none can: what no cell holds, and a remedy.
_SAID = {
    "numbers": ("no number and count as missing", "a number", "Is it levels? Write {name} in {{A, B}}"),
    "dates": ("no date and count as missing", "a date", "Say how its dates are written, or declare something else"),
    "truth": ("neither true nor false", "a truth value", "Is it levels? Write {name} in {{A, B}}"),
    "levels": (
        "none of the declared levels",
        "a declared level",
        "Write the levels as they are spelled there, {name} in {{A, B}}",
    ),
}
# Reads one cell: its value, NaN where it is missing, None where it is not understood.
CellReader: TypeAlias = Callable[[Any], float | None]


@dataclass
class ColumnReader:
    """Reads one declared column of a source, piece by piece, and keeps what its owner should know of cells not understood.

    ``strange``: these; ``unclear``: how many of them may be two numbers or two dates.
    """

    column: Column
    location: Location
    strange: NoticedRows = field(default_factory=NoticedRows)
    unclear: int = 0
    # Does any cell hold a value? And what does the first one hold that is not understood?
    understood: bool = False
    first: str = ""

    def __post_init__(self) -> None:
        """Raises :class:`InputError` for a factor of what is not a number."""
        if self.location.mapping.of(self.column.name).factor != 1 and kind_of(self.column) != "numbers":
            raise InputError(f"column {self.column.name!r} has a factor in the site's mapping, and no numbers. Leave it out.")

    def values(self, table: Table) -> Array:
        """The values of a piece, (rows,): NaN, or -1 for levels, where a cell holds none, whatever it is."""
        cells, numerals = table.column(self.column.name), Numerals.of(self.location, table.delimiter)
        values, strange = understood(cells, self.column, numerals, self.location)
        rows = np.flatnonzero(strange)
        self.first = self.first or (_held_by(cells[int(rows[0])], numerals) if len(rows) else "")
        self.strange.add(table.lines, rows)
        self.understood = self.understood or bool((values >= (-math.inf if self.column.numeric else 0.0)).any())
        self.unclear += sum(is_unclear(cells[int(row)], self.column, numerals, self.location) for row in rows)
        return values

    def unreadable(self, place: str) -> str:
        """Return what is wrong where there are cells and none holds a value, in a sentence; otherwise nothing."""
        if self.understood or not self.strange.count:
            return ""
        _, what, remedy = _SAID[kind_of(self.column)]
        name = quoted(self.column.name, ",~+")
        remedy = "Say how its cells are written" if self.unclear else remedy.format(name=name)
        return f"Column {self.column.name!r}: no cell of {place} holds {what}, the first holds {self.first}. {remedy}."

    def tell(self, place: str, word: str, tell: Notify) -> None:
        """Says to the owner what was not understood, if anything. ``place``, ``word``: of the source, as in its tables."""
        if not (count := self.strange.count):
            return
        many, words = "cells hold" if count > 1 else "cell holds", _SAID[kind_of(self.column)][0]
        if count == 1:
            words = words.replace("count", "counts")
        tell(f"{place}, column {self.column.name!r}: {count} {many} {words} ({self.strange.where(word)})")
        if self.unclear:
            setting = "dates=day-first" if self.column.since else "decimal=comma"
            remedy = f"See them with quietmean site data. Then say which is meant, for example {place}#{setting}."
            if self.location.is_frame:
                remedy = f"Make {'dates' if self.column.since else 'numbers'} of its cells in the data frame."
            tell(f"{place}, column {self.column.name!r}: {self.unclear} of these may be two {kind_of(self.column)}. {remedy}")


def _held_by(cell: Any, numerals: Numerals) -> str:
    """What kind of a value a cell holds, in words that do not show it."""
    meaning = meaning_of(text_of_cell(cell) or "", numerals)
    return "a text" if meaning is None else "a number" if isinstance(meaning, Decimal) else "a date"


def understood(cells: Cells, column: Column, numerals: Numerals, location: Location) -> tuple[Array, Mask]:
    """Return the values of the cells of a column, each (rows,), and which of them are not understood.

    NaN, or -1 for levels, where a cell holds no value; strange is one that holds none of the usual spellings or declared codes of
    missing either. Codes of the site are read as the texts that it maps them to, and numbers are in the unit of the study.
    """
    mapping = location.mapping.of(column.name)
    if mapping.codes:
        cells = _recoded(cells.distinct(), mapping.codes, numerals)
    values, strange = _read(cells, column, numerals, location)
    if mapping.factor != 1:
        with np.errstate(over="ignore"):
            values = values * mapping.factor
    return values, strange


def _read(cells: Cells, column: Column, numerals: Numerals, location: Location) -> tuple[Array, Mask]:
    """Return the same of cells with the study's codes, in the unit of the site: what is plainly a number is read at once."""
    values, rest = None, None
    if kind_of(column) == "numbers":
        values = cells.numbers(numerals.mark)
        if values is None and isinstance(cells.values, np.ndarray):
            values, rest = cells.spread(cells.values.copy()), np.empty(0, dtype=np.intp)
    if values is None:
        return _read_one_by_one(cells.distinct(), column, numerals, location)
    values[np.isin(values, _codes_of_numbers(column))] = np.nan
    rest = np.flatnonzero(np.isnan(values)) if rest is None else rest
    strange = np.zeros(len(values), dtype=bool)
    if len(rest):
        values[rest], strange[rest] = _read_one_by_one(cells.distinct(rest), column, numerals, location)
    return values, strange


def _read_one_by_one(cells: Cells, column: Column, numerals: Numerals, location: Location) -> tuple[Array, Mask]:
    kind = kind_of(column)
    if kind == "numbers":
        read = _reader_of_numbers(column, numerals)
    elif kind == "dates":
        read = _reader_of_days(column, location)
    else:
        read = _reader_of_levels(column, numerals)
    nothing = math.nan if column.numeric else -1.0
    found = [read(cell) for cell in cells.values]
    values = np.array([nothing if value is None else value for value in found], dtype=np.float64)
    return cells.spread(values), cells.spread(np.array([value is None for value in found], dtype=bool))


def _recoded(cells: Cells, codes: Mapping[str, str], numerals: Numerals) -> Cells:
    """Recode a cell by spelling, else by the number or day that a code is, unless two are the same one."""
    by_meaning = _by_meaning(codes)

    def text(cell: Any) -> Any:
        spelling = text_of_cell(cell)
        if spelling is None or spelling in codes:
            return cell if spelling is None else codes[spelling]
        meaning = meaning_of(spelling, numerals)
        return cell if meaning is None else by_meaning.get(meaning, cell)

    return Cells([text(cell) for cell in cells.values], cells.codes)


def is_unclear(cell: Any, column: Column, numerals: Numerals, location: Location) -> bool:
    """May a cell be two numbers or two dates, without a setting that decides?"""
    text = text_of_cell(cell) or ""
    if column.since:
        return not stated_order(location) and is_unclear_date(text)
    return column.numeric and numerals.is_unclear(text)


def kind_of(column: Column) -> str:
    """What its cells hold: numbers, dates, truth values or levels."""
    if column.numeric:
        return "dates" if column.since else "numbers"
    return "truth" if column.boolean else "levels"


def is_missing(text: str | None) -> bool:
    """Return whether a text is one of the usual spellings of missing."""
    return text is None or plain_name(text).lower() in MISSING_TEXTS


def text_of_cell(cell: Any) -> str | None:
    """The text of a cell for comparison with levels and names of parties; None if it is empty.

    A number has as many decimals as its value, whatever type its column has: 1, not 1.0, and 0.00001.
    """
    cell = plain(cell)
    if cell is None:
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float | Decimal):
        return _text_of_number(cell)
    try:
        return cell.isoformat() if isinstance(cell, datetime.date) else plain_name(cell) or None
    # A whole number of more digits than Python writes; a date that is none.
    except ValueError:
        return STRANGE


def _text_of_number(number: float | Decimal) -> str:
    if number == 0:
        return "0"
    if not (math.isfinite(number) and _SMALLEST < abs(float(number)) < _LARGEST):
        return str(number)
    text = f"{Decimal(repr(float(number))) if isinstance(number, float) else number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _reader_of_numbers(column: Column, numerals: Numerals) -> CellReader:
    texts, codes = {plain_name(code) for code in column.missing_codes}, set(_codes_of_numbers(column))

    @cache
    def of_text(text: str) -> float | None:
        number = numerals.value(text.strip())
        if plain_name(text) in texts or (number is None and is_missing(text)):
            return math.nan
        return math.nan if number in codes else number

    def read(cell: Any) -> float | None:
        cell = plain(cell)
        if isinstance(cell, str):
            return of_text(cell)
        if isinstance(cell, int | float | Decimal) and not isinstance(cell, bool):
            number = _float(cell)
            return math.nan if number in codes else number
        return math.nan if cell is None else None

    return read


def _codes_of_numbers(column: Column) -> list[float]:
    """Return the codes for missing that are numbers, also as single precision has them."""
    numbers = [float(code) for code in map(plain_name, column.missing_codes) if is_number(code)]
    return [same for number in numbers for same in (number, in_single(number))]


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    except ValueError:
        return math.nan


def days_in(cells: Iterable[Any], location: Location) -> Array:
    """Return dates as days since 1970-01-01; NaN for what is none. Times of the day are left out."""
    read = _reader_of_days(_EPOCH, location)
    return np.array([math.nan if (day := read(cell)) is None else day for cell in cells], dtype=np.float64)


def _reader_of_days(column: Column, location: Location) -> CellReader:
    """Return the reader of dates as days since the column's public day. Times of the day are left out."""
    order, start = stated_order(location), days_of(datetime.date.fromisoformat(column.since))
    texts = {plain_name(code) for code in column.missing_codes}
    by_meaning = _by_meaning(dict.fromkeys(texts, True))
    codes = {days_of(day) - start for code in texts if (day := date_of(code, "")) is not None}

    @cache
    def of_text(text: str) -> float | None:
        day = date_of(text.strip(), order)
        if text in texts or meaning_of(text) in by_meaning or (day is None and is_missing(text)):
            return math.nan
        return None if day is None else without_codes(days_of(day) - start)

    def without_codes(days: float) -> float:
        return math.nan if days in codes else days

    def read(cell: Any) -> float | None:
        cell = plain(cell)
        if isinstance(cell, datetime.date) and not texts:
            try:
                return days_of(cell) - start
            # Libraries have dates that Python has not.
            except (ValueError, OverflowError):
                return None
        # A number may be a date without separators: 20240131.
        text = text_of_cell(cell)
        return math.nan if text is None else of_text(text)

    return read


def _reader_of_levels(column: Column, numerals: Numerals) -> CellReader:
    """Return the reader of places of levels."""
    if column.boolean:
        places = {text: float(index) for index, level in enumerate(column.categories) for text in TRUTH[level]}
    else:
        places = {plain_name(level): float(index) for index, level in enumerate(column.levels)}
        places |= {plain_name(text): places[plain_name(level)] for level, texts in column.finer for text in texts}
    unknown = float(len(column.levels)) if column.other else None
    codes = {plain_name(code) for code in column.missing_codes}
    by_meaning = _by_meaning({**places, **dict.fromkeys(codes, math.nan)})

    @cache
    def of_text(text: str | None) -> float | None:
        if text is None or text in codes:
            return math.nan
        level = text.lower() if column.boolean else text
        if level in places:
            return places[level]
        meaning = meaning_of(level, numerals)
        if meaning is not None and meaning in by_meaning:
            return by_meaning[meaning]
        return math.nan if is_missing(text) else unknown

    return lambda cell: of_text(text_of_cell(cell))


def _by_meaning(codes: Mapping[str, Value]) -> dict[Decimal | str, Value]:
    """Return what codes say by the number or day that each is.

    Nothing where two are the same one, but say something else: ``01``, ``1``.

    A number is also what single precision makes of it.
    """
    by_meaning: dict[Decimal | str, Value] = {}
    for text, value in codes.items():
        meaning = meaning_of(text)
        # Not a number is itself, by this one object.
        if meaning is not None and by_meaning.setdefault(meaning, value) not in (value,):
            return {}
    for meaning, value in list(by_meaning.items()):
        if isinstance(meaning, Decimal):
            by_meaning.setdefault(Decimal(_text_of_number(in_single(float(meaning)))), value)
    return by_meaning


def meaning_of(text: str, numerals: Numerals | None = None) -> Decimal | str | None:
    """The number that a text is: 1, 1.0 and 01 are one. Not 1E3, which is a code of diseases. Of a day at midnight the day.

    ``numerals``: how the site writes numbers; without them with a decimal point.
    """
    if midnight := _MIDNIGHT.fullmatch(text):
        return midnight[1]
    if _DAY.fullmatch(text):
        return text
    number = text if numerals is None else numerals.with_point(text)
    return Decimal(number) if number is not None and _NUMBER.fullmatch(number) else None
