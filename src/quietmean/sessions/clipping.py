"""From private vectors to the unit ball: divided by the public bound C, and shortened where they are longer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.grid import towards_zero
from quietmean.core.party import Vector
from quietmean.core.pieces import pieces

# A vector on the boundary must not be outside of it by rounding.
_INSIDE = 1.0 - 2.0**-40
# Sums of so many squares, scaled, do not overflow.
_MOST = np.finfo(np.float64).max / 2**16


def checked_clip(clip: float) -> float:
    """The bound C. Raises :class:`InputError` for one that cannot be."""
    if isinstance(clip, bool) or not isinstance(clip, int | float | np.floating) or not (math.isfinite(clip) and clip > 0):
        raise InputError(f"clip is {clip!r}: choose a finite number > 0, the largest L2 norm of a vector")
    return float(clip)


def numbers_of(value: Any, whose: str) -> Array:
    """An array of what a program gave. Raises :class:`InputError` for something else."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{whose} not an array of numbers: give numbers in one shape") from None


def clipped_vector(value: Vector, bound: float) -> Vector:
    """A vector (d,) over ``bound``, of L2 norm 1 at most. What is not a number counts as 0."""
    clipped: Vector = shortened(value[None], bound)[0]
    return clipped


def clipped_rows(records: Array, bound: float, step: float) -> Vector:
    """The sum, shape (d,), of records (N, d), each over ``bound``, of L2 norm 1 at most and rounded to ``step`` (0 for none)."""
    rows = shortened(records, bound)
    if step:
        # Each before they are added: a sum that is rounded later can change by more than one record does.
        # Entry by entry, and what lies on the grid stays: what becomes of one record depends on no other.
        rows = towards_zero(rows, step)
    total: Vector = rows.sum(axis=0)
    return total


def norms(rows: Array) -> Array:
    """L2 norms of rows (N, d), shape (N,), also where squares would overflow; what is not a number counts as 0."""
    return _norms_of_finite(_finite(rows))


def shortened(rows: Array, bound: float) -> Array:
    """Rows (N, d) over ``bound``, each of L2 norm 1 at most. What is not a number counts as 0."""
    finite = _finite(rows)
    lengths = _norms_of_finite(finite)
    # Divided by what is larger, so that nothing overflows.
    clipped: Array = finite / np.maximum(lengths, bound)[:, None]
    clipped *= np.where(lengths >= _INSIDE * bound, _INSIDE, 1.0)[:, None]
    return clipped


def _norms_of_finite(rows: Array) -> Array:
    largest = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    scale = np.where(largest > 0, largest, 1.0)[:, None]
    parts = [np.linalg.norm(rows[:, piece] / scale, axis=1) for piece in pieces(rows.shape[1])]
    lengths: Array = (parts[0] if len(parts) == 1 else np.linalg.norm(parts, axis=0)) * largest
    return lengths


def _finite(rows: Array) -> Array:
    # The rule, and no copy; both comparisons are false if anything is not a number.
    if rows.min(initial=0.0) >= -_MOST and rows.max(initial=0.0) <= _MOST:
        return rows
    return np.clip(np.nan_to_num(rows, nan=0.0, posinf=_MOST, neginf=-_MOST), -_MOST, _MOST)
