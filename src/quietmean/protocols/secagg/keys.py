"""A party's keys, what it publishes of them, and what two parties derive from theirs.

Three secrets of 32 bytes, fresh in every study: the channel key encrypts shares, the mask key s_u gives the masks in common with
each neighbour, the seed b_u the mask that is the party's own. Keys of pairs come from X25519 and HKDF-SHA256 over both public
keys and the study's label; masks are AES-256 in counter mode, shares are sealed with AES-256-GCM under a key for one direction
of one pair, used once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from quietmean.core.party import NoiseSource, PartyId
from quietmean.protocols.publishing import ContentError
from quietmean.randomness import BitStream, ExchangeKey, Seed

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


Words = NDArray[np.uint16] | NDArray[np.uint32]

PUBLIC_BYTES = 32
# Public channel key, public mask key, commitment to the own mask's seed.
ADVERT_BYTES = 3 * PUBLIC_BYTES
_PAIR_BYTES = 2 * SHARE_BYTES
SEALED_BYTES = _PAIR_BYTES + 16
# Every sealing key is used for one message only.
_NONCE = bytes(12)
_BLOCK = 16384


@dataclass(frozen=True)
class Secrets:
    """All secrets of one party; derived anew from its noise source wherever they are needed, so that no state holds them."""

    channel_seed: bytes = field(repr=False)
    mask_key: bytes = field(repr=False)
    self_mask: bytes = field(repr=False)
    polynomials: Seed = field(repr=False)

    @classmethod
    def of(cls, noise: NoiseSource) -> Secrets:
        return cls(
            noise.secret("channel key", 0),
            noise.secret("mask key", 0),
            noise.secret("self mask", 0),
            Seed(noise.secret("share polynomials", 0)),
        )

    @cached_property
    def channel(self) -> ExchangeKey:
        return ExchangeKey(Seed(self.channel_seed))

    @cached_property
    def masking(self) -> ExchangeKey:
        return ExchangeKey(Seed(self.mask_key))

    @property
    def advert(self) -> bytes:
        return self.channel.public + self.masking.public + commitment(self.self_mask)


def commitment(self_mask: bytes) -> bytes:
    """A hash that verifies a seed recombined from shares. It reveals nothing about a seed of 256 random bits."""
    return Seed(self_mask).derive("commitment").secret


def own_mask(self_mask: bytes) -> BitStream:
    """The client's own mask, PRG(b_u)."""
    return BitStream(Seed(self_mask).derive("mask"))


def pair_mask(own: ExchangeKey, other: bytes, label: str) -> BitStream:
    """The mask in common with the owner of the public mask key ``other``. Raises ValueError for a key that is none."""
    return BitStream(own.shared_seed(other, f"mask {label}"))


def put_on(words: Words, mask: BitStream, bits: int, add: bool = True) -> None:
    """Add a mask to ``words`` or subtract it, in place; to be wrapped afterwards where ``bits`` are not 16 or 32."""
    change = np.add if add else np.subtract
    # Blocks stay in the cache; each takes whole 64-bit words from the stream.
    for begin in range(0, words.size, _BLOCK):
        block = words[begin : begin + _BLOCK]
        change(block, mask.ring(bits, block.size), out=block)


def is_usable(key: bytes, own: ExchangeKey) -> bool:
    """Is ``key`` a public key with which a secret can be agreed?"""
    try:
        own.shared_seed(key, "check")
    except ValueError:
        return False
    return True


def adds(party: PartyId, other: PartyId) -> bool:
    """Whether a party adds the mask of a pair: the smaller number adds it and the larger one subtracts it."""
    return party < other


def seal(
    own: ExchangeKey, other: bytes, sender: PartyId, receiver: PartyId, label: str, mask_share: int, self_share: int
) -> bytes:
    """Both shares, of s_u and of b_u, for one receiver."""
    plain = mask_share.to_bytes(SHARE_BYTES, "big") + self_share.to_bytes(SHARE_BYTES, "big")
    return _cipher(own, other, sender, receiver, label).encrypt(_NONCE, plain, _associated(sender, receiver, label))


