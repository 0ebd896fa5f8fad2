"""What the study cost each party."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.readable import plain
from quietmean.report.data import StudyReport
from quietmean.report.style import ESTIMATE, INK, MUTED, NARROW, OVER, PAPER, WIDTH, figure_with_axes, house_style, level_lines
from quietmean.report.words import rounded_up, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Up to this many bars have their party's name.
MOST_NAMES = 40
# Up to this many bars have horizontal numbers.
_MOST_LEVEL = 24
_HEIGHT, _LEFT, _RIGHT, _TOP = 1.75, 0.62, 0.8, 0.2  # inches
_ROW = 0.24
# The part of the axis that a horizontal bar needs to have room for its number.
_SHORT_BAR = 0.25
# Of more parties there is one shape.
_MOST_BARS = 120
# Inches of a character of a name.
_CHARACTER = 0.068


def party_epsilons(report: StudyReport) -> Array:
    """The largest epsilon of each party over all coalitions tried without it, at the report's delta: shape (n,)."""
    return report.certificate.epsilon


def epsilons_figure(report: StudyReport) -> Figure:
    """Bars from the party with the largest epsilon to the one with the smallest, and the target."""
    epsilons = party_epsilons(report)
    order = np.argsort(-epsilons, kind="stable")
    named = len(order) <= MOST_NAMES
    labels = [short(report.party_names[party], 16) for party in order] if named else []
    bottom = 0.12 + names_height(labels)
    with house_style():
        figure, axes = figure_with_axes(WIDTH, _HEIGHT, left=_LEFT, right=_RIGHT, top=_TOP, bottom=bottom)
        _bars(axes, epsilons[order], report.target_epsilon)
        _target(axes, report.target_epsilon)
        _frame(axes, labels)
    return figure


def narrow_epsilons_figure(report: StudyReport) -> Figure:
    """Draw them for a telephone: horizontal bars; of many parties those with the largest epsilon."""
    from matplotlib.figure import Figure as NewFigure

    epsilons = party_epsilons(report)
    order = np.argsort(-epsilons, kind="stable")[:MOST_NAMES]
    height = _ROW * len(order) + 0.55
    finite = epsilons[np.isfinite(epsilons)]
    target = report.target_epsilon
    top = 1.3 * max(float(finite.max(initial=0.0)), target if math.isfinite(target) else 0.0) or 1.0
    places, lengths = np.arange(len(order)), np.where(np.isfinite(epsilons), epsilons, top)[order]
    with house_style():
        figure = NewFigure(figsize=(NARROW, height))
        axes = figure.add_axes((1.45 / NARROW, 0.1 / height, 1 - 1.6 / NARROW, _ROW * len(order) / height))
        axes.barh(
            places,
            lengths,
            height=0.72,
            color=[OVER if epsilon > target else ESTIMATE for epsilon in epsilons[order]],
            linewidth=0,
        )
        for position, length, party in zip(places.tolist(), lengths.tolist(), order.tolist(), strict=True):
            # Inside the bar, away from the target line, unless the bar is too short for it.
            inside = length > _SHORT_BAR * top
            axes.annotate(
                rounded_up(float(epsilons[party])),
                (length, position),
                xytext=(-3 if inside else 3, 0),
                textcoords="offset points",
                size=8,
                color=PAPER if inside else MUTED,
                ha="right" if inside else "left",
                va="center",
            )
        axes.set(xlim=(0, top), ylim=(len(order) - 0.5, -0.5))
        axes.set_frame_on(False)
        axes.tick_params(length=0)
        axes.set_xticks([])
        axes.set_yticks(places, [short(report.party_names[party], 18) for party in order], size=8)
        if math.isfinite(target):
            axes.axvline(target, color=INK, linewidth=1.1, linestyle=(0, (5, 3)), zorder=3)
            above = ("data", "axes fraction")
            axes.annotate(
                f"target {plain(target)}",
                (target, 1.0),
                xycoords=above,
                xytext=(0, 4),
                textcoords="offset points",
                size=8.5,
                ha="center",
            )
    return figure


def names_height(labels: Sequence[str]) -> float:
    """Inches under the bars of parties: of one line where their names stand beside each other, else of the longest one."""
    return 2 * _CHARACTER if _level(labels) else _CHARACTER * max(map(len, labels))


def name_bars(axes: Axes, labels: Sequence[str]) -> None:
    """The names of parties under their bars, vertical where they do not fit beside each other."""
    axes.set_xticks(range(len(labels)), labels, rotation=0 if _level(labels) else 90, size=8)


def _level(labels: Sequence[str]) -> bool:
    return (max(map(len, labels), default=0) + 1) * _CHARACTER * len(labels) < WIDTH - _LEFT - _RIGHT


def _bars(axes: Axes, epsilons: Array, target: float) -> None:
    finite = epsilons[np.isfinite(epsilons)]
    top = 1.22 * max(float(finite.max(initial=0.0)), target if math.isfinite(target) else 0.0) or 1.0
    heights = np.where(np.isfinite(epsilons), epsilons, top)
    over = epsilons > target
    if len(epsilons) <= _MOST_BARS:
        colours = [OVER if above else ESTIMATE for above in over.tolist()]
        axes.bar(np.arange(len(epsilons)), heights, width=0.72, color=colours, linewidth=0)
    else:
        # A shape of those over the target and one of the others, with a step where neighbours differ: a bar each takes long.
        first = np.concatenate([[0], np.flatnonzero(np.diff(heights)) + 1])
        edges = np.concatenate([first, [len(heights)]]) - 0.5
        for part, colour in ((over, OVER), (~over, ESTIMATE)):
            axes.stairs(np.where(part, heights, 0.0)[first], edges, fill=True, color=colour, linewidth=0)
    axes.set_ylim(0, top)
    axes.set_xlim(-0.8, len(epsilons) - 0.2)
    if len(epsilons) <= MOST_NAMES:
        for position, epsilon in enumerate(epsilons.tolist()):
            _value(axes, position, float(heights[position]), epsilon, top, upright=len(epsilons) > _MOST_LEVEL)


def _value(axes: Axes, position: int, height: float, epsilon: float, top: float, *, upright: bool) -> None:
    """Inside the bar, away from the target line, unless the bar is too short for it."""
    bar_label(axes, position, height, epsilon, height > (0.3 if upright else 0.14) * top, upright)


def bar_label(axes: Axes, position: int, height: float, epsilon: float, inside: bool, upright: bool) -> None:
    """The epsilon of a bar, just under or over its end."""
    axes.annotate(
        rounded_up(epsilon),
        (position, height),
        xytext=(0, -3 if inside else 3),
        textcoords="offset points",
        size=7.5 if math.isfinite(epsilon) else 12,
        color=PAPER if inside else MUTED,
        ha="center",
        va="top" if inside else "bottom",
        rotation=90 if upright else 0,
    )


def _target(axes: Axes, target: float) -> None:
    if not math.isfinite(target):
        return
    axes.axhline(target, color=INK, linewidth=1.1, linestyle=(0, (5, 3)), zorder=3)
    axes.annotate(
        f"target {plain(target)}",
        (1.0, target),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        size=8.5,
        color=INK,
        ha="left",
        va="center",
    )


def _frame(axes: Axes, labels: list[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(4))
    level_lines(axes)
    axes.set_ylabel("epsilon")
    name_bars(axes, labels)
    if not labels:
        axes.set_xlabel("parties, from the largest epsilon to the smallest")
