"""The estimates on their bounds, and the truth where it is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.readable import fixed, plain, with_error
from quietmean.report.data import SMALLEST, StudyReport
from quietmean.report.style import ESTIMATE, INK, MUTED, RULE, WIDTH, house_style
from quietmean.report.words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_ROWS = 40
_PITCH, _TOP, _BOTTOM = 0.62, 0.42, 0.12  # inches
_MARGIN = 1.7  # for names
_NORMAL_95 = 1.96
# The close-up shows this many standard errors to both sides.
_REACH = 3.6
# Where noise is far larger than the bounds, the axis is cut here, in widths of the bounds.
_FARTHEST = 1.5


def estimates_figure(report: StudyReport, width: float = WIDTH) -> Figure | None:
    """One row per term: left the estimate on the bounds, right a close-up of the noise with the truth, where it is known.

    ``width`` in inches; a narrow one has no close-up. None where nothing can be drawn.
    """
    from matplotlib.figure import Figure as NewFigure

    report = report.drawable()
    count = min(len(report.terms), MOST_ROWS)
    if count == 0:
        return None
    height = _TOP + _PITCH * count + _BOTTOM
    with house_style():
        figure = NewFigure(figsize=(width, height))
        bottom, tall = _BOTTOM / height, _PITCH * count / height
        left = _MARGIN / width
        closeup = width >= WIDTH and report.truth is not None and bool((report.standard_error[:count] > SMALLEST).all())
        _draw_bounds(figure.add_axes((left, bottom, (0.48 if closeup else 0.89 - left), tall)), report, count, width < WIDTH)
        if report.truth is not None and closeup:
            distance = (report.truth - report.estimate)[:count] / report.standard_error[:count]
            _draw_closeup(figure.add_axes((left + 0.52, bottom, 0.305, tall)), distance)
    return figure


def _blank(axes: Axes, count: int) -> None:
    axes.set_frame_on(False)
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.patch.set_alpha(0.0)


def _caption(axes: Axes, text: str) -> None:
    axes.annotate(text, (0.0, 1.0), xytext=(0, 10), xycoords="axes fraction", textcoords="offset points", size=8.5, color=MUTED)


def _share(report: StudyReport, values: Array) -> Array:
    """Values on the axis where the lower bound is 0 and the upper bound is 1."""
    low, high = np.array(report.bounds, dtype=np.float64).T
    share: Array = (values - low) / (high - low)
    return share


def _draw_bounds(axes: Axes, report: StudyReport, count: int, narrow: bool) -> None:
    low, high = np.array(report.bounds, dtype=np.float64).T
    share, error = _share(report, report.estimate)[:count], (report.standard_error / (high - low))[:count]
    ends = np.concatenate([share - _NORMAL_95 * error, share + _NORMAL_95 * error, [0.0, 1.0]])
    _blank(axes, count)
    axes.set_xlim(max(ends.min(), -_FARTHEST) - 0.03, min(ends.max(), 1 + _FARTHEST) + 0.03)
    _caption(
        axes,
        "estimate between its bounds;\nthick: ±1 standard error, thin: 95 %"
        if narrow
        else "estimate between its bounds; thick: ±1 standard error, thin: 95 %",
    )
    for row in range(count):
        axes.plot([0, 1], [row, row], color=RULE, linewidth=1.2, zorder=1, solid_capstyle="butt")
        for edge, bound in zip((0, 1), report.bounds[row], strict=True):
            axes.plot([edge, edge], [row - 0.1, row + 0.1], color=MUTED, linewidth=0.9, zorder=2)
            axes.text(edge, row + 0.34, plain(bound), size=8, color=MUTED, ha="center", va="center")
        _interval(axes, row, float(share[row]), float(error[row]))
        if report.truth is not None:
            truth = float(_share(report, report.truth)[row])
            if math.isfinite(truth):
                axes.plot([truth, truth], [row - 0.24, row + 0.24], color=INK, linewidth=1.6, zorder=5)
        _row_label(axes, report, row)


def _interval(axes: Axes, row: int, position: float, error: float) -> None:
    for reach, width in ((_NORMAL_95, 1.4), (1.0, 4.0)):
        ends = [position - reach * error, position + reach * error]
        axes.plot(ends, [row, row], color=ESTIMATE, linewidth=width, zorder=3, solid_capstyle="butt")
    axes.plot([position], [row], "o", color=ESTIMATE, markersize=6, markeredgewidth=0, zorder=4)


def _row_label(axes: Axes, report: StudyReport, row: int) -> None:
    estimate, error = float(report.estimate[row]), float(report.standard_error[row])
    _at_left_edge(axes, row, 6, short(report.terms[row], 21), INK, "bold")
    _at_left_edge(axes, row, -7, with_error(estimate, error), ESTIMATE, "normal")


def _at_left_edge(axes: Axes, row: int, lift: float, text: str, colour: str, weight: str) -> None:
    # Of the figure, whatever the axis shows.
    where = ("figure fraction", "data")
    axes.annotate(
        text,
        (0.0, row),
        xytext=(0, lift),
        xycoords=where,
        textcoords="offset points",
        va="center",
        size=9,
        color=colour,
        weight=weight,
    )


def _draw_closeup(axes: Axes, distances: Array) -> None:
    """``distances``: truth minus estimate, in standard errors, one per row."""
    _blank(axes, len(distances))
    axes.set_xlim(-_REACH, _REACH)
    _caption(axes, "truth, in standard errors from the estimate")
    for row, distance in enumerate(distances.tolist()):
        base = row + 0.26
        _noise(axes, base)
        if math.isnan(distance):
            continue
        if abs(distance) <= _REACH:
            axes.plot([distance, distance], [base - 0.52, base], color=INK, linewidth=1.6, zorder=5)
        else:
            edge, marker = (_REACH, ">") if distance > 0 else (-_REACH, "<")
            axes.plot([edge], [base - 0.25], marker, color=INK, markersize=7, zorder=5, clip_on=False)


def _noise(axes: Axes, base: float) -> None:
    """The bell curve of the noise on its own little axis."""
    offsets = np.linspace(-_REACH, _REACH, 97)
    bell = 0.62 * np.exp(-0.5 * offsets**2)
    axes.fill_between(offsets, base - bell, base, color=ESTIMATE, alpha=0.16, linewidth=0, zorder=1)
    axes.plot([-_REACH, _REACH], [base, base], color=RULE, linewidth=0.8, zorder=2)
    for tick in range(-3, 4):
        axes.plot([tick, tick], [base, base + 0.05], color=MUTED, linewidth=0.7, zorder=2)
        axes.text(tick, base + 0.16, fixed(tick, 0), size=7.5, color=MUTED, ha="center", va="center")
    axes.plot([0], [base], "o", color=ESTIMATE, markersize=5.5, markeredgewidth=0, zorder=4)
