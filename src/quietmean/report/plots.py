"""Figures of single statistics: bars, curves with bands, forest plots, a map of correlations, survival curves, ROC.

Each shows both intervals: of the noise, thick or dark, and of the population, thin or pale. What has to be monotone or not
negative is made so here, for the eye only; tables have the linear estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.readable import UNKNOWN, fixed, plain
from quietmean.report.data import LARGEST, SMALLEST
from quietmean.report.style import COALITION, ESTIMATE, INK, MUTED, OVER, QUIET, RULE, house_style
from quietmean.report.words import short
from quietmean.statistics import Answer, Estimates
from quietmean.statistics.estimates import Z
from quietmean.statistics.kinds.survival import QUANTILES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

# Inches: narrow enough for a telephone without small print.
WIDE = 5.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.7, 0.15, 0.15, 0.55
_MOST_BARS, _MOST_LABELS, _MOST_ROWS, _MOST_ARMS = 64, 9, 30, 5
_PALE, _DARK = 0.16, 0.3
_COLOURS = (ESTIMATE, COALITION, OVER, INK, QUIET)
# Terms of groups that are no means.
_COMPARED = ("difference", "smd", "auc")
_SEPARATE = ("below", "above", "missing")


def plot(answer: Answer) -> tuple[Figure, str] | None:
    """The figure of a statistic, and what it shows in words; None for those that a table says all about."""
    draw = _DRAWN.get(answer.statistic.name)
    return None if draw is None else draw(replace(answer, estimates=_drawable(answer.estimates)))


def _drawable(found: Estimates) -> Estimates:
    """What cannot be drawn is not known: numbers without an end, and so large that their distances overflow."""

    def known(values: Array) -> Array:
        return np.where(np.abs(values) < LARGEST, values, np.nan)

    both = found.of_population
    return replace(
        found,
        value=known(found.value),
        standard_error=known(found.standard_error),
        interval_noise=known(found.of_noise),
        interval_population=None if both is None else known(both),
        population=None,
    )


def _bars(answer: Answer) -> tuple[Figure, str] | None:
    found = answer.estimates
    if not 1 < len(found.terms) <= _MOST_BARS:
        return None
    with _canvas(2.6) as (figure, axes):
        places = np.arange(len(found.terms), dtype=np.float64)
        pale = [term in _SEPARATE for term in found.terms]
        heights = np.maximum(np.nan_to_num(found.value), 0.0)
        colours = [QUIET if one else ESTIMATE for one in pale]
        axes.bar(places, heights, width=0.86, color=colours, alpha=_DARK, linewidth=0)
        for place, noise, both in zip(places.tolist(), found.of_noise, _both(found), strict=True):
            _upright(axes, place, np.maximum(both, 0.0), 1.1)
            _upright(axes, place, np.maximum(noise, 0.0), 3.0)
        every = max(math.ceil(len(places) / _MOST_LABELS), 1)
        axes.set_xticks(places[::every], [short(_from(term)) for term in found.terms[::every]])
        if max(len(_from(term)) for term in found.terms[::every]) > 60 / max(len(places[::every]), 1):
            axes.tick_params(axis="x", labelrotation=35)
            for label in axes.get_xticklabels():
                label.set_horizontalalignment("right")
        axes.set_ylabel("records")
        axes.set_ylim(bottom=0.0)
        _quiet(axes)
    return figure, f"Bars of {answer.statistic.text}: how many records are in each"


def _distribution(answer: Answer) -> tuple[Figure, str] | None:
    found = answer.estimates
    places = [float(term) for term in found.terms if _is_number(term)]
    if len(places) < 2 or len(places) != len(found.terms):
        return None
    with _canvas(2.6) as (figure, axes):
        _band(axes, np.array(places), found, ESTIMATE, rising=1)
        axes.set_ylim(0.0, 1.02)
        axes.set_xlim(places[0], places[-1])
        axes.set_xlabel(getattr(answer.statistic, "column", ""))
        axes.set_ylabel("part of the records below")
        _quiet(axes)
    return figure, f"{answer.statistic.text}: the part of the records below each value, with bands"


def _forest(answer: Answer) -> tuple[Figure, str] | None:
    """Rows of terms that share a unit: means of groups, quantiles, or slopes."""
    found, kind = answer.estimates, answer.statistic.name
    kept = [place for place, term in enumerate(found.terms) if term not in _COMPARED and term != "(Intercept)"]
    kept = [place for place in kept if math.isfinite(found.value[place]) and math.isfinite(found.standard_error[place])]
    if not 1 <= len(kept) <= _MOST_ROWS:
        return None
    slopes = "regression" in kind
    noise, both = found.of_noise[kept], _both(found)[kept]
    value = found.value[kept]
    if slopes:
        # Slopes have units of their own: each in standard errors of its population's estimate is comparable, and 0 stays 0.
        error = (both[:, 1] - both[:, 0]) / (2 * Z)
        if not (np.abs(error) > SMALLEST).all():
            return None
        value, noise, both = value / error, noise / error[:, None], both / error[:, None]
    names = [short(found.terms[place]) or answer.statistic.text for place in kept]
    left = min(0.25 + 0.085 * max(len(name) for name in names), 2.0)
    with _canvas(0.32 * len(kept) + 0.1, left=left) as (figure, axes):
        rows = np.arange(len(kept))
        for row, middle, thick, thin in zip(rows.tolist(), value.tolist(), noise, both, strict=True):
            axes.plot(thin, [row, row], color=ESTIMATE, linewidth=1.2, solid_capstyle="butt")
            axes.plot(thick, [row, row], color=ESTIMATE, linewidth=3.6, solid_capstyle="butt")
            axes.plot([middle], [row], "o", color=ESTIMATE, markersize=5.5, markeredgewidth=0)
        if slopes:
            axes.axvline(0.0, color=MUTED, linewidth=0.9, zorder=0)
        axes.set_yticks(rows, names)
        axes.set_ylim(len(kept) - 0.5, -0.5)
        axes.set_xlabel("slope in its standard errors; 0: no effect" if slopes else getattr(answer.statistic, "column", ""))
        _quiet(axes, across=False)
    return figure, f"Forest plot of {answer.statistic.text} with both intervals"


def _map(answer: Answer) -> tuple[Figure, str] | None:
    found = answer.estimates
    pairs = {tuple(term.split(":")): place for place, term in enumerate(found.terms) if term.count(":") == 1}
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    if not pairs or not 3 <= len(names) <= 16:
        return None
    side = min(0.62 * len(names), WIDE - 1.4)
    with _canvas(side, left=1.1, right=max(WIDE - 1.1 - side, 0.1), bottom=0.75) as (figure, axes):
        for (one, other), place in pairs.items():
            for row, column in ((names.index(one), names.index(other)), (names.index(other), names.index(one))):
                _cell(axes, row, column, float(found.value[place]))
        for place in range(len(names)):
            _cell(axes, place, place, 1.0)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xticks(range(len(names)), [short(name) for name in names], rotation=35, ha="right")
        axes.set_yticks(range(len(names)), [short(name) for name in names])
        _quiet(axes, across=False)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
    return figure, f"Map of {answer.statistic.text}: blue is positive, orange is negative"


def _cell(axes: Axes, row: int, column: int, value: float) -> None:
    from matplotlib.patches import Rectangle

    known = math.isfinite(value)
    alpha = 0.75 * min(abs(value), 1.0) if known else 0.0
    colour = ESTIMATE if value > 0 else COALITION
    axes.add_patch(Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, facecolor=colour, alpha=alpha, linewidth=0))
    text = "1" if row == column else fixed(value, 2) if known else "–"
    axes.text(column, row, text, ha="center", va="center", size=9.5, color=INK)


def _survival(answer: Answer) -> tuple[Figure, str] | None:
    found = answer.estimates
    # Of competing events: curves that rise from 0.
    rising = answer.statistic.name != "survival"
    points = {place: group for place, (group, _) in enumerate(found.groups) if rising or group not in QUANTILES}
    arms = list(dict.fromkeys(points.values()))
    if not 1 <= len(arms) <= _MOST_ARMS or not all(_is_number(found.groups[place][1]) for place in points):
        return None
    known = np.isfinite(found.value) & np.isfinite(found.standard_error)
    if not known[list(points)].any():
        return None
    last = max(float(found.groups[place][1]) for place in points)
    arms_below, dashed = 0.24 * (len(arms) + 1), False
    with _canvas(2.7, bottom=0.65 + arms_below, left=1.2) as (figure, axes):
        for arm, colour in zip(arms, _COLOURS, strict=False):
            kept = [place for place, group in points.items() if group == arm and known[place]]
            times = np.array([0.0, *(float(found.groups[place][1]) for place in kept)])
            begin, steps = 0.0 if rising else 1.0, bool(_of_arm(found, arm, "exact", False))
            curve = _band(axes, times, found, colour, rising=1 if rising else -1, places=kept, first=begin, steps=steps)
            dashed |= _extrapolated(axes, found, arm, curve, colour)
            if len(arms) > 1:
                axes.plot([], [], color=colour, label=short(arm))
        if len(arms) > 1:
            axes.legend(frameon=False, loc="upper left" if rising else "upper right", labelcolor=MUTED, fontsize=10)
        axes.set_xlim(0.0, last)
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel(getattr(answer.statistic, "time", "time"))
        axes.set_ylabel("part with the event" if rising else "part without the event")
        _quiet(axes)
        _numbers_at_risk(axes, answer, arms)
    text = f"Curves of {answer.statistic.text} with bands, and the numbers at risk under them"
    return figure, text + ("; dashed where too few are at risk for the noise to rely on it" if dashed else "")


def _extrapolated(axes: Axes, found: Estimates, arm: str, curve: Array, colour: str) -> bool:
    """Goes on, dashed and without a band, where a curve of survival (1 and its known bins) was cut. Returns whether it was."""
    later = _of_arm(found, arm, "extrapolated", [])
    if not later:
        return False
    times = [float(time) for group, time in found.groups if group == arm][-len(later) - 1 :]
    # It never rises, from the end of what is drawn on.
    axes.plot(times, np.minimum([curve[-1], *later], curve[-1]), color=colour, linewidth=1.2, linestyle=(0, (2, 2)))
    return True


def _of_arm(found: Estimates, arm: str, name: str, otherwise: Any) -> Any:
    """What a summary says of an arm, or of all of them."""
    own = found.summary.get(arm, found.summary)
    return own.get(name, otherwise) if isinstance(own, Mapping) else otherwise


def _numbers_at_risk(axes: Axes, answer: Answer, arms: Sequence[str]) -> None:
    """Under the axis, at its ticks: who is at risk in the bin that begins there."""
    found = answer.estimates
    ends = [float(time) for group, time in found.groups if group == arms[0]]
    begins = [0.0, *ends[:-1]]
    every = max(math.ceil(len(begins) / 6), 1)
    axes.set_xticks(begins[::every], [plain(time) for time in begins[::every]])
    height = axes.get_window_extent().height / axes.figure.dpi
    step = 0.23 / height
    top = -0.66 / height
    axes.text(-0.09, top, "at risk", transform=axes.transAxes, size=9.5, color=MUTED, ha="right", va="center")
    for row, (arm, colour) in enumerate(zip(arms, _COLOURS, strict=False), start=1):
        known = found.summary.get(arm, found.summary.get("at_risk", {}))
        counts = known.get("at_risk", known.get(arm, [])) if isinstance(known, Mapping) else []
        name = "" if len(arms) == 1 else short(arm, 11)
        axes.text(-0.09, top - step * row, name, transform=axes.transAxes, size=9.5, color=colour, ha="right", va="center")
        for place in range(0, len(begins), every):
            text = _at_risk(counts[place]) if place < len(counts) else UNKNOWN
            where = begins[place] / max(ends[-1], 1e-300)
            axes.text(where, top - step * row, text, transform=axes.transAxes, size=9.5, color=INK, ha="center", va="center")


def _at_risk(count: float | None) -> str:
    return UNKNOWN if count is None else fixed(count if math.isnan(count) else max(count, 0.0), 0)


def _roc(answer: Answer) -> tuple[Figure, str] | None:
    found = answer.estimates
    kinds: dict[str, dict[str, int]] = {}
    for place, term in enumerate(found.terms):
        edge, colon, kind = term.rpartition(":")
        if colon and math.isfinite(found.value[place]):
            kinds.setdefault(kind, {})[edge] = place
    both = [edge for edge in kinds.get("sensitivity", {}) if edge in kinds.get("specificity", {})]
    if len(both) < 2:
        return None
    high, low = ([kinds[kind][edge] for edge in both] for kind in ("sensitivity", "specificity"))
    order = np.argsort(1 - found.value[low], kind="stable")
    return roc_figure(
        np.clip(1 - found.value[low][order], 0.0, 1.0), np.clip(found.value[high][order], 0.0, 1.0), _both(found)[high][order]
    ), f"{answer.statistic.text}: sensitivity against false positives, with bands"


def roc_figure(false_positives: Array, sensitivity: Array, ends: Array) -> Figure:
    """A receiver operating characteristic of points (k,), from few false positives to many; ``ends`` of sensitivity, (k, 2)."""
    with _canvas(3.2, right=WIDE - _LEFT - 3.4) as (figure, axes):
        x = np.maximum.accumulate(np.concatenate([[0.0], false_positives, [1.0]]))
        y = np.maximum.accumulate(np.concatenate([[0.0], sensitivity, [1.0]]))
        low, high = (
            np.maximum.accumulate(np.concatenate([[edge], np.nan_to_num(one), [1.0]]))
            for edge, one in zip((0.0, 0.0), ends.T, strict=True)
        )
        axes.plot([0, 1], [0, 1], color=RULE, linewidth=1.0)
        axes.fill_between(x, low, np.minimum(high, 1.0), color=ESTIMATE, alpha=_PALE, linewidth=0)
        axes.plot(x, y, color=ESTIMATE, linewidth=1.8)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel("1 - specificity")
        axes.set_ylabel("sensitivity")
        _quiet(axes)
    return figure


def _band(
    axes: Axes,
    x: Array,
    found: Estimates,
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
    kept = list(range(len(found.terms))) if places is None else list(places)
    begin = [] if first is None else [first]
    for ends, alpha in ((_both(found)[kept], _PALE), (found.of_noise[kept], _DARK)):
        low, high = (_monotone(np.concatenate([begin, column]), rising) for column in ends.T)
        axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, **style)
    curve = _monotone(np.concatenate([begin, found.value[kept]]), rising)
    axes.plot(x, curve, color=colour, linewidth=1.8, drawstyle="steps-post" if steps else "default")
    return curve


def _monotone(values: Array, rising: int) -> Array:
    from scipy.optimize import isotonic_regression

    if not len(values) or not np.isfinite(values).all():
        return values
    found: Array = np.clip(isotonic_regression(values, increasing=rising > 0).x, 0.0, 1.0)
    return found


def _both(found: Estimates) -> Array:
    """The intervals of the population, or of the noise where there are none: (terms, 2)."""
    known = found.of_population
    return found.of_noise if known is None else np.where(np.isfinite(known), known, found.of_noise)


def _upright(axes: Axes, place: float, ends: Array, width: float) -> None:
    axes.plot([place, place], ends, color=ESTIMATE, linewidth=width, solid_capstyle="butt")


def _quiet(axes: Axes, *, across: bool = True) -> None:
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)
    (axes.yaxis if across else axes.xaxis).grid(visible=True, color=RULE, linewidth=0.5)
    axes.patch.set_alpha(0.0)


@contextmanager
def _canvas(tall: float, *, left: float = _LEFT, right: float = _RIGHT, bottom: float = _BOTTOM) -> Iterator[tuple[Figure, Axes]]:
    """A figure as wide as all, with axes that are so tall."""
    from matplotlib.figure import Figure as NewFigure

    height = _TOP + tall + bottom
    with house_style(), _larger_print():
        figure = NewFigure(figsize=(WIDE, height))
        yield figure, figure.add_axes((left / WIDE, bottom / height, 1 - (left + right) / WIDE, tall / height))


def _larger_print() -> Any:
    import matplotlib as mpl

    return mpl.rc_context({"font.size": 10.5})


def _from(term: str) -> str:
    """Where a bin begins; other terms as they are."""
    return term[1:].partition(",")[0] if term.startswith("[") else term


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
    "quantiles": _forest,
    "group-means": _forest,
    "proportion": _forest,
    "site-effects": _forest,
    "linear-regression": _forest,
    "logistic-regression": _forest,
    "correlation": _map,
    "survival": _survival,
    "roc": _roc,
}
