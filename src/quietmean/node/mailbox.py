"""Mailbox keys, and what is sealed to them: hybrid HPKE of ML-KEM-768 and X25519, with AES-256-GCM."""

from __future__ import annotations

import functools
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

Mailbox: TypeAlias = tuple[MLKEM768PrivateKey, X25519PrivateKey]

_X25519: Final = 32
# Bytes of a ciphertext beside its content: the encapsulated keys and the tag.
SEAL_BYTES: Final = 1088 + _X25519 + 16
_SUITE: Final = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def mailbox_bytes(mailbox: Mailbox) -> bytes:
    """The public half, as entries have it."""
    encryption, exchange = mailbox
    return encryption.public_key().public_bytes_raw() + exchange.public_key().public_bytes_raw()


def seal_to(public: bytes, info: bytes, content: bytes) -> bytes:
    """A ciphertext that the owner of the ``public`` mailbox key alone opens, with the same ``info``. No two are equal."""
    return _SUITE.encrypt(content, _public_key(public), info)


@functools.lru_cache(maxsize=128)
def _public_key(raw: bytes) -> MLKEM768X25519PublicKey:
    return MLKEM768X25519PublicKey(
        MLKEM768PublicKey.from_public_bytes(raw[:-_X25519]), X25519PublicKey.from_public_bytes(raw[-_X25519:])
    )


def open_with(mailbox: Mailbox, info: bytes, ciphertext: bytes) -> bytes:
    """The content. Raises ValueError for what was not sealed to this mailbox, or with another ``info``."""
    try:
        return _SUITE.decrypt(ciphertext, MLKEM768X25519PrivateKey(*mailbox), info)
    except InvalidTag:
        raise ValueError("not sealed to this mailbox") from None
