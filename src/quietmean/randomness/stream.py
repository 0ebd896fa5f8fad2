"""Seeds, cryptographic bit streams, and what is drawn from them. Consumption per value is fixed: nothing is rejected."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import SupportsIndex

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints
from quietmean.core.party import Vector

_SIGN = np.uint64(1 << 63)
_CELL_BITS = 7
_FRACTION_BITS = 52 - _CELL_BITS
_FRACTION_MASK = np.int64((1 << _FRACTION_BITS) - 1)
_ONE_BITS = np.int64(1023 << 52)
# Exponent and cell of the smallest magnitude (1.0): the first row of the table.
_FIRST_CELL = np.int64(1023 << _CELL_BITS)
# Blocks that stay in the second-level cache, from the bits to the values, are twice as fast.
_BLOCK = 8192


@cache
def _table() -> Array:
    with resources.as_file(resources.files("quietmean.randomness") / "inverse_normal.npy") as path:
        table: Array = np.load(path, allow_pickle=False).astype(np.float64)
    return table


def fill_standard_normal(words: Callable[[int], NDArray[np.uint64]], values: Array) -> None:
    """Fill ``values``, shape (count,), with independent N(0, 1) numbers, 64 bits each.

    ``words(size)`` gives the next uniform 64-bit words, shape (size,).
    """
    for begin in range(0, values.size, _BLOCK):
        block = values[begin : begin + _BLOCK]
        _invert(words(block.size), block)


def _invert(words: NDArray[np.uint64], values: Array) -> None:
    sign = words & _SIGN
    # The other 63 bits, made odd so that none is zero, are the tail probability in units of 2**-64. As a float, the exponent
    # is the octave, the first bits of the fraction are the cell, and the rest is the place within the cell.
    magnitude = ((words ^ sign) | np.uint64(1)).view(np.int64).astype(np.float64).view(np.int64)
    cell = (magnitude >> np.int64(_FRACTION_BITS)) - _FIRST_CELL
    offset = (((magnitude & _FRACTION_MASK) << np.int64(_CELL_BITS)) | _ONE_BITS).view(np.float64) - 1.0
    constant, linear, quadratic, cubic = _table()
    np.take(cubic, cell, out=values, mode="clip")
    for coefficient in (quadratic, linear, constant):
        values *= offset
        values += coefficient.take(cell, mode="clip")
    values.view(np.uint64)[...] |= sign


SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Seed:
    """32 bytes from which streams are derived. Its repr never shows them."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(self.secret)}")

    @classmethod
    def from_os(cls) -> Seed:
        """Draw a fresh seed from the operating system's generator."""
        return cls(secrets.token_bytes(SEED_BYTES))

    @classmethod
    def public(cls, *labels: str | int | bytes) -> Seed:
        """The seed that anybody derives from public labels: for schedules, never for noise that protects a value."""
        return cls(bytes(SEED_BYTES)).derive("public", *labels)

    def derive(self, *labels: str | int | bytes) -> Seed:
        """HMAC-SHA256 of the length-prefixed labels under this seed: independent for different label tuples."""
        return Seed(hmac.digest(self.secret, _encode_labels(labels), hashlib.sha256))


def _encode_labels(labels: tuple[str | int | bytes, ...]) -> bytes:
    # The type is part of the encoding and every label has its length in front: no two tuples collide.
    parts = []
    for label in labels:
        kind, raw = _encode_label(label)
        parts.append(kind + len(raw).to_bytes(8, "big") + raw)
    return b"".join(parts)


def _encode_label(label: str | int | bytes) -> tuple[bytes, bytes]:
    if isinstance(label, str):
        return b"s", label.encode()
    if isinstance(label, int):
        return b"i", str(label).encode()
    return b"b", label


def fresh_bytes(count: int) -> bytes:
    """Draw bytes from the operating system's generator: nonces and names, which are no seeds."""
    return secrets.token_bytes(count)


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
