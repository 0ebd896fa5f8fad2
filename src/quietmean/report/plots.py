"""Figures of single statistics: bars, curves with bands, forest plots, a map of correlations, survival curves, ROC.

Each shows both intervals: of the noise, thick or dark, and of the population, thin or pale. What has to be monotone or not
negative is made so here, for the eye only; tables have the linear estimates.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.lazy import optimize
from quietmean.core.readable import UNKNOWN, fixed, plain
from quietmean.report.canvas import (
    COALITION,
    ESTIMATE,
    INK,
    LEFT,
    MUTED,
    OVER,
    QUIET,
    RULE,
    WIDE,
    canvas,
    dates_below,
    drawable,
    quiet,
    wider_ends,
)
from quietmean.report.data import LARGEST
from quietmean.report.words import short
from quietmean.statistics import Answer, Estimates
from quietmean.statistics.kinds.curves import QUANTILES
from quietmean.statistics.tidy import terms_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_BARS, _MOST_LABELS, _MOST_ARMS = 64, 9, 5
_PALE, _DARK = 0.16, 0.3
_COLOURS = (ESTIMATE, COALITION, OVER, INK, QUIET)
_FIRST_DAY = "1970-01-01"
# Characters of a label under an axis, beside its neighbours, and of a name in the margin.
_LONGEST_TICK, _LONGEST_ARM = 10, 16
# Characters that fit beside each other under an axis; and inches under bars for one line of them.
_MOST_SIGNS, _TICKS = 50, 0.4
_SEPARATE = ("below", "above", "missing")


def plot(answer: Answer) -> tuple[Figure, str] | None:
    """The figure of a statistic, and what it shows in words; None for those that a table says all about."""
    draw = _DRAWN.get(answer.statistic.name)
    return None if draw is None else draw(drawable(answer))


def _shown(answer: Answer) -> Mask:
    """Which terms noise does not hide, (terms,): of the others there is an interval at most, and no bar or point."""
    return np.array([not term.hidden for term in terms_of(answer.to_json())], dtype=np.bool_)


def _bars(answer: Answer) -> tuple[Figure, str] | None:
    estimates, is_known = answer.estimates, _shown(answer)
    if not 1 < len(estimates.terms) <= _MOST_BARS or not is_known.any():
        return None
    levels = not any(term in _SEPARATE[:2] for term in estimates.terms)
    every = 1 if levels else max(math.ceil(len(estimates.terms) / _MOST_LABELS), 1)
    names = [short(_from(term), 2 * _LONGEST_TICK) for term in estimates.terms[::every]]
    longest = max(map(len, names))
    # Beside each other, aslant, or upright: as they fit.
    widest = max((len(one) + len(other)) / 2 + 1 for one, other in itertools.pairwise([*names, names[-1]]))
    turned = 0 if widest * len(names) <= _MOST_SIGNS else 35 if len(names) <= 2 * _MOST_LABELS else 90
    below = {0: 0.0, 35: 0.045 * longest, 90: 0.065 * longest}[turned]
    largest = float(np.nanmax(np.append(np.where(np.isfinite(wider_ends(estimates)), wider_ends(estimates), np.nan), 0.0)))
    left = max(LEFT, 0.42 + 0.09 * len(f"{largest:,.0f}"[:9]))
    with canvas(2.6, bottom=_TICKS + below, left=left) as (figure, axes):
        places = np.arange(len(estimates.terms), dtype=np.float64)
        pale = [term in _SEPARATE for term in estimates.terms]
        heights = np.where(is_known, np.maximum(np.nan_to_num(estimates.value), 0.0), 0.0)
        colours = [QUIET if is_pale else ESTIMATE for is_pale in pale]
        axes.bar(places, heights, width=0.86, color=colours, alpha=_DARK, linewidth=0)
        for position, noise, both in zip(places.tolist(), estimates.of_noise, wider_ends(estimates), strict=True):
            _upright(axes, position, np.maximum(both, 0.0), 1.1)
            _upright(axes, position, np.maximum(noise, 0.0), 3.0)
        axes.set_xticks(places[::every], names)
        axes.tick_params(axis="x", labelrotation=turned, labelsize=8.5 if turned == 90 else None)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right" if turned == 35 else "center")
        axes.set_ylabel(answer.counted)
        axes.set_ylim(bottom=0.0)
        quiet(axes)
    return figure, f"Bars of {answer.statistic.text}: how many {answer.counted} are in each"


def _distribution(answer: Answer) -> tuple[Figure, str] | None:
    estimates = answer.estimates
    days = [_day(term) for term in estimates.terms]
    dated = all(day is not None for day in days)
    places = (
        [float(day) for day in days if day is not None]
        if dated
        else [float(term) for term in estimates.terms if _is_number(term)]
    )
    if len(places) < 2 or len(places) != len(estimates.terms) or not (np.diff(places) > 0).all() or not _shown(answer).any():
        return None
    with canvas(2.6) as (figure, axes):
        _band(axes, np.array(places), estimates, ESTIMATE, rising=1)
        axes.set_ylim(0.0, 1.02)
        axes.set_xlim(places[0], places[-1])
        axes.set_xlabel(getattr(answer.statistic, "column", ""))
        if dated:
            dates_below(axes, _FIRST_DAY)
        axes.set_ylabel(f"part of the {answer.counted} below")
        quiet(axes)
    return figure, f"{answer.statistic.text}: the part of the {answer.counted} below each value, with bands"


def correlations(answer: Answer) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return the map of correlations: of each column its name, and with each other the number as text and from -1 to 1.

    Empty where a table says all.
    """
    estimates = answer.estimates
    pairs = {frozenset(term.split(":")): float(value) for term, value in zip(estimates.terms, estimates.value, strict=True)}
    names = list(dict.fromkeys(name for term in estimates.terms if term.count(":") == 1 for name in term.split(":")))
    if answer.statistic.name != "correlation" or not 3 <= len(names) <= 16:
        return []
    values = [[1.0 if one == other else pairs.get(frozenset((one, other)), math.nan) for other in names] for one in names]
    if not any(math.isfinite(pairs[pair]) for pair in pairs):
        return []

    def cell(value: float) -> tuple[str, float]:
        return (fixed(value, 2), min(max(value, -1.0), 1.0)) if abs(value) < LARGEST else (UNKNOWN, 0.0)

    return [(name, [cell(value) for value in row]) for name, row in zip(names, values, strict=True)]


