"""The identity of a party: an Ed25519 key pair, and the label that it is called by where strangers may read.

The private key is kept in one file that only its owner may read.

The roster: who takes part, where, and under which key. A party's id is its position in the file.

People tell parties apart by their names, so no two names of a roster may look alike, and none may change what a screen shows of
the text around it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import stat
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from quietmean.core.codec import decode_toml, digest
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_content, refuse_other
from quietmean.core.output import Output
from quietmean.core.party import PartyId
from quietmean.core.portability import mode_of
from quietmean.node.net.addresses import Address, RelayAddress, format_address, parse_place
from quietmean.randomness import Seed

KEY_PREFIX = "ed25519:"
# In the environment: a file whose first line is the passphrase, for where nobody is there to type it.
PASSPHRASE_FILE = "QUIETMEAN_PASSPHRASE_FILE"  # noqa: S105 - a name
KEY_BYTES = 32
_NO_KEY = "holds no private key. Name the file with yours, or make one with quietmean key new."
# A path has lost one of the two slashes. The link of a voucher holds its key, so no message repeats it.
_LINK = ("http:/", "https:/")
_LINK_AS_KEY = "`--key` is a link. Ask the registrar for the file of this voucher, and name that."
_ENCRYPTED = b"BEGIN ENCRYPTED PRIVATE KEY"
_PRIME = 2**255 - 19
_EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
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
    COMMITTEE_LOG = "committee log"
    COMMITTEE_PAGE = "committee page"
    COMMITTEE_QUESTION = "committee question"

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
            if str(path).lower().startswith(_LINK):
                raise InputError(_LINK_AS_KEY) from None
            raise InputError(
                f"key file {path} does not exist. Check its name, or make your first one with quietmean key new."
            ) from None
        except IsADirectoryError:
            raise InputError(f"key file {path} is a folder. Name the file.") from None
        except OSError as error:
            raise InputError(f"key file {path} cannot be read ({error.strerror}). Check its rights.") from None
        if b"PRIVATE KEY" not in pem:
            # Of a file that is none, rights are no matter.
            refuse_other(kind_of_content(bytes(pem)), f"file {path}", FileKind.KEY, FileKind.VOUCHER)
            raise InputError(f"key file {path} {_NO_KEY}")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(f"key file {path} is open to others (mode {mode:04o}). Run chmod 600 {path}.")
        secret = None
        if _ENCRYPTED in pem:
            if passphrase is None:
                raise InputError(
                    f"key file {path} is protected by a passphrase, which nobody gave. Use it from the command line."
                )
            secret = passphrase()
        try:
            key = load_pem_private_key(pem, password=secret)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            wrong = "cannot be opened with this passphrase. Try again."
            missing = _NO_KEY
            raise InputError(f"key file {path} {missing if secret is None else wrong}") from None
        finally:
            pem[:] = bytes(len(pem))
        if not isinstance(key, Ed25519PrivateKey):
            raise InputError(f"key file {path} holds a key of another kind than Ed25519. Make one with quietmean key new.")
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
        raise InputError(f"key {text[:80]!r} is not a public key. Copy the line {KEY_PREFIX}... that quietmean key new printed.")
    if format_public_key(raw) != text:
        raise InputError(f"key {text!r} is spelt in another way than {format_public_key(raw)}. Use that one spelling.")
    y = int.from_bytes(raw, "little") % 2**255
    if y >= _PRIME or y in _SMALL_ORDER:
        raise InputError(f"key {text!r} is not safe: anybody could sign for it. Ask its owner for the right one.")
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


LONGEST_NAME = 40
# Scripts that Japanese, Korean and Chinese names mix.
_EAST_ASIAN = frozenset({"CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
# Letters and marks that show nothing, although their category does not say so.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0").union(
    map(chr, range(0xFE00, 0xFE10)), map(chr, range(0xE0100, 0xE01F0))
)
# Marks that many type for an apostrophe.
_APOSTROPHES = frozenset("'`\u00b4\u02bc\u2018\u2019\u201b\u2032")


def require_name(name: str) -> str:
    """The name, unchanged. Raises :class:`InputError` unless it is in the one spelling that a name may have.

    That is: 1 to 40 characters in Unicode's form NFC, letters of one script, no control, bidirectional, invisible or private
    characters, and no spaces but single ones between words.
    """
    reason = _objection(name)
    if reason:
        raise InputError(f"name {show_hidden(name)!r} {reason}")
    return name


def require_distinct(names: Iterable[str]) -> None:
    """Raises :class:`InputError` for two names that are equal but for capitals, width, dashes or apostrophes."""
    seen: dict[str, str] = {}
    for name in names:
        before = seen.setdefault(_folded(name), name)
        if before is not name and before != name:
            raise InputError(f"the names {before!r} and {name!r} differ in capitals or look alike. Give every party its own.")


def show_hidden(text: str) -> str:
    """The text, cut to a name's length, with an escape for every character that a screen would not show as itself."""
    shown = "".join(sign if _is_shown(sign) else f"\\u{{{ord(sign):x}}}" for sign in text[:LONGEST_NAME])
    return shown if len(text) <= LONGEST_NAME else f"{shown}..."


def _objection(name: str) -> str:
    if not name:
        return "is empty. Give every party a name."
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters. Choose at most {LONGEST_NAME}."
    hidden = [sign for sign in name if not _is_shown(sign)]
    if hidden:
        return f"contains U+{ord(hidden[0]):04X}, which a screen does not show as itself. Leave it out."
    if name != name.strip(" ") or "  " in name:
        return "has spaces at an end or two in a row. Leave them out."
    if not unicodedata.is_normalized("NFC", name):
        return "is not in Unicode's form NFC. Write it again with whole letters."
    scripts = sorted({script for sign in name if (script := _script(sign))})
    if len(scripts) > 1:
        return f"mixes letters of {' and '.join(scripts)}, which may look alike. Use one script."
    if not any(unicodedata.category(sign)[0] in "LN" for sign in name):
        return "has neither letters nor digits. Choose a name that can be said on the phone."
    return ""


