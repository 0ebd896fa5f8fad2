"""What figures about an execution take for granted: one typed list, which certificates, receipts, reports and commands print.

An :class:`Assumption` has a key that stays, for programs, and one sentence, for people. Those that hold for every protocol stand
here; protocols add their own (:meth:`quietmean.protocols.Mechanism.assumptions`), loss conversions say what the numbers are, and
a certificate says who colludes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from quietmean.core.domain import Neighbouring, PrivacyUnit


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

    ``key``: what it is about, see :class:`Key`; other distributions' protocols may bring keys of their own. ``text``: one
    sentence."""

    key: str
    text: str

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, str]:
        return {"key": str(self.key), "text": self.text}


def assumptions_json(assumptions: Iterable[Assumption]) -> list[dict[str, str]]:
    """A list of them as JSON data."""
    return [assumption.to_json() for assumption in assumptions]


PASSIVE = Assumption(
    Key.PASSIVE,
    "The adversary is passive: colluding parties follow the protocol and pool all that they send, receive, draw and know; "
    "a party that deviates in order to learn more is not covered.",
)
CHANNELS = Assumption(
    Key.CHANNELS,
    "Messages between two parties are encrypted (TLS 1.3, or files that are sealed to their receiver), and nobody but these two "
    "reads them, unless they are named as intercepted.",
)
OVERHEARD = Assumption(
    Key.CHANNELS,
    "Messages of the first round are encrypted (TLS 1.3), and nobody but sender and receiver reads them; all later ones "
    "are taken to be overheard by everybody.",
)
LOGS = Assumption(
    Key.LOGS,
    "Parties report truly what they sent and received, and when they were there: false logs make the figures speak of "
    "another execution.",
)
SILENT = Assumption(
    Key.SILENT,
    "Everything that was sent to a party counts as seen by it, whether it was used, refused or taken back, and also if the "
    "party was silent; messages between two parties that never came back are taken to have arrived.",
)
SILENT_WITH_GOSSIP = Assumption(
    Key.SILENT,
    "Everything that was sent to a party counts as seen by it, whether it was used, refused or taken back, and also if the "
    "party was silent; a party that never came back is taken to have been there for one round more than is known of it, "
    "and what such parties sent only each other later is not in the record.",
)
ATTENDANCE = Assumption(
    Key.ATTENDANCE,
    "Who takes part, leaves or refuses, and which messages are lost, does not depend on anybody's values; where it depends "
    "on what an observer saw before, only the a-priori figure holds, not that of what happened.",
)
PUBLIC = Assumption(
    Key.PUBLIC,
    "Columns, bounds, schedule, who was there, which messages were lost, and every party's weight or number of records are "
    "public: they are not protected.",
)
BOUNDS = Assumption(
    Key.BOUNDS,
    "Bounds were chosen without looking at the data; every value is moved into them before it is used.",
)
PERSON = Assumption(
    Key.PERSON,
    "A person is protected as one unit only: all that is known of a person is one unit, and is with one party only; "
    "somebody with several units, or with several parties, is protected less, with as many times mu at most.",
)


def for_unit(assumptions: Iterable[Assumption], unit: str, sites_per_person: int = 1) -> tuple[Assumption, ...]:
    """The assumption of a study whose unit is a person: at how many parties one is stands in the study, and nobody checks it."""
    if unit != PrivacyUnit.PERSON:
        return tuple(assumptions)
    at = "one party" if sites_per_person == 1 else f"{sites_per_person} parties"
    text = (
        f"All rows of a person at a party are one unit, and one person is with {at} at most (sites_per_person = "
        f"{sites_per_person}), which nobody checks; somebody with more parties is protected less, with as many times mu for each "
        f"{'of them' if sites_per_person == 1 else f'{sites_per_person} of them'}."
    )
    return tuple(Assumption(Key.PERSON, text) if assumption.key == Key.PERSON else assumption for assumption in assumptions)


GENERATOR = Assumption(
    Key.GENERATOR,
    "Noise comes from a cryptographic pseudorandom generator (AES-256 in counter mode) under a secret seed of the "
    "operating system, and is taken to be as good as truly random.",
)
MACHINES = Assumption(
    Key.MACHINES,
    "Honest parties' machines run this software unchanged and are not compromised; timing, memory and power are not "
    "accounted for.",
)
ALONE = Assumption(
    Key.ALONE,
    "The figures are about this execution alone: every further study of the same data adds to them (mu squared adds up).",
)


def curator(party: int) -> Assumption:
    """The assumption that ``party``, who sees every value, is honest."""
    return Assumption(
        Key.CURATOR,
        f"The curator, party {party}, sees every value, is trusted with it, adds the noise truly and colludes with nobody.",
    )


def neighbours(sensitivity: float, relation: Neighbouring) -> Assumption:
    """What neighbouring data are. ``sensitivity``: in the units in which the parties compute."""
    if relation == Neighbouring.ADD_REMOVE:
        return Assumption(
            Key.NEIGHBOURS,
            "Neighbouring data differ in one record that is there or not, which changes its party's vector by at most the L2 "
            f"sensitivity, {sensitivity:g}; how many records a party has is private, and no weight depends on it.",
        )
    return Assumption(
        Key.NEIGHBOURS,
        "Neighbouring data differ in the value of one unit, replaced by another one that changes its party's vector by at "
        f"most the L2 sensitivity, {sensitivity:g}.",
    )


def usual_colluders(parties: int) -> int:
    """How many parties are taken to collude where nobody says how many: one in ten, at least one."""
    return math.ceil(parties / 10)


def any_coalition(size: int, parties: int, trusted: frozenset[int] = frozenset()) -> Assumption:
    """The assumption that at most ``size`` of the parties collude, whichever but the ``trusted``; and if as many are
    taken by default."""
    if size == 0:
        return Assumption(Key.COLLUDING, "Nobody colludes: the adversary is an outsider who sees what is published.")
    who = f"At most {size} of the {parties} parties collude" + (f", none of them party {min(trusted)}" if trusted else "")
    usual = "; a study that names no number takes as many, one party in ten" if size == usual_colluders(parties) else ""
    return Assumption(Key.COLLUDING, f"{who}, and nobody else{usual}.")


def named_adversary(description: str) -> Assumption:
    """The assumption that the adversary is the one that is named and no other."""
    return Assumption(Key.COLLUDING, f"The adversary is {description}; nobody else colludes.")


# An assumption of protocols in which pairs draw the same noise.
SHARED_KEYS = Assumption(
    Key.KEYS,
    "Noise that two parties share comes from keys which they agreed on by X25519, with hybrid links by ML-KEM-768 besides, and "
    "heard from each other over an authenticated connection, or in the sealed study whose words they compared; nobody else can "
    "compute it.",
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
            "The owner declares that a query lets rows decide about other rows. The figures protect rows that the query returns, "
            "and not the records from which it computes them.",
        )
        public = Assumption(
            Key.CODES,
            f"Tables of codes that the query joins are public: nothing protects them. Their digests are {', '.join(self.codes)}.",
        )
        return (*([mixed] if self.mixes_rows else []), *([public] if self.codes else []))
