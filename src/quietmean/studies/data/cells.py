"""Cells of a declared column as floats: numbers, days, places of levels; and what their owner should know of the others."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.statistics import Column
from quietmean.statistics.columns import TRUTH, is_number
from quietmean.studies.data.days import date_of, days_of, is_unclear_date, order_said
from quietmean.studies.data.location import Location
from quietmean.studies.data.numerals import Numerals
from quietmean.studies.data.table import Cells, Stored, Table, plain_name
from quietmean.studies.data.text import Tell

# How programs and people write that nothing is known, in small letters. A declared level of that name comes first.
MISSING_TEXTS = frozenset(
    ["", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", ".", "-", "--", "?", "#value!", "#div/0!", "<na>", "nat"]
)
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?", re.ASCII)
# Larger numbers than this are no codes and no levels; and what stands for a cell that has no text.
_LARGEST_WHOLE, _STRANGE = 1e300, "\N{REPLACEMENT CHARACTER}"
# What is said of cells that are not understood.
_STRANGE_WORDS = {
    "numbers": "no number and count as missing",
    "dates": "no date and count as missing",
    "truth": "neither true nor false",
    "levels": "none of the declared levels",
}
_SHAPES = {
    "numbers": (Stored.NUMBERS, Stored.MIXED),
    "dates": (Stored.DATES, Stored.MIXED),
}


def floats_of(table: Table, column: Column, numerals: Numerals, location: Location, tell: Tell) -> NDArray[np.float64]:
    """The values of one column of the file, (rows,). Raises :class:`InputError` for a column that cannot hold such values."""
    cells = table.column(column.name)
    if not column.numeric:
        values = _levels(cells, column)
    else:
        values = _days(table, cells, column, location) if column.since else _numbers(table, cells, column, numerals)
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
    """May a cell of this text be two numbers or two dates, of which nobody said which is meant?"""
    if column.since:
        return not order_said(location) and is_unclear_date(text)
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
    if cells.stored is not Stored.MIXED:
        return []
    codes = {plain_name(code) for code in column.missing_codes}

    def strange(row: int) -> bool:
        text = text_of_cell(cells.values[row])
        return text is not None and text.lower() not in MISSING_TEXTS and text not in codes and not _is_code(text, column)

    return [row for row in map(int, np.flatnonzero(np.isnan(values))) if strange(row)]


def is_empty(cell: Any) -> bool:
    """Does a library say that nothing is in it? Some have values that are not equal to themselves, or to nothing at all."""
    if cell is None:
        return True
    try:
        return bool(cell != cell)
    # pandas' NA, of which no comparison is true or false; arrays; and whatever else a cell does.
    except Exception:
        return not isinstance(cell, Iterable)


def text_of_cell(cell: Any) -> str | None:
    """As it is compared with levels and names of parties; None if it is empty. A whole number has no decimals."""
    if is_empty(cell):
        return None
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, float | np.floating | Decimal):
        whole = math.isfinite(cell) and abs(float(cell)) < _LARGEST_WHOLE and cell == int(cell)
        return f"{cell:.0f}" if whole else str(cell)
    if isinstance(cell, datetime.date):
        return cell.isoformat()
    try:
        return plain_name(cell) or None
    # Whatever it is, and however it is written: it is one cell.
    except Exception:
        return _STRANGE


def _numbers(table: Table, cells: Cells, column: Column, numerals: Numerals) -> NDArray[np.float64]:
    if cells.stored is Stored.NUMBERS:
        return np.array(cells.values, dtype=np.float64)
    _require("numbers", table, cells, column)

    @cache
    def value(text: str) -> float:
        found = numerals.value(text.strip())
        return np.nan if found is None else found

    def number(cell: Any) -> float:
        if isinstance(cell, str):
            return value(cell)
        return _float(cell) if isinstance(cell, int | float | Decimal | np.number) and not isinstance(cell, bool) else np.nan

    return np.array([number(cell) for cell in cells.values], dtype=np.float64)


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    except ValueError:
        return math.nan


def _days(table: Table, cells: Cells, column: Column, location: Location) -> NDArray[np.float64]:
    """Dates as days since the column's public day; NaN for what is none. Times of the day are left out."""
    _require("dates", table, cells, column)
    order, start = order_said(location), days_of(datetime.date.fromisoformat(column.since))

    @cache
    def of_text(text: str) -> float:
        day = date_of(text.strip(), order)
        return math.nan if day is None else days_of(day) - start

    def value(cell: Any) -> float:
        if isinstance(cell, str):
            return of_text(cell)
        return days_of(cell) - start if isinstance(cell, datetime.date) and not is_empty(cell) else math.nan

    return np.array([value(cell) for cell in cells.values], dtype=np.float64)


