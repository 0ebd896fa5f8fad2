"""The roster: who takes part, where, and under which key. A party's id is its position in the file.

People tell parties apart by their names, so no two names of a roster may look alike, and none may change what a screen shows of
the text around it.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from quietmean.core.codec import decode_toml, digest
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_content, refuse_other
from quietmean.core.party import PartyId
from quietmean.node.net.addresses import Address, RelayAddress, format_address, parse_place
from quietmean.node.net.identity import Identity, parse_public_key

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
            raise InputError(f"the names {before!r} and {name!r} differ in capitals or look alike: every party needs its own")


def show_hidden(text: str) -> str:
    """The text, cut to a name's length, with an escape for every character that a screen would not show as itself."""
    shown = "".join(sign if _is_shown(sign) else f"\\u{{{ord(sign):x}}}" for sign in text[:LONGEST_NAME])
    return shown if len(text) <= LONGEST_NAME else f"{shown}..."


def _objection(name: str) -> str:
    if not name:
        return "is empty: every party needs a name"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters: choose at most {LONGEST_NAME}"
    hidden = [sign for sign in name if not _is_shown(sign)]
    if hidden:
        return f"contains U+{ord(hidden[0]):04X}, which a screen does not show as itself: leave it out"
    if name != name.strip(" ") or "  " in name:
        return "has spaces at an end or two in a row: leave them out"
    if not unicodedata.is_normalized("NFC", name):
        return "is not in Unicode's form NFC: type it anew, with whole letters"
    scripts = sorted({script for sign in name if (script := _script(sign))})
    if len(scripts) > 1:
        return f"mixes letters of {' and '.join(scripts)}, which may look alike: use one script"
    if not any(unicodedata.category(sign)[0] in "LN" for sign in name):
        return "has neither letters nor digits: nobody could say it on the phone"
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
            raise InputError(f"the roster lists {len(self.entries)} party: at least 2 [[party]] entries are needed")
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
            raise InputError(f"roster {path} cannot be read ({error.strerror}): check the path") from None
        refuse_other(kind_of_content(content), f"file {path}", FileKind.ROSTER)
        raw = decode_toml(content, lambda reason: InputError(f"roster {path} is not valid TOML ({reason}): mend it"))
        parties = raw.get("party", [])
        if not isinstance(parties, list) or not all(isinstance(party, dict) for party in parties):
            raise InputError(f"roster {path} has no list of [[party]] tables: write one [[party]] table a party")
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
            raise InputError("your key is the key of nobody in this study: name the one with which you accepted")
        raise InputError(f"your key is not in the roster: add {identity.public_key} to it at every party, or load the right key")

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
            raise InputError(f"party {number} of the roster has no text {name!r}: give it name, address and key")
    unknown = sorted(set(raw) - set(_FIELDS))
    if unknown:
        raise InputError(f"party {number} of the roster has an unknown field {unknown[0]!r}: use only name, address and key")
    return RosterEntry(raw["name"], parse_place(raw["address"]), raw["key"])


def _refuse_duplicates(subject: str, values: list[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise InputError(f"{subject} {value!r} is in the roster twice: every party needs its own")
