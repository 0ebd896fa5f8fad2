"""The identity of a party: an Ed25519 key pair, and the label that it is called by where strangers may read.

The private key is kept in one file that only its owner may read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_content, refuse_other
from quietmean.core.output import Output
from quietmean.core.portability import mode_of
from quietmean.randomness import Seed

KEY_PREFIX = "ed25519:"
# In the environment: a file whose first line is the passphrase, for where nobody is there to type it.
PASSPHRASE_FILE = "QUIETMEAN_PASSPHRASE_FILE"  # noqa: S105 - a name
KEY_BYTES = 32
_NO_KEY = "holds no private key: name the file with yours, or make one with quietmean keygen"
_ENCRYPTED = b"BEGIN ENCRYPTED PRIVATE KEY"
_PRIME = 2**255 - 19
_EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD83D3D706A17C7
# y of the points of small order, under which anybody can sign; those of order 8 are y and -y.
_SMALL_ORDER = frozenset({0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH})


class Purpose(StrEnum):
    """What an identity key signs. Each signature is over a label of its own, so that none passes for another."""

    INVITATION = "invitation"
    ENTRY = "entry"
    ROTATION = "rotation"
    SEAL = "seal"
    REVOCATION = "revocation"
    CONTRIBUTION = "contribution"
    RELAY = "relay"
    APPROVAL = "approval"
    AUDIT = "audit"
    QUORUM = "quorum"
    HELLO = "hello"
    FILE = "file"
    LINK = "link"
    COMMITTEE_CONTRIBUTION = "committee contribution"
    COMMITTEE_LIST = "committee list"
    COMMITTEE_PROPOSAL = "committee proposal"
    COMMITTEE_ECHO = "committee echo"
    COMMITTEE_LOCK = "committee lock"
    COMMITTEE_VOTE = "committee vote"
    COMMITTEE_SUM = "committee sum"
    COMMITTEE_END = "committee end"
    COMMITTEE_VOUCHER = "committee voucher"
    COMMITTEE_RECEIPT = "committee receipt"

    @property
    def label(self) -> bytes:
        """The first bytes of everything that is signed for this purpose."""
        return f"quietmean {self.value} 1\0".encode()


@dataclass(frozen=True, slots=True)
class Identity:
    """A party's own key pair. Its repr shows the public half only."""

    private_key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> Identity:
        return cls(Ed25519PrivateKey.generate())

    @property
    def public_key(self) -> str:
        """The line to hand out: ``ed25519:`` and 32 bytes in base64."""
        return format_public_key(self.private_key.public_key().public_bytes_raw())

    def derive(self, *labels: str) -> Seed:
        """A secret that only the owner of the private key can make."""
        return Seed(self.private_key.private_bytes_raw()).derive(*labels)

    def sign(self, purpose: Purpose, content: bytes) -> bytes:
        """The signature, 64 bytes, over the label of the purpose and ``content``. Nothing without a label is ever signed."""
        return self.private_key.sign(purpose.label + content)

    def save(self, path: Path, passphrase: bytes = b"") -> None:
        """Write the private key (PEM, PKCS 8) to a new file with mode 0600, encrypted if there is a passphrase.

        Raises :class:`InputError` if the file exists already, as a key is never overwritten, or if it cannot be written.
        """
        encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        pem = self.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        Output(path, "the key", "--key", private=True).write(pem)

    @classmethod
    def load(cls, path: Path, passphrase: Callable[[], bytes] | None = None) -> Identity:
        """Read a private key file; ``passphrase`` is called if it is encrypted.

        Raises :class:`InputError` if it cannot be read, if anybody but its owner has access to it, if it holds no Ed25519 key, or
        for a wrong passphrase or none.
        """
        try:
            mode = mode_of(path)
            pem = bytearray(path.stat().st_size)
            with path.open("rb", buffering=0) as file:
                file.readinto(pem)
        except FileNotFoundError:
            raise InputError(
                f"key file {path} does not exist: check its name, or make your first one with quietmean keygen"
            ) from None
        except OSError as error:
            raise InputError(f"key file {path} cannot be read ({error.strerror}): check its rights") from None
        if b"PRIVATE KEY" not in pem:
            # Of a file that is none, rights are no matter.
            refuse_other(kind_of_content(bytes(pem)), f"file {path}", FileKind.KEY, FileKind.VOUCHER)
            raise InputError(f"key file {path} {_NO_KEY}")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(f"key file {path} is open to others (mode {mode:04o}): run chmod 600 {path}")
        secret = None
        if _ENCRYPTED in pem:
            if passphrase is None:
                raise InputError(f"key file {path} is protected by a passphrase, which nobody gave: use it from the command line")
            secret = passphrase()
        try:
            key = load_pem_private_key(pem, password=secret)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            wrong = "cannot be opened with this passphrase: try again"
            missing = _NO_KEY
            raise InputError(f"key file {path} {missing if secret is None else wrong}") from None
        finally:
            pem[:] = bytes(len(pem))
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(f"key file {path} holds a key of another kind than Ed25519: make one with quietmean keygen")
        return cls(key)


def format_public_key(raw: bytes) -> str:
    """The one spelling of a public key, from its 32 bytes."""
    return KEY_PREFIX + base64.b64encode(raw).decode()


def public_key_bytes(text: str) -> bytes:
    """The 32 bytes of a public line.

    Raises :class:`InputError` if the line holds no Ed25519 public key, or one in another spelling than
    :func:`format_public_key` gives it: one key must not be two parties.
    """
    try:
        raw = base64.b64decode(text.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not text.startswith(KEY_PREFIX) or len(raw) != KEY_BYTES:
        raise InputError(f"key {text[:80]!r} is not a public key: copy the line {KEY_PREFIX}... that quietmean keygen printed")
    if format_public_key(raw) != text:
        raise InputError(f"key {text!r} is spelt in another way than {format_public_key(raw)}: use that one spelling")
    y = int.from_bytes(raw, "little") % 2**255
    if y >= _PRIME or y in _SMALL_ORDER:
        raise InputError(f"key {text!r} is none that keygen can make: anybody could sign for it, ask its owner for the right one")
    return raw


def parse_public_key(text: str) -> Ed25519PublicKey:
    """The key of a public line. Raises :class:`InputError` where :func:`public_key_bytes` does."""
    return Ed25519PublicKey.from_public_bytes(public_key_bytes(text))


def is_signed(public_key: str, purpose: Purpose, content: bytes, signature: bytes) -> bool:
    """Whether the owner of a key signed ``content`` for this purpose. Raises :class:`InputError` for an impossible key."""
    try:
        parse_public_key(public_key).verify(signature, purpose.label + content)
    except InvalidSignature:
        return False
    return True


# Of a label, in a server name: enough for no two to be the same.
_DIGITS: Final = 32
# Never a host of anybody (RFC 2606).
_ENDING: Final = ".invalid"


@dataclass(frozen=True)
class Group:
    """The members of one session, as a relay knows them: by a number that says nothing of the session to who does not know it."""

    tag: bytes

    @classmethod
    def of_session(cls, digest: str) -> Group:
        """``digest``: hexadecimal, of the sealed study or of the roster."""
        return cls(hmac.digest(bytes.fromhex(digest), b"quietmean relay group 1", hashlib.sha256))

    def label(self, key: bytes) -> bytes:
        """The name at the relay of the party with this key (32 bytes)."""
        return hmac.digest(self.tag, key, hashlib.sha256)

    def server_name(self, key: bytes) -> str:
        """The name in clear that TLS asks the party for, by which a proxy may tell the studies behind one port apart."""
        return self.label(key).hex()[:_DIGITS] + _ENDING
