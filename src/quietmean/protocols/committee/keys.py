"""Keys and signatures of a committee, and vouchers that admit a key to one study.

Vouchers admit contributors who are on no list: a registrar certified their keys for one study. A voucher is the registrar's
signature over the invitation's digest, a contributor's key, and the largest weight of it where it says one. It stands in the file
of a contribution behind what the contributor signed, not inside: the header digest stays a matter of the contributor alone. Who
takes a contribution from the file checks it. Lists and results have no vouchers: what is chosen is in the lists of all of M, more
than c_m members, of whom an honest one checked it.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, Self

from quietmean.core.codec import canonical_json
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
        raise InputError(f"{public_key[:64]!r} is not a public key. Give a line of {_PREFIX} and 32 bytes in base64.")
    return raw


def key_line(raw: bytes) -> str:
    """The inverse of :func:`raw_key`."""
    return _PREFIX + base64.b64encode(raw).decode()


_WEIGHT = struct.Struct("<d")
ADMISSION_BYTES: Final = _WEIGHT.size + SIGNATURE_BYTES


def voucher_content(invitation: str, contributor: str, weight: float | None) -> bytes:
    """What a registrar signs: ``invitation``: its digest, hexadecimal; ``contributor``: the identity key."""
    return canonical_json({"invitation": invitation, "key": contributor, "weight": weight})


@dataclass(frozen=True)
class AdmissionByVoucher:
    """What a contribution has of its voucher. ``weight``: the largest one; None: that of the study."""

    weight: float | None
    signature: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """The admission in 72 bytes."""
        return _WEIGHT.pack(self.weight or 0.0) + self.signature

    @classmethod
    def of_bytes(cls, raw: bytes) -> Self:
        """The inverse; any 72 bytes are an admission, which proves nothing yet."""
        (weight,) = _WEIGHT.unpack_from(raw)
        return cls(None if weight == 0.0 else weight, raw[_WEIGHT.size :])


@dataclass(frozen=True)
class Vouching:
    """Who admits contributors: the identity key of the ``registrar``, the digest of the ``invitation``, and how many at most."""

    registrar: str
    invitation: str
    number: int

    def admits(self, keys: Verifier, contributor: str, admission: AdmissionByVoucher) -> bool:
        """Whether the registrar certified this key for this study, with this weight."""
        try:
            content = voucher_content(self.invitation, contributor, admission.weight)
        except ValueError:
            # No weight that a voucher can have.
            return False
        return keys.is_signed(self.registrar, Kind.VOUCHER, content, admission.signature)