def _survival(answer: Answer) -> tuple[Figure, str] | None:
    estimates = answer.estimates
    # Of competing events: curves that rise from 0.
    rising = answer.statistic.name != "survival"
    points = {index: group for index, (group, _) in enumerate(estimates.groups) if rising or group not in QUANTILES}
    arms = list(dict.fromkeys(points.values()))
    names = {term.group: term.curve for term in terms_of(answer.to_json())}
    if not 1 <= len(arms) <= _MOST_ARMS or not all(_is_number(estimates.groups[index][1]) for index in points):
        return None
    is_known = np.isfinite(estimates.value) & np.isfinite(estimates.standard_error)
    if not is_known[list(points)].any():
        return None
    last = max(float(estimates.groups[index][1]) for index in points)
    rows = _rows_at_risk(estimates, arms)
    longest = max((len(short(row, _LONGEST_ARM)) for row in rows), default=0)
    arms_below, dashed = 0.24 * (len(rows) + 1), False
    with canvas(2.7, bottom=0.65 + arms_below, left=min(max(0.3 + 0.085 * longest, 0.9), 1.9)) as (figure, axes):
        for arm, colour in zip(arms, _COLOURS, strict=False):
            kept = [index for index, group in points.items() if group == arm and is_known[index]]
            times = np.array([0.0, *(float(estimates.groups[index][1]) for index in kept)])
            begin, steps = 0.0 if rising else 1.0, bool(_of_arm(estimates, arm, "exact", False))
            curve = _band(axes, times, estimates, colour, rising=1 if rising else -1, places=kept, first=begin, steps=steps)
            dashed |= _extrapolated(axes, estimates, arm, curve, colour)
            if len(arms) > 1 and kept:
                axes.plot([], [], color=colour, label=short(names[arm], 2 * _LONGEST_ARM))
        if len(arms) > 1:
            axes.legend(frameon=False, loc="upper left" if rising else "upper right", labelcolor=MUTED, fontsize=10)
        axes.set_xlim(0.0, last)
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel(getattr(answer.statistic, "time", "time"))
        axes.set_ylabel("part with the event" if rising else "part without the event")
        quiet(axes)
        _numbers_at_risk(axes, answer, rows)
    text = f"Curves of {answer.statistic.text} with bands, and the numbers at risk under them"
    return figure, text + ("; dashed where too few are at risk for the noise to rely on it" if dashed else "")


