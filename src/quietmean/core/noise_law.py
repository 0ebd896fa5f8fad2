"""The law of the noise in a released number: what intervals and thresholds ask for quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self


class NoiseKind(StrEnum):
    """What the shares of noise add up to: discrete Gaussian noise, or discrete Laplace noise and independent noise beside it."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """The law of the noise in one coordinate, in the units of what it is added to; all coordinates are independent.

    Gaussian: ``scale`` is the standard deviation, as stated (an upper bound). Laplace: X - Y in whole multiples of ``step``, both
    negative binomial of this ``shape`` and ratio e^(-step / scale). The shape is the number of shares in the sum over the number
    that is one Laplace noise: 1 or more. What rounding of values adds is in no law.
    """

    kind: NoiseKind
    scale: float
    shape: float = 1.0
    step: float = 0.0

    @property
    def variance(self) -> float:
        """The variance: exact for the stated law."""
        if self.kind == NoiseKind.GAUSSIAN or not self.step:
            return self.scale**2 * (1.0 if self.kind == NoiseKind.GAUSSIAN else 2 * self.shape)
        return self.shape * (self.step / math.sinh(0.5 * self.step / self.scale)) ** 2 / 2

    def times(self, factor: float) -> Self:
        """The law of the noise in ``factor`` times the number, factor > 0."""
        return replace(self, scale=factor * self.scale, step=factor * self.step)
