"""Which noise hides whom: the signs of own and shared terms for all parties at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PopulationNoise, Vector

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Shared noise in memory at once, in numbers.
_BLOCK = 4_000_000


def pair_signs(parties: int, pairs: NDArray[np.int64]) -> csr_array[np.float64]:
    """Shape (n, M): the larger number of a pair adds its term, the smaller subtracts it."""
    # Running parties need no matrices: they start without this import.
    from scipy.sparse import csr_array

    columns = np.repeat(np.arange(len(pairs)), 2)
    return csr_array((np.tile([-1.0, 1.0], len(pairs)), (pairs.ravel(), columns)), shape=(parties, len(pairs)))


def hidden_noise(parties: int, pairs: NDArray[np.int64]) -> csr_array[np.float64]:
    """Shape (n, n + M): own terms first, then one for each pair."""
    from scipy.sparse import csr_array, eye_array, hstack

    return csr_array(hstack([eye_array(parties), pair_signs(parties, pairs)]))


def shared_masks(parties: int, pairs: NDArray[np.int64], noise: PopulationNoise, dimension: int) -> Vector:
    """The sum of all shared terms of each party, at unit variance: shape (n, d)."""
    masks = np.zeros((parties, dimension))
    together = max(1, _BLOCK // dimension)
    for first in range(0, len(pairs), together):
        block = pairs[first : first + together]
        masks += np.asarray(pair_signs(parties, block) @ noise.shared_normal(block, "delta", 0, dimension))
    return masks
