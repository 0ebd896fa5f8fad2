"""Cells of a declared column as floats: numbers, days, places of levels; and what their owner should know of the others."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.cells import STRANGE, plain, plain_name
from quietmean.statistics import Column
from quietmean.statistics.columns import TRUTH, is_number
from quietmean.studies.data.days import date_of, days_of, is_unclear_date, stated_order
from quietmean.studies.data.location import Location
from quietmean.studies.data.numerals import Numerals
from quietmean.studies.data.table import Cells, Table
from quietmean.studies.data.text import Tell

# Texts for a missing value, in small letters. A declared level of that name takes precedence.
MISSING_TEXTS = frozenset(
    ["", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", ".", "-", "--", "?", "#value!", "#div/0!", "<na>", "nat"]
)
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?", re.ASCII)
# The forms of a day, and of a day in a column that has times, too.
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MIDNIGHT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]00:00(:00(\.0+)?)?", re.ASCII)
# Numbers outside this range are neither codes nor levels.
_LARGEST, _SMALLEST = 1e300, 1e-30
# Messages about cells that cannot be read.
_STRANGE_WORDS = {
    "numbers": "no number and count as missing",
    "dates": "no date and count as missing",
    "truth": "neither true nor false",
    "levels": "none of the declared levels",
}


def floats_of(table: Table, column: Column, numerals: Numerals, location: Location, tell: Tell) -> NDArray[np.float64]:
    """The values of one column of the file, (rows,): NaN, or -1 for levels, where a cell holds none, whatever it is."""
    cells = table.column(column.name)
    if not column.numeric:
        values = _levels(cells, column)
    else:
        values = _days(cells, column, location) if column.since else _numbers(cells, numerals)
        if column.missing_codes:
            values = np.where(_coded(cells.values, values, column), np.nan, values)
    if strange := strange_rows(cells, values, column):
        _tell(table, column, strange, _STRANGE_WORDS[kind_of(column)], tell)
        unclear = sum(is_unclear(text_of_cell(cells.values[row]) or "", column, numerals, location) for row in strange)
        if unclear:
            tell(
                f"{table.place}, column {column.name!r}: {unclear} of these may be two {kind_of(column)}: quietmean data shows "
                f"them, and {table.place}#{'dates' if column.since else 'decimal'}= says which is meant"
            )
    return values


def is_unclear(text: str, column: Column, numerals: Numerals, location: Location) -> bool:
    """May a cell of this text be two numbers or two dates, without a setting that decides?"""
    if column.since:
        return not stated_order(location) and is_unclear_date(text)
    return column.numeric and numerals.is_unclear(text)


def kind_of(column: Column) -> str:
    """What its cells hold: numbers, dates, truth values or levels."""
    if column.numeric:
        return "dates" if column.since else "numbers"
    return "truth" if column.boolean else "levels"


def strange_rows(cells: Cells, values: NDArray[np.float64], column: Column) -> list[int]:
    """Rows whose cell is not understood: no value, no level, and none of the usual spellings or declared codes of missing."""
    if not column.numeric:
        return [int(row) for row in np.flatnonzero(values < 0)]
    if isinstance(cells.values, np.ndarray) and not column.since:
        return []
    codes = {plain_name(code) for code in column.missing_codes}

    def strange(row: int) -> bool:
        text = text_of_cell(cells.values[row])
        return text is not None and text.lower() not in MISSING_TEXTS and text not in codes and not _is_code(text, column)

    return [row for row in map(int, np.flatnonzero(np.isnan(values))) if strange(row)]


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


def _numbers(cells: Cells, numerals: Numerals) -> NDArray[np.float64]:
    if isinstance(cells.values, np.ndarray):
        return np.array(cells.values, dtype=np.float64)

    @cache
    def of_text(text: str) -> float:
        number = numerals.value(text.strip())
        return np.nan if number is None else number

    def value(cell: Any) -> float:
        cell = plain(cell)
        if isinstance(cell, str):
            return of_text(cell)
        return _float(cell) if isinstance(cell, int | float | Decimal) and not isinstance(cell, bool) else math.nan

    return np.array([value(cell) for cell in cells.values], dtype=np.float64)


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    except ValueError:
        return math.nan


def _days(cells: Cells, column: Column, location: Location) -> NDArray[np.float64]:
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

    return np.array([value(cell) for cell in cells.values], dtype=np.float64)


def _days_between(day: datetime.date, start: float) -> float:
    try:
        return days_of(day) - start
    # Libraries have dates that Python has not.
    except (ValueError, OverflowError):
        return math.nan


def _coded(cells: Sequence[Any] | NDArray[np.float64], values: NDArray[np.float64], column: Column) -> NDArray[np.bool_]:
    """Which cells hold a code for missing, as a text, or as the same number or day."""
    texts = {plain_name(code) for code in column.missing_codes}
    named = np.zeros(len(values), dtype=bool)
    if not isinstance(cells, np.ndarray):
        named = np.array([isinstance(cell, str) and plain_name(cell) in texts for cell in cells], dtype=bool)
    if column.since:
        start = days_of(datetime.date.fromisoformat(column.since))
        days = [days_of(day) - start for code in texts if (day := date_of(code, "")) is not None]
        return named | np.isin(values, days)
    return named | np.isin(values, [float(code) for code in texts if is_number(code)])


def _levels(cells: Cells, column: Column) -> NDArray[np.float64]:
    """The place of each level; NaN where a cell is missing and -1 where it holds none of the declared ones."""
    if column.boolean:
        places = {text: float(index) for index, level in enumerate(column.categories) for text in TRUTH[level]}
    else:
        places = {plain_name(level): float(index) for index, level in enumerate(column.levels)}
    codes = {plain_name(code) for code in column.missing_codes}
    by_meaning = _by_meaning(places, codes)

    @cache
    def place(text: str | None) -> float:
        if text is None or text in codes:
            return np.nan
        wanted = text.lower() if column.boolean else text
        if wanted in places:
            return places[wanted]
        meaning = _meaning(wanted)
        if meaning is not None and meaning in by_meaning:
            return by_meaning[meaning]
        return np.nan if text.lower() in MISSING_TEXTS else -1.0

    return np.array([place(text_of_cell(cell)) for cell in cells.values], dtype=np.float64)


def _by_meaning(levels: Mapping[str, float], codes: Collection[str]) -> dict[Decimal | str, float]:
    """Places of levels, NaN for codes, by the number or day that they are; none where two are the same: ``01``, ``1``."""
    declared = [(_meaning(text), index) for text, index in {**levels, **dict.fromkeys(codes, math.nan)}.items()]
    numbers = [(meaning, index) for meaning, index in declared if meaning is not None]
    places: dict[Decimal | str, float] = {}
    for meaning, index in numbers:
        before = places.setdefault(meaning, index)
        if before != index and not (math.isnan(before) and math.isnan(index)):
            return {}
    return places


def _meaning(text: str) -> Decimal | str | None:
    """The number that a text is: 1, 1.0 and 01 are one. Not 1E3, which is a code of diseases. Of a day at midnight the day."""
    if midnight := _MIDNIGHT.fullmatch(text):
        return midnight[1]
    return Decimal(text) if _NUMBER.fullmatch(text) else text if _DAY.fullmatch(text) else None


def _is_code(text: str, column: Column) -> bool:
    """Is it the number of a code, written in another way?"""
    return is_number(text) and float(text) in {float(code) for code in column.missing_codes if is_number(code)}


def _tell(table: Table, column: Column, rows: list[int], what: str, tell: Tell) -> None:
    many = "cells hold" if len(rows) > 1 else "cell holds"
    if len(rows) == 1:
        what = what.replace("count", "counts")
    tell(f"{table.place}, column {column.name!r}: {len(rows)} {many} {what} ({table.where(rows)})")
