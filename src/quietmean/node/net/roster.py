"""The roster: who takes part, where, and under which key. A party's id is its position in the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from quietmean.node.net.names import require_distinct, require_name

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
        """The file's content."""
        return "\n".join(map(self.table, self.entries))

    @staticmethod
    def table(entry: RosterEntry) -> str:
        """One party of the file."""
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
