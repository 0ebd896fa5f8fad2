"""A picture of an answer: each term as a point with its two intervals, on one scale, which the page draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quietmean.statistics.tidy import Term, terms_of

# More lines than these are a table, not a picture.
_MOST = 24
# Of the width, in percent, left free at both ends.
_MARGIN = 2.0


@dataclass(frozen=True)
class PictureLine:
    """Places in percent of the width: ``at`` the estimate, ``noise`` and ``population`` the ends of its 95 % intervals."""

    label: str
    at: float
    noise: tuple[float, float] | None
    population: tuple[float, float] | None


@dataclass(frozen=True)
class Picture:
    """``ends``: what the scale's two ends are, as text. ``zero``: where 0 lies, if it is on the scale."""

    name: str
    lines: Sequence[PictureLine]
    ends: tuple[str, str]
    zero: float | None


def pictures_of(result: Mapping[str, Any]) -> list[Picture]:
    """One for each statistic of a receipt's result whose terms can share a scale; none for tables of many terms."""
    documents = result.get("statistics")
    if not isinstance(documents, list):
        return []
    drawn = (_picture([term for term in terms_of(document) if not term.hidden]) for document in documents)
    return [picture for picture in drawn if picture is not None]


def _picture(terms: Sequence[Term]) -> Picture | None:
    # Counts and what they are divided into are of different sizes.
    terms = [term for term in terms if not term.of_records] or terms
    numbers = [end for term in terms for end in (term.estimate, *term.noise, *term.population) if math.isfinite(end)]
    if not 0 < len(terms) <= _MOST or not numbers:
        return None
    low, high = min(numbers), max(numbers)
    if not low < high:
        return None

    def place(value: float) -> float:
        return _MARGIN + (100 - 2 * _MARGIN) * (value - low) / (high - low)

    def interval(ends: tuple[float, float]) -> tuple[float, float] | None:
        return (place(ends[0]), place(ends[1])) if all(map(math.isfinite, ends)) else None

    lines = [
        PictureLine(term.label or term.term or term.name, place(term.estimate), interval(term.noise), interval(term.population))
        for term in terms
    ]
    return Picture(terms[0].name, lines, (_number(low), _number(high)), place(0.0) if low < 0 < high else None)


def _number(value: float) -> str:
    return f"{value:.3g}"
