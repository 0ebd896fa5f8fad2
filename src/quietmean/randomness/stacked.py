"""The population view of n separate sources of noise, as n real parties would hold them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Self

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.party import NoiseSource, PartyId, Units, Vector
from quietmean.randomness.noise import ExchangeKey, SecureNoise
from quietmean.randomness.stream import Seed


class StackedNoise:
    """Row i is what the source of party i draws. Each pair of parties shares the seed that their ``keys`` agree on."""

    def __init__(self, seeds: Sequence[Seed], keys: Sequence[ExchangeKey], context: str = "stacked") -> None:
        self._context = context
        self._keys = list(keys)
        self._sources = [SecureNoise(seed, partial(self._shared_seed, party)) for party, seed in enumerate(seeds)]

    @classmethod
    def from_os(cls, parties: int) -> Self:
        """Make noise with fresh seeds and keys from the operating system."""
        return cls([Seed.from_os() for _ in range(parties)], [ExchangeKey(Seed.from_os()) for _ in range(parties)])

    def _shared_seed(self, party: PartyId, other: PartyId) -> Seed:
        return self._keys[party].shared_seed(self._keys[other].public, self._context)

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return np.stack([source.normal(purpose, index, dimension) for source in self._sources])

    def shared_normal(self, pairs: Ints, purpose: str, index: int, dimension: int) -> Vector:
        """Standard normal noise that pairs of shape (M, 2) share, shape (M, d)."""
        drawn = [self._sources[one].shared_normal(other, purpose, index, dimension) for one, other in pairs.tolist()]
        return np.array(drawn).reshape(len(pairs), dimension)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int) -> Units:
        return np.stack([source.discrete(purpose, index, scale, dimension) for source in self._sources])

    def shared_discrete(self, pairs: Ints, purpose: str, index: int, scale: float, dimension: int) -> Units:
        """Discrete Gaussian noise that pairs of shape (M, 2) share, shape (M, d)."""
        drawn = [self._sources[one].shared_discrete(other, purpose, index, scale, dimension) for one, other in pairs.tolist()]
        return np.array(drawn, dtype=np.int64).reshape(len(pairs), dimension)

    def party(self, party: PartyId) -> NoiseSource:
        return self._sources[party]
