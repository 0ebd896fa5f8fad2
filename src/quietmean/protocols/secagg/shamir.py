"""Shamir's secret sharing over the integers modulo the Mersenne prime 2**521 - 1: any number of parties, secrets of 32 bytes.

Share x of a secret is the value at x of a random polynomial whose value at 0 is the secret; ``threshold`` shares determine it,
and fewer reveal nothing about it (Shamir 1979). The arithmetic is that of Python's integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from quietmean.randomness import BitStream, Seed

PRIME = (1 << 521) - 1
SHARE_BYTES = 66
# 640 random bits reduced modulo the prime: off from uniform by 2**-119.
_COEFFICIENT_WORDS = 10


def share(secret: bytes, threshold: int, points: Sequence[int], seed: Seed) -> list[int]:
    """One share for each of the ``points`` (numbers > 0); the polynomial is drawn from ``seed``."""
    random = BitStream(seed).words(_COEFFICIENT_WORDS * (threshold - 1)).tobytes()
    size = 8 * _COEFFICIENT_WORDS
    drawn = [int.from_bytes(random[begin : begin + size], "little") % PRIME for begin in range(0, len(random), size)]
    shares = []
    for point in points:
        value = 0
        for coefficient in drawn:
            value = (value + coefficient) * point % PRIME
        shares.append((value + int.from_bytes(secret, "big")) % PRIME)
    return shares


def combine(shares: Mapping[int, int], threshold: int) -> bytes | None:
    """The 32-byte secret from shares by point: of the ``threshold`` smallest points. None if what comes out is not a secret.

    Raises ValueError below the threshold.
    """
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares of a secret that needs {threshold}")
    points = tuple(sorted(shares)[:threshold])
    secret = sum(weight * shares[point] for weight, point in zip(lagrange(points), points, strict=True)) % PRIME
    return secret.to_bytes(32, "big") if secret < 1 << 256 else None


@lru_cache(maxsize=256)
def lagrange(points: tuple[int, ...]) -> tuple[int, ...]:
    """The weights that give a polynomial's value at 0 from its values at distinct ``points``; public, hence kept."""
    product = math.prod(points) % PRIME
    divisors = []
    for point in points:
        divisor = point
        for other in points:
            if other != point:
                divisor = divisor * (other - point) % PRIME
        divisors.append(divisor)
    return tuple(product * inverse % PRIME for inverse in _inverses(divisors))


def _inverses(numbers: Sequence[int]) -> list[int]:
    """All inverses for the price of one (Montgomery)."""
    running, partial = 1, []
    for number in numbers:
        partial.append(running)
        running = running * number % PRIME
    inverse, inverses = pow(running, -1, PRIME), []
    for number, before in zip(reversed(numbers), reversed(partial), strict=True):
        inverses.append(inverse * before % PRIME)
        inverse = inverse * number % PRIME
    return inverses[::-1]
