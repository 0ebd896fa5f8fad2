"""The figure of what more colluders would learn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.lazy import ticker
from quietmean.report.canvas import (
    COALITION,
    ESTIMATE,
    MUTED,
    PAPER,
    RULE,
    WIDTH,
    figure_with_axes,
    house_style,
    level_lines,
)
from quietmean.report.curves import EpsilonAtSize
from quietmean.report.words import listed, rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LEFT, _RIGHT, _CURVE = 0.62, 0.1, 2.4  # inches
# Inches above the curves, for their legend and numbers; and below, for two lines under the axis and its label.
_HEAD, _FOOT = 0.66, 0.68
# The width of a digit beside an axis, and what stands beside the digits.
_DIGIT, _BESIDE = 0.075, 0.36
# Beyond this ratio a linear axis would hide the small values.
_LOGARITHMIC = 12.0


def coalitions_figure(curve: Sequence[EpsilonAtSize], everyone_else: float, size: int | None) -> Figure:
    """The worst party's epsilon against the number of colluders; ``size``: what the certificate is about.

    Infinite values lie on the upper edge and bear their sign.
    """
    values = np.array([point.worst for point in curve] + [point.median for point in curve] + [everyone_else])
    low, top, logarithmic = _range(values)
    left = _left_of(low if logarithmic else top / 4)
    end = len(curve) + 0.4
    with house_style():
        figure, axes = figure_with_axes(WIDTH, _CURVE, left=left, right=_RIGHT, top=_HEAD, bottom=_FOOT)
        if logarithmic:
            axes.set_yscale("log")
        axes.set(ylim=(low, top), xlim=(-0.45, end + 0.45), ylabel="epsilon of the worst party")
        for position in [position for position, point in enumerate(curve) if point.size == size]:
            axes.axvspan(position - 0.3, position + 0.3, color=RULE, alpha=0.45, linewidth=0, zorder=0)
        _series(axes, curve, [point.median for point in curve], MUTED, "median coalition", top, numbered=False)
        _series(axes, curve, [point.worst for point in curve], ESTIMATE, "worst coalition", top, numbered=True)
        axes.plot(
            [end], [min(everyone_else, top)], "D", color=COALITION, markersize=6, markeredgewidth=0, clip_on=False, zorder=5
        )
        _number(axes, end, min(everyone_else, top), everyone_else, COALITION)
        axes.set_xticks([*range(len(curve)), end], [*(f"{point.size}" for point in curve), "everybody\nelse"])
        axes.set_xlabel("parties that collude")
        _grid(axes)
        if not np.isfinite(values).any():
            axes.set_yticks([])
        _legend(figure, axes)
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1],
        labels[::-1],
        loc="upper left",
        bbox_to_anchor=(0.0, 0.985),
        borderaxespad=0,
        borderpad=0,
        ncols=2,
        frameon=False,
        labelcolor=MUTED,
        fontsize=8.5,
    )


def _range(values: Array) -> tuple[float, float, bool]:
    finite = values[np.isfinite(values)]
    if not finite.size or finite.max() == 0.0:
        return 0.0, 1.0, False
    if finite.min() > 0 and finite.max() > _LOGARITHMIC * finite.min():
        return 0.6 * float(finite.min()), 2.2 * float(finite.max()), True
    return 0.0, 1.22 * float(finite.max()), False


def _series(
    axes: Axes, curve: Sequence[EpsilonAtSize], epsilons: Sequence[float], colour: str, label: str, top: float, *, numbered: bool
) -> None:
    heights = np.minimum(epsilons, top)
    width, layer = (2.0, 3) if numbered else (1.1, 2)
    for position, (before, after) in enumerate(itertools.pairwise(curve)):
        # Dashed where sizes were left out.
        style = "solid" if after.size == before.size + 1 else (0, (4, 3))
        ends = heights[position : position + 2]
        axes.plot([position, position + 1], ends, color=colour, linewidth=width, linestyle=style, zorder=layer, clip_on=False)
    axes.plot([], [], color=colour, linewidth=width, label=label)
    for position, (point, height, epsilon) in enumerate(zip(curve, heights.tolist(), epsilons, strict=True)):
        axes.plot(
            [position],
            [height],
            "o",
            markersize=6 if numbered else 3.6,
            markerfacecolor=colour if point.exhaustive else PAPER,
            markeredgecolor=colour,
            markeredgewidth=1.4 if numbered else 1.0,
            zorder=4 if numbered else 2,
            clip_on=False,
        )
        if numbered:
            _number(axes, position, height, epsilon, ESTIMATE)


def _number(axes: Axes, position: float, height: float, epsilon: float, colour: str) -> None:
    size = 8.5 if math.isfinite(epsilon) else 13
    axes.annotate(
        rounded_up(epsilon),
        (position, height),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center",
        va="bottom",
        size=size,
        color=colour,
        annotation_clip=False,
    )


def _grid(axes: Axes) -> None:
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(ticker.LogLocator(10, subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(ticker.ScalarFormatter())
        axes.yaxis.set_minor_formatter(ticker.NullFormatter())
        axes.tick_params(which="minor", length=0)
    else:
        axes.yaxis.set_major_locator(ticker.MaxNLocator(4))
    level_lines(axes)


def _left_of(smallest: float) -> float:
    """Inches for the numbers beside an axis, of which the least has the most digits."""
    digits = len(f"{smallest:.1g}") + 1 if 0 < smallest < 0.1 else 4
    return max(_LEFT, _BESIDE + _DIGIT * digits)


def curve_caption(curve: Sequence[EpsilonAtSize], trusted: Sequence[int]) -> str:
    """How the points were found."""
    full = [point.size for point in curve if point.exhaustive]
    drawn = {point.tried for point in curve if not point.exhaustive}
    parts = ["For each coalition the epsilon of its worst-off honest party."]
    if full:
        parts.append("Full dots: every coalition of that size was tried.")
    if drawn:
        counts = " or ".join(f"{count:,}" for count in sorted(drawn))
        parts.append(f"Hollow dots: {counts} random coalitions of that size; a worse one may exist.")
    parts.append("The diamond is what remains if everybody else colludes: no coalition learns more.")
    if trusted:
        trusted_names = listed([f"party {party}" for party in trusted])
        parts.append(f"This protocol trusts {trusted_names}: never one of the colluders, except for the diamond.")
    return " ".join(parts)
