"""A party's keys, what it publishes of them, and what two parties derive from theirs.

Three secrets of 32 bytes, fresh in every study: the channel key encrypts shares, the mask key s_u gives the masks in common with
each neighbour, the seed b_u the mask that is the party's own. Keys of pairs come from X25519 and HKDF-SHA256 over both public
keys and the study's label; masks are AES-256 in counter mode, shares are sealed with AES-256-GCM under a key for one direction
of one pair, used once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from quietmean.core.party import NoiseSource, PartyId
from quietmean.protocols.secagg.shamir import SHARE_BYTES
from quietmean.randomness import BitStream, ExchangeKey, Seed

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
    """PRG(b_u)."""
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
    """(share of s_u, share of b_u) in bytes; None for what the sender has not written for this receiver and study."""
    try:
        plain = _cipher(own, other, sender, receiver, label).decrypt(_NONCE, sealed, _associated(sender, receiver, label))
    except (InvalidTag, ValueError):
        return None
    return (plain[:SHARE_BYTES], plain[SHARE_BYTES:]) if len(plain) == _PAIR_BYTES else None


def _cipher(own: ExchangeKey, other: bytes, sender: PartyId, receiver: PartyId, label: str) -> AESGCM:
    return AESGCM(own.shared_seed(other, f"shares {sender} {receiver} {label}").secret)


def _associated(sender: PartyId, receiver: PartyId, label: str) -> bytes:
    return f"quietmean secagg shares {sender} {receiver} {label}".encode()