def _require(what: str, table: Table, cells: Cells, column: Column) -> None:
    if cells.stored not in _SHAPES[what]:
        raise InputError(f"column {column.name!r} of {table.place} is of type {cells.type}: choose a column of {what}")


def _coded(cells: Sequence[Any] | NDArray[np.float64], values: NDArray[np.float64], column: Column) -> NDArray[np.bool_]:
    """Which cells hold a code for missing, as a text, or as the same number or day."""
    texts = {plain_name(code) for code in column.missing_codes}
    named = np.array([isinstance(cell, str) and plain_name(cell) in texts for cell in cells], dtype=bool)
    if column.since:
        start = days_of(datetime.date.fromisoformat(column.since))
        days = [days_of(day) - start for code in texts if (day := date_of(code, "")) is not None]
        return named | np.isin(values, days)
    return named | np.isin(values, [float(code) for code in texts if is_number(code)])


def _levels(cells: Cells, column: Column) -> NDArray[np.float64]:
    """The place of each level; NaN where a cell is missing and -1 where it holds none of the declared ones."""
    if column.boolean:
        known = {text: float(place) for place, level in enumerate(column.categories) for text in TRUTH[level]}
    else:
        known = {plain_name(level): float(place) for place, level in enumerate(column.levels)}
    codes = {plain_name(code) for code in column.missing_codes}
    by_meaning = _by_meaning(known, codes)

    @cache
    def place(text: str | None) -> float:
        if text is None or text in codes:
            return np.nan
        wanted = text.lower() if column.boolean else text
        if wanted in known:
            return known[wanted]
        meaning = _meaning(wanted)
        if meaning is not None and meaning in by_meaning:
            return by_meaning[meaning]
        return np.nan if text.lower() in MISSING_TEXTS else -1.0

    return np.array([place(text_of_cell(cell)) for cell in cells.values], dtype=np.float64)


def _by_meaning(known: Mapping[str, float], codes: Collection[str]) -> dict[float, float]:
    """Places of levels, NaN for codes, by the number that they are; none where two are the same: ``01``, ``1``."""
    declared = [(_meaning(text), place) for text, place in {**known, **dict.fromkeys(codes, math.nan)}.items()]
    numbers = [(meaning, place) for meaning, place in declared if meaning is not None]
    places: dict[float, float] = {}
    for meaning, place in numbers:
        before = places.setdefault(meaning, place)
        if before != place and not (math.isnan(before) and math.isnan(place)):
            return {}
    return places


def _meaning(text: str) -> float | None:
    """The number that a text is: 1, 1.0 and 01 are one. Not 1E3, which is a code of diseases."""
    return float(text) if _NUMBER.fullmatch(text) else None


def _is_code(text: str, column: Column) -> bool:
    """Is it the number of a code, written in another way?"""
    return is_number(text) and float(text) in {float(code) for code in column.missing_codes if is_number(code)}


def _tell(table: Table, column: Column, rows: list[int], what: str, tell: Tell) -> None:
    many = "cells hold" if len(rows) > 1 else "cell holds"
    if len(rows) == 1:
        what = what.replace("count", "counts")
    tell(f"{table.place}, column {column.name!r}: {len(rows)} {many} {what} ({table.where(rows)})")
