"""Days and times as people read them; apart from numbers, which also modules use that must not come near a clock."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

from quietmean.core.readable import UNKNOWN, not_finite


def day_text(days: float, since: str, rounding: str = "nearest") -> str:
    """The day that is so many ``days`` after ``since`` (YEAR-MONTH-DAY), as YEAR-MONTH-DAY; ``rounding``: nearest, down or up.

    A dash for what is not known, and for days that no calendar has.
    """
    if not math.isfinite(days):
        return not_finite(days)
    whole_days = {"down": math.floor, "up": math.ceil}.get(rounding, round)(days)
    try:
        return (datetime.date.fromisoformat(since) + datetime.timedelta(days=whole_days)).isoformat()
    except (OverflowError, ValueError):
        return UNKNOWN


def days_text(ends: Sequence[float], since: str) -> str:
    """An interval of days, outwards to whole ones."""
    low, high = ends
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    return f"{day_text(low, since, 'down')} to {day_text(high, since, 'up')}"


def by_this_clock(now: datetime.datetime) -> str:
    """What to look at where something is over, or has not begun: "it is 2027-03-01 12:00 UTC by this machine's clock ..."."""
    return f"it is {now.astimezone(datetime.UTC):%Y-%m-%d %H:%M} UTC by this machine's clock, set that if it is wrong"
