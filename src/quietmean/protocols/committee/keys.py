"""What the members and contributors of a committee sign and seal, and the interfaces of the keys that do it."""

from __future__ import annotations

import base64
import binascii
from enum import StrEnum
from typing import Final, Protocol

from quietmean.core.errors import InputError

# Raw bytes of an Ed25519 key, a signature, and of a digest.
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
DIGEST_BYTES: Final = 32
# Bytes of a ciphertext of hybrid HPKE (ML-KEM-768 and X25519) beside its content: encapsulated keys and tag.
SEAL_BYTES: Final = 1088 + 32 + 16
_PREFIX = "ed25519:"


class Kind(StrEnum):
    """What a signature is for: each is over a label of its own, so that none can mean another."""

    CONTRIBUTION = "committee contribution"
    LIST = "committee list"
    PROPOSAL = "committee proposal"
    ECHO = "committee echo"
    LOCK = "committee lock"
    VOTE = "committee vote"
    SUM = "committee sum"
    END = "committee end"
    VOUCHER = "committee voucher"


class Signer(Protocol):
    """A holder of an identity key, who signs."""

    @property
    def public_key(self) -> str: ...

    def sign(self, kind: Kind, content: bytes) -> bytes:
        """The signature, 64 bytes."""


class Verifier(Protocol):
    def is_signed(self, public_key: str, kind: Kind, content: bytes, signature: bytes) -> bool: ...


class Sealer(Protocol):
    def seal(self, mailbox: bytes, info: bytes, content: bytes) -> bytes:
        """A ciphertext that the owner of the public ``mailbox`` key alone opens, with the same ``info``."""


class Opener(Protocol):
    def open(self, info: bytes, ciphertext: bytes) -> bytes:
        """The inverse of :meth:`Sealer.seal`. Raises ValueError for anything that was not sealed to this key with this info."""


def raw_key(public_key: str) -> bytes:
    """The 32 bytes of a public key's line. Raises :class:`InputError`."""
    try:
        raw = base64.b64decode(public_key.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES or key_line(raw) != public_key:
        raise InputError(f"{public_key[:64]!r} is not a public key: a line of {_PREFIX} and 32 bytes in base64 is due")
    return raw


def key_line(raw: bytes) -> str:
    """The inverse of :func:`raw_key`."""
    return _PREFIX + base64.b64encode(raw).decode()
