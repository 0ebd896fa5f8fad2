"""Pictures that a page draws itself: bars, and points with intervals, each by its place on a scale in percent of the width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.readable import plain, with_error
from quietmean.report.data import LARGEST, SMALLEST, StudyReport
from quietmean.report.words import rounded_up
from quietmean.statistics.flags_and_tests import Z
from quietmean.statistics.tidy import Term, terms_of

# More terms than these are a table, not a picture; and of more estimates the first ones are drawn.
_MOST_TERMS, MOST_ROWS = 24, 40
# Of the width, in percent, left free at both ends.
_MARGIN = 2.0
# Where noise is far larger than the bounds, the scale is cut here, in widths of the bounds; a close-up, in standard errors.
_FARTHEST, _CLOSE = 1.5, 3.6

Ends = tuple[float, float]


@dataclass(frozen=True)
class Bars:
    """``rows``: of each bar its name, its number as text, its length in percent, and whether it is over the ``limit``.

    ``limit``: its place and its text; None where there is none.
    """

    rows: Sequence[tuple[str, str, float, bool]]
    limit: tuple[float, str] | None


def bars(names: Sequence[str], epsilons: Array, limit: float = math.inf) -> Bars:
    """Draw the epsilons of parties, (n,), from the largest to the smallest; one without a bound is as long as the scale."""
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
        return _MARGIN + (100 - 2 * _MARGIN) * (inside - self.low) / (self.high - self.low)

    def known(self, ends: Ends) -> Ends | None:
        """The places of an interval's ends; None where one is not known."""
        return (self.place(ends[0]), self.place(ends[1])) if all(map(math.isfinite, ends)) else None

    def around(self, label: str, estimate: float, error: float, truth: float, edges: Sequence[tuple[float, str]]) -> Interval:
        """An estimate with one standard error and the interval of 95 % of the noise, and the truth where it is known."""
        return Interval(
            label,
            self.place(estimate),
            self.known((estimate - error, estimate + error)),
            self.known((estimate - Z * error, estimate + Z * error)),
            self.place(truth) if math.isfinite(truth) else None,
            [(self.place(value), text) for value, text in edges],
        )


def estimates_between_bounds(report: StudyReport) -> list[dict[str, Any]]:
    """Draw each estimate between its bounds, and where the truth is known a close-up of the noise; only what can be drawn."""
    rows = []
    for index, name in enumerate(report.terms[:MOST_ROWS]):
        estimate, error = float(report.estimate[index]), float(report.standard_error[index])
        reach = 4 * error if error > 0 else 1.0
        # A range without an end is drawn four errors far; larger numbers would overflow in a distance.
        low, high = report.bounds[index]
        low, high = low if abs(low) < LARGEST else estimate - reach, high if abs(high) < LARGEST else estimate + reach
        if not (abs(estimate) < LARGEST and error < LARGEST and high - low > SMALLEST):
            continue
        truth, far = math.nan if report.truth is None else float(report.truth[index]), _FARTHEST * (high - low)
        whole = Scale(max(min(low, estimate - Z * error), low - far), min(max(high, estimate + Z * error), high + far))
        scales = [whole.around("", estimate, error, truth, [(low, plain(low)), (high, plain(high))])]
        if math.isfinite(truth) and error > SMALLEST:
            near = Scale(estimate - _CLOSE * error, estimate + _CLOSE * error)
            edges = [(estimate + place * error, f"{plain(place)} s.e.") for place in (-3, 3)]
            scales.append(near.around("close-up", estimate, error, truth, edges))
        rows.append({"name": name, "text": with_error(estimate, error), "scales": scales})
    return rows


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
    """Draw each statistic of a receipt's result whose terms can share a scale; none for tables of many terms."""
    documents = result.get("statistics")
    if not isinstance(documents, list):
        return []
    drawn = (_picture([term for term in terms_of(document) if not term.hidden]) for document in documents)
    return [picture for picture in drawn if picture is not None]


def _picture(terms: Sequence[Term]) -> Picture | None:
    # Counts and what they are divided into are of different sizes.
    terms = [term for term in terms if not term.of_records] or terms
    numbers = [end for term in terms for end in (term.estimate, *term.noise, *term.population) if math.isfinite(end)]
    if not 0 < len(terms) <= _MOST_TERMS or not numbers or not min(numbers) < max(numbers):
        return None
    scale = Scale(min(numbers), max(numbers))
    lines = [
        Interval(
            term.label or term.term or term.name,
            scale.place(term.estimate),
            scale.known(term.noise),
            scale.known(term.population),
        )
        for term in terms
    ]
    zero = scale.place(0.0) if scale.low < 0 < scale.high else None
    return Picture(terms[0].name, lines, (f"{scale.low:.3g}", f"{scale.high:.3g}"), zero)
