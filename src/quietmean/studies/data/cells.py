"""Cells of a declared column as floats: numbers, days, places of levels; and what their owner should know of the others."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.cells import STRANGE, in_single, plain, plain_name
from quietmean.core.errors import InputError
from quietmean.statistics import Column
from quietmean.statistics.columns import TRUTH, is_number
from quietmean.studies.data.days import date_of, days_of, is_unclear_date, stated_order
from quietmean.studies.data.location import Location
from quietmean.studies.data.numerals import Numerals
from quietmean.studies.data.table import MOST_NAMED, Cells, Table, Texts, where
from quietmean.studies.data.text import Notify

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
# Messages about cells that cannot be read.
_STRANGE_WORDS = {
    "numbers": "no number and count as missing",
    "dates": "no date and count as missing",
    "truth": "neither true nor false",
    "levels": "none of the declared levels",
}


# And about a column of which none can.
_UNREADABLE = {
    "numbers": ("a number", "Declare its levels if it holds names (--levels)"),
    "dates": ("a date", "Say how its dates are written, or declare something else"),
    "truth": ("a truth value", "Declare its levels (--levels)"),
    "levels": ("a declared level", "Declare the levels as they are spelled (--levels)"),
}


@dataclass
class ColumnReader:
    """Reads one declared column of a source, piece by piece, and keeps what its owner should know of cells not understood.

    ``strange``: how many of these there are; ``unclear``: how many of them may be two numbers or two dates; ``lines``: where the
    first ones stand.
    """

    column: Column
    location: Location
    strange: int = 0
    unclear: int = 0
    lines: list[int] = field(default_factory=list)
    # Does any cell hold a value?
    understood: bool = False

    def __post_init__(self) -> None:
        """Raises :class:`InputError` for a factor of what is no number."""
        if self.location.mapping.of(self.column.name).factor != 1 and kind_of(self.column) != "numbers":
            raise InputError(f"column {self.column.name!r} has a factor in the site's mapping, and no numbers: leave it out")

    def values(self, table: Table) -> Array:
        """The values of a piece, (rows,): NaN, or -1 for levels, where a cell holds none, whatever it is."""
        cells, numerals = table.column(self.column.name), Numerals.of(self.location, table.delimiter)
        values, strange = understood(cells, self.column, numerals, self.location)
        rows = [int(row) for row in np.flatnonzero(strange)]
        self.strange += len(rows)
        self.understood = self.understood or bool((values >= (-math.inf if self.column.numeric else 0.0)).any())
        self.unclear += sum(is_unclear(cells[row], self.column, numerals, self.location) for row in rows)
        self.lines += [table.lines[row] for row in rows[: MOST_NAMED - len(self.lines)]]
        return values

    def unreadable(self, place: str) -> str:
        """What is wrong where there are cells and none holds a value, in a sentence; empty elsewhere."""
        if self.understood or not self.strange:
            return ""
        what, remedy = _UNREADABLE[kind_of(self.column)]
        remedy = "Say how its cells are written" if self.unclear else remedy
        return f"Column {self.column.name!r}: no cell of {place} holds {what}. {remedy}"

    def tell(self, place: str, word: str, tell: Notify) -> None:
        """Says to the owner what was not understood, if anything. ``place``, ``word``: of the source, as in its tables."""
        if not self.strange:
            return
        many, words = "cells hold" if self.strange > 1 else "cell holds", _STRANGE_WORDS[kind_of(self.column)]
        if self.strange == 1:
            words = words.replace("count", "counts")
        stands = where(word, self.lines, self.strange)
        tell(f"{place}, column {self.column.name!r}: {self.strange} {many} {words} ({stands})")
        if self.unclear:
            remedy = f"quietmean data shows them, and {place}#{'dates' if self.column.since else 'decimal'}= says which is meant"
            if self.location.is_frame:
                remedy = f"make {'dates' if self.column.since else 'numbers'} of its cells in the data frame"
            tell(f"{place}, column {self.column.name!r}: {self.unclear} of these may be two {kind_of(self.column)}: {remedy}")


def understood(cells: Cells, column: Column, numerals: Numerals, location: Location) -> tuple[Array, Mask]:
    """The values of the cells of a column, each (rows,), and which of them are not understood.

    NaN, or -1 for levels, where a cell holds no value; strange is one that holds none of the usual spellings or declared codes of
    missing either. Codes of the site stand for the texts that it maps them to, and numbers are in the unit of the study.
    """
    mapping = location.mapping.of(column.name)
    if mapping.codes:
        cells = _recoded(cells.distinct(), mapping.codes, numerals)
    values, strange = _understood(cells, column, numerals, location)
    if mapping.factor != 1:
        with np.errstate(over="ignore"):
            values = values * mapping.factor
    return values, strange


def _recoded(cells: Cells, codes: Mapping[str, str], numerals: Numerals) -> Cells:
    """By spelling, else by the number or day that a code is, unless two are the same one."""
    by_meaning = _by_meaning(codes)

    def text(cell: Any) -> Any:
        spelling = text_of_cell(cell)
        if spelling is None or spelling in codes:
            return cell if spelling is None else codes[spelling]
        meaning = meaning_of(spelling, numerals)
        return cell if meaning is None else by_meaning.get(meaning, cell)

    return Cells([text(cell) for cell in cells.values], cells.codes)


def _understood(cells: Cells, column: Column, numerals: Numerals, location: Location) -> tuple[Array, Mask]:
    """The same of cells with the study's codes, in the unit of the site."""
    if column.numeric and not column.since:
        if isinstance(cells.values, Texts):
            values = cells.values.numbers(numerals.mark)
            values[_coded((), values, column)] = np.nan
            strange = np.zeros(len(values), dtype=bool)
            rest = np.flatnonzero(np.isnan(values))
            if len(rest):
                values[rest], strange[rest] = _understood(cells.values.distinct(rest), column, numerals, location)
            return values, strange
        if isinstance(cells.values, np.ndarray):
            values = np.where(_coded((), cells.values, column), np.nan, cells.values)
            return cells.spread(values), np.zeros(len(cells), dtype=bool)
    once = cells.distinct()
    once_each = list(once.values)
    if not column.numeric:
        values = _levels(once_each, column, numerals)
        return once.spread(values), once.spread(values < 0)
    values = _days(once_each, column, location) if column.since else _numbers(once_each, numerals)
    coded = _coded(once_each, values, column)
    values = np.where(coded, np.nan, values)
    return once.spread(values), once.spread(_strange(once_each, values) & ~coded)


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