def unseal(
    own: ExchangeKey, other: bytes, sender: PartyId, receiver: PartyId, label: str, sealed: bytes
) -> tuple[bytes, bytes] | None:
    """Open the shares of s_u and b_u in bytes; None for what the sender has not written for this receiver and study."""
    try:
        plain = _cipher(own, other, sender, receiver, label).decrypt(_NONCE, sealed, _associated(sender, receiver, label))
    except (InvalidTag, ValueError):
        return None
    return (plain[:SHARE_BYTES], plain[SHARE_BYTES:]) if len(plain) == _PAIR_BYTES else None


def _cipher(own: ExchangeKey, other: bytes, sender: PartyId, receiver: PartyId, label: str) -> AESGCM:
    return AESGCM(own.shared_seed(other, f"shares {sender} {receiver} {label}").secret)


def _associated(sender: PartyId, receiver: PartyId, label: str) -> bytes:
    return f"quietmean secagg shares {sender} {receiver} {label}".encode()


_GO_ON, _ENDED = b"\1", b"\0"
REASON_LIMIT = 200


def set_size(parties: int) -> int:
    """Bytes of a set of parties."""
    return -(-parties // 8)


def write_set(members: Iterable[PartyId], parties: int) -> bytes:
    """One bit for each party."""
    mask = np.zeros(parties, dtype=np.bool_)
    mask[list(members)] = True
    return np.packbits(mask).tobytes()


def read_set(raw: bytes, parties: int) -> frozenset[PartyId]:
    """The inverse of :func:`write_set`. Raises :class:`ContentError`."""
    bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8))
    if len(raw) != set_size(parties) or bits[parties:].any():
        raise ContentError("it sent a set of parties of the wrong size")
    return frozenset(np.nonzero(bits)[0].tolist())


def go_on(content: bytes) -> bytes:
    """The aggregator's usual message."""
    return _GO_ON + content


def ended(reason: str) -> bytes:
    """The aggregator's last message: why there will be no result."""
    return _ENDED + reason.encode()[:REASON_LIMIT]


def read_from_aggregator(raw: bytes) -> bytes:
    """The content of a usual message. Raises :class:`ContentError` for any other, also for the last one, with its reason."""
    if raw[:1] == _ENDED:
        reason = "".join(sign for sign in raw[1 : REASON_LIMIT + 1].decode(errors="replace") if sign.isprintable())
        raise ContentError(f"the aggregator ended the run: {reason}")
    if raw[:1] != _GO_ON:
        raise ContentError("the aggregator sent something that cannot be read")
    return raw[1:]


def split_items(raw: bytes, owners: Sequence[PartyId], size: int) -> dict[PartyId, bytes]:
    """Items of a fixed size in bytes, one for each owner in order. Raises :class:`ContentError`."""
    if len(raw) != size * len(owners):
        raise ContentError(f"it sent {len(raw)} bytes instead of {len(owners)} items of {size} bytes")
    return {owner: raw[index * size : (index + 1) * size] for index, owner in enumerate(owners)}


def write_words(words: Words) -> bytes:
    """Numbers of shape (words,), little-endian."""
    return words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()


def read_words(raw: bytes, bits: int, length: int) -> Words:
    """Numbers below 2**bits, shape (length,). Raises :class:`ContentError`."""
    kind = np.dtype("<u2" if bits <= 16 else "<u4")
    if len(raw) != kind.itemsize * length:
        raise ContentError(f"it sent {len(raw)} bytes instead of {length} numbers of {kind.itemsize} bytes")
    words: Words = np.frombuffer(raw, dtype=kind)
    if bits < 8 * kind.itemsize and words.size and int(words.max()) >> bits:
        raise ContentError(f"it sent a number of more than {bits} bits")
    return words


def write_shares(shares: Mapping[PartyId, bytes], owners: Sequence[PartyId]) -> bytes:
    """Write for each owner in order whether there is a share, and the share."""
    return b"".join(b"\1" + shares[owner] if owner in shares else bytes(1 + SHARE_BYTES) for owner in owners)


def read_shares(raw: bytes, owners: Sequence[PartyId]) -> dict[PartyId, int]:
    """The inverse of :func:`write_shares`. Raises :class:`ContentError`."""
    shares = {}
    for owner, item in split_items(raw, owners, 1 + SHARE_BYTES).items():
        value = int.from_bytes(item[1:], "big")
        if item[0] > 1 or value >= PRIME or (item[0] == 0 and value):
            raise ContentError(f"it sent a share of party {owner} that is not valid")
        if item[0]:
            shares[owner] = value
    return shares
