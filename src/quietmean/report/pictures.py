"""Pictures that a page draws itself, by places in percent of the width: bars, points with intervals, and forest plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.readable import count_of, decimals_for, fixed, p_phrase, plain, with_error
from quietmean.core.readable_days import day_text
from quietmean.report.canvas import drawable, wider_ends
from quietmean.report.data import LARGEST, SMALLEST, StudyReport
from quietmean.report.facts import heterogeneity_text
from quietmean.report.words import rounded_up
from quietmean.statistics import Answer
from quietmean.statistics.kinds.curves import QUANTILES
from quietmean.statistics.tails import Z
from quietmean.statistics.tidy import Term, terms_of

# More terms than these are a table, not a picture; and of more estimates the first ones are drawn.
_MOST_TERMS, MOST_ROWS = 24, 40
# Of the width, in percent, left free at both ends.
MARGIN = 2.0
# Where noise is far larger than the bounds, the scale is cut here, in widths of the bounds.
_FARTHEST = 1.5
# An interval's own surroundings, in widths of it; drawn where it is less than this part of the bounds.
_CLOSE, _SMALL = 2.0, 0.4
# The ends of a scale are rounded as an error of this part of its width would be.
_READABLE = 3

Ends = tuple[float, float]


@dataclass(frozen=True)
class Bars:
    """A picture of horizontal bars.

    ``rows``: of each bar its name, its number as text, its length in percent, and whether it is over the ``limit``.

    ``limit``: its place and its text; None where there is none.
    """

    rows: Sequence[tuple[str, str, float, bool]]
    limit: tuple[float, str] | None


def bars(names: Sequence[str], epsilons: Array, limit: float = math.inf) -> Bars:
    """Draw the epsilons of parties, (n,), from the largest to the smallest; one without a bound is as long as the scale.

    Equal ones are one bar.
    """
    if len({rounded_up(value) for value in epsilons.tolist()}) == 1 < len(names):
        names, epsilons = [f"each of the {count_of(len(names), 'party', 'parties')}"], epsilons[:1]
    known = [value for value in (*epsilons.tolist(), limit) if math.isfinite(value)]
    top = 1.05 * max(known, default=0.0) or 1.0

    def row(epsilon: float, name: str) -> tuple[str, str, float, bool]:
        return name, rounded_up(epsilon), 100 * min(epsilon / top, 1.0), epsilon > limit or math.isinf(epsilon)

    place = (100 * limit / top, plain(limit)) if math.isfinite(limit) else None
    return Bars([row(float(epsilons[index]), names[index]) for index in np.argsort(-epsilons, kind="stable")], place)


@dataclass(frozen=True)
class Interval:
    """Places in percent: ``at`` the estimate, the ends of a ``thick`` and a ``thin`` interval, and a ``tick``.

    ``edges``: marks of the scale, with their texts; ``text``: beside it; ``kind``: of a common mean; ``radius``: of the point.
    """

    label: str
    at: float | None
    thick: Ends | None
    thin: Ends | None
    tick: float | None = None
    edges: Sequence[tuple[float, str]] = ()
    text: str = ""
    kind: str = ""
    radius: float = 4.5


@dataclass(frozen=True)
class Scale:
    """Numbers from ``low`` to ``high``; what lies beyond is drawn at the margin."""

    low: float
    high: float

    def place(self, value: float) -> float:
        if not self.low < self.high:
            return 50.0
        inside = min(max(value, self.low), self.high)
        return MARGIN + (100 - 2 * MARGIN) * (inside - self.low) / (self.high - self.low)

    def known(self, ends: Ends) -> Ends | None:
        """The places of an interval's ends; None where one is not known."""
        return (self.place(ends[0]), self.place(ends[1])) if all(map(math.isfinite, ends)) else None

    def interval(
        self, label: str, estimate: float, both: tuple[Ends, Ends], edges: Sequence[tuple[float, str]], truth: float = math.nan
    ) -> Interval:
        """An estimate with ``both`` intervals of 95 %, of the noise and of the population, and the truth where it is known."""
        noise, population = map(self.known, both)
        tick = self.place(truth) if math.isfinite(truth) else None
        return Interval(
            label, self.place(estimate), noise, population, tick, [(self.place(value), text) for value, text in edges]
        )


