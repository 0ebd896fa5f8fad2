"""Means of several numeric columns at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import Box, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.party import Vector

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Encoded:
    """A party's input to a protocol: its vector (d,), its public weight, and how many of its numbers were clipped."""

    vector: Vector
    weight: float
    clipped: int


@dataclass(frozen=True, eq=False)
class ColumnMeans:
    """The mean of each column over all records (unit ``record``) or over the parties' own means (unit ``party``).

    Every column is scaled by its public bounds to [0, 1], so that one noise level serves all; results come back in the columns'
    units. Sensitivity, in scaled units under replacement: the L2 diameter of the unit cube, sqrt(columns).
    """

    columns: tuple[str, ...]
    domain: Box
    unit: PrivacyUnit

    def __post_init__(self) -> None:
        if not self.columns:
            raise InputError("no column is named: give at least one --column")
        if len(set(self.columns)) != len(self.columns):
            raise InputError(f"a column is named twice in {', '.join(self.columns)}: name each once")
        if len(self.columns) != self.domain.dimension:
            raise InputError(
                f"{len(self.columns)} columns have {self.domain.dimension} bounds: give --bounds LOW HIGH for each column"
            )

    @property
    def sensitivity(self) -> float:
        """L2 change of a party's vector when one unit (a record, or all of a party) is replaced; scaled units."""
        return float(np.sqrt(len(self.columns)))

    def encode(self, records: Array, *, clip: bool = False, row_names: NDArray[np.int64] | None = None) -> Encoded:
        """A party's vector from its records (rows, columns). Values outside the bounds are refused unless ``clip``."""
        if not len(records):
            raise InputError("a party has no records: every party needs at least one, or leave it out")
        outside = (records < self.domain.low) | (records > self.domain.high)
        if outside.any() and not clip:
            row, column = (int(index[0]) for index in np.nonzero(outside))
            place = int(row_names[row]) if row_names is not None else row + 1
            raise InputError(
                f"row {place}, column {self.columns[column]!r} is {records[row, column]:g}, outside the bounds "
                f"{self.domain.low[column]:g} to {self.domain.high[column]:g}: mend it, widen --bounds or pass --clip"
            )
        scaled = (np.clip(records, self.domain.low, self.domain.high) - self.domain.low) / self.domain.width
        if self.unit == PrivacyUnit.RECORD:
            return Encoded(scaled.sum(axis=0), float(len(records)), int(outside.sum()))
        return Encoded(scaled.mean(axis=0), 1.0, int(outside.sum()))

    def decode(self, mean: Vector) -> Array:
        """From the scaled mean (d,) to the columns' units."""
        return self.domain.low + mean * self.domain.width

    def decode_error(self, standard_error: float) -> Array:
        """From a standard error in scaled units to one per column, in the columns' units."""
        return standard_error * self.domain.width

    def largest_party_change(self, weights: Array) -> Array:
        """How many times a party's whole data can move its vector compared with one unit: shape (n,)."""
        return weights if self.unit == PrivacyUnit.RECORD else np.ones_like(weights)
