"""The mixing matrix of a round, as it really happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.graphs.schedule import Schedule

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def mixing_matrix(schedule: Schedule, delivered: NDArray[np.bool_], round_: int) -> csr_array[np.float64]:
    """W_t of IncA, Algorithm 2, shape (n, n): column i says where the mass of party i goes.

    ``delivered`` is :meth:`History.delivered`. What did not arrive stays with its sender, so every column sums to 1.
    """
    # A node never mixes whole populations: it starts without this import.
    from scipy.sparse import csr_array

    parties = schedule.parties
    arrived = delivered[round_ - 1]
    senders, slots = np.nonzero(arrived)
    share = 1.0 / (schedule.out_degree[round_ - 1] + 1)
    kept = 1.0 - arrived.sum(axis=1) * share
    rows = np.concatenate([np.arange(parties), schedule.neighbours[round_ - 1][senders, slots]])
    columns = np.concatenate([np.arange(parties), senders])
    return csr_array((np.concatenate([kept, share[senders]]), (rows, columns)), shape=(parties, parties))