def drawn_twice(estimate: float, both: tuple[Ends, Ends], bounds: Ends, truth: float = math.nan) -> list[Interval]:
    """An estimate with ``both`` its intervals: between its bounds, and in its own surroundings where these are much smaller."""
    known = [ends for ends in both if all(map(math.isfinite, ends))]
    low, high = (min(ends[0] for ends in known), max(ends[1] for ends in known)) if known else (estimate, estimate)
    far = _FARTHEST * (bounds[1] - bounds[0])
    whole = Scale(max(min(bounds[0], low), bounds[0] - far), min(max(bounds[1], high), bounds[1] + far))
    scales = [whole.interval("", estimate, both, [(end, plain(end)) for end in bounds], truth)]
    width = high - low
    if SMALLEST < width < _SMALL * (whole.high - whole.low):
        near = Scale(low - (_CLOSE - 1) / 2 * width, high + (_CLOSE - 1) / 2 * width)
        decimals = decimals_for(width / 4)
        scales.append(near.interval("close-up", estimate, both, [(end, fixed(end, decimals)) for end in (low, high)], truth))
    return scales


def estimates_between_bounds(report: StudyReport) -> list[dict[str, Any]]:
    """Draw each estimate between its bounds, and in its own surroundings; only what can be drawn."""
    rows = []
    for index, name in enumerate(report.terms[:MOST_ROWS]):
        estimate, error = float(report.estimate[index]), float(report.standard_error[index])
        reach = 4 * error if error > 0 else 1.0
        # A range without an end is drawn four errors far; larger numbers would overflow in a distance.
        low, high = report.bounds[index]
        low, high = low if abs(low) < LARGEST else estimate - reach, high if abs(high) < LARGEST else estimate + reach
        if not (abs(estimate) < LARGEST and error < LARGEST and high - low > SMALLEST):
            continue
        truth = math.nan if report.truth is None else float(report.truth[index])
        both = _ends(report.of_noise[index]), _ends(report.population[index] if report.population is not None else ())
        rows.append(
            {"name": name, "text": with_error(estimate, error), "scales": drawn_twice(estimate, both, (low, high), truth)}
        )
    return rows


def _ends(ends: Any) -> Ends:
    """Both ends of an interval; NaN where there is none."""
    return (float(ends[0]), float(ends[1])) if len(ends) == 2 else (math.nan, math.nan)


@dataclass(frozen=True)
class Picture:
    """The terms of a statistic on one scale. ``ends``: what its two ends are, as text.

    ``zero``: where no effect lies, if it is on it; ``below``: what the scale is of.
    """

    name: str
    lines: Sequence[Interval]
    ends: tuple[str, str]
    zero: float | None
    below: str = ""


def pictures_of(result: Mapping[str, Any]) -> list[Picture]:
    """Draw each statistic of a receipt's result, by what can share a scale; none for tables of many terms.

    What the noise hides beside what it does not has its interval, and no point.
    """
    documents = result.get("statistics")
    if not isinstance(documents, list):
        return []
    known = ([term for term in terms_of(document) if not term.hidden or _has_ends(term)] for document in documents)
    drawn = (picture_of(own) for terms in known for own in by_unit(terms) if not all(term.hidden for term in own))
    return [picture for picture in drawn if picture is not None]


def _has_ends(term: Term) -> bool:
    return all(map(math.isfinite, (*term.noise, *term.population)))


def by_unit(terms: Sequence[Term]) -> list[list[Term]]:
    """The terms of one statistic, by scales: parts of a survival curve, and times at which it falls below a part."""
    kinds: dict[bool, list[Term]] = {}
    for term in terms:
        kinds.setdefault(term.kind == "survival" and term.group in QUANTILES, []).append(term)
    return list(kinds.values())


def picture_of(terms: Sequence[Term]) -> Picture | None:
    """Draw the terms of one statistic on one scale; None where there are too many, or nothing is known."""
    # Counts and what they are divided into are of different sizes.
    terms = [term for term in terms if not term.of_records] or terms
    points = [math.nan if term.hidden else term.estimate for term in terms]
    numbers = [end for term in terms for end in (*term.noise, *term.population) if math.isfinite(end)]
    numbers += filter(math.isfinite, points)
    if not 0 < len(terms) <= _MOST_TERMS or not numbers or not min(numbers) < max(numbers):
        return None
    scale = Scale(min(numbers), max(numbers))
    lines = [
        Interval(
            term.label or term.term or term.name,
            None if term.hidden else scale.place(point),
            scale.known(term.noise),
            scale.known(term.population),
        )
        for term, point in zip(terms, points, strict=True)
    ]
    zero = scale.place(0.0) if scale.low < 0 < scale.high else None
    decimals = max(decimals_for((scale.high - scale.low) / _READABLE), 0)
    return Picture(terms[0].name, lines, (f"{scale.low:,.{decimals}f}", f"{scale.high:,.{decimals}f}"), zero)


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
