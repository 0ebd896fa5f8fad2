"""Bounds of columns that are dates, as days."""

from __future__ import annotations

import datetime
from typing import Any

from quietmean.core.errors import InputError


def in_days(raw: dict[str, Any]) -> dict[str, Any]:
    """Bounds that are dates as days since ``since``, by default the lower one; the public day as text."""
    dated = {name: raw[name] for name in ("since", "low", "high") if _is_date(raw.get(name))}
    if not dated:
        return raw
    first = _day(raw["name"], dated.get("since", dated.get("low", "")))
    raw["since"] = first.isoformat()
    for name in ("low", "high"):
        if name in dated:
            raw[name] = float((_day(raw["name"], dated[name]) - first).days)
    if isinstance(edges := raw.get("edges"), list | tuple):
        raw["edges"] = [float((_day(raw["name"], edge) - first).days) if _is_date(edge) else edge for edge in edges]
    return raw


def is_number(text: str) -> bool:
    """Can the ``text`` be read as a number?"""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_date(raw: Any) -> bool:
    return isinstance(raw, datetime.date) or (isinstance(raw, str) and not is_number(raw) and raw != "")


def _day(name: Any, raw: Any) -> datetime.date:
    """Parse a day. Raises :class:`InputError` for anything else."""
    if isinstance(raw, datetime.datetime):
        return raw.date()
    if isinstance(raw, datetime.date):
        return raw
    try:
        return datetime.date.fromisoformat(str(raw))
    except ValueError:
        raise InputError(f"column {name!r} has the day {raw!r}. Write days as YEAR-MONTH-DAY, for example 2020-01-31.") from None
