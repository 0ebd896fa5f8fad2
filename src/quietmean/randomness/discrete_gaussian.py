"""The discrete Gaussian N_Z(0, s^2): the probability of the integer k is proportional to exp(-k^2 / (2 s^2)).

Sampled by inversion of a cumulative table of 128-bit integers, built with integer arithmetic. Each value consumes exactly 64 bits
of one stream; where those alone leave two values possible, 64 more of a second stream decide. Nothing is rejected. The tail
beyond 10 s and the last bit of the table are all that is missing: the total variation distance to the exact distribution is
below 2**-70 a value (:data:`TOTAL_VARIATION`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Ints
from quietmean.randomness.stream import BitStream, Seed

# P(|X| > 10 s) <= 2 exp(-50) < 2**-71, and at most 655 384 boundaries are off by less than 2**-128 each.
TOTAL_VARIATION = 2.0**-70
LARGEST_SCALE = 2.0**15
_TAIL = 10
_PRECISION = 256
# A guide has at least so many bits, and twice as many cells as the table has boundaries: then hardly a word is searched for.
_GUIDE_BITS = 16
_BLOCK = 1 << 15


@dataclass(frozen=True, eq=False)
class SamplingTable:
    """The cumulative table of one distribution of whole numbers from -``reach`` on.

    Boundary j, high and low word, is 2**128 P(X <= j - reach); ``guide[b]``: the first not below b / 2**bits.
    """

    reach: int
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    guide: NDArray[np.int32]
    bits: int


def discrete_gaussian(seed: Seed, scale: float, count: int) -> Ints:
    """``count`` independent values of N_Z(0, scale^2), shape (count,), all from ``seed``.

    ``scale`` is s above, not quite the standard deviation (from s = 1 on the two agree to 1e-6). Raises ValueError for one
    that is not in (0, 2**15]. Source: Canonne, Kamath and Steinke 2020 (the distribution).
    """
    table, stream = cumulative_table(scale), BitStream(seed.derive("high"))
    values = np.empty(count, dtype=np.int64)
    # Blocks stay in the cache.
    for begin in range(0, count, _BLOCK):
        block = values[begin : begin + _BLOCK]
        block[...] = invert(table, stream.words(block.size), seed, begin)
    return values


def invert(table: SamplingTable, words: NDArray[np.uint64], seed: Seed, begin: int) -> Ints:
    """One value for each of ``words``, shape (size,): the next ones of the stream of ``seed``, after ``begin`` others."""
    row = table.guide.take((words >> np.uint64(64 - table.bits)).view(np.int64), mode="clip").astype(np.int64)
    boundary = table.high.take(row, mode="clip")
    # The guide is right for all but the few words with a boundary between the start of their cell and them: these are searched.
    behind = np.flatnonzero(boundary < words)
    row[behind] = np.searchsorted(table.high, words[behind], side="left")
    boundary[behind] = table.high[row[behind]]
    for index in np.flatnonzero(boundary == words).tolist():
        low = int(BitStream(seed.derive("low")).words(begin + index + 1)[-1])
        row[index] = _resolve(table, int(row[index]), (int(words[index]), low))
    return row - table.reach


def _resolve(table: SamplingTable, row: int, word: tuple[int, int]) -> int:
    """The number of boundaries that do not exceed a 128-bit word; ``row`` is the first with its high part."""
    while row < len(table.high) - 1 and (int(table.high[row]), int(table.low[row])) <= word:
        row += 1
    return row


@lru_cache(maxsize=16)
def cumulative_table(scale: float, tail: int = _TAIL) -> SamplingTable:
    """The table of N_Z(0, scale^2), without what lies beyond ``tail`` scales.

    Raises ValueError for a scale that is not in (0, 2**15].
    """
    if not 0 < scale <= LARGEST_SCALE:
        raise ValueError(f"a discrete Gaussian of scale {scale:g}: 0 < scale <= {LARGEST_SCALE:g} is supported")
    reach = math.ceil(tail * scale) + 1
    half = _relative_weights(scale, reach)
    return tabulated([*half[:0:-1], *half], reach)


def tabulated(weights: list[int], reach: int) -> SamplingTable:
    """The table of the whole numbers from -``reach`` on, each as likely as its weight says."""
    total, passed = sum(weights), 0
    high, low = np.empty(len(weights), dtype=np.uint64), np.zeros(len(weights), dtype=np.uint64)
    for index, weight in enumerate(weights[:-1]):
        passed += weight
        # Small scales reach 1 to the last bit before the end of the table.
        high[index], low[index] = divmod(min((passed << 128) // total, (1 << 128) - 1), 1 << 64)
    # A last entry that nothing is above, so that every search ends inside the table.
    high[-1] = np.uint64(2**64 - 1)
    bits = max(_GUIDE_BITS, len(high).bit_length() + 1)
    starts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    return SamplingTable(reach, high, low, np.searchsorted(high, starts, side="left").astype(np.int32), bits)


def _relative_weights(scale: float, reach: int) -> list[int]:
    """exp(-k^2 / (2 scale^2)) for k = 0..reach in units of 2**-256, each ratio from the one before."""
    with localcontext() as context:
        context.prec = 90
        unit = Decimal(1 << _PRECISION)
        step = (Decimal(-1) / (2 * Decimal(scale) ** 2)).exp()
        ratio, squared = int(step * unit), int(step * step * unit)
    weights = [1 << _PRECISION]
    for _ in range(reach):
        weights.append(weights[-1] * ratio >> _PRECISION)
        ratio = ratio * squared >> _PRECISION
    return weights
