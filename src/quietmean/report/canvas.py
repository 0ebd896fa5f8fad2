"""How figures look, what they share, and how they become SVG inside a page: their size, quiet axes, dates, both intervals.

matplotlib is imported with the first figure: most commands never draw.
"""

from __future__ import annotations

import datetime
import io
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.lazy import figures, mpl, ticker
from quietmean.core.readable_days import day_text
from quietmean.report.data import LARGEST
from quietmean.statistics import Answer, Estimates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can distinguish, and greys. Each has one meaning throughout a report.
INK = "#1b2733"
MUTED = "#5d6b78"
RULE = "#d3d9de"
QUIET = "#a9b3bc"
ESTIMATE = "#0072b2"
COALITION = "#d55e00"
OVER = "#a8447c"
PAPER = "#ffffff"

# In a page every colour is a variable of its style sheet, so that dark mode needs no second figure.
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    QUIET: "quiet",
    ESTIMATE: "estimate",
    COALITION: "coalition",
    OVER: "over",
    PAPER: "paper",
}

WIDTH = 10.0  # inches, of all figures: 960 pixels on a page

# The date and the software version are left out: the same figure gives the same bytes.
_NO_METADATA = dict.fromkeys(("Format", "Type", "Creator", "Date"))


@contextmanager
def house_style() -> Iterator[None]:
    """Draw the figure alike on every machine, no matter what its matplotlib settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "quietmean",
                "font.size": 9.0,
                # A dollar sign in a name is a dollar sign.
                "text.parse_math": False,
                "axes.unicode_minus": True,
                "text.color": INK,
                "xtick.color": MUTED,
                "ytick.color": MUTED,
                "axes.labelcolor": MUTED,
                "axes.edgecolor": RULE,
                "axes.spines.top": False,
                "axes.spines.right": False,
            }
        )
        yield


def figure_with_axes(width: float, tall: float, *, left: float, right: float, top: float, bottom: float) -> tuple[Figure, Axes]:
    """A figure that is ``width`` inches wide, with axes that are so ``tall`` and these margins around them, in inches too."""
    height = top + tall + bottom
    figure = figures.Figure(figsize=(width, height))
    return figure, figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, tall / height))


def level_lines(axes: Axes) -> None:
    """Lines across the axes at the ticks of the upright one, behind all else, instead of that axis."""
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.yaxis.grid(visible=True, color=RULE, linewidth=0.5)
    axes.tick_params(length=0)


def inline_svg(figure: Figure, prefix: str, label: str) -> str:
    """The figure as an ``<svg>`` element; ``prefix`` keeps its ids apart from those of other figures on the page."""
    target = io.StringIO()
    with house_style():
        figure.savefig(target, format="svg", transparent=True, metadata=_NO_METADATA)
    svg = target.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", svg)
    # The page's own type face; widths were reckoned with a wider one, so nothing overlaps.
    svg = re.sub(r"font: ((?:\d+ )?[\d.]+px) [^;\"]*", r"font: \1 var(--face)", svg)
    for colour, name in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg


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

    class Separated(ticker.ScalarFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            integer, point, decimals = str(super().__call__(x, pos)).partition(".")
            return f"{re.sub(_THOUSANDS, ',', integer)}{point}{decimals}"

    if type(axis.get_major_formatter()) is ticker.ScalarFormatter:
        axis.set_major_formatter(Separated())


@contextmanager
def canvas(
    tall: float, *, left: float = LEFT, right: float = RIGHT, bottom: float = BOTTOM, top: float = TOP
) -> Iterator[tuple[Figure, Axes]]:
    """A figure as wide as all, with axes that are so tall."""
    with house_style(), _larger_print():
        yield figure_with_axes(WIDE, tall, left=left, right=right, top=top, bottom=bottom)


def _larger_print() -> Any:
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
