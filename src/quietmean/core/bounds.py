"""Numbers with certain bounds, and bounds of the privacy loss for every coalition of a size, before and after an execution.

Numbers that go into plans, on which machines must agree to the last digit, are rounded up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array


@dataclass(frozen=True, eq=False)
class CoalitionBound:
    """mu of every party at most, shape (n,), whichever parties of a stated number collude; infinite where nothing is bounded.

    ``proof``: what bounds it, one clause. ``chance``: the probability over a public random graph with which the bound fails for a
    coalition that was fixed before the graph was drawn; 0 where it holds for certain.
    """

    mu: Array
    proof: str
    chance: float = 0.0


@dataclass(frozen=True)
class APriori:
    """What a study costs at most before anything happens: over all coalitions of a size, and over all that may happen.

    ``mu``: of the worst-off party; infinite where nothing bounds it. ``enforced_by``: why every history keeps it, one clause.
    ``beta`` and ``tv``: the additive columns of what a ledger reserves (see :mod:`quietmean.privacy.charge`). ``pure``:
    epsilon at a delta of 0 but for ``tv``, where the guarantee is of that kind; it holds beside ``mu``, which composes. ``rho``:
    the largest Renyi divergence over its order, where it is known apart from these. ``nats``: mutual information of a coordinate
    of a value with the view, for independent normal values whose standard deviation is half the range; infinite where nothing
    bounds it.
    """

    mu: float
    enforced_by: str
    beta: float = 0.0
    tv: float = 0.0
    pure: float = np.inf
    nats: float = np.inf
    rho: float = np.inf


@dataclass(frozen=True, slots=True)
class Bound:
    """An interval that is certain to hold the true value, with the best single guess inside it.

    ``lower`` and ``upper`` are bounds, ``estimate`` is not. Reports about privacy loss use ``upper``.
    """

    lower: float
    estimate: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError(f"not ordered: {self.lower} <= {self.estimate} <= {self.upper}")

    @property
    def relative_width(self) -> float:
        """Width of the interval over its estimate; 0 for an exact (also an infinite) number."""
        if self.lower == self.upper:
            return 0.0
        return (self.upper - self.lower) / self.estimate

    @classmethod
    def exact(cls, value: float) -> Bound:
        return cls(value, value, value)


_DIGITS = 6


def round_up(number: float) -> float:
    """A number >= 0 to 6 significant digits, up.

    More noise only hides more, and machines whose libraries differ in the last bits get the same plan.
    """
    if number == 0.0:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(number)) - _DIGITS + 1)
    return float(f"{math.ceil(number / digit - 1e-5) * digit:.{_DIGITS}g}")
