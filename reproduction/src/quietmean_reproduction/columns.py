"""Columns of rows as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]
# Of a normal law: 95 % lie within so many standard deviations.
NORMAL = 1.96


def numbers(rows: pl.DataFrame, name: str) -> Array:
    """A column as floating point numbers; NaN where it is empty."""
    column: Array = rows[name].to_numpy().astype(np.float64)
    return column


def worst_deviation(rows: pl.DataFrame, measured: str, predicted: str) -> float:
    """The largest difference of two columns, in standard errors of the first (column ``<measured>_standard_error``)."""
    part = rows.drop_nulls([measured, predicted])
    deviations = (numbers(part, measured) - numbers(part, predicted)) / numbers(part, f"{measured}_standard_error")
    return float(np.abs(deviations).max())


def largest(values: ArrayLike, errors: ArrayLike) -> tuple[float, tuple[float, float]]:
    """The largest of some estimates with their standard errors, and an interval that holds it in 95 % of cases (Bonferroni)."""
    values, half = np.asarray(values, dtype=np.float64), np.asarray(errors, dtype=np.float64) * _all_of(np.size(values))
    return float(values.max()), (float((values - half).max()), float((values + half).max()))


def _all_of(count: int) -> float:
    """How many standard deviations hold ``count`` normal values at once, in 95 % of cases."""
    from scipy.special import ndtri

    return max(NORMAL, float(-ndtri(0.025 / count)))


def interval_of(value: float, error: float) -> tuple[float, float]:
    """The 95 % interval of an estimate by its standard error."""
    return value - NORMAL * error, value + NORMAL * error
