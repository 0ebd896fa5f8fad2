"""Features that several statistics have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.statistics.columns import Column
from quietmean.statistics.statistic import Feature, Records


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
