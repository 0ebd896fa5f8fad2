"""A party's noise: labelled streams under its secret seed and under seeds that it shares, and the keys that agree on these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from quietmean.core.arrays import Ints
from quietmean.core.party import NoiseSource, PartyId, Units, Vector
from quietmean.randomness.laplace_shares import LaplaceStream
from quietmean.randomness.layered_gaussian import LayeredStream, layered_gaussian
from quietmean.randomness.stream import SEED_BYTES, BitStream, Seed


@dataclass(frozen=True, slots=True)
class Encapsulated:
    """What one of two parties encapsulated to the other's ML-KEM-768 key: the secret, which both have, and what was sent."""

    secret: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)


class ExchangeKey:
    """One party's key pair for one study. The private half is derived from a secret seed, so that a restart has it again.

    ``private``: a random private half that is kept as it is, in place of a derived one.
    """

    def __init__(self, seed: Seed | None = None, *, private: X25519PrivateKey | None = None) -> None:
        if (seed is None) == (private is None):
            raise ValueError("give a seed or a private key")
        if seed is not None:
            private = X25519PrivateKey.from_private_bytes(seed.derive("exchange key").secret)
        assert private is not None  # noqa: S101
        self._private = private
        self.public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def shared_seed(self, other: bytes, context: str, encapsulated: Encapsulated | None = None) -> Seed:
        """The seed that this party and the owner of the public key ``other`` share, for one ``context``.

        With what one of the two ``encapsulated`` it is secret as long as X25519 or ML-KEM-768 is. Raises ValueError for bytes
        that are no public key, and for a point of small order, with which nothing would be secret.
        """
        agreed = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        # Both keys are part of the derivation, in an order that both ends agree on.
        first, second = sorted((self.public, other))
        if encapsulated is None:
            information, secret = b"quietmean pair\0" + first + second + context.encode(), agreed
        else:
            # All but the context has one length, so no two inputs have one encoding.
            information = b"quietmean hybrid pair\0" + first + second + encapsulated.ciphertext + context.encode()
            secret = agreed + encapsulated.secret
        return Seed(HKDF(SHA256(), SEED_BYTES, salt=None, info=information).derive(secret))


def no_shared_seed(other: PartyId) -> Seed:
    """Refuse to share a seed, for a party without key agreement. Raises ValueError."""
    raise ValueError(f"no key was agreed with party {other}")


def discrete_pieces(
    noise: NoiseSource, purpose: str, index: int, scale: float, sizes: Iterable[int], shares: int = 0
) -> Iterator[Units]:
    """The first values of ``noise.discrete`` in pieces of these ``sizes``; made one by one where the source can."""
    if isinstance(noise, SecureNoise):
        stream = noise.discrete_stream(purpose, index, scale, shares)
        yield from (stream.next(size) for size in sizes)
        return
    sizes_left = list(sizes)
    yield from np.split(noise.discrete(purpose, index, scale, sum(sizes_left), shares), np.cumsum(sizes_left)[:-1])


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

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        """Independent values of N_Z(0, v), shape (d,): see :mod:`quietmean.randomness.layered_gaussian`.

        With ``shares`` those of :mod:`quietmean.randomness.laplace_shares`.
        """
        return self.discrete_stream(purpose, index, scale, shares).next(dimension)

    def discrete_stream(self, purpose: str, index: int, scale: float, shares: int = 0) -> LayeredStream | LaplaceStream:
        """Return a stream of the discrete noise, to be read a piece at a time."""
        if shares:
            return LaplaceStream(self._seed.derive("Laplace noise", purpose, index), scale, shares)
        return LayeredStream(self._seed.derive("discrete noise", purpose, index), scale)

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        """Draw the discrete noise, shape (d,), that ``other`` draws as well."""
        return layered_gaussian(self._shared_seed(other).derive("shared discrete noise", purpose, index), scale, dimension)

    def secret(self, purpose: str, index: int) -> bytes:
        return self._seed.derive("secret", purpose, index).secret


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

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        return np.stack([source.discrete(purpose, index, scale, dimension, shares) for source in self._sources])

    def shared_discrete(self, pairs: Ints, purpose: str, index: int, scale: float, dimension: int) -> Units:
        """Discrete Gaussian noise that pairs of shape (M, 2) share, shape (M, d)."""
        drawn = [self._sources[one].shared_discrete(other, purpose, index, scale, dimension) for one, other in pairs.tolist()]
        return np.array(drawn, dtype=np.int64).reshape(len(pairs), dimension)

    def party(self, party: PartyId) -> NoiseSource:
        return self._sources[party]
