"""Noise from a small public number: for simulation and tests only. The node cannot import this module."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.party import NoiseSource, PartyId, Units, Vector
from quietmean.randomness.laplace_shares import LaplaceStream
from quietmean.randomness.layered_gaussian import layered_gaussian
from quietmean.randomness.noise import ExchangeKey, StackedNoise
from quietmean.randomness.stream import SEED_BYTES, BitStream, Seed

# Blocks are drawn again when they were evicted: memory stays bounded, values do not change.
_CACHE_BYTES = 256 * 2**20
# From this scale on, simulated discrete noise is rounded normal noise: as a distribution 1e-8 away, and several times faster.
_ROUNDED_FROM = 2.0**12


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
        """Standard normal noise, shape (n, d). The array is shared between calls and must not be written to."""
        key = (purpose, index, dimension)
        block = self._blocks.pop(key, None)
        if block is None:
            block = BitStream(self._seed.derive(purpose, index)).standard_normal((self._parties, dimension))
            block.flags.writeable = False
        self._blocks[key] = block
        while len(self._blocks) > 2 and sum(kept.nbytes for kept in self._blocks.values()) > _CACHE_BYTES:
            self._blocks.popitem(last=False)
        return block

    def shared_normal(self, pairs: Ints, purpose: str, index: int, dimension: int) -> Vector:
        """Shape (M, d). One stream for all pairs of parties; a pair's number is its place in it, so that few calls read many."""
        seed = self._seed.derive("shared", purpose, index)
        blocks_per_pair = -(-dimension // 2)
        numbers = pairs[:, 0].astype(np.int64) * self._parties + pairs[:, 1]
        order = np.argsort(numbers)
        values = np.empty((len(pairs), 2 * blocks_per_pair))
        breaks = np.nonzero(np.diff(numbers[order]) != 1)[0] + 1
        for run in np.split(order, breaks) if len(order) else ():
            stream = BitStream(seed, int(numbers[run[0]]) * blocks_per_pair)
            values[run] = stream.standard_normal((len(run), 2 * blocks_per_pair))
        return values[:, :dimension]

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        """Discrete noise, shape (n, d). A Gaussian of scale 2**12 or more is :meth:`normal` noise, rounded to whole numbers."""
        if shares:
            stream = LaplaceStream(self._seed.derive("Laplace", purpose, index), scale, shares)
            return stream.next(self._parties * dimension).reshape(self._parties, dimension)
        if scale >= _ROUNDED_FROM:
            return _rounded(self.normal(purpose, index, dimension) * scale)
        seed = self._seed.derive("discrete", purpose, index)
        return layered_gaussian(seed, scale, self._parties * dimension).reshape(self._parties, dimension)

    def shared_discrete(self, pairs: Ints, purpose: str, index: int, scale: float, dimension: int) -> Units:
        """Discrete noise that pairs of shape (M, 2) share, shape (M, d); as :meth:`discrete`."""
        if scale >= _ROUNDED_FROM:
            return _rounded(self.shared_normal(pairs, purpose, index, dimension) * scale)
        seed = self._seed.derive("shared discrete", purpose, index)
        drawn = [layered_gaussian(seed.derive(one, other), scale, dimension) for one, other in pairs.tolist()]
        return np.array(drawn, dtype=np.int64).reshape(len(pairs), dimension)

    def party(self, party: PartyId) -> NoiseSource:
        return _OneRow(self, party)

    def secret(self, party: PartyId, purpose: str, index: int) -> bytes:
        return self._seed.derive("secret", party, purpose, index).secret


def _rounded(values: Vector) -> Units:
    units: Units = np.rint(values).astype(np.int64)
    return units


class _OneRow:
    def __init__(self, population: InsecurePopulationNoise, party: PartyId) -> None:
        self._population = population
        self._party = party

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        row: Vector = self._population.normal(purpose, index, dimension)[self._party]
        return row

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        pair = np.array([sorted((self._party, other))])
        row: Vector = self._population.shared_normal(pair, purpose, index, dimension)[0]
        return row

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        row: Units = self._population.discrete(purpose, index, scale, dimension, shares)[self._party]
        return row

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        pair = np.array([sorted((self._party, other))])
        row: Units = self._population.shared_discrete(pair, purpose, index, scale, dimension)[0]
        return row

    def secret(self, purpose: str, index: int) -> bytes:
        return self._population.secret(self._party, purpose, index)


class InsecureStackedNoise(StackedNoise):
    """The noise of n parties, as of real ones, from a small public number."""

    def __init__(self, seed: int, parties: int) -> None:
        keys = [ExchangeKey(insecure_seed(seed, "exchange", party)) for party in range(parties)]
        super().__init__([insecure_seed(seed, "party", party) for party in range(parties)], keys, "insecure")


class InsecureSilence:
    """No noise and no secret at all, for one party."""

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return np.zeros(dimension)

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        return np.zeros(dimension)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        return np.zeros(dimension, dtype=np.int64)

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        return np.zeros(dimension, dtype=np.int64)

    def secret(self, purpose: str, index: int) -> bytes:
        return bytes(SEED_BYTES)


class InsecureSilentPopulation:
    """No noise for n parties."""

    def __init__(self, parties: int) -> None:
        self._parties = parties

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return np.zeros((self._parties, dimension))

    def shared_normal(self, pairs: Ints, purpose: str, index: int, dimension: int) -> Vector:
        """Zeros of shape (M, d), for pairs of shape (M, 2)."""
        return np.zeros((len(pairs), dimension))

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        return np.zeros((self._parties, dimension), dtype=np.int64)

    def shared_discrete(self, pairs: Ints, purpose: str, index: int, scale: float, dimension: int) -> Units:
        """Zeros of shape (M, d), for pairs of shape (M, 2)."""
        return np.zeros((len(pairs), dimension), dtype=np.int64)

    def party(self, party: PartyId) -> NoiseSource:
        return InsecureSilence()
