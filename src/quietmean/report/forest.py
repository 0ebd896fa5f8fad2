"""Forest plots: rows of terms that share a unit, with weights and common means where they are sites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.readable import fixed, p_phrase, plain
from quietmean.report.canvas import BOTTOM, RIGHT, TOP, canvas, dates_below, quiet, wider_ends
from quietmean.report.data import LARGEST, SMALLEST
from quietmean.report.facts import heterogeneity_text
from quietmean.report.style import COALITION, ESTIMATE, INK, MUTED
from quietmean.report.words import short
from quietmean.statistics import Answer
from quietmean.statistics.flags_and_tests import Z
from quietmean.statistics.tidy import terms_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_ROWS = 30
# Terms of groups that are no means.
COMPARED = ("difference", "smd", "cohen-d", "auc", "rate-ratio", "rate-difference", "standardised")
# The common means of sites: all of them the same, or differing.
_OF_SITES = ("site-effects", "meta-analysis")
_FIXED, _RANDOM = "fixed", "random"


def forest(answer: Answer) -> tuple[Figure, str] | None:
    """Rows of terms that share a unit: means of groups, rates, quantiles, ratios, or slopes."""
    estimates, kind = answer.estimates, answer.statistic.name
    kept = [index for index, term in enumerate(estimates.terms) if term not in COMPARED and term != "(Intercept)"]
    kept = [index for index in kept if math.isfinite(estimates.value[index]) and math.isfinite(estimates.standard_error[index])]
    slopes, ratios = "regression" in kind, kind == "hazard-ratio" or bool(estimates.summary.get("ratio"))
    # What noise hides has an interval and no point.
    hidden = np.array([term.hidden for term in terms_of(answer.to_json())], dtype=np.bool_)[kept]
    noise, wide, value = estimates.of_noise[kept], wider_ends(estimates)[kept], np.where(hidden, np.nan, estimates.value[kept])
    if not 1 <= len(kept) <= _MOST_ROWS or hidden.all() or (ratios and not (wide > SMALLEST).all()):
        return None
    if slopes:
        # Slopes have units of their own: each in standard errors of its population's estimate is comparable, and 0 stays 0.
        error = (wide[:, 1] - wide[:, 0]) / (2 * Z)
        if not (np.abs(error) > SMALLEST).all():
            return None
        value, noise, wide = value / error, noise / error[:, None], wide / error[:, None]
    names = [short(estimates.terms[index]) or answer.statistic.text for index in kept]
    weights = _weights(answer, kept)
    dates = {estimates.since[index] for index in kept} if estimates.since else {""}
    left = min(0.25 + 0.085 * max(len(name) for name in names), 2.0)
    with canvas(
        0.32 * len(kept) + 0.1,
        left=left,
        right=0.75 if weights else RIGHT,
        top=0.35 if weights else TOP,
        bottom=0.8 if weights else BOTTOM,
    ) as (
        figure,
        axes,
    ):
        if ratios:
            axes.set_xscale("log")
        for row, index in enumerate(kept):
            if weights and estimates.terms[index] in (_FIXED, _RANDOM):
                _diamond(axes, row, float(value[row]), wide[row], filled=estimates.terms[index] == _RANDOM)
            else:
                size = 5.5 if not weights or weights[row] is None else 3.5 + 7.0 * math.sqrt(weights[row] or 0.0)
                _whiskers(axes, row, float(value[row]), noise[row], wide[row], size)
        if slopes or ratios:
            axes.axvline(1.0 if ratios else 0.0, color=MUTED, linewidth=0.9, zorder=0)
        axes.set_yticks(range(len(kept)), names)
        axes.set_ylim(len(kept) - 0.5, -0.5)
        axes.set_xlabel(_below_forest(answer, slopes, ratios, bool(weights)))
        quiet(axes, across=False)
        if len(dates) == 1 and (since := next(iter(dates))):
            dates_below(axes, since)
        if ratios:
            _few_ratios(axes)
        if weights:
            _weights_at_right(axes, weights)
    return figure, f"Forest plot of {answer.statistic.text} with both intervals"


def _whiskers(axes: Axes, row: int, middle: float, thick: Array, thin: Array, size: float) -> None:
    axes.plot(thin, [row, row], color=ESTIMATE, linewidth=1.2, solid_capstyle="butt")
    axes.plot(thick, [row, row], color=ESTIMATE, linewidth=3.6, solid_capstyle="butt")
    axes.plot([middle], [row], "o", color=ESTIMATE, markersize=size, markeredgewidth=0)


def _diamond(axes: Axes, row: int, middle: float, ends: Array, *, filled: bool) -> None:
    """A common mean, as wide as its interval of the population; that of sites like these is filled, with a line through all."""
    low, high = ends.tolist()
    colour = COALITION if filled else MUTED
    axes.fill(
        [low, middle, high, middle], [row, row - 0.28, row, row + 0.28], facecolor=colour if filled else "none", edgecolor=colour
    )
    if filled:
        axes.axvline(middle, color=colour, linewidth=0.9, linestyle=(0, (3, 3)), zorder=0)


def _weights(answer: Answer, kept: Sequence[int]) -> list[float | None]:
    """The weight of each site's row in the mean with random effects; none for other statistics.

    As the estimate has them: one over the variance of a site's mean, with the noise, and between sites.
    """
    estimates, between = answer.estimates, answer.estimates.summary.get("tau_squared")
    if answer.statistic.name not in _OF_SITES or not isinstance(between, int | float) or not 0 <= between < LARGEST:
        return []
    if not {_FIXED, _RANDOM} <= {estimates.terms[index] for index in kept}:
        return []
    ends = (estimates.of_noise if estimates.of_population is None else estimates.of_population)[kept]
    if estimates.summary.get("ratio"):
        # Ratios are combined on their logarithms.
        with np.errstate(all="ignore"):
            ends = np.log(ends)
    errors = ends @ [-1.0, 1.0] / (2 * Z)
    sites = [estimates.terms[index] not in (_FIXED, _RANDOM) for index in kept]
    parts = [
        1 / (error**2 + between) if is_site and error**2 + between > SMALLEST else 0.0
        for error, is_site in zip(errors.tolist(), sites, strict=True)
    ]
    total = sum(parts)
    return [part / total if is_site and total > 0 else None for part, is_site in zip(parts, sites, strict=True)]


def _weights_at_right(axes: Axes, weights: Sequence[float | None]) -> None:
    across = axes.get_yaxis_transform()
    axes.text(1.03, -0.85, "weight", transform=across, size=9.5, color=MUTED, ha="left", va="center")
    for row, weight in enumerate(weights):
        if weight is not None:
            axes.text(1.03, row, f"{100 * weight:.0f} %", transform=across, size=9.5, color=INK, ha="left", va="center")


def _below_forest(answer: Answer, slopes: bool, ratios: bool, weighted: bool) -> str:
    if slopes:
        return "slope in its standard errors; 0: no effect"
    if ratios and not weighted:
        return "hazard ratio; 1: no difference"
    name = str(getattr(answer.statistic, "column", answer.estimates.summary.get("of", "")))
    if answer.statistic.name == "rates":
        per, time = float(getattr(answer.statistic, "per", 1.0)), getattr(answer.statistic, "time", "time")
        return f"events per unit of {time}" if per == 1.0 else f"events per {plain(per)} {time}"
    if answer.statistic.name == "proportion":
        return f"part of the {answer.counted}, by {name}"
    if answer.statistic.name == "restricted-mean":
        return f"mean {getattr(answer.statistic, 'time', 'time')} without an event"
    if not weighted:
        return name
    summary, test = answer.estimates.summary, answer.estimates.tests.get("Q")
    i_squared, between = summary.get("i_squared"), summary.get("tau_squared")
    heterogeneity = heterogeneity_text(float(i_squared or 0.0), float(between or 0.0))
    if test is not None and math.isfinite(test.statistic) and math.isfinite(test.p_value):
        heterogeneity += f", Q = {fixed(test.statistic, 2)}, {p_phrase(test.p_value)}"
    return f"{name}\n{heterogeneity}"


def _few_ratios(axes: Axes) -> None:
    """Ticks of a logarithmic axis as plain numbers, few enough to be read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0), numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(float(value), 2)))
    axes.xaxis.set_minor_formatter(NullFormatter())
