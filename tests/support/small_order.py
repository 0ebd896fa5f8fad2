"""Keys of small order, under which anybody can sign, and signatures that nobody with such a key made."""

from __future__ import annotations

import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PRIME = 2**255 - 19
# Ed25519's: the curve's coefficient, and the order of its base point.
CURVE, LARGE_ORDER = -121665 * pow(121666, -1, PRIME) % PRIME, 2**252 + 27742317777372353535851937790883648493


def summed(first: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The sum of two points of Ed25519's curve."""
    (x, y), (u, v) = first, other
    both = CURVE * x * y * u * v % PRIME
    return (x * v + y * u) * pow(1 + both, -1, PRIME) % PRIME, (y * v + x * u) * pow(1 - both, -1, PRIME) % PRIME


def multiple(point: tuple[int, int], times: int) -> tuple[int, int]:
    total = (0, 1)
    for bit in f"{times:b}":
        total = summed(total, total)
        total = summed(total, point) if bit == "1" else total
    return total


def points_of_small_order() -> set[tuple[int, int]]:
    """All points whose order divides 8: multiples of one that is left of any point without its part of large order."""
    for y in range(2, 40):
        square = (y * y - 1) * pow(CURVE * y * y + 1, -1, PRIME) % PRIME
        roots = (pow(square, (PRIME + 3) // 8, PRIME) * factor % PRIME for factor in (1, pow(2, (PRIME - 1) // 4, PRIME)))
        for x in roots:
            if x * x % PRIME == square:
                left = multiple((x, y), LARGE_ORDER)
                points = {multiple(left, times) for times in range(8)}
                if len(points) == 8:
                    return points
    raise AssertionError


def keys_of_small_order() -> list[bytes]:
    """All ten spellings of these points as keys: where x is 0 it has no other sign, and some software takes it all the same."""
    return sorted({(y + sign * 2**255).to_bytes(32, "little") for _, y in points_of_small_order() for sign in (0, 1)})


def forged(key: bytes, content: bytes) -> bytes | None:
    """A signature over the content that a ``key`` of small order takes, by who does not have it; None after 200 tries."""
    return next(filter(None, (_tried(key, content) for _ in range(200))), None)


def _tried(key: bytes, content: bytes) -> bytes | None:
    own = Ed25519PrivateKey.generate()
    scalar = bytearray(hashlib.sha512(own.private_bytes_raw()).digest()[:32])
    scalar[0] &= 248
    scalar[31] = scalar[31] & 127 | 64
    signature = own.public_key().public_bytes_raw() + (int.from_bytes(scalar, "little") % LARGE_ORDER).to_bytes(32, "little")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except InvalidSignature:
        return None
    return signature
