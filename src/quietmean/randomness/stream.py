"""Cryptographic bit streams, and what is drawn from them. Consumption per value is fixed: nothing is rejected."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints
from quietmean.core.party import Vector
from quietmean.randomness.gaussian import fill_standard_normal
from quietmean.randomness.seed import Seed


class BitStream:
    """AES-256 in counter mode under a seed, read as little-endian 64-bit words.

    Equal seeds give equal streams on every machine and with every library version.
    """

    def __init__(self, seed: Seed, skip_blocks: int = 0) -> None:
        """``skip_blocks``: start this many 16-byte blocks into the stream."""
        # A stream is used for one purpose only, under a key derived for it: a counter that starts at 0 is safe.
        counter = modes.CTR(skip_blocks.to_bytes(16, "big"))
        self._encryptor = Cipher(algorithms.AES(seed.derive("bit stream").secret), counter).encryptor()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` uniform 64-bit words."""
        return np.frombuffer(self._encryptor.update(bytes(8 * count)), dtype="<u8")

    def ring(self, bits: int, count: int) -> NDArray[np.uint16] | NDArray[np.uint32]:
        """``count`` uniform elements of Z mod 2**bits, bits = 1..32: 16-bit words up to 16 bits, 32-bit words above.

        Consumption is rounded up to whole 64-bit words.
        """
        if not 1 <= bits <= 32:
            raise ValueError(f"ring elements of {bits} bits: 1..32 are supported")
        kind = "<u2" if bits <= 16 else "<u4"
        per_word = 4 if bits <= 16 else 2
        elements = self.words(-(-count // per_word)).view(kind)[:count]
        if bits in (16, 32):
            return elements
        reduced: NDArray[np.uint16] | NDArray[np.uint32] = elements & elements.dtype.type((1 << bits) - 1)
        return reduced

    def integers(self, below: int, count: int) -> Ints:
        """``count`` integers in [0, below) by multiply-shift of 32 high bits: off from uniform by at most below / 2**32."""
        high = self.words(count) >> np.uint64(32)
        return ((high * np.uint64(below)) >> np.uint64(32)).astype(np.int64)

    def uniform(self, count: int) -> Array:
        """``count`` numbers in [0, 1), multiples of 2**-53."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def permutation(self, size: int) -> Ints:
        """A uniform permutation of range(size), up to ties between ``size`` 64-bit words."""
        return np.argsort(self.words(size), kind="stable")

    def standard_normal(self, shape: SupportsIndex | tuple[int, ...]) -> Vector:
        """Independent N(0, 1) values; 64 bits each."""
        dimensions = shape if isinstance(shape, tuple) else (int(shape),)
        values = np.empty(dimensions)
        fill_standard_normal(self.words, values.reshape(-1))
        return values
