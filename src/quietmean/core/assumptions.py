"""What figures about an execution take for granted: one typed list, which certificates, receipts, reports and commands print.

An :class:`Assumption` has a key that stays, for programs, and a sentence or two, for people. Those that hold for every
protocol stand here; protocols add their own (:meth:`quietmean.protocols.Mechanism.assumptions`), loss conversions say what the
numbers are, and a certificate says who colludes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Self

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.readable import count_of

# Against whom figures are where no party colludes.
OUTSIDERS = "outsiders"


class Key(StrEnum):
    """What an assumption is about. The words stay: programs and contracts refer to them."""

    COLLUDING = "colluding"
    PASSIVE = "passive-adversary"
    CURATOR = "trusted-curator"
    AGGREGATOR = "aggregator"
    COMPUTING = "bounded-computing"
    KEYS = "agreed-keys"
    CHANNELS = "channels"
    LOGS = "honest-logs"
    SILENT = "silent-parties"
    ATTENDANCE = "attendance"
    PUBLIC = "public"
    BOUNDS = "bounds"
    NEIGHBOURS = "neighbours"
    PERSON = "person"
    NUMBERS = "numbers"
    ROUNDING = "rounding"
    SAMPLER = "sampler"
    GENERATOR = "generator"
    HISTORY = "any-history"
    MACHINES = "machines"
    ALONE = "one-study"
    NO_NOISE = "no-noise"
    OVERFLOW = "overflow"
    QUERY = "query"
    CODES = "codes"


@dataclass(frozen=True, slots=True)
class Assumption:
    """One assumption under which figures hold.

    ``key``: what it is about, see :class:`Key`; other distributions' protocols may bring keys of their own. ``text``: for
    people, in sentences of at most 20 words."""

    key: str
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def held_by(self) -> str:
        """Who must hold it."""
        return _HELD_BY.get(self.key, "The protocol's authors")

    @property
    def group(self) -> str:
        """The heading of all that the same people must hold, in a list."""
        who = self.held_by.split(",")[0]
        return who if who == _MEANING else f"{who} must see to this"

    def to_json(self) -> dict[str, str]:
        return {"key": str(self.key), "text": self.text}


_MEANING = "What the figures mean"
_DECLARED = (Key.QUERY, Key.CODES)
# Who must hold each: what people do comes first, then machines and programs, last what is a convention of the figures.
_HELD_BY: Mapping[str, str] = {
    Key.NO_NOISE: "The coordinator",
    Key.COLLUDING: "The other parties",
    Key.PASSIVE: "The other parties",
    Key.CURATOR: "The trusted party",
    Key.AGGREGATOR: "The server",
    Key.BOUNDS: "The coordinator",
    Key.PERSON: "The coordinator",
    Key.KEYS: "Each party, by comparing the safety code",
    Key.ALONE: "Each party, by its budget",
    Key.QUERY: "Each party, about its own data",
    Key.CODES: "Each party, about its own data",
    Key.ATTENDANCE: "Each party",
    Key.HISTORY: "Each party",
    Key.LOGS: "Each party",
    Key.MACHINES: "Each party, on its machine",
    Key.CHANNELS: "Each party, on its machine",
    Key.COMPUTING: _MEANING,
    Key.GENERATOR: "The program",
    Key.SAMPLER: "The program",
    Key.ROUNDING: "The program",
    Key.NUMBERS: "The program",
    Key.OVERFLOW: "The program",
    Key.SILENT: _MEANING,
    Key.PUBLIC: _MEANING,
    Key.NEIGHBOURS: _MEANING,
}


def ranked(assumptions: Iterable[Assumption]) -> list[Assumption]:
    """Return the assumptions with those first that people must hold, and one of an unknown kind before the program's."""
    places = {key: place for place, key in enumerate(_HELD_BY)}
    return sorted(assumptions, key=lambda one: places.get(one.key, places[Key.COMPUTING]))


