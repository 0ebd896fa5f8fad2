"""How figures look, and how they become SVG inside a page.

matplotlib is imported inside functions: most commands never draw.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    import matplotlib as mpl

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
    from matplotlib.figure import Figure as NewFigure

    height = top + tall + bottom
    figure = NewFigure(figsize=(width, height))
    return figure, figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, tall / height))


def level_lines(axes: Axes) -> None:
    """Lines across the axes at the ticks of the upright one, behind all else, instead of that axis."""
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.yaxis.grid(visible=True, color=RULE, linewidth=0.5)
    axes.tick_params(length=0)


def inline_svg(figure: Figure, prefix: str, label: str) -> str:
    """The figure as an ``<svg>`` element; ``prefix`` keeps its ids apart from those of other figures on the page."""
    from html import escape

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
