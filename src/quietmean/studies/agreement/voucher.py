"""A voucher: a registrar's word that anyone who has a key may contribute to one study, once, although no list names it.

One line of text, in a file of its own or in front of the key that the registrar made: ``--key`` names either file. It is bound to
the invitation, so that it can be handed out while members still accept, and stays good if the study is sealed anew for them.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from quietmean.core.errors import InputError, named
from quietmean.node.net import Identity, Purpose, public_key_bytes
from quietmean.protocols.committee.keys import AdmissionByVoucher, Vouching
from quietmean.studies.agreement.any_study import AnyStudy, has_committee, require_study
from quietmean.studies.agreement.deadlines import CommitteeTerms
from quietmean.studies.agreement.invitation import Invitation, is_digest
from quietmean.studies.agreement.signed import Signed, read_bounded, read_signed

_TAG = b"quietmean-committee-voucher-"
# A line and a key take less than a thousand bytes.
_LARGEST = 1 << 16
ENDING = ".voucher"


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    invitation: str
    key: str
    weight: float | None


@dataclass(frozen=True)
class Voucher:
    """A voucher that a registrar signed. ``invitation``: its digest; ``key``: of the contributor; ``weight``: the largest one,
    None for the study's. It holds no secret: the key does."""

    signed: Signed
    invitation: str
    key: str
    weight: float | None

    @classmethod
    def certify(cls, registrar: Identity, invitation: str, key: str, weight: float | None) -> Self:
        """Certify a contributor's key by the voucher.

        Raises :class:`InputError` for a key that nobody can have, or an impossible weight.
        """
        public_key_bytes(key)
        if weight is not None and not 0 < weight < math.inf:
            raise InputError(f"a voucher's weight is {weight:g}. Give one above 0, or none for the study's largest.")
        body = _Body(invitation, key, None if weight is None else float(weight))
        return cls.verified(Signed.sign(Purpose.COMMITTEE_VOUCHER, msgspec.to_builtins(body), registrar))

    @classmethod
    def load(cls, source: str | Path) -> Self:
        """Read a voucher from a file or the line. Raises :class:`InputError` that says what is wrong with it."""
        return cls.verified(read_signed(Purpose.COMMITTEE_VOUCHER, source))

    @classmethod
    def verified(cls, signed: Signed) -> Self:
        """Verify a voucher. Raises :class:`InputError` for an impossible part. Who signed it shows the study for which it is."""
        body = signed.decode(_Body)
        if not is_digest(body.invitation):
            raise InputError("the voucher is for no invitation: it was changed. Ask the registrar for it again.")
        return cls(signed, body.invitation, body.key, body.weight)

    @classmethod
    def of_key(cls, key: Path) -> Self | None:
        """What the file ``key`` begins with, or the file NAME.voucher beside it holds; None if neither is a voucher.

        Raises :class:`InputError` for one that was changed.
        """
        for path in (key, key.with_suffix(ENDING)):
            if path.is_file() and (content := read_bounded(path, _LARGEST)).startswith(_TAG):
                return cls.load(content.split()[0].decode("utf-8", errors="replace"))
        return None

    @cached_property
    def admission(self) -> AdmissionByVoucher:
        """What a contribution has of it."""
        return AdmissionByVoucher(self.weight, self.signed.signature)

    def require_for(self, invitation: Invitation, key: str) -> None:
        """Raises :class:`InputError` unless it admits the owner of this identity key to the study of an invitation."""
        vouching = vouching_of(invitation)
        if vouching is None:
            raise InputError("this study admits nobody by a voucher. Ask its coordinator to invite you.")
        if self.invitation != invitation.digest:
            raise InputError(
                "the voucher is for another study, or another invitation to it. Ask the registrar for another voucher."
            )
        if self.key != key:
            raise InputError(f"the voucher is for the key {self.key}, and yours is {key}. Use the key that it came with.")
        if not self.signed.is_by(vouching.registrar):
            raise InputError(f"the voucher is not signed by {vouching.registrar}, who admits to this study. Ask that registrar.")


@dataclass(frozen=True)
class MadeVouchers:
    """Vouchers that a registrar made.

    ``vouchers`` and the content of their ``files``, by name; of keys that the registrar made these hold the key.
    ``fragments``: of those, what stands behind # in a link to a study's page; as secret as the file.
    """

    vouchers: dict[str, Voucher]
    files: dict[str, bytes] = field(repr=False)
    fragments: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Registrar:
    """Who lets contributors into the study of an invitation, at most ``number`` of them."""

    identity: Identity
    invitation: str
    number: int

    @classmethod
    def of(cls, invitation: Invitation, identity: Identity) -> Self:
        """The registrar of a study. Raises :class:`InputError` unless this is its registrar's key."""
        vouching = vouching_of(invitation)
        if vouching is None:
            raise InputError(
                f"this study has no vouchers. Ask its coordinator for {named('registrar')} and {named('vouchers')} "
                "of quietmean study new."
            )
        if vouching.registrar != identity.public_key:
            raise InputError(
                f"the registrar of this study is {vouching.registrar}, and your key is {identity.public_key}. Ask "
                "the registrar, who alone makes vouchers."
            )
        return cls(identity, vouching.invitation, vouching.number)

    @property
    def public_key(self) -> str:
        return self.identity.public_key

    def make(self, number: int, weight: float | None) -> MadeVouchers:
        """Vouchers 1 to ``number``, with keys that follow from the registrar's: made again they are the same.

        Raises :class:`InputError` for more than the study has.
        """
        if not 1 <= number <= self.number:
            raise InputError(f"number is {number}, and the study has {self.number} vouchers. Choose 1 to {self.number}.")
        vouchers, files, fragments = {}, {}, {}
        for place in range(1, number + 1):
            own = self.own(place)
            name = f"{place:0{len(str(self.number))}}{ENDING}"
            vouchers[name] = self._certified(own.public_key, weight)
            pem = own.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            files[name] = vouchers[name].signed.to_line().encode() + b"\n" + pem
            raw = own.private_key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
            fragments[name] = base64.urlsafe_b64encode(raw + vouchers[name].admission.to_bytes()).decode().rstrip("=")
        return MadeVouchers(vouchers, files, fragments)

    def own(self, place: int) -> Identity:
        """The key of a voucher, 1 to ``number``."""
        secret = self.identity.derive("committee voucher", self.invitation, str(place)).secret
        return Identity(Ed25519PrivateKey.from_private_bytes(secret))

    def certify(self, keys: Sequence[str], weight: float | None) -> MadeVouchers:
        """Vouchers for ``keys`` that contributors made, each named by its key."""
        vouchers = {f"own-{_short(key)}{ENDING}": self._certified(key, weight) for key in keys}
        return MadeVouchers(vouchers, {name: voucher.signed.to_line().encode() + b"\n" for name, voucher in vouchers.items()})

    def _certified(self, key: str, weight: float | None) -> Voucher:
        return Voucher.certify(self.identity, self.invitation, key, weight)


def _short(key: str) -> str:
    """A name of a key for files."""
    return public_key_bytes(key).hex()[:16]


def vouching_of(invitation: Invitation) -> Vouching | None:
    """Who admits contributors to a study by vouchers, and how many; None where nobody does."""
    terms = committee_of(invitation.terms)
    if terms is None or terms.registrar is None or terms.vouchers is None:
        return None
    return Vouching(terms.registrar, invitation.digest, terms.vouchers)


def committee_of(study: AnyStudy) -> CommitteeTerms | None:
    """What a study says of its committee; None where it has none."""
    return require_study(study).committee if has_committee(study) else None
