"""Features that several statistics have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.input_domain import InputDomain, Presence
from quietmean.statistics.columns import Column
from quietmean.statistics.statistic import Feature, Records, presence_of


@dataclass(frozen=True)
class ScaledColumn(Feature):
    """A column scaled by its bounds to [0, 1]."""

    column: Column
    size = 1
    sensitivity = 1.0

    def encode(self, records: Records) -> NDArray[np.float64]:
        scaled: NDArray[np.float64] = (records[self.column.name] - self.column.low) / self.column.width
        return scaled[:, None]

    def to_grid(self, scaled: NDArray[np.float64], scale: float, step: float) -> NDArray[np.float64]:
        """To the nearest multiple of ``step`` inside [0, scale]: without a bias that many records would add up."""
        nearest: NDArray[np.float64] = np.clip(np.rint(scaled / step), 0.0, np.floor(scale / step)) * step
        return nearest


# The weight of the indicator, for half the width of the bounds as the unit. Up to sqrt(3) it costs nothing.
PRESENCE_WEIGHT = 1.65


@dataclass(frozen=True)
class PresentColumn(Feature):
    """A column with missing values: (p z, w p), z the value scaled to [-1, 1], p 1 where it is present and 0 where not.

    Two present values are 2 apart at most, a present and a missing one sqrt(1 + w^2) < 2: the sensitivity is that of the column
    alone, and how many values are present costs nothing. Emptying a cell is a replacement like any other.
    """

    column: Column
    size = 2
    sensitivity = 2.0

    @property
    def domain(self) -> InputDomain:
        return InputDomain((Presence(half=1.0, weight=PRESENCE_WEIGHT),))

    def encode(self, records: Records) -> NDArray[np.float64]:
        present = records[presence_of(self.column.name)]
        scaled = (records[self.column.name] - self.column.centre) / (self.column.width / 2)
        return np.column_stack([present * scaled, PRESENCE_WEIGHT * present])
