"""What figures of statistics share: their size, quiet axes, dates under them, and both intervals."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.readable_days import day_text
from quietmean.report.data import LARGEST
from quietmean.report.style import RULE, figure_with_axes, house_style
from quietmean.statistics import Answer, Estimates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


# Months between dates under an axis, and the length of their text: year and month, or year.
_STEPS = ((1, 7), (2, 7), (3, 7), (6, 7), (12, 4), (24, 4), (60, 4), (120, 4), (240, 4))
# The part of an axis that half a date's text needs at its right end, by the length of the text; and the most dates.
_BEYOND = {7: 0.06, 4: 0.02}
_MOST_DATES = 5
# Where a separator stands in a whole number.
_THOUSANDS = r"(?<=\d)(?=(?:\d{3})+$)"
# Inches: narrow enough for a telephone without small print.
WIDE = 5.0
LEFT, RIGHT, TOP, BOTTOM = 0.7, 0.15, 0.15, 0.55


def wider_ends(estimates: Estimates) -> Array:
    """The intervals of the population, or of the noise where there are none: (terms, 2)."""
    of_population = estimates.of_population
    return (
        estimates.of_noise if of_population is None else np.where(np.isfinite(of_population), of_population, estimates.of_noise)
    )


def drawable(answer: Answer) -> Answer:
    """The answer with NaN for what cannot be drawn: infinite numbers, and ones whose distances overflow."""

    def known(values: Array) -> Array:
        return np.where(np.abs(values) < LARGEST, values, np.nan)

    estimates = answer.estimates
    shown = estimates.with_columns(
        value=known(estimates.value),
        noise=known(estimates.standard_error),
        of_noise=known(estimates.of_noise),
        of_population=known(estimates.of_noise if estimates.of_population is None else estimates.of_population),
    )
    return replace(answer, estimates=shown)


def quiet(axes: Axes, *, across: bool = True) -> None:
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    # So that the two zeros of a corner stand apart.
    axes.tick_params(length=0, pad=5)
    for axis in (axes.xaxis, axes.yaxis):
        _separated(axis)
    (axes.yaxis if across else axes.xaxis).grid(visible=True, color=RULE, linewidth=0.5)
    axes.patch.set_alpha(0.0)


def _separated(axis: Axis) -> None:
    """Numbers as tables have them, with separators of thousands; names and dates stay."""
    from matplotlib.ticker import ScalarFormatter

    class Separated(ScalarFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            integer, point, decimals = str(super().__call__(x, pos)).partition(".")
            return f"{re.sub(_THOUSANDS, ',', integer)}{point}{decimals}"

    if type(axis.get_major_formatter()) is ScalarFormatter:
        axis.set_major_formatter(Separated())


@contextmanager
def canvas(
    tall: float, *, left: float = LEFT, right: float = RIGHT, bottom: float = BOTTOM, top: float = TOP
) -> Iterator[tuple[Figure, Axes]]:
    """A figure as wide as all, with axes that are so tall."""
    with house_style(), _larger_print():
        yield figure_with_axes(WIDE, tall, left=left, right=right, top=top, bottom=bottom)


def _larger_print() -> Any:
    import matplotlib as mpl

    return mpl.rc_context({"font.size": 10.5})


def dates_below(axes: Axes, since: str) -> None:
    """Years, months or days of the calendar under an axis of days since one, few enough to stand beside each other."""
    low, high = axes.get_xlim()
    ticks = _dates_between(low, high, datetime.date.fromisoformat(since))
    axes.set_xticks([day for day, _ in ticks], [text for _, text in ticks])
    axes.set_xlim(low, high)


def _dates_between(low: float, high: float, since: datetime.date) -> list[tuple[float, str]]:
    """Where round dates are, and their texts: the first of every k-th month, else every k-th day."""
    first, last = (_within(since, days) for days in (low, high))
    for months, length in _STEPS:
        begin = (12 * first.year + first.month - 1) // months * months
        end = 12 * last.year + last.month
        dates = [datetime.date(max(month // 12, 1), month % 12 + 1, 1) for month in range(begin, end, months)]
        labelled = [((date - since).days, date.isoformat()[:length]) for date in dates]
        inside = [(float(days), text) for days, text in labelled if low <= days <= high - _BEYOND[length] * (high - low)]
        if 2 <= len(inside) <= _MOST_DATES:
            return inside
    # Between two dates of a month, or centuries: so that the first and the last text stay within the figure.
    places = np.linspace(low + 0.15 * (high - low), high - 0.15 * (high - low), 3).round().tolist()
    return [(day, day_text(day, since.isoformat())) for day in dict.fromkeys(places)]


def _within(since: datetime.date, days: float) -> datetime.date:
    try:
        return since + datetime.timedelta(days=math.floor(days))
    except OverflowError:
        return datetime.date.min if days < 0 else datetime.date.max
