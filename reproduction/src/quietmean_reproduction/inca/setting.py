"""What the experiments of the paper have in common."""

from __future__ import annotations

import math

from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed

PAPER = "IncA (PETS 2026)"
DELTA = 1e-5


def classical_square(delta: float = DELTA) -> float:
    """c^2 = 2 ln(1.25 / delta): the constant that the paper calibrates with."""
    return 2.0 * math.log(1.25 / delta)


def random_coalition(parties: int, size: int, seed: int) -> frozenset[int]:
    """``size`` parties, chosen at random."""
    return frozenset(BitStream(insecure_seed(seed, "coalition")).permutation(parties)[:size].tolist())
