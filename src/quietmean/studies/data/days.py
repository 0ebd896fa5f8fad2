"""Dates in cells as days since a public day."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.studies.data.location import Location

# The year first, with or without a time behind; points are written with the day first everywhere.
_ISO = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:[T ].*)?")
_COMPACT = re.compile(r"(\d{4})(\d{2})(\d{2})")
_POINTS = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?: .*)?")
_SLASHES = re.compile(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4})(?: .*)?")
_EPOCH = datetime.date(1970, 1, 1)


def day_first(cells: Iterable[Any], location: Location, column: str) -> bool:
    """Are dates such as 03/04/2020 written with the day first? Raises :class:`InputError` if that is not known."""
    said = location.said.get("dates")
    if said is not None:
        return said == "day-first"
    texts = (_SLASHES.fullmatch(cell.strip()) for cell in cells if isinstance(cell, str))
    pairs = [(int(found[1]), int(found[2])) for found in texts if found]
    days, months = any(first > 12 for first, _ in pairs), any(second > 12 for _, second in pairs)
    if pairs and days == months:
        raise InputError(
            f"dates in column {column!r} of {location.name} may have day or month first: say {location.name}#dates=day-first "
            f"or {location.name}#dates=month-first, or write them as 2020-01-31"
        )
    return days


def days_since(cells: Iterable[Any], first: datetime.date, *, day_first: bool) -> NDArray[np.float64]:
    """Days since ``first``, (rows,); NaN for what is no date. Times of the day are left out."""
    start = (first - _EPOCH).days
    return np.array([_day(cell, day_first) for cell in cells], dtype=np.float64) - start


def _day(cell: Any, day_first: bool) -> float:
    if isinstance(cell, datetime.datetime):
        cell = cell.date()
    if not isinstance(cell, datetime.date):
        found = _date(cell.strip(), day_first) if isinstance(cell, str) else None
        if found is None:
            return np.nan
        cell = found
    return float((cell - _EPOCH).days)


def _date(text: str, day_first: bool) -> datetime.date | None:
    if found := _ISO.fullmatch(text) or _COMPACT.fullmatch(text):
        year, month, day = found.groups()
    elif found := _POINTS.fullmatch(text):
        day, month, year = found.groups()
    elif found := _SLASHES.fullmatch(text):
        one, other, year = found.groups()
        day, month = (one, other) if day_first else (other, one)
    else:
        return None
    try:
        return datetime.date(int(year), int(month), int(day))
    except ValueError:
        return None
