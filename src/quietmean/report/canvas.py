"""What figures of statistics share: their size, quiet axes, dates under them, and both intervals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.readable import day_text
from quietmean.report.style import RULE, house_style
from quietmean.statistics import Estimates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

# Inches: narrow enough for a telephone without small print.
WIDE = 5.0
LEFT, RIGHT, TOP, BOTTOM = 0.7, 0.15, 0.15, 0.55


def wider_ends(found: Estimates) -> Array:
    """The intervals of the population, or of the noise where there are none: (terms, 2)."""
    known = found.of_population
    return found.of_noise if known is None else np.where(np.isfinite(known), known, found.of_noise)


def quiet(axes: Axes, *, across: bool = True) -> None:
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)
    (axes.yaxis if across else axes.xaxis).grid(visible=True, color=RULE, linewidth=0.5)
    axes.patch.set_alpha(0.0)


@contextmanager
def canvas(
    tall: float, *, left: float = LEFT, right: float = RIGHT, bottom: float = BOTTOM, top: float = TOP
) -> Iterator[tuple[Figure, Axes]]:
    """A figure as wide as all, with axes that are so tall."""
    from matplotlib.figure import Figure as NewFigure

    height = top + tall + bottom
    with house_style(), _larger_print():
        figure = NewFigure(figsize=(WIDE, height))
        yield figure, figure.add_axes((left / WIDE, bottom / height, 1 - (left + right) / WIDE, tall / height))


def _larger_print() -> Any:
    import matplotlib as mpl

    return mpl.rc_context({"font.size": 10.5})


def dates_below(axes: Axes, since: str) -> None:
    """Days of the calendar under an axis of days since one, few enough to stand beside each other."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(4, prune="both"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: day_text(float(value), since)))
