"""Columns of rows as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl


def numbers(rows: pl.DataFrame, name: str) -> NDArray[np.float64]:
    """A column as floating point numbers; NaN where it is empty."""
    column: NDArray[np.float64] = rows[name].to_numpy().astype(np.float64)
    return column


def worst_deviation(rows: pl.DataFrame, measured: str, predicted: str) -> float:
    """The largest difference of two columns, in standard errors of the first (column ``<measured>_standard_error``)."""
    part = rows.drop_nulls([measured, predicted])
    deviations = (numbers(part, measured) - numbers(part, predicted)) / numbers(part, f"{measured}_standard_error")
    return float(np.abs(deviations).max())