def _is_shown(sign: str) -> bool:
    """False for controls, formats (all bidirectional ones), surrogates, private and unassigned ones, and odd spaces."""
    return sign == " " or not (unicodedata.category(sign)[0] in "CZ" or sign in _INVISIBLE)


def _script(sign: str) -> str:
    """The script of a letter, a digit or a mark, from its name in Unicode; empty where all scripts share it."""
    # Wide, raised and mathematical letters belong to the script of their plain form.
    plain = unicodedata.normalize("NFKC", sign)[0]
    if plain.isascii() and not plain.isalpha():
        return ""
    if unicodedata.category(plain)[0] not in "LN":
        return ""
    words = unicodedata.name(plain, "UNKNOWN").replace("-", " ").split(" ")
    first = words[1] if words[0] == "EXTENDED" else words[0]
    if first in _EAST_ASIAN:
        return "EAST ASIAN"
    return "" if first == "MODIFIER" else first


def _folded(name: str) -> str:
    wide = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join("-" if unicodedata.category(sign) == "Pd" else "'" if sign in _APOSTROPHES else sign for sign in wide)


_FIELDS = ("name", "address", "key")


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One party: a name for display, (host, port) of its own or of its relay, and its public key as a line of text."""

    name: str
    address: Address
    public_key: str


@dataclass(frozen=True)
class Seal:
    """What a roster was sealed with: the digest of the whole (hexadecimal), and its fields, to name one that differs.

    ``conveners``: the places of all parties, in the order in which they may propose who takes part.
    """

    digest: str
    conveners: tuple[PartyId, ...]
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Roster:
    """All parties of a study, in the order that numbers them; ``seal``: if a convener sealed it together with the study."""

    entries: tuple[RosterEntry, ...]
    seal: Seal | None = None

    def __post_init__(self) -> None:
        if len(self.entries) < 2:
            raise InputError(f"the roster lists {len(self.entries)} party. Add at least 2 [[party]] entries.")
        for entry in self.entries:
            parse_public_key(entry.public_key)
            require_name(entry.name)
        _refuse_duplicates("name", [entry.name for entry in self.entries])
        require_distinct(entry.name for entry in self.entries)
        _refuse_duplicates("key", [entry.public_key for entry in self.entries])
        own = [entry.address for entry in self.entries if not isinstance(entry.address, RelayAddress)]
        _refuse_duplicates("address", [format_address(address) for address in own])

    @classmethod
    def load(cls, path: Path) -> Roster:
        """Read a roster file (TOML). Raises :class:`InputError` that names the entry and the field."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"roster {path} cannot be read ({error.strerror}). Check the path.") from None
        refuse_other(kind_of_content(content), f"file {path}", FileKind.ROSTER)
        raw = decode_toml(content, lambda reason: InputError(f"roster {path} is not valid TOML ({reason}). Correct it."))
        parties = raw.get("party", [])
        if not isinstance(parties, list) or not all(isinstance(party, dict) for party in parties):
            raise InputError(f"roster {path} has no list of [[party]] tables. Write one [[party]] table a party.")
        return cls(tuple(_parse_entry(number, party) for number, party in enumerate(parties, 1)))

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of names and keys in order, or the seal's. Addresses say only where to dial: a party that moves is the same."""
        if self.seal is not None:
            return self.seal.digest
        return digest([[entry.name, entry.public_key] for entry in self.entries])

    @property
    def conveners(self) -> tuple[PartyId, ...]:
        """Who may propose who takes part, in order: as it was sealed, or in the order of the file."""
        return tuple(range(len(self.entries))) if self.seal is None else self.seal.conveners

    def name(self, party: PartyId) -> str:
        return self.entries[party].name

    def find(self, identity: Identity) -> PartyId:
        """The id of the party with this key. Raises :class:`InputError` for a key that is not in the roster."""
        for party, entry in enumerate(self.entries):
            if entry.public_key == identity.public_key:
                return party
        if self.seal is not None:
            raise InputError("your key is the key of nobody in this study. Name the one with which you accepted.")
        raise InputError(f"your key is not in the roster. Add {identity.public_key} to it at every party, or load the right key.")

    def to_toml(self) -> str:
        """The content of the roster's file."""
        return "\n".join(map(self.table, self.entries))

    @staticmethod
    def table(entry: RosterEntry) -> str:
        """The table of one party in the roster's file."""
        # A JSON string is a valid TOML basic string, with every character as it is.
        name, address, key = (
            json.dumps(text, ensure_ascii=False) for text in (entry.name, format_address(entry.address), entry.public_key)
        )
        return f"[[party]]\nname = {name}\naddress = {address}\nkey = {key}\n"


def _parse_entry(number: int, raw: Mapping[str, Any]) -> RosterEntry:
    for name in _FIELDS:
        if not isinstance(raw.get(name), str) or not raw[name]:
            raise InputError(f"party {number} of the roster has no text {name!r}. Give it name, address and key.")
    unknown = sorted(set(raw) - set(_FIELDS))
    if unknown:
        raise InputError(f"party {number} of the roster has an unknown field {unknown[0]!r}. Use only name, address and key.")
    return RosterEntry(raw["name"], parse_place(raw["address"]), raw["key"])


def _refuse_duplicates(subject: str, values: list[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise InputError(f"{subject} {value!r} is in the roster twice. Give every party its own.")
