"""Sparse linear maps between the rows of a population, and the one of a round in which parties send equal shares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.graphs.schedule import Schedule

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class Flow:
    """A sparse matrix as triplets: row ``to[e]`` gets ``weight[e]`` times row ``source[e]``. Repeated entries add up.

    ``shape`` is (rows, columns); ``to``, ``source`` and ``weight`` have one entry for each of the matrix, in any order.
    """

    shape: tuple[int, int]
    to: Ints
    source: Ints
    weight: Array

    @classmethod
    def of(
        cls, shape: tuple[int, int], to: NDArray[np.integer], source: NDArray[np.integer], weight: Array | float = 1.0
    ) -> Flow:
        """From any whole numbers; one weight may be that of all."""
        rows = to.astype(np.int64, copy=False)
        return cls(shape, rows, source.astype(np.int64, copy=False), np.broadcast_to(np.asarray(weight, float), rows.shape))

    @cached_property
    def matrix(self) -> csr_array[np.float64]:
        """In compressed rows, with columns in rising order."""
        # A node never mixes whole populations: it starts without this import.
        from scipy.sparse import csr_array

        return csr_array((self.weight, (self.to, self.source)), shape=self.shape)

    def numbers(self, vector: Array) -> Array:
        """The product with a vector of shape (columns,): shape (rows,)."""
        # Without any entry bincount counts, in whole numbers.
        product = np.bincount(self.to, weights=self.weight * vector[self.source], minlength=self.shape[0])
        return product.astype(np.float64, copy=False)


def arrivals(schedule: Schedule, delivered: Mask, round_: int) -> tuple[Ints, Ints]:
    """(senders, receivers) of the messages of a round that arrived, one entry for each in both arrays.

    ``delivered``, shape (T, n, k_max), is :meth:`ExecutionTrace.delivered` of the schedule.
    """
    table = schedule.neighbours[round_ - 1]
    # With flat indices numpy is several times faster than with one for each axis.
    message = delivered[round_ - 1].reshape(-1).nonzero()[0]
    return message // max(table.shape[1], 1), table.ravel()[message].astype(np.int64)


def share_flow(schedule: Schedule, arrived: tuple[Ints, Ints], acknowledged: Mask, round_: int) -> Flow:
    """What every party holds after a round, in shares, as a matrix of shape (n, n).

    Each party starts with (out-degree + 1) equal shares of its own. It keeps one, and those whose arrival it does not know of.
    ``arrived`` is the result of :func:`arrivals`; ``acknowledged``, shape (T, n, k_max), is the second of
    :meth:`ExecutionTrace.deliveries`. With each column divided by the number of its shares this is W_t of IncA, Algorithm 2: its
    columns sum to 1, unless a sender did not know that a share arrived.
    """
    parties, (sender, receiver) = schedule.parties, arrived
    everyone, weight = np.arange(parties), np.ones(parties + sender.size)
    weight[:parties] += schedule.out_degree[round_ - 1] - acknowledged[round_ - 1].sum(axis=1)
    return Flow((parties, parties), np.concatenate([everyone, receiver]), np.concatenate([everyone, sender]), weight)
