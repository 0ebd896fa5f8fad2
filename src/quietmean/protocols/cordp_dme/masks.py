"""The signs of shared noise terms, for all parties at once."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.graphs import Flow


def pair_signs(parties: int, pairs: Ints) -> Flow:
    """Shape (n, M), from pairs (M, 2): the larger number of a pair adds its term, the smaller subtracts it."""
    columns = np.repeat(np.arange(len(pairs)), 2)
    return Flow((parties, len(pairs)), pairs.ravel(), columns, np.tile([-1.0, 1.0], len(pairs)))
