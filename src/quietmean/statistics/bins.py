"""Where a column of numbers is cut into bins: from what it declares, never from data."""

from __future__ import annotations

import math

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.lazy_scipy import special
from quietmean.statistics.columns import LINEAR, LOG, LOG_ODDS, Column

# Where the lower bound is not above 0, bins of equal factors begin at this part of the upper bound: six decades.
_LEAST_OF_LOG = 1e-6
# Probabilities that are common thresholds of decisions.
PROBABILITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
# From this many bins of equal log odds on, edges are moved to these probabilities.
_MANY = 64
# Bins of equal log odds begin at this probability where the lower bound is 0, and end as far from 1.
_LEAST_PROBABILITY = 1e-3


def edges_of(
    column: Column, bins: int, *, low: float | None = None, high: float | None = None, closed: str = "left", scale: str = LINEAR
) -> tuple[float, ...]:
    """Rising edges of at most ``bins`` bins of a column, from ``low`` to ``high``, by default its bounds.

    The column's own ``edges``, where it declares them. Of whole numbers as many in each bin as in any other, one more or less;
    the edges lie between two of them, half beyond the ends, or for bins (a, b] at the last number of each bin, the first edge
    being the first number. By equal factors or log odds, by ``scale`` where the column states none, and of equal width otherwise.
    Raises :class:`InputError` where there are no two whole numbers.
    """
    first, last = column.low if low is None else low, column.high if high is None else high
    if column.edges:
        if low is None and high is None:
            return column.edges
        return (first, *(edge for edge in column.edges if first < edge < last), last)
    if column.whole:
        return _of_whole_numbers(column, math.ceil(first), math.floor(last), bins, closed)
    spacing = column.scale if column.scale != LINEAR else scale
    inner = {LINEAR: _equal, LOG: _by_factors, LOG_ODDS: _by_log_odds}[spacing](first, last, bins)
    return (first, *(edge for edge in inner.tolist() if first < edge < last), last)


def cut_evenly(column: Column) -> bool:
    """Is it a column of numbers whose bins have equal widths, as long as nobody gives edges?"""
    return column.numeric and column.scale == LINEAR and not column.whole and not column.edges


def _equal(first: float, last: float, bins: int) -> Array:
    return np.linspace(first, last, bins + 1)


def _by_factors(first: float, last: float, bins: int) -> Array:
    """From 0 or less on, the first bin holds all that is more than six decades below the last number."""
    return np.geomspace(first, last, bins + 1) if first > 0 else np.geomspace(_LEAST_OF_LOG * last, last, max(bins, 1))


def _by_log_odds(first: float, last: float, bins: int) -> Array:
    low, high = max(first, _LEAST_PROBABILITY), min(last, 1 - _LEAST_PROBABILITY)
    if low >= high:
        return _equal(first, last, bins)
    edges: Array = np.asarray(special.expit(np.linspace(special.logit(low), special.logit(high), bins + 1)), dtype=np.float64)
    if bins >= _MANY:
        for probability in PROBABILITIES:
            if low < probability < high:
                edges[int(np.abs(edges - probability).argmin())] = probability
    # The first and the last bin extend to the bounds.
    return edges[1:-1]


def _of_whole_numbers(column: Column, first: int, last: int, bins: int, closed: str) -> tuple[float, ...]:
    if first >= last:
        raise InputError(f"column {column.name!r} has fewer than two whole numbers from {first} on: leave whole out")
    end, shift = (last, 0.0) if closed == "right" else (last + 1, -0.5)
    places = np.rint(np.linspace(first, end, min(bins, end - first) + 1))
    return tuple((places + shift).tolist())
