"""What is protected: the privacy unit, the neighbouring relation and the domain that gives the sensitivity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError


class PrivacyUnit(StrEnum):
    """Whose change the guarantee hides."""

    PARTY = "party"
    RECORD = "record"


class Neighbouring(StrEnum):
    """How two neighbouring data sets differ. Replacement: one unit's value becomes any other in the domain."""

    REPLACEMENT = "replacement"


@dataclass(frozen=True)
class Box:
    """The public domain of a vector: every coordinate between its own two bounds, both in the data's units."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.low.shape != self.high.shape or self.low.ndim != 1:
            raise InputError(f"bounds have shapes {self.low.shape} and {self.high.shape}: give one low and one high each")
        for low, high in zip(self.low, self.high, strict=True):
            if not (np.isfinite(low) and np.isfinite(high) and low < high):
                raise InputError(f"bounds {low:g} {high:g} are not two finite numbers in rising order: give --bounds LOW HIGH")

    @property
    def dimension(self) -> int:
        return int(self.low.size)

    @property
    def width(self) -> NDArray[np.float64]:
        return self.high - self.low

    @property
    def diameter(self) -> float:
        """L2 diameter: the sensitivity of a sum under replacement of one member of the box."""
        return float(np.linalg.norm(self.width))
