"""Forest plots: rows of terms that share a unit, with weights and common means where they are sites."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quietmean.core.readable import fixed, p_phrase, plain
from quietmean.core.readable_days import day_text
from quietmean.report.canvas import drawable, wider_ends
from quietmean.report.data import LARGEST, SMALLEST
from quietmean.report.facts import heterogeneity_text
from quietmean.report.pictures import Interval, Picture, Scale
from quietmean.statistics import Answer
from quietmean.statistics.flags_and_tests import Z
from quietmean.statistics.tidy import terms_of

KINDS = frozenset({
    "quantiles", "group-means", "proportion", "site-effects", "meta-analysis", "kruskal-wallis", "rates", "hazard-ratio",
    "restricted-mean", "linear-regression", "logistic-regression",
})  # fmt: skip
_MOST_ROWS = 30
# Terms of groups that are not means.
COMPARED = ("difference", "smd", "cohen-d", "auc", "rate-ratio", "rate-difference", "standardised")
# The common means of sites: all of them the same, or differing.
_OF_SITES = ("site-effects", "meta-analysis")
_FIXED, _RANDOM = "fixed", "random"


def forest(answer: Answer) -> Picture | None:
    """Draw rows of terms that share a unit: means of groups, rates, quantiles, ratios, or slopes; None where nothing can be."""
    answer = drawable(answer)
    estimates, kind = answer.estimates, answer.statistic.name
    kept = [index for index, term in enumerate(estimates.terms) if term not in COMPARED and term != "(Intercept)"]
    kept = [index for index in kept if math.isfinite(estimates.value[index]) and math.isfinite(estimates.standard_error[index])]
    slopes, ratios = "regression" in kind, kind == "hazard-ratio" or bool(estimates.summary.get("ratio"))
    # What noise hides has an interval and no point.
    hidden = np.array([term.hidden for term in terms_of(answer.to_json())], dtype=np.bool_)[kept]
    drawn = np.column_stack([estimates.value[kept], estimates.of_noise[kept], wider_ends(estimates)[kept]])
    if not 1 <= len(kept) <= _MOST_ROWS or hidden.all() or (ratios and not (drawn[:, 3:] > SMALLEST).all()):
        return None
    if slopes:
        # Slopes have units of their own: each in standard errors of its population's estimate is comparable, and 0 stays 0.
        error = (drawn[:, 4] - drawn[:, 3]) / (2 * Z)
        if not (np.abs(error) > SMALLEST).all():
            return None
        drawn = drawn / error[:, None]
    if ratios:
        with np.errstate(all="ignore"):
            drawn = np.log(drawn)
    known = [*drawn[np.isfinite(drawn)].tolist(), *([0.0] if slopes or ratios else [])]
    scale, weights = Scale(min(known), max(known)), _weights(answer, kept)
    lines = []
    for row, index in enumerate(kept):
        term, weight = estimates.terms[index], weights[row] if weights else None
        value, thick_low, thick_high, low, high = drawn[row].tolist()
        common = weights != [] and term in (_FIXED, _RANDOM)
        line = Interval(
            term or answer.statistic.text,
            None if hidden[row] else scale.place(value),
            None if common else scale.known((thick_low, thick_high)),
            scale.known((low, high)),
            text="" if weight is None else f"{100 * weight:.0f} %",
            kind=term if common else "",
            radius=4.5 if weight is None else 2.5 + 5 * math.sqrt(weight),
        )
        lines.append(line)

    def end(value: float) -> str:
        since = estimates.since[kept[0]] if estimates.since else ""
        return day_text(value, since) if since else plain(math.exp(value) if ratios else value, 3)

    zero = scale.place(0.0) if slopes or ratios else None
    return Picture(answer.statistic.text, lines, (end(scale.low), end(scale.high)), zero, _below(answer, slopes, ratios, weights))


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


def _below(answer: Answer, slopes: bool, ratios: bool, weighted: Sequence[float | None]) -> str:
    """Say what the scale is of."""
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
    return f"{name}; {heterogeneity}"
