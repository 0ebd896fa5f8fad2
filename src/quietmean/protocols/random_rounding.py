"""Rounding at random to whole steps, for grids so coarse that rounding to the nearest step would bias sums; and what it costs.

A vector of whole numbers is longer than the one it was rounded from, so that rounding adds to the L2 sensitivity. Source of the
norms and of conditional rounding: Kairouz, Liu and Steinke 2021, Theorem 1 and Algorithm 1.
"""

from __future__ import annotations

import math

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.party import Vector
from quietmean.randomness import BitStream, Seed

# The chance that one rounding exceeds the norm bound of conditional rounding, which is then drawn again.
CONDITIONAL_BETA = math.exp(-0.5)
_ATTEMPTS = 200
_BLOCK = 8192


def clip_to_ball(vector: Vector, radius: float) -> Vector:
    """``vector``, shape (d,), or where its L2 norm is larger the one of norm ``radius`` in its direction."""
    norm = float(np.linalg.norm(vector))
    return vector * (radius / norm) if norm > radius else vector


def round_at_random(vector: Vector, seed: Seed) -> Ints:
    """Each entry up or down to a whole number, so that the mean is right: shape (d,) as ``vector``, which is in steps."""
    return round_with(BitStream(seed), vector)


def round_with(stream: BitStream, vector: Vector) -> Ints:
    """Round with what comes next in a stream: a vector may be rounded a piece after the other."""
    rounded = np.empty(vector.size, dtype=np.int64)
    # Blocks stay in the cache.
    for begin in range(0, vector.size, _BLOCK):
        block = vector[begin : begin + _BLOCK]
        rounded[begin : begin + _BLOCK] = np.floor(block + stream.uniform(block.size))
    return rounded


def round_conditionally(vector: Vector, radius: float, seed: Seed) -> Ints:
    """Round a vector of L2 norm <= ``radius``, drawn again until its norm keeps :func:`conditional_norm`: for certain."""
    square = conditional_norm(radius, vector.size, 1.0) ** 2
    for attempt in range(_ATTEMPTS):
        rounded = round_at_random(vector, seed.derive(attempt))
        if float((rounded.astype(np.float64) ** 2).sum()) <= square:
            return rounded
    # Reached with a probability of 1e-43 at most. Towards zero the norm can only fall.
    return np.trunc(vector).astype(np.int64)


def conditional_norm(radius: float, words: int, granularity: float) -> float:
    """The norm that a rounded vector of norm <= ``radius`` keeps with probability 1 - exp(-1/2) at least, and then always."""
    return rounded_norm(radius, words, granularity, CONDITIONAL_BETA)


def rounded_norm(radius: float, words: int, granularity: float, beta: float) -> float:
    """What the L2 norm of a vector of norm <= ``radius`` exceeds with probability <= ``beta`` once rounded at random to a grid.

    Kairouz, Liu and Steinke 2021, Theorem 1 (Delta_2); the second part of the minimum is certain.
    """
    step = granularity * math.sqrt(words)
    likely = radius**2 + step**2 / 4 + math.sqrt(2 * math.log(1 / beta)) * granularity * (radius + step / 2)
    return min(math.sqrt(likely), radius + step)