def _extrapolated(axes: Axes, estimates: Estimates, arm: str, curve: Array, colour: str) -> bool:
    """Goes on, dashed and without a band, where a curve of survival (1 and its known bins) was cut. Returns whether it was."""
    later = _of_arm(estimates, arm, "extrapolated", [])
    if not later:
        return False
    times = [float(time) for group, time in estimates.groups if group == arm][-len(later) - 1 :]
    # It never rises, from the end of what is drawn on.
    axes.plot(times, np.minimum([curve[-1], *later], curve[-1]), color=colour, linewidth=1.2, linestyle=(0, (2, 2)))
    return True


def _of_arm(estimates: Estimates, arm: str, name: str, otherwise: Any) -> Any:
    """What a summary says of an arm, or of all of them."""
    own = estimates.summary.get(arm, estimates.summary)
    return own.get(name, otherwise) if isinstance(own, Mapping) else otherwise


def _rows_at_risk(estimates: Estimates, arms: Sequence[str]) -> list[str]:
    """The arms of which the numbers at risk are known: competing events share those of their arm."""
    at_risk = estimates.summary.get("at_risk")
    return [str(arm) for arm in at_risk] if isinstance(at_risk, Mapping) else list(arms)


def _numbers_at_risk(axes: Axes, answer: Answer, arms: Sequence[str]) -> None:
    """Write under the axis, at its ticks, who is at risk in the bin that begins there."""
    estimates = answer.estimates
    first = next((group for group, time in estimates.groups if _is_number(time)), "")
    ends = [float(time) for group, time in estimates.groups if group == first]
    begins = [0.0, *ends[:-1]]
    every = max(math.ceil(len(begins) / 6), 1)
    axes.set_xticks(begins[::every], [plain(time) for time in begins[::every]])
    height = axes.get_window_extent().height / axes.figure.dpi
    step = 0.23 / height
    top = -0.66 / height
    axes.text(-0.09, top, "at risk", transform=axes.transAxes, size=9.5, color=MUTED, ha="right", va="center")
    for row, (arm, colour) in enumerate(zip(arms, _COLOURS, strict=False), start=1):
        at_risk = estimates.summary.get(arm, estimates.summary.get("at_risk", {}))
        counts = (at_risk.get("at_risk", at_risk.get(arm)) if isinstance(at_risk, Mapping) else None) or []
        name = "" if len(arms) == 1 else short(arm, _LONGEST_ARM)
        # Curves of several events are more than arms: only where each arm is a curve has it its colour.
        own = colour if "at_risk" not in estimates.summary else INK
        axes.text(-0.09, top - step * row, name, transform=axes.transAxes, size=9.5, color=own, ha="right", va="center")
        for index in range(0, len(begins), every):
            text = _at_risk(counts[index]) if index < len(counts) else UNKNOWN
            where = begins[index] / max(ends[-1], 1e-300)
            axes.text(where, top - step * row, text, transform=axes.transAxes, size=9.5, color=INK, ha="center", va="center")


def _at_risk(count: float | None) -> str:
    return UNKNOWN if count is None else fixed(count if math.isnan(count) else max(count, 0.0), 0)