def _strange(cells: Sequence[Any], values: Array) -> Mask:
    """Which cells without a value hold none of the usual spellings of missing either."""

    def strange(cell: Any) -> bool:
        text = text_of_cell(cell)
        return text is not None and text.lower() not in MISSING_TEXTS

    nothing = np.isnan(values)
    return np.array([empty and strange(cell) for empty, cell in zip(nothing, cells, strict=True)], dtype=bool)


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


def _numbers(cells: Sequence[Any], numerals: Numerals) -> Array:
    @cache
    def of_text(text: str) -> float:
        number = numerals.value(text.strip())
        return np.nan if number is None else number

    def value(cell: Any) -> float:
        cell = plain(cell)
        if isinstance(cell, str):
            return of_text(cell)
        return _float(cell) if isinstance(cell, int | float | Decimal) and not isinstance(cell, bool) else math.nan

    return np.array([value(cell) for cell in cells], dtype=np.float64)


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    except ValueError:
        return math.nan


def days_in(cells: Iterable[Any], location: Location) -> Array:
    """Dates as days since 1970-01-01; NaN for what is none. Times of the day are left out."""
    return _days(list(cells), _EPOCH, location)


def _days(cells: Sequence[Any], column: Column, location: Location) -> Array:
    """Dates as days since the column's public day; NaN for what is none. Times of the day are left out."""
    order, start = stated_order(location), days_of(datetime.date.fromisoformat(column.since))

    @cache
    def of_text(text: str) -> float:
        day = date_of(text.strip(), order)
        return math.nan if day is None else days_of(day) - start

    def value(cell: Any) -> float:
        cell = plain(cell)
        if isinstance(cell, datetime.date):
            return _days_between(cell, start)
        # A number may be a date without separators: 20240131.
        text = text_of_cell(cell)
        return math.nan if text is None else of_text(text)

    return np.array([value(cell) for cell in cells], dtype=np.float64)


def _days_between(day: datetime.date, start: float) -> float:
    try:
        return days_of(day) - start
    # Libraries have dates that Python has not.
    except (ValueError, OverflowError):
        return math.nan


def _coded(cells: Sequence[Any], values: Array, column: Column) -> Mask:
    """Which ``values`` are a code for missing, as the same number or day, or as one of these ``cells`` spells it, if given."""
    texts = {plain_name(code) for code in column.missing_codes}
    named = np.zeros(len(values), dtype=bool)
    if not texts:
        return named
    if column.since:
        by_meaning = _by_meaning(dict.fromkeys(texts, True))
        spelled = map(text_of_cell, cells)
        named[: len(cells)] = [text is not None and (text in texts or meaning_of(text) in by_meaning) for text in spelled]
        start = days_of(datetime.date.fromisoformat(column.since))
        days = [days_of(day) - start for code in texts if (day := date_of(code, "")) is not None]
        return named | np.isin(values, days)
    named[: len(cells)] = [isinstance(cell, str) and plain_name(cell) in texts for cell in cells]
    numbers = [float(code) for code in texts if is_number(code)]
    return named | np.isin(values, [same for number in numbers for same in (number, in_single(number))])


def _levels(cells: Sequence[Any], column: Column, numerals: Numerals) -> Array:
    """The place of each level; NaN where a cell is missing and -1 where it holds none of the declared ones."""
    if column.boolean:
        places = {text: float(index) for index, level in enumerate(column.categories) for text in TRUTH[level]}
    else:
        places = {plain_name(level): float(index) for index, level in enumerate(column.levels)}
    codes = {plain_name(code) for code in column.missing_codes}
    by_meaning = _by_meaning({**places, **dict.fromkeys(codes, math.nan)})

    @cache
    def place(text: str | None) -> float:
        if text is None or text in codes:
            return np.nan
        level = text.lower() if column.boolean else text
        if level in places:
            return places[level]
        meaning = meaning_of(level, numerals)
        if meaning is not None and meaning in by_meaning:
            return by_meaning[meaning]
        return np.nan if text.lower() in MISSING_TEXTS else -1.0

    return np.array([place(text_of_cell(cell)) for cell in cells], dtype=np.float64)


def _by_meaning(codes: Mapping[str, Value]) -> dict[Decimal | str, Value]:
    """The same by the number or day that each is; nothing where two are the same one, but say something else: ``01``, ``1``.

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
