"""What a party discloses in a check before a study starts, and how it compares with the party that asked.

It discloses versions, names and digests of the study's terms, and its clock; nothing that depends on its data.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from quietmean.core.codec import digest
from quietmean.core.origin import package_version
from quietmean.core.party import PartyId
from quietmean.node.net import VERSION, Readiness, Roster, difference, differing, listed, printable, term_digests
from quietmean.node.phase import Position
from quietmean.planning import Plan

# Nothing of a study depends on clocks; logs and ledgers are easier to compare when they agree.
CLOCK_TOLERANCE = 5.0

Key: TypeAlias = Literal["proved", "other", "refused", "unknown"]


@dataclass(frozen=True)
class Agreed:
    """What all parties must have in common, as digests; ``fields``: of each term by its path."""

    roster: bytes
    study: bytes
    plan: bytes
    release: str
    fields: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, roster: Roster, plan: Plan) -> Agreed:
        study = {"context": plan.context, "target": plan.target.describe(), "protocol": plan.protocol.name}
        return cls(
            bytes.fromhex(roster.digest),
            bytes.fromhex(digest(study)),
            bytes.fromhex(plan.digest),
            package_version(),
            term_digests(terms(roster, plan)),
        )

    def readiness(self, position: Position | None = None) -> Readiness:
        """The answer to a check at this time. ``position``: of a party that has joined."""
        phase, round_ = position or (0, 0)
        return Readiness(
            VERSION,
            self.release,
            self.roster,
            self.study,
            self.plan,
            joined=position is not None,
            phase=phase,
            round=round_,
            time=time.time(),
            fields=dict(self.fields),
        )


def terms(roster: Roster, plan: Plan) -> dict[str, Any]:
    """What two parties of one study have in common, in plain data: roster, study, then what follows from them (``plan``)."""
    document = plan.to_json()
    target, protocol = document.pop("target"), document.pop("protocol")
    parties = [{"name": entry.name, "key": entry.public_key} for entry in roster.entries]
    sealed = {} if roster.seal is None else {"sealed": roster.seal.fields}
    return {"roster": parties, **document.pop("context"), **target, "protocol": protocol, **sealed, "plan": document}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. The peer's clock is ahead of ours by ``clock_offset``, plus or minus half the ``round_trip`` (seconds)."""

    readiness: Readiness
    round_trip: float
    clock_offset: float

    @property
    def clock_uncertainty(self) -> float:
        return self.round_trip / 2

    @property
    def clock_differs(self) -> bool:
        """By more than the tolerance, whatever the round trip hides."""
        return abs(self.clock_offset) - self.clock_uncertainty > CLOCK_TOLERANCE


@dataclass
class PeerReadiness:
    """What is known of a peer. ``trouble``: in words, why it has not answered; ``asks_us``: it reached this party.

    ``since``: what failed after it had answered or reached this party.
    """

    party: PartyId
    agreed: Agreed
    key: Key = "unknown"
    trouble: str = "no answer yet"
    reply: Reply | None = None
    asks_us: bool = False
    since: str = ""

    def same(self, name: Literal["version", "roster", "study", "plan"]) -> bool | None:
        """Whether it has the same as this party; None while it has not answered."""
        if self.reply is None:
            return None
        mine = VERSION if name == "version" else getattr(self.agreed, name)
        return bool(getattr(self.reply.readiness, name) == mine)

    @property
    def problems(self) -> tuple[str, ...]:
        """What has to be corrected, most fundamental first; empty if nothing."""
        since = (f"since then {self.since}",) if self.since else ()
        if self.reply is None:
            return (self.trouble, *since)
        there = self.reply.readiness
        roster = self._named("roster.", "sealed.") or "compare names and keys, and their order"
        study = difference(self.agreed.fields, there.fields) or "compare columns, bounds, unit, budget and protocol"
        plan = self._named("plan.") or "compare its options"
        checks = {
            f"other version: {printable(there.release)} there, {self.agreed.release} here": self.same("version"),
            f"other roster: {printable(roster)}": self.same("roster"),
            f"other study: {printable(study)}": self.same("study"),
            f"other plan of the same study: {printable(plan)}, or share one file with --plan": self.same("plan")
            or not self.same("study"),
        }
        return (*(problem for problem, fine in checks.items() if not fine), *since)

    def _named(self, *places: str) -> str:
        """The fields of these parts that differ; of the first part in which any does."""
        theirs = {} if self.reply is None else self.reply.readiness.fields
        differences = (differing(self.agreed.fields, theirs, within) for within in places if theirs)
        return listed(next((paths for paths in differences if paths), []))

    @property
    def agrees(self) -> bool:
        """It answered, has the same study, plan, roster and version."""
        return not self.problems

    @property
    def ready(self) -> bool:
        """It agrees, and can reach this party as well; a party that has joined sends no checks."""
        return self.agrees and (self.asks_us or (self.reply is not None and self.reply.readiness.joined))
