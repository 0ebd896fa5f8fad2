"""Admission of contributors who are on no list: a registrar certified their keys for one study, each with a voucher.

A voucher is the registrar's signature over the invitation's digest, a contributor's key, and the largest weight of it where it
says one. It stands in the file of a contribution behind what the contributor signed, not inside: the header digest stays a matter
of the contributor alone. Who takes a contribution from the file checks it. Lists and results have no vouchers: what is chosen
is in the lists of all of M, more than c_m members, of whom an honest one checked it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, Self

from quietmean.core.codec import canonical_json
from quietmean.protocols.committee.keys import SIGNATURE_BYTES, Kind, Verifier

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
