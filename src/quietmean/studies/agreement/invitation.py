"""An invitation: a study and who convenes it, signed by the convener. It carries no secret, and anybody may read it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from quietmean.core.errors import InputError
from quietmean.node.net import (
    Address,
    Identity,
    Purpose,
    RelayAddress,
    RosterEntry,
    is_signed,
    parse_place,
    public_key_bytes,
    require_name,
    show_hidden,
)
from quietmean.randomness import fresh_bytes
from quietmean.studies.agreement.any_study import AnyStudy, any_of_tables, require_study, with_registrar
from quietmean.studies.agreement.signed import Signed, decode_base64, read_signed, signed_in
from quietmean.studies.agreement.study import StudyTerms

NONCE_BYTES = 32


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The signed content of an invitation.

    ``nonce`` makes every invitation another one, also to the same study: no entry fits two.
    """

    convener: str
    nonce: str
    previous: str | None
    study: dict[str, Any]
    version: int


@dataclass(frozen=True)
class Invitation:
    """A signed invitation that was verified.

    ``version``: 1, or one more than that of the seal that it follows; ``previous``: the digest of that seal, hexadecimal.
    """

    signed: Signed
    terms: AnyStudy
    convener: str
    version: int
    previous: str | None
    nonce: str

    @classmethod
    def make(cls, study: AnyStudy, convener: Identity, version: int = 1, previous: str | None = None) -> Invitation:
        """A new invitation to ``study``, with hybrid links unless it says others. Raises :class:`InputError` for an impossible
        version.

        Where it has vouchers and no registrar, who invites is the registrar.
        """
        nonce = base64.b64encode(fresh_bytes(NONCE_BYTES)).decode()
        terms = with_registrar(study.sealable(), convener.public_key)
        body = _Body(convener.public_key, nonce, previous, terms.tables(), version)
        return cls.verified(Signed.sign(Purpose.INVITATION, msgspec.to_builtins(body), convener))

    @classmethod
    def load(cls, source: str | Path) -> Invitation:
        """Read an invitation from a file or a line of text. Raises :class:`InputError` that says what is wrong with it."""
        return cls.verified(read_signed(Purpose.INVITATION, source))

    @classmethod
    def verified(cls, signed: Signed) -> Invitation:
        """Verify an invitation.

        Raises :class:`InputError` if the convener did not sign it so, or if something in it is impossible.
        """
        body = signed.decode(_Body)
        if not signed.is_by(body.convener):
            raise InputError(
                f"the invitation does not match the signature of its coordinator {body.convener}: it was changed "
                "on the way. Ask for it again."
            )
        decode_base64(body.nonce, NONCE_BYTES, "the nonce of the invitation")
        if body.version < 1 or (body.version == 1) != (body.previous is None):
            raise InputError(
                f"the invitation has version {body.version} and previous {body.previous!r}. Ask the coordinator again."
            )
        if body.previous is not None and not is_digest(body.previous):
            raise InputError("the previous seal that the invitation names is not a digest. Ask the coordinator for another.")
        study = any_of_tables(body.study, "the study of the invitation")
        return cls(signed, study, body.convener, body.version, body.previous, body.nonce)

    @cached_property
    def digest(self) -> str:
        """What entries are bound to: SHA-256 of label and bytes, hexadecimal."""
        return self.signed.digest

    @property
    def study(self) -> StudyTerms:
        """The study that is invited to. Raises :class:`InputError` where it is a session."""
        return require_study(self.terms)

    def fields(self) -> dict[str, Any]:
        """All that it says, in plain data."""
        return {**self.terms.tables(), "convener": self.convener, "version": self.version, "previous": self.previous or ""}


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 digest in small hexadecimal digits."""
    return len(text) == 64 and all(sign in "0123456789abcdef" for sign in text)


X25519_BYTES = 32
KEM_BYTES = 1184
# ML-KEM-768 and X25519, one behind the other.
MAILBOX_BYTES = KEM_BYTES + X25519_BYTES
_X25519_PRIME = 2**255 - 19


class _Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The signature by which a key replaces the one before.

    ``signature``: by the key of before, over the label of rotations and the bytes of the new key.
    """

    key: str
    signature: str


