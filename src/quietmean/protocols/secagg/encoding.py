"""From a private vector to integers modulo 2**bits, and from their sum back to a vector.

Kairouz, Liu and Steinke 2021, Algorithms 1 and 2: clip, rotate at random, scale, round at random, add discrete Gaussian noise,
wrap.
The rotation H S / sqrt(D), Hadamard times random signs from a public seed, spreads every vector evenly over the coordinates, so
that the sum is unlikely to wrap; it matters for accuracy, not for privacy.
"""

from __future__ import annotations

import math

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.errors import InputError
from quietmean.core.noise import NoiseGroup
from quietmean.core.party import NoiseSource, Vector
from quietmean.protocols.random_rounding import clip_to_ball, round_at_random, round_conditionally
from quietmean.protocols.secagg.keys import Words
from quietmean.protocols.secagg.spec import CONDITIONAL, NO_NOISE, SecAggParameters
from quietmean.protocols.weights import check_weight
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.discrete_gaussian import discrete_gaussian

_COLUMNS = 64


def encode(parameters: SecAggParameters, value: Vector, weight: float, noise: NoiseSource) -> Words:
    """The party's input x_u before masking, shape (words,). Raises :class:`InputError` for a weight beyond the plan's."""
    check_weight(weight, parameters.largest_weight)
    if parameters.dimension not in (None, value.size):
        raise InputError(f"the value has {value.size} coordinates but the plan is for {parameters.dimension}: make another plan")
    clipped = clip_to_ball(value - weight * parameters.centre, weight * parameters.clip)
    if parameters.noise == NO_NOISE:
        return _to_ring(np.rint(clipped / parameters.granularity).astype(np.int64), parameters.bits)
    rotated = rotate(clipped, parameters) / parameters.granularity
    seed = Seed(noise.secret("rounding", 0))
    if parameters.rounding == CONDITIONAL:
        rounded = round_conditionally(rotated, weight * parameters.clip / parameters.granularity, seed)
    else:
        rounded = round_at_random(rotated, seed)
    rounded += discrete_gaussian(Seed(noise.secret(NoiseGroup.INDEPENDENT, 0)), parameters.scale, rounded.size)
    return _to_ring(rounded, parameters.bits)


def decode_sum(parameters: SecAggParameters, total: Words, weight: float, dimension: int) -> Vector:
    """The sum of the vectors, shape (d,), from the sum modulo 2**bits and the total weight of those in it."""
    half, modulus = 1 << (parameters.bits - 1), 1 << parameters.bits
    steps = (total.astype(np.int64) + half) % modulus - half
    centred: Vector = steps.astype(np.float64) * parameters.granularity
    if parameters.noise != NO_NOISE:
        centred = rotate_back(centred, parameters)[:dimension]
    vector: Vector = centred + weight * parameters.centre
    return vector


def empty_sum(parameters: SecAggParameters, dimension: int) -> Words:
    """Zeros of shape (words,), in the type of masked inputs."""
    size = parameters.words(dimension)
    return np.zeros(size, dtype=np.uint16) if parameters.bits <= 16 else np.zeros(size, dtype=np.uint32)


def wrap(words: Words, bits: int) -> Words:
    """Modulo 2**bits, in place. Unsigned words are right modulo 2**16 or 2**32 by themselves."""
    words &= words.dtype.type((1 << bits) - 1)
    return words


def _to_ring(integers: Ints, bits: int) -> Words:
    wrapped = integers & ((1 << bits) - 1)
    return wrapped.astype(np.uint16) if bits <= 16 else wrapped.astype(np.uint32)


def rotate(vector: Vector, parameters: SecAggParameters) -> Vector:
    """H S x / sqrt(D), shape (D,), for x (d,) padded with zeros to D entries, a power of two."""
    padded = np.zeros(parameters.words(vector.size))
    padded[: vector.size] = vector
    padded *= _signs(parameters.rotation, padded.size)
    return _hadamard(padded)


def rotate_back(vector: Vector, parameters: SecAggParameters) -> Vector:
    """The inverse of :func:`rotate`, shape (D,), padding included."""
    return _hadamard(vector) * _signs(parameters.rotation, vector.size)


def _signs(rotation: int, size: int) -> Vector:
    words = BitStream(Seed.public("secagg rotation", rotation)).words(-(-size // 64))
    bits = np.unpackbits(words.view(np.uint8), count=size)
    return 1.0 - 2.0 * bits.astype(np.float64)


def _hadamard(vector: Vector) -> Vector:
    """The orthonormal Walsh-Hadamard transform, its own inverse."""
    stages = vector.size.bit_length() - 1
    rows = 1 << (stages // 2)
    # Half of the stages run along rows and the others along columns, so that inner loops stay long.
    other = _transposed_butterflies(_transposed_butterflies(vector.reshape(rows, -1)))
    return other.reshape(-1) / math.sqrt(vector.size)


def _transposed_butterflies(block: Vector) -> Vector:
    """All stages along the first axis, and then transposed: a few columns at a time, which stay in the cache."""
    turned = np.empty(block.shape[::-1])
    for first in range(0, block.shape[1], _COLUMNS):
        columns = np.ascontiguousarray(block[:, first : first + _COLUMNS])
        turned[first : first + _COLUMNS] = _butterflies(columns).T
    return turned


def _butterflies(block: Vector) -> Vector:
    """All stages along the first axis."""
    spare = [np.empty_like(block), np.empty_like(block)]
    distance = 1
    while distance < len(block):
        following = spare[0]
        pairs, out = (array.reshape(-1, 2, distance, block.shape[1]) for array in (block, following))
        np.add(pairs[:, 0], pairs[:, 1], out=out[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=out[:, 1])
        block, spare = following, spare[::-1]
        distance *= 2
    return block