def _roc(answer: Answer) -> tuple[Figure, str] | None:
    estimates = answer.estimates
    kinds: dict[str, dict[str, int]] = {}
    for index, term in enumerate(estimates.terms):
        edge, colon, kind = term.rpartition(":")
        if colon and math.isfinite(estimates.value[index]):
            kinds.setdefault(kind, {})[edge] = index
    both = [edge for edge in kinds.get("sensitivity", {}) if edge in kinds.get("specificity", {})]
    if len(both) < 2:
        return None
    high, low = ([kinds[kind][edge] for edge in both] for kind in ("sensitivity", "specificity"))
    order = np.argsort(1 - estimates.value[low], kind="stable")
    return roc_figure(
        np.clip(1 - estimates.value[low][order], 0.0, 1.0),
        np.clip(estimates.value[high][order], 0.0, 1.0),
        wider_ends(estimates)[high][order],
    ), f"{answer.statistic.text}: sensitivity against false positives, with bands"


def roc_figure(false_positives: Array, sensitivity: Array, ends: Array) -> Figure:
    """A receiver operating characteristic of points (k,), from few false positives to many; ``ends`` of sensitivity, (k, 2)."""
    with canvas(3.2, right=WIDE - LEFT - 3.4) as (figure, axes):
        x = np.maximum.accumulate(np.concatenate([[0.0], false_positives, [1.0]]))
        y = np.maximum.accumulate(np.concatenate([[0.0], sensitivity, [1.0]]))
        low, high = (
            np.maximum.accumulate(np.concatenate([[edge], np.nan_to_num(column), [1.0]]))
            for edge, column in zip((0.0, 0.0), ends.T, strict=True)
        )
        axes.plot([0, 1], [0, 1], color=RULE, linewidth=1.0)
        axes.fill_between(x, low, np.minimum(high, 1.0), color=ESTIMATE, alpha=_PALE, linewidth=0)
        axes.plot(x, y, color=ESTIMATE, linewidth=1.8)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel("1 − specificity")
        axes.set_ylabel("sensitivity")
        quiet(axes)
    return figure


def _band(
    axes: Axes,
    x: Array,
    estimates: Estimates,
    colour: str,
    *,
    rising: int,
    places: Sequence[int] | None = None,
    first: float | None = None,
    steps: bool = False,
) -> Array:
    """Draws a curve with both bands, monotone for the eye; ``first`` is known exactly. Returns the curve.

    ``steps``: level between points, where it moves; else what is between them is not known, and points are joined.
    """
    style: Any = {"step": "post"} if steps else {}
    kept = list(range(len(estimates.terms))) if places is None else list(places)
    begin = [] if first is None else [first]
    for ends, alpha in ((wider_ends(estimates)[kept], _PALE), (estimates.of_noise[kept], _DARK)):
        low, high = (_monotone(np.concatenate([begin, column]), rising) for column in ends.T)
        axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, **style)
    curve = _monotone(np.concatenate([begin, estimates.value[kept]]), rising)
    axes.plot(x, curve, color=colour, linewidth=1.8, drawstyle="steps-post" if steps else "default")
    return curve


def _monotone(values: Array, rising: int) -> Array:
    if not len(values) or not np.isfinite(values).all():
        return values
    monotone: Array = np.clip(optimize.isotonic_regression(values, increasing=rising > 0).x, 0.0, 1.0)
    return monotone


def _upright(axes: Axes, position: float, ends: Array, width: float) -> None:
    axes.plot([position, position], ends, color=ESTIMATE, linewidth=width, solid_capstyle="butt")


def _from(term: str) -> str:
    """Where a bin begins, of whole numbers both ends; other terms as they are."""
    first, to, last = term.partition(" to ")
    if to and first.isdigit() and last.isdigit():
        return f"{first}–{last}"
    return term[1:].partition(",")[0] if term.startswith("[") else first if to and _day(first) is not None else term


def _day(text: str) -> int | None:
    """Days since :data:`_FIRST_DAY`, of a date."""
    try:
        return (
            (datetime.date.fromisoformat(text) - datetime.date.fromisoformat(_FIRST_DAY)).days if text.count("-") == 2 else None
        )
    except ValueError:
        return None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


_DRAWN: dict[str, Callable[[Answer], tuple[Figure, str] | None]] = {
    "histogram": _bars,
    "count": _bars,
    "cdf": _distribution,
    "cumulative-incidence": _survival,
    "survival": _survival,
    "roc": _roc,
}