class _EntryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The signed content of an entry.

    ``encapsulation``: not in entries to studies whose links are X25519, which stay what they were.

    ``member``: of a committee. A contributor to one has no keys but its identity.
    """

    address: str
    exchange: str
    formerly: _Rotation | None
    identity: str
    invitation: str
    mailbox: str
    name: str
    nonce: str
    encapsulation: str = ""
    member: bool = False


@dataclass(frozen=True)
class Entry:
    """A signed entry that was verified.

    ``exchange`` (X25519) and ``mailbox`` (ML-KEM-768 and X25519) are the public halves, in base64, of two key pairs that are for
    this study alone; ``encapsulation`` (ML-KEM-768) of a third one, where it has hybrid links, else empty. ``address``:
    HOST:PORT, or empty where nobody dials this party. ``formerly``: the identity key that this one replaces, which has signed it.
    ``member``: of the committee, of a study that has one; one that only contributes to it has no key pairs for it.
    """

    signed: Signed
    invitation: str
    name: str
    identity: str
    exchange: str
    mailbox: str
    nonce: str
    address: str
    formerly: str | None
    encapsulation: str = ""
    member: bool = False

    @classmethod
    def make(
        cls,
        invitation: Invitation,
        identity: Identity,
        name: str,
        address: str,
        public: Mapping[str, bytes],
        before: Identity | None = None,
        member: bool = False,
    ) -> Entry:
        """A new entry; ``public``: the bytes of the public halves, "exchange" and "mailbox", with hybrid links "encapsulation".

        ``before``: the replaced identity. ``member``: of the committee.

        Raises :class:`InputError` for an impossible name or address.
        """
        rotation = None
        if before is not None:
            signature = before.sign(Purpose.ROTATION, public_key_bytes(identity.public_key))
            rotation = _Rotation(before.public_key, base64.b64encode(signature).decode())
        body = _EntryBody(
            address=address,
            exchange=base64.b64encode(public.get("exchange", b"")).decode(),
            formerly=rotation,
            identity=identity.public_key,
            invitation=invitation.digest,
            mailbox=base64.b64encode(public.get("mailbox", b"")).decode(),
            name=require_name(name),
            nonce=base64.b64encode(fresh_bytes(NONCE_BYTES)).decode(),
            encapsulation=base64.b64encode(public.get("encapsulation", b"")).decode(),
            member=member,
        )
        return cls.verified(Signed.sign(Purpose.ENTRY, msgspec.to_builtins(body), identity))

    @classmethod
    def load(cls, source: str | Path) -> Entry:
        """Read an entry from a file or a line of text. Raises :class:`InputError` that says what is wrong with it."""
        return cls.verified(read_signed(Purpose.ENTRY, source))

    @classmethod
    def of_file(cls, content: bytes) -> Entry:
        """From what a file holds. Raises :class:`InputError`."""
        return cls.verified(signed_in(Purpose.ENTRY, content))

    @classmethod
    def verified(cls, signed: Signed) -> Entry:
        """Verify an entry.

        Raises :class:`InputError`, with the party's name, if its identity did not sign it so, or for an impossible part.
        """
        body = signed.decode(_EntryBody)
        party = f"the entry of {show_hidden(body.name)}"
        if not signed.is_by(body.identity):
            raise InputError(
                f"{party} does not match the signature of its key {body.identity}: it was changed on the way. Ask for it again."
            )
        require_name(body.name)
        if body.address:
            parse_place(body.address)
        if body.exchange or body.mailbox or body.encapsulation or body.member:
            _require_x25519(decode_base64(body.exchange, X25519_BYTES, f"exchange key in {party}"), f"exchange key in {party}")
            _require_mailbox(decode_base64(body.mailbox, MAILBOX_BYTES, f"mailbox key in {party}"), f"mailbox key in {party}")
        if body.encapsulation:
            subject = f"encapsulation key in {party}"
            _require_ml_kem(decode_base64(body.encapsulation, KEM_BYTES, subject), subject)
        decode_base64(body.nonce, NONCE_BYTES, f"nonce in {party}")
        formerly = None if body.formerly is None else _replaced(body.formerly, body.identity, party)
        return cls(signed, **(msgspec.structs.asdict(body) | {"formerly": formerly}))

    def says(self, identity: Identity, name: str, address: str, before: Identity | None, member: bool = False) -> bool:
        """Whether it is what this party would say again, but for its keys."""
        formerly = None if before is None else before.public_key
        own = (self.identity, self.name, self.address, self.formerly, self.member)
        return own == (identity.public_key, name, address, formerly, member)

    @property
    def has_keys(self) -> bool:
        """Whether others can encrypt to it: not to who only contributes to a committee."""
        return bool(self.mailbox)

    @property
    def identity_bytes(self) -> bytes:
        """What entries are ordered by."""
        return public_key_bytes(self.identity)

    @property
    def at_relay(self) -> bool:
        """Whether it is reached at a relay, an address that it shares with others."""
        return bool(self.address) and isinstance(parse_place(self.address), RelayAddress)

    def fields(self) -> dict[str, Any]:
        """All that the sealed digest covers of it: everything but the address."""
        names = ("name", "identity", "exchange", "mailbox", "nonce", "formerly")
        hybrid = {"encapsulation": self.encapsulation} if self.encapsulation else {}
        member = {"member": True} if self.member else {}
        return {**{name: getattr(self, name) or "" for name in names}, **hybrid, **member}

    @property
    def dialled(self) -> Address | None:
        """Where the party is dialled; None if it gave no address."""
        return parse_place(self.address) if self.address else None

    def in_roster(self, by_folder: int | None = None) -> RosterEntry:
        """``by_folder``: the place of a party that is never dialled. Raises :class:`InputError` for one without an address."""
        if by_folder is not None:
            # A name that no resolver has (RFC 6761).
            return RosterEntry(self.name, ("folder.invalid", by_folder + 1), self.identity)
        if not self.address:
            # A command in every front end.
            raise InputError(
                f"party {self.name!r} gave no address in its entry. Ask it to give quietmean accept --address HOST:PORT again."
            )
        return RosterEntry(self.name, parse_place(self.address), self.identity)


def _replaced(rotation: _Rotation, identity: str, party: str) -> str:
    signature = decode_base64(rotation.signature, 64, f"the rotation in {party}")
    if not is_signed(rotation.key, Purpose.ROTATION, public_key_bytes(identity), signature):
        raise InputError(f"{party} claims to replace the key {rotation.key}, which did not sign that. Ask the party.")
    return rotation.key


def _require_ml_kem(raw: bytes, subject: str) -> None:
    """Raises :class:`InputError` for bytes that are no key, or one in a spelling that is not canonical."""
    try:
        MLKEM768PublicKey.from_public_bytes(raw)
    except ValueError:
        raise InputError(f"{subject} is not an ML-KEM-768 key. Ask for the entry again.") from None


def _require_mailbox(raw: bytes, subject: str) -> None:
    _require_ml_kem(raw[:-X25519_BYTES], subject)
    _require_x25519(raw[-X25519_BYTES:], subject)


def _require_x25519(raw: bytes, subject: str) -> None:
    """Raises :class:`InputError` for a key in another spelling, or one with which everybody would share the same secret."""
    if int.from_bytes(raw, "little") >= _X25519_PRIME:
        raise InputError(f"{subject} is not written in its standard form. Ask for the entry again.")
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(raw))
    except ValueError:
        raise InputError(f"{subject} is not safe: anybody could find a secret made with it. Ask for the entry again.") from None
