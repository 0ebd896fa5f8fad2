"""Dates in cells as days since a public day: each by itself."""

from __future__ import annotations

import datetime
import re

from quietmean.studies.data.location import Location

# The year first, with or without a time behind it; dates with points have the day first everywhere.
_TIME = r"(?:[T ].*)?"
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-/])(\d{{1,2}})\2(\d{{1,2}}){_TIME}", re.ASCII | re.DOTALL)
_COMPACT = re.compile(r"(\d{4})(\d{2})(\d{2})", re.ASCII)
_POINTS = re.compile(rf"(\d{{1,2}})\.(\d{{1,2}})\.(\d{{4}}){_TIME}", re.ASCII | re.DOTALL)
_MONTH_BY_NAME = re.compile(rf"(\d{{1,2}})[- ]([A-Za-z]{{3}})[a-z]*[- ](\d{{4}}){_TIME}", re.ASCII | re.DOTALL)
# Read only where the order of day and month is stated.
_UNCLEAR = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}|\d{{2}}){_TIME}", re.ASCII | re.DOTALL)
_MONTHS = {name: place for place, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}  # noqa: SIM905
_EPOCH = datetime.date(1970, 1, 1)
# Of two digits, years up to this one are of this century, as POSIX has it.
_LAST_OF_THIS_CENTURY = 68


def stated_order(location: Location) -> str:
    """The setting of the order of day and month, or nothing."""
    return location.settings.get("dates", "")


def days_of(day: datetime.date) -> float:
    """Days since 1970-01-01; times of the day are left out."""
    if isinstance(day, datetime.datetime):
        day = day.date()
    return float((day - _EPOCH).days)


def date_of(text: str, order: str) -> datetime.date | None:
    """The date in a text without blanks around it, or None. ``order``: day-first, month-first, or "" without a setting."""
    parts = _parts(text, order)
    try:
        return None if parts is None else datetime.date(*parts)
    except ValueError:
        return None


def is_unclear_date(text: str) -> bool:
    """Is it a date whose order of day and month, or whose century, needs a setting?"""
    return date_of(text, "") is None and any(date_of(text, order) is not None for order in ("day-first", "month-first"))


def _parts(text: str, order: str) -> tuple[int, int, int] | None:
    """Year, month and day."""
    if matched := _YEAR_FIRST.fullmatch(text):
        return int(matched[1]), int(matched[3]), int(matched[4])
    if matched := _COMPACT.fullmatch(text):
        return int(matched[1]), int(matched[2]), int(matched[3])
    if matched := _POINTS.fullmatch(text):
        return int(matched[3]), int(matched[2]), int(matched[1])
    if matched := _MONTH_BY_NAME.fullmatch(text):
        month = _MONTHS.get(matched[2].lower())
        return None if month is None else (int(matched[3]), month, int(matched[1]))
    matched = _UNCLEAR.fullmatch(text) if order else None
    if matched is None:
        return None
    first, second, year = int(matched[1]), int(matched[3]), int(matched[4])
    if len(matched[4]) == 2:
        year += 2000 if year <= _LAST_OF_THIS_CENTURY else 1900
    return (year, second, first) if order == "day-first" else (year, first, second)