def listing(assumptions: Iterable[Mapping[str, str]], where: str = "--json") -> list[str]:
    """The lines of a list for people, of JSON data: one for all that the same people must see to, the first in full
    and what a data owner declared.

    ``where``: what lists them all."""
    listed = ranked(Assumption(each["key"], each["text"]) for each in assumptions)
    lines = [f"these figures assume {count_of(len(listed), 'thing')} ({where} has each in full):"]
    for group, (first, *more) in groupby(listed, key=lambda assumption: assumption.group):
        full = [first, *(one for one in more if one.key in _DECLARED)]
        others = 1 + len(more) - len(full)
        also = f" And {others} more." if others else ""
        lines.append(f"- {group}: {' '.join(map(str, full))}{also}")
    return lines


def assumptions_json(assumptions: Iterable[Assumption]) -> list[dict[str, str]]:
    """A list of them as JSON data."""
    return [assumption.to_json() for assumption in assumptions]


PASSIVE = Assumption(
    Key.PASSIVE,
    "Parties that collude still follow the protocol, and only share what they see and know (passive adversary).",
)
CHANNELS = Assumption(
    Key.CHANNELS,
    "Only its sender and receiver read a message (TLS 1.3 or encrypted file), unless it is listed as intercepted.",
)
OVERHEARD = Assumption(
    Key.CHANNELS,
    "Only sender and receiver read messages of the first round (TLS 1.3); anybody may read all later ones.",
)
LOGS = Assumption(
    Key.LOGS,
    "Each party's log says truly what it sent, what it received and when it was online.",
)
SILENT = Assumption(
    Key.SILENT,
    "A message counts as seen by its receiver, even if it was refused, taken back or never confirmed.",
)
SILENT_WITH_GOSSIP = Assumption(
    Key.SILENT,
    "A message counts as seen by its receiver; what lost parties sent only to each other is not recorded.",
)
ATTENDANCE = Assumption(
    Key.ATTENDANCE,
    "No party stays away or fails because of its data. If others decide who takes part, only the guaranteed figure holds.",
)
PUBLIC = Assumption(
    Key.PUBLIC,
    "Columns, bounds, who sends when, lost messages and each party's number of records (weight) are not protected.",
)
BOUNDS = Assumption(
    Key.BOUNDS,
    "The coordinator chose the bounds without looking at the data. A value outside them counts as the nearest bound.",
)
PERSON = Assumption(
    Key.PERSON,
    "A person is one unit at one party. A person with k units loses up to k times as much privacy (mu).",
)


def for_unit(assumptions: Iterable[Assumption], unit: str, sites_per_person: int = 1) -> tuple[Assumption, ...]:
    """The assumption of a study whose unit is a person: at how many parties one is stands in the study, and nobody checks it."""
    if unit != PrivacyUnit.PERSON:
        return tuple(assumptions)
    at = "one party" if sites_per_person == 1 else f"{sites_per_person} parties"
    text = (
        f"Nobody has rows at more than {at} (sites_per_person = {sites_per_person}), which is not checked. "
        "A person at more parties loses more privacy (mu)."
    )
    return tuple(Assumption(Key.PERSON, text) if assumption.key == Key.PERSON else assumption for assumption in assumptions)


GENERATOR = Assumption(
    Key.GENERATOR,
    "Each honest party draws its noise from a secret seed, and nobody can tell it from true randomness (AES-256).",
)
MACHINES = Assumption(
    Key.MACHINES,
    "Honest parties run this program unchanged, on machines that nobody else controls. "
    "What a machine's timing, memory or power use gives away is not counted (side channels).",
)
ALONE = Assumption(
    Key.ALONE,
    "The figures cover this execution alone. Further studies of the same data add to the cost (squares of mu add up).",
)


def curator(party: int) -> Assumption:
    """The assumption that ``party``, who sees every value, is honest."""
    return Assumption(
        Key.CURATOR,
        f"The curator (party {party}) sees every value, keeps it secret, adds the noise truly and colludes with nobody.",
    )


