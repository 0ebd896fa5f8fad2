"""What parameters say of noise that the parties add in shares: one place for all protocols that have it."""

from __future__ import annotations

import math
from typing import Any

from quietmean.core.noise_law import NoiseKind, NoiseLaw
from quietmean.core.schema import parameter
from quietmean.randomness import laplace_shares

_POSITIVE = "choose a finite number > 0"


def l1_field() -> Any:
    """The field of the L1 change that Laplace noise hides."""
    return parameter(None, help="L1 change of a value that Laplace noise hides, before rounding", above=0, remedy=_POSITIVE)


def rounded_field() -> Any:
    """The field of how many coordinates rounding may change by a step more."""
    return parameter(
        None,
        help="coordinates of all parties that rounding may change by a step more; by default one vector's",
        at_least=0,
        remedy="choose 0 or more",
    )


class NoiseInShares:
    """The noise of one party, in the units of the values: ``sigma``, its standard deviation, or the scale of the discrete Laplace
    noise of which it is one of :attr:`shares`, on the :attr:`grid` that values are rounded to."""

    sigma: float
    rounded: int | None

    @property
    def is_whole(self) -> bool:
        """Are values sums of units that are whole steps each, so that nothing more is rounded?"""
        return self.rounded == 0

    @property
    def grid(self) -> float:
        """The value of one step."""
        raise NotImplementedError

    @property
    def shares(self) -> int | None:
        """k, how many shares are Laplace noise; 0 or None for Gaussian noise."""
        raise NotImplementedError

    @property
    def scale(self) -> float:
        """:attr:`sigma` in steps."""
        return self.sigma / self.grid

    @property
    def deviation(self) -> float:
        """The standard deviation of one party's noise, in the units of the values."""
        shares = self.shares
        return self.grid * math.sqrt(laplace_shares.variance(self.scale, shares)) if shares else self.sigma

    def law(self, inputs: int) -> NoiseLaw | None:
        """The law of the noise in a coordinate of a sum of so many ``inputs``; None where it is Gaussian."""
        shares = self.shares
        return NoiseLaw(NoiseKind.LAPLACE, self.sigma, inputs / shares, self.grid) if shares else None
