"""Answers as they can be: estimates within their range and within their own intervals, curves that rise or fall as they must.

Each is the nearest possible one: the end of its range, or of a curve the isotonic least squares with the inverse variances of
the noise as weights (Barlow, Bartholomew, Bremner and Brunk, 1972). The truth is possible, so none is further from it. Intervals
are made before, of what was released, then cut at the range; where the nearest possible value is beyond an end, they reach to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.lazy_modules import optimize
from quietmean.statistics.estimates import Estimates


@dataclass(frozen=True)
class CurveOfTerms:
    """Terms, by their places, of which each is at least the one before if it ``rises``, else at most.

    ``alike``: all weigh the same, so that no value moves further than the farthest of those that were released. ``whole``: curves
    of the same whole are as long as each other, and add up to at most 1.
    """

    places: tuple[int, ...]
    rises: bool
    alike: bool = False
    whole: str = ""


def curves_in(groups: Sequence[str], rises: bool) -> dict[str, CurveOfTerms]:
    """One for the terms of each group, from the group of each term."""
    names = dict.fromkeys(groups)
    return {name: CurveOfTerms(tuple(at for at, other in enumerate(groups) if other == name), rises) for name in names}


def possible(estimates: Estimates, curves: Sequence[CurveOfTerms] = ()) -> Estimates:
    """The nearest possible values of these estimates; unknown ones stay so."""
    value = estimates.value.copy()
    for curve in curves:
        places = np.array(curve.places)
        places = places[np.isfinite(value[places])]
        errors = np.ones(len(places)) if curve.alike else estimates.standard_error[places]
        value[places] = monotone(value[places], errors, rises=curve.rises)
    value = np.clip(value, estimates.low, estimates.high)
    for whole in dict.fromkeys(curve.whole for curve in curves if curve.whole):
        places = np.array([curve.places for curve in curves if curve.whole == whole])
        value[places] = _within_one(value[places])
    moved = zip(estimates.entries, value.tolist(), strict=True)
    return replace(estimates, entries=tuple(entry.moved_to(possible_value) for entry, possible_value in moved))


def monotone(values: Array, errors: Array, *, rises: bool) -> Array:
    """The nearest values that never fall, or never rise, by least squares with the inverse squares of the ``errors``, (n,)."""
    steps = np.diff(values) if rises else -np.diff(values)
    if not (steps < 0).any():
        return values
    largest = float(errors.max())
    # An error of next to nothing is rounding.
    weights = np.ones(len(errors)) if not largest > 0 else 1 / np.maximum(errors / largest, 1e-6) ** 2
    nearest: Array = optimize.isotonic_regression(values, weights=weights, increasing=rises).x
    return nearest


def _within_one(curves: Array) -> Array:
    """Rising curves (curves, n), which end where the first unknown value is, that rise no more from where they add up to 1."""
    known = ~np.isnan(curves).any(axis=0)
    steps = np.diff(curves[:, known], axis=1, prepend=0.0)
    total = np.cumsum(steps.sum(axis=0))
    before = np.concatenate([[0.0], total])[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.where(total > 1, np.clip((1 - before) / (total - before), 0.0, 1.0), 1.0)
    within = curves.copy()
    within[:, known] = np.cumsum(steps * kept, axis=1)
    return within
