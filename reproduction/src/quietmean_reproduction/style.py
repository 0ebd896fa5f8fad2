"""How the figures of papers look: legible at the width of a column, distinct without colour."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# Okabe and Ito: distinct for colour-blind readers too.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#d4b400",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
COLOURS = (BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY, FAINT = "#6b6b6b", "#d9d9d9"
DPI = 300


@contextmanager
def paper_style() -> Iterator[None]:
    """Settings for one figure on every machine, whatever its matplotlib settings are."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "font.size": 8.0,
                "axes.labelsize": 8.0,
                "axes.titlesize": 8.0,
                "xtick.labelsize": 7.0,
                "ytick.labelsize": 7.0,
                "legend.fontsize": 6.5,
                "legend.frameon": False,
                "legend.handlelength": 1.8,
                "axes.linewidth": 0.6,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.axisbelow": True,
                "xtick.major.width": 0.6,
                "ytick.major.width": 0.6,
                "xtick.minor.width": 0.4,
                "ytick.minor.width": 0.4,
                "lines.linewidth": 1.2,
                "lines.markersize": 3.8,
                "grid.color": FAINT,
                "grid.linewidth": 0.5,
                "figure.constrained_layout.use": True,
                "savefig.dpi": DPI,
            }
        )
        yield


def looks() -> Iterator[dict[str, Any]]:
    """Colour and marker of one series after the other."""
    for colour, marker in zip(cycle(COLOURS), cycle(MARKERS), strict=False):
        yield {"color": colour, "marker": marker}


def grid(axes: Axes) -> None:
    axes.grid(visible=True, which="major")


def stated(axes: Axes, x: ArrayLike, y: ArrayLike, label: str = "stated in the paper") -> None:
    """Values that the paper's text states: a black star each, above everything else."""
    axes.plot(
        np.asarray(x),
        np.asarray(y),
        linestyle="none",
        marker="*",
        markersize=9,
        color=BLACK,
        markerfacecolor=YELLOW,
        label=label,
        zorder=10,
    )


def band(axes: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str) -> None:
    """Uncertainty around a line."""
    axes.fill_between(np.asarray(x), np.asarray(low), np.asarray(high), color=colour, alpha=0.18, linewidth=0)


def legend_above(canvas: Canvas, axes: Axes, columns: int) -> None:
    """The legend of ``axes`` above everything, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper center", ncols=columns, columnspacing=1.2)
