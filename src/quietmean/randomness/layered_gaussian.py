"""The discrete Gaussian N_Z(0, v) at any scale, from small tables.

A large scale is drawn in layers: K = K_0 + 128 K', where K_0 ~ N_Z(0, 288^2) and K' ~ N_Z(0, v'), v' = (v - 288^2) / 128^2, is
itself drawn so until one table of at most 1024 suffices. Every layer needs 64 bits, and all scales share the table of 288.

The error of one step is exact arithmetic. P(K = k) is exp(-k^2 / (2 v)) times the sum over j of exp(-(j - c_k)^2 / (2 u)), with
1 / u = 1 / v' + 1 / 2.25^2. By Poisson summation that sum varies by a factor of at most exp(+-4 exp(-2 pi^2 u)) over all c_k, so
the distribution is within total variation 4 exp(-2 pi^2 u) of N_Z(0, v). Here v' >= 7.6^2, so that u >= 4.6 and this is below
2**-128. A table misses its tail beyond 13 scales, 2 exp(-84.5) < 2**-120, and up to 26 627 boundaries are off by less than
2**-128 each. The sum over at most 5 layers is below 2**-110 (:data:`TOTAL_VARIATION`).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.randomness.discrete_gaussian import cumulative_table, invert
from quietmean.randomness.stream import BitStream, Seed

# The distance of one value from N_Z(0, v).
TOTAL_VARIATION = 2.0**-110
LARGEST_SCALE = 2.0**36
_FACTOR = 128
_LOW = 288.0
_TOP = 1024.0
_TAIL = 13
# sqrt and the divisions err by a few 2^-53 each: so much is added, so that v is never smaller than asked for.
_ROUNDING = 2.0**-50
_BLOCK = 1 << 15


def layered_gaussian(seed: Seed, scale: float, count: int) -> Ints:
    """``count`` independent values of N_Z(0, v), shape (count,), all from ``seed``; :func:`variance` states v.

    v >= scale^2, and v <= scale^2 (1 + 2**-45). Fewer values are the first ones of more. Raises ValueError for a scale that is
    not in (0, 2**36].
    """
    return LayeredStream(seed, scale).next(count)


class LayeredStream:
    """The values of :func:`layered_gaussian`, a piece after the other."""

    def __init__(self, seed: Seed, scale: float) -> None:
        layers = _layers(scale)
        self._tables = [cumulative_table(layer, _TAIL) for layer in layers]
        self._seeds = [seed.derive("layer", number) for number in range(len(layers))]
        self._streams = [BitStream(layer_seed.derive("high")) for layer_seed in self._seeds]
        self._drawn = 0

    def next(self, count: int) -> Ints:
        """The next ``count`` of them."""
        values = np.zeros(count, dtype=np.int64)
        # Blocks stay in the cache.
        for begin in range(0, count, _BLOCK):
            block = values[begin : begin + _BLOCK]
            for number in reversed(range(len(self._tables))):
                words = self._streams[number].words(block.size)
                block *= _FACTOR
                block += invert(self._tables[number], words, self._seeds[number], self._drawn + begin)
        self._drawn += count
        return values


def variance(scale: float) -> Fraction:
    """v of :func:`layered_gaussian`, exactly."""
    return sum((Fraction(layer) ** 2 * _FACTOR ** (2 * number) for number, layer in enumerate(_layers(scale))), Fraction(0))


def _layers(scale: float) -> tuple[float, ...]:
    """The scales of all tables, the finest first. IEEE 754 arithmetic alone: the same on every machine."""
    if not 0 < scale <= LARGEST_SCALE:
        raise ValueError(f"a discrete Gaussian of scale {scale:g}: 0 < scale <= {LARGEST_SCALE:g} is supported")
    low = []
    while scale > _TOP:
        low.append(_LOW)
        scale = math.sqrt(scale * scale - _LOW * _LOW) / _FACTOR * (1.0 + _ROUNDING)
    return (*low, scale)
