"""Shares of discrete Laplace noise: the shares of k parties together have P(X = j) proportional to e^(-|j| / b).

A share is X - Y, where X and Y are negative binomial of shape 1/k and ratio a = e^(-1/b):

    P(X = 0) = (1 - a)^(1/k),   P(X = n + 1) = P(X = n) a (n + 1/k) / (n + 1).

Of k shares X and Y are geometric together, and of more than k that and independent noise. Fewer are no Laplace noise.

Each of X and Y is drawn from one table as the discrete Gaussian is, with 64 bits, and 64 more where these decide nothing. A word
whose cell of the table's guide has a boundary is searched for, so that time depends a little on the value. Nothing is drawn
beyond 52 b: e^-52 < 2**-75, and at most 53 250 boundaries are off by less than 2**-128 each. So a share is within total
variation 2**-73 (:data:`TOTAL_VARIATION`).
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.randomness.discrete_gaussian import SamplingTable, invert, tabulated
from quietmean.randomness.stream import BitStream, Seed

# The distance of one share from what is stated.
TOTAL_VARIATION = 2.0**-73
LARGEST_SCALE = 2.0**10
_TAIL = 52
_PRECISION = 256
_BLOCK = 1 << 15
_PARTS = 64
_RARE = 1e-20


class LaplaceStream:
    """Independent shares of discrete Laplace noise of one ``scale`` b, of which ``parties`` together are it; from ``seed``.

    Raises ValueError for a scale that is not in (0, 2**10], or fewer parties than 1.
    """

    def __init__(self, seed: Seed, scale: float, parties: int) -> None:
        self._table = negative_binomial_table(scale, parties)
        self._seeds = [seed.derive(name) for name in ("more", "less")]
        self._streams = [BitStream(each.derive("high")) for each in self._seeds]
        self._drawn = 0

    def next(self, count: int) -> Ints:
        """The next ``count`` of them, shape (count,)."""
        values = np.empty(count, dtype=np.int64)
        # Blocks stay in the cache.
        for begin in range(0, count, _BLOCK):
            block = values[begin : begin + _BLOCK]
            more, less = (
                invert(self._table, stream.words(block.size), seed, self._drawn + begin)
                for stream, seed in zip(self._streams, self._seeds, strict=True)
            )
            np.subtract(more, less, out=block)
        self._drawn += count
        return values


def variance(scale: float, parties: int) -> float:
    """The variance of one share: 2 a / (parties (1 - a)^2)."""
    return 1 / (2 * parties * math.sinh(0.5 / scale) ** 2)


def reach(scale: float, shape: float, chance: float) -> float:
    """What a sum of shares exceeds with at most this ``chance``: of ``shape`` = m / k, m the number of shares. In steps.

    By Chernoff's bound, P(X - Y >= t) <= e^(-s t) ((1 - a)^2 / ((1 - a e^s)(1 - a e^-s)))^shape for 0 < s < 1 / scale, at the
    best of some s. At shape 1 and 1e-15 that is some 38 scales, where 34 would do.
    """
    rest = (1 - part / _PARTS for part in range(1, _PARTS))
    return min(
        (shape * _log_moment(scale, each / scale) - math.log(chance)) * scale / each
        for each in (*rest, *(1 - 2.0**-power for power in range(6, 12)))
    )


def tails(scale: float) -> float:
    """How many standard deviations a Gaussian has whose tails are no lighter, where they are above 1e-20; of k shares and more.

    Also of any sum of independent ones with coefficients: by the same bound, no sum of the same variance goes beyond so far as
    one alone, as the logarithm of the moments is convex in s^2.
    """
    return reach(scale, 1.0, _RARE) / math.sqrt(-2 * math.log(_RARE) * variance(scale, 1))


def _log_moment(scale: float, s: float) -> float:
    one, upper, lower = -math.expm1(-1 / scale), -math.expm1(s - 1 / scale), -math.expm1(-s - 1 / scale)
    return 2 * math.log(one) - math.log(upper) - math.log(lower)


@lru_cache(maxsize=16)
def negative_binomial_table(scale: float, parties: int) -> SamplingTable:
    """The table of shape 1 / ``parties`` and ratio e^(-1 / scale), without what lies beyond 52 scales.

    Raises ValueError for a scale that is not in (0, 2**10], or fewer parties than 1.
    """
    if not 0 < scale <= LARGEST_SCALE or parties < 1:
        raise ValueError(f"Laplace noise of scale {scale:g} of {parties} parties: 0 < scale <= {LARGEST_SCALE:g} is supported")
    with localcontext() as context:
        context.prec = 90
        ratio = int((-1 / Decimal(scale)).exp() * (1 << _PRECISION))
    weights = [1 << _PRECISION]
    for number in range(math.ceil(_TAIL * scale)):
        weights.append((weights[-1] * ratio >> _PRECISION) * (number * parties + 1) // ((number + 1) * parties))
    return tabulated(weights, 0)
