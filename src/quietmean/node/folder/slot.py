"""One message as one file: sealed to the mailbox key of its receiver, signed by the identity key of its sender.

``8 bytes magic | 64 bytes signature | HPKE ciphertext``. HPKE alone says nothing of who wrote a file: anybody can seal to a
public key. So the sender signs the place of the file and the digest of its ciphertext; HPKE binds the same place as its ``info``.
The place is session, number of the message between these two parties, sender and receiver with their identity keys:
what is valid in one place is valid in no other.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.mailbox import SEAL_BYTES, Mailbox, open_with, seal_to
from quietmean.node.net import Identity, Purpose, is_signed, public_key_bytes

_MAGIC: Final = b"qmfile1\0"
_SIGNATURE: Final = 64
_DIGITS: Final = 32
# Bytes of a file beside its content: what comes before the ciphertext, the encapsulated keys and the tag of HPKE.
OVERHEAD: Final = len(_MAGIC) + _SIGNATURE + SEAL_BYTES


class SlotKind(StrEnum):
    """Each request has a number of its own, of those of its sender to one receiver; its answer has the same."""

    REQUEST = "q"
    ANSWER = "a"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one message is due."""

    kind: SlotKind
    number: int
    sender: PartyId
    receiver: PartyId

    @property
    def round(self) -> str:
        """The folder, within that of the session, in which all messages with this number are."""
        return f"{self.kind}{self.number:08d}"

    @property
    def prefix(self) -> str:
        return f"{self.sender}-{self.receiver}-"

    def name(self, file: bytes) -> str:
        return self.prefix + hashlib.sha256(file).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class Parties:
    """Who writes to whom in one session: public keys by party, ``mailboxes`` as bytes."""

    session: str
    identities: Sequence[str]
    mailboxes: Mapping[PartyId, bytes] = field(repr=False)

    def info(self, slot: Slot) -> bytes:
        """The one encoding of a place; no two have the same."""
        sender, receiver = (public_key_bytes(self.identities[party]) for party in (slot.sender, slot.receiver))
        # A zero comes first: attempts to start have no places of their own.
        fields = [0, str(slot.kind), slot.number, slot.sender, sender, slot.receiver, receiver]
        return msgspec.msgpack.encode(["quietmean file 1", self.session, *fields])


def seal_file(parties: Parties, slot: Slot, content: bytes, identity: Identity) -> bytes:
    """The file of a message. No two are equal, so that a file is made once, kept, and put as often as needed."""
    info = parties.info(slot)
    sealed = seal_to(parties.mailboxes[slot.receiver], info, content)
    return _MAGIC + identity.sign(Purpose.FILE, info + hashlib.sha256(sealed).digest()) + sealed


def is_valid(parties: Parties, slot: Slot, name: str, file: bytes) -> bool:
    """Whether the sender of the slot signed this file for this slot. Nothing is opened for that."""
    if not file.startswith(_MAGIC) or len(file) < OVERHEAD or not hmac.compare_digest(name.encode(), slot.name(file).encode()):
        return False
    signature, sealed = file[len(_MAGIC) : len(_MAGIC) + _SIGNATURE], file[len(_MAGIC) + _SIGNATURE :]
    signed = parties.info(slot) + hashlib.sha256(sealed).digest()
    return is_signed(parties.identities[slot.sender], Purpose.FILE, signed, signature)


def open_file(parties: Parties, slot: Slot, name: str, file: bytes, mailbox: Mailbox) -> bytes:
    """The content. Raises :class:`PeerError` for a file that was not signed for this slot, or not sealed to this key."""
    if not is_valid(parties, slot, name, file):
        raise PeerError("a file that is not signed for its place")
    try:
        return open_with(mailbox, parties.info(slot), file[len(_MAGIC) + _SIGNATURE :])
    except ValueError:
        raise PeerError("a file that is not sealed to this party's key for this study") from None
