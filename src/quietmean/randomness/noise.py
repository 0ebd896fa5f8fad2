"""A party's noise: labelled streams under its secret seed, and under the seeds that it shares with others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from quietmean.core.party import NoiseSource, PartyId, Units, Vector
from quietmean.randomness.layered_gaussian import LayeredStream, layered_gaussian
from quietmean.randomness.seed import Seed
from quietmean.randomness.stream import BitStream


def no_shared_seed(other: PartyId) -> Seed:
    """For a party without key agreement. Raises ValueError."""
    raise ValueError(f"no key was agreed with party {other}")


def discrete_pieces(noise: NoiseSource, purpose: str, index: int, scale: float, sizes: Iterable[int]) -> Iterator[Units]:
    """The first values of ``noise.discrete`` in pieces of these ``sizes``; made one by one where the source can."""
    if isinstance(noise, SecureNoise):
        stream = noise.discrete_stream(purpose, index, scale)
        yield from (stream.next(size) for size in sizes)
        return
    sizes_left = list(sizes)
    yield from np.split(noise.discrete(purpose, index, scale, sum(sizes_left)), np.cumsum(sizes_left)[:-1])


class SecureNoise:
    """A party's noise source under its secret seed: one stream for each (purpose, index).

    ``shared_seed`` gives the seed that this party shares with another one (see :class:`ExchangeKey`).
    """

    def __init__(self, seed: Seed, shared_seed: Callable[[PartyId], Seed] = no_shared_seed) -> None:
        self._seed = seed
        self._shared_seed = shared_seed

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        """Independent N(0, 1) values, shape (d,); the same address always gives the same values."""
        return BitStream(self._seed.derive("noise", purpose, index)).standard_normal(dimension)

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        """Independent N(0, 1) values, shape (d,), that ``other`` draws as well."""
        return BitStream(self._shared_seed(other).derive("shared noise", purpose, index)).standard_normal(dimension)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int) -> Units:
        """Independent values of N_Z(0, v), shape (d,): see :mod:`quietmean.randomness.layered_gaussian`."""
        return self.discrete_stream(purpose, index, scale).next(dimension)

    def discrete_stream(self, purpose: str, index: int, scale: float) -> LayeredStream:
        """Return a stream of the discrete noise, to be read a piece at a time."""
        return LayeredStream(self._seed.derive("discrete noise", purpose, index), scale)

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        """Draw the discrete noise, shape (d,), that ``other`` draws as well."""
        return layered_gaussian(self._shared_seed(other).derive("shared discrete noise", purpose, index), scale, dimension)

    def secret(self, purpose: str, index: int) -> bytes:
        return self._seed.derive("secret", purpose, index).secret
