"""Static graphs, as out-neighbour tables of shape (n, k)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.randomness import BitStream


def _ring(stream: BitStream, parties: int, out_degree: int) -> NDArray[np.int32]:
    # The k nearest clockwise.
    return ((np.arange(parties)[:, None] + np.arange(1, out_degree + 1)) % parties).astype(np.int32)


def _complete(stream: BitStream, parties: int, out_degree: int) -> NDArray[np.int32]:
    return _ring(stream, parties, parties - 1)


def _hypercube(stream: BitStream, parties: int, out_degree: int) -> NDArray[np.int32]:
    bits = parties.bit_length() - 1
    if parties != 1 << bits:
        raise InputError(f"a hypercube has a power of two of parties, not {parties}: choose {1 << bits} or another graph")
    return (np.arange(parties)[:, None] ^ (1 << np.arange(bits))[None, :]).astype(np.int32)


def _random_static(stream: BitStream, parties: int, out_degree: int) -> NDArray[np.int32]:
    # On a random ring the k nearest are k uniformly chosen neighbours that stay.
    cycle = stream.permutation(parties)
    table = np.empty((parties, out_degree), dtype=np.int32)
    for power in range(out_degree):
        table[cycle, power] = np.roll(cycle, -(power + 1))
    return table


STATIC_TOPOLOGIES: dict[str, Callable[[BitStream, int, int], NDArray[np.int32]]] = {
    "ring": _ring,
    "complete": _complete,
    "hypercube": _hypercube,
    "random-static": _random_static,
}