def neighbours(sensitivity: float, relation: Neighbouring) -> Assumption:
    """What neighbouring data are. ``sensitivity``: in the units in which the parties compute."""
    if relation == Neighbouring.ADD_REMOVE:
        return Assumption(
            Key.NEIGHBOURS,
            "Protected is whether one record is there, and how many there are: "
            f"it moves its party's numbers by at most {sensitivity:g} (L2 sensitivity).",
        )
    return Assumption(
        Key.NEIGHBOURS,
        f"Protected is the value of one unit: a change moves its party's numbers by at most {sensitivity:g} (L2 sensitivity).",
    )


def drawn_nearly(tv: float) -> Assumption:
    """The assumption on draws that are within ``tv`` of exact ones, in total variation."""
    return Assumption(
        Key.SAMPLER,
        f"The program's random draws differ from exact ones by at most {tv:.1g} (total variation), which delta includes.",
    )


def usual_colluders(parties: int) -> int:
    """How many parties are taken to collude where nobody says how many: one in ten, at least one."""
    return math.ceil(parties / 10)


def any_coalition(size: int, parties: int, trusted: frozenset[int] = frozenset()) -> Assumption:
    """The assumption that at most ``size`` of the parties collude, whichever but the ``trusted``; and if as many are
    taken by default."""
    if size == 0:
        return Assumption(Key.COLLUDING, "No parties collude: the figures are against outsiders, who see what is published.")
    others = f", none of them party {min(trusted)}" if trusted else ""
    usual = " The usual number is one party in ten." if size == usual_colluders(parties) else ""
    return Assumption(Key.COLLUDING, f"At most {size} of the {parties} parties share what they see (collude){others}.{usual}")


def named_adversary(description: str) -> Assumption:
    """The assumption that the adversary is the one that is named and no other."""
    return Assumption(Key.COLLUDING, f"The figures are against {description}; nobody else shares with them what it sees.")


# An assumption of protocols in which pairs draw the same noise.
SHARED_KEYS = Assumption(
    Key.KEYS,
    "Each pair of parties has each other's true keys, so nobody else computes its shared noise (X25519, or with ML-KEM-768).",
)

# The assumptions of every figure where a protocol replaces none of them.
STANDING = (PASSIVE, CHANNELS, LOGS, SILENT, ATTENDANCE, PUBLIC, BOUNDS, PERSON, GENERATOR, MACHINES, ALONE)


def with_own(*own: Assumption) -> tuple[Assumption, ...]:
    """:data:`STANDING` with those of a protocol: one with a known key takes its place, others come after the first."""
    own_by_key = {assumption.key: assumption for assumption in own}
    progress = [own_by_key.pop(assumption.key, assumption) for assumption in STANDING]
    return (*progress[:1], *own_by_key.values(), *progress[1:])


@dataclass(frozen=True)
class QueryStatement:
    """What a receipt says of the query that chose the rows.

    ``mixes_rows``: that rows may decide about others. ``codes``: SHA-256 of each table that is public, hexadecimal.

    No name of a table or column is in it.
    """

    mixes_rows: bool = False
    codes: tuple[str, ...] = ()

    @classmethod
    def of_json(cls, raw: object) -> Self:
        """From what a receipt says; anything of another form counts as not stated."""
        said: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
        codes = said.get("codes")
        texts = tuple(sorted(one for one in codes if isinstance(one, str))) if isinstance(codes, list) else ()
        return cls(said.get("mixes_rows") is True, texts)

    def to_json(self) -> dict[str, Any]:
        """The JSON of a receipt under the name ``query``; nothing where nothing is declared."""
        return {"query": {"mixes_rows": self.mixes_rows, "codes": list(self.codes)}} if self.mixes_rows or self.codes else {}

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        mixed = Assumption(
            Key.QUERY,
            "The owner declares that the query mixes rows. Figures protect the rows that it returns, not records behind them.",
        )
        public = Assumption(
            Key.CODES,
            f"The query joins tables of codes, which are public and not protected (digests: {', '.join(self.codes)}).",
        )
        return (*([mixed] if self.mixes_rows else []), *([public] if self.codes else []))
