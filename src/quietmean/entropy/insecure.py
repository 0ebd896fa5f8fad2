"""Noise from a small public number: for simulation and tests only. The node cannot import this module."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.entropy.seed import Seed
from quietmean.entropy.stream import BitStream, SecureNoise

# Blocks are drawn again when they were evicted: memory stays bounded, values do not change.
_CACHE_BYTES = 256 * 2**20


def insecure_seed(number: int, *labels: str | int) -> Seed:
    """A seed that anybody can guess from ``number``."""
    return Seed.public("insecure", number, *labels)


class InsecurePopulationNoise:
    """The noise of n parties, drawn in blocks of shape (n, d): one stream for each (purpose, index)."""

    def __init__(self, seed: int, parties: int) -> None:
        self._seed = insecure_seed(seed, "population", parties)
        self._parties = parties
        self._blocks: OrderedDict[tuple[str, int, int], Vector] = OrderedDict()

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        """Shape (n, d). The array is shared between calls and must not be written to."""
        key = (purpose, index, dimension)
        block = self._blocks.pop(key, None)
        if block is None:
            block = BitStream(self._seed.derive(purpose, index)).standard_normal((self._parties, dimension))
            block.flags.writeable = False
        self._blocks[key] = block
        while len(self._blocks) > 2 and sum(kept.nbytes for kept in self._blocks.values()) > _CACHE_BYTES:
            self._blocks.popitem(last=False)
        return block

    def party(self, party: PartyId) -> NoiseSource:
        return _OneRow(self, party)


class _OneRow:
    def __init__(self, population: InsecurePopulationNoise, party: PartyId) -> None:
        self._population = population
        self._party = party

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        row: Vector = self._population.normal(purpose, index, dimension)[self._party]
        return row


class InsecureStackedNoise:
    """The population view of n separate :class:`SecureNoise` sources, as n real parties would hold them."""

    def __init__(self, seed: int, parties: int) -> None:
        self._sources = [SecureNoise(insecure_seed(seed, "party", party)) for party in range(parties)]

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return np.stack([source.normal(purpose, index, dimension) for source in self._sources])

    def party(self, party: PartyId) -> NoiseSource:
        return self._sources[party]
