"""The keys of a committee: identity keys that sign, and mailbox keys to which parts of contributions are sealed."""

from __future__ import annotations

from dataclasses import dataclass, field

from quietmean.core.errors import InputError
from quietmean.node.mailbox import Mailbox, open_with, seal_to
from quietmean.node.net import Identity, Purpose, is_signed
from quietmean.protocols.committee.keys import Kind


@dataclass(frozen=True)
class IdentitySigner:
    """Signs with an identity key."""

    identity: Identity

    @property
    def public_key(self) -> str:
        return self.identity.public_key

    def sign(self, kind: Kind, content: bytes) -> bytes:
        """The signature, 64 bytes, over the label of the kind and ``content``."""
        return self.identity.sign(Purpose(kind.value), content)


class PublicKeys:
    """Checks what identity keys signed."""

    def is_signed(self, public_key: str, kind: Kind, content: bytes, signature: bytes) -> bool:
        """Whether the owner of a key signed this; never for an impossible key."""
        try:
            return is_signed(public_key, Purpose(kind.value), content, signature)
        except InputError:
            return False


class MailboxSealer:
    """Seals to public mailbox keys."""

    def seal(self, mailbox: bytes, info: bytes, content: bytes) -> bytes:
        return seal_to(mailbox, info, content)


@dataclass(frozen=True)
class MailboxOpener:
    """Opens what was sealed to one mailbox."""

    mailbox: Mailbox = field(repr=False)

    def open(self, info: bytes, ciphertext: bytes) -> bytes:
        """Open what was sealed for this mailbox. Raises ValueError for anything else."""
        return open_with(self.mailbox, info, ciphertext)
