"""The session file: what the parties of a session between machines agree on, but who they are; and what a party says yes to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from quietmean.core.assumptions import Assumption, assumptions_json, usual_colluders
from quietmean.core.codec import canonical_json, digest, to_plain
from quietmean.core.domain import Links, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.toml_files import Place, fault, read_tables
from quietmean.graphs import ExecutionTrace
from quietmean.node import Roster
from quietmean.planning.automatic import AUTO
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.protocols import Target
from quietmean.randomness import Seed
from quietmean.sessions.terms import SessionTerms
from quietmean.statistics import Column
from quietmean.studies.party import Signatory, relays_of

# What a site's policy calls the question of every round.
KIND = "vector-mean"
STOPPING = Assumption(
    "stopping",
    "Who is there in a round, and when a party ends its part of the session, depends on nothing but what was released.",
)
OWN_PROGRAM = Assumption(
    "own-program",
    "What a vector is computed from is up to each party's own program; nothing else of the protected unit is published.",
)


class SessionStudy(BaseModel):
    """At most ``rounds`` means of vectors of ``dimension`` coordinates under one budget: ``epsilon``, ``delta`` of one ``unit``.

    ``clip``: each vector is shortened to this L2 norm, unless a round says another one. ``round_timeout``: so many seconds the
    others wait for who is late in a round; ``start_timeout``: for the agreement before the first. ``purpose``: what else all
    parties have to do alike, in plain data, such as an estimator with its parameters.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "session"
    dimension: int = Field(ge=1)
    rounds: int = Field(ge=1)
    epsilon: float = 1.0
    delta: float = 1e-6
    clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    unit: PrivacyUnit = PrivacyUnit.PARTY
    colluding: int | None = None
    dropouts: float = 0.0
    protocol: str = AUTO
    options: dict[str, Any] = Field(default_factory=dict)
    round_timeout: float = Field(default=10.0, ge=1e-3)
    start_timeout: float = Field(default=60.0, ge=1e-3)
    purpose: dict[str, Any] = Field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Plain JSON data, which the digest of a contract is of; sessions of before there were purposes have the same."""
        return self.model_dump(mode="json", exclude=set() if self.purpose else {"purpose"})

    @field_validator("purpose")
    @classmethod
    def _plain(cls, given: dict[str, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = to_plain(given)
        try:
            canonical_json(plain)
        except TypeError:
            raise ValueError("no plain data") from None
        return plain

    @classmethod
    def load(cls, path: Path) -> SessionStudy:
        """From a TOML file with one table [session]. Raises :class:`InputError` for one that cannot be read or is not right."""
        raw = read_tables(path, "session file")
        if set(raw) != {"session"} or not isinstance(raw["session"], Mapping):
            raise InputError(f"session file {path.name} must have one table, [session], and nothing else: mend it")
        return cls.parse(raw["session"])

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> SessionStudy:
        """From plain data. Raises :class:`InputError` that lists all wrong fields at once."""
        try:
            return cls.model_validate(dict(raw))
        except ValidationError as error:
            faults = "; ".join(_fault(one["loc"], one["type"], one["msg"]) for one in error.errors())
            raise InputError(f"the session is not as it should be ({faults}): mend these fields") from None

    def terms(self, parties: int) -> SessionTerms:
        """For so many parties. Raises :class:`InputError` for terms that nobody can keep."""
        return SessionTerms(
            parties=parties,
            dimension=self.dimension,
            epsilon=self.epsilon,
            delta=self.delta,
            rounds=self.rounds,
            unit=self.unit,
            colluding=usual_colluders(parties) if self.colluding is None else self.colluding,
            dropouts=self.dropouts,
            protocol=self.protocol,
            options=self.options,
        )


def _fault(place: Place, kind: str, message: str) -> str:
    return f"{'.'.join(map(str, place))} is missing" if kind == "missing" else fault(place, kind, message, SessionStudy)


@dataclass(frozen=True, eq=False)
class SessionContract:
    """What ``party`` of the roster says yes to, once for all rounds; the same for all parties, but for who they are.

    It has what a site's policy looks at, see :class:`quietmean.studies.party.Asked`.
    """

    study: SessionStudy
    roster: Roster
    party: PartyId

    @cached_property
    def terms(self) -> SessionTerms:
        return self.study.terms(len(self.roster))

    @property
    def name(self) -> str:
        return self.study.name

    @cached_property
    def digest(self) -> str:
        """What a yes is about, SHA-256, hexadecimal: of the session file, names and keys of all parties, a round's plan."""
        parties = [[entry.name, entry.public_key] for entry in self.roster.entries]
        agreed = {"session": self.study.describe(), "parties": parties, "plan": self.plan.digest}
        return digest({"format": "quietmean-session-contract-1", **agreed})

    @property
    def sealed(self) -> None:
        return None

    @property
    def keys(self) -> str:
        """What protects what parties tell each other: they have a roster and no seal, so no keys of ML-KEM-768."""
        return Links.X25519.text

    @property
    def post_quantum(self) -> bool:
        return False

    @property
    def plan(self) -> Plan:
        """Of each round."""
        return self.terms.plan

    @cached_property
    def target(self) -> Target:
        """Of all rounds together."""
        return self.terms.whole_target

    @property
    def epsilon_a_priori(self) -> float:
        """What all rounds cost at most at the session's delta, whatever happens in them; rounded up."""
        return self.charge.epsilon(self.study.delta)

    @property
    def charge(self) -> Charge:
        """What is reserved for all rounds."""
        return self.terms.charge(self.study.rounds)

    def spent_epsilon(self, rounds: int) -> float:
        """What so many rounds cost at most at the session's delta; rounded up."""
        return self.terms.spent_epsilon(rounds)

    @property
    def fewest(self) -> int:
        """All parties agree before the first round."""
        return len(self.roster)

    @cached_property
    def parties(self) -> tuple[Signatory, ...]:
        return tuple(Signatory(entry.name, entry.public_key, entry.address) for entry in self.roster.entries)

    @property
    def own(self) -> Signatory:
        return self.parties[self.party]

    @property
    def others(self) -> Sequence[Signatory]:
        return [party for party in self.parties if party is not self.own]

    @property
    def asks_for(self) -> list[tuple[str, str]]:
        return [(KIND, f"{KIND}({self.study.dimension} coordinates, {self.study.rounds} rounds)")]

    @property
    def used(self) -> Sequence[Column]:
        """None that a file declares: vectors come from the party's own program."""
        return ()

    @property
    def declared(self) -> Sequence[Column]:
        return ()

    def everybody_else(self, rounds: int) -> float:
        """Epsilon of this party after so many rounds if all others collude and nobody leaves; infinite where nothing is left."""
        plan = self.plan
        everyone = ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties)
        analysis = plan.execution(Seed.public("contract"), everyone).privacy(self.study.delta)
        others = [one for one in range(plan.target.parties) if one != self.party]
        return analysis.epsilon(analysis.against(others).max_mu * math.sqrt(rounds)) if rounds else 0.0

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return (*self.plan.assumptions, STOPPING, OWN_PROGRAM)

    def to_json(self) -> dict[str, Any]:
        return {
            "session": self.study.describe(),
            "digest": self.digest,
            "party": self.own.name,
            "parties": [{"name": party.name, "key": party.key} for party in self.parties],
            "unit": str(self.study.unit),
            "neighbouring": str(self.target.neighbouring),
            "epsilon_a_priori": self.epsilon_a_priori,
            "delta": self.study.delta,
            "enforced_by": self.plan.a_priori.enforced_by,
            "colluding": self.target.colluding,
            "epsilon_if_all_others_collude": self.everybody_else(self.study.rounds),
            "protocol": self.plan.protocol.name,
            "trust": self.plan.protocol.trusts,
            "plan": self.plan.digest,
            "relays": relays_of(self.parties),
            "links": str(Links.X25519),
            "post_quantum": self.post_quantum,
            "assumptions": assumptions_json(self.assumptions),
        }

    def __str__(self) -> str:
        """For who says yes: a line for each thing."""
        study, target, others = self.study, self.target, self.everybody_else(self.study.rounds)
        at = f"at delta {study.delta:g}"
        lines = [
            ("session", study.name),
            *((("for", canonical_json(study.purpose).decode()),) if study.purpose else ()),
            ("asks for", f"at most {study.rounds} means of vectors of {study.dimension} coordinates, of L2 norm {study.clip:g}"),
            ("protects", f"one {study.unit} over all rounds together, under {target.neighbouring}"),
            ("costs at most", f"epsilon {math.ceil(self.epsilon_a_priori * 1e4) / 1e4:g} {at}: {self.plan.a_priori.enforced_by}"),
            (
                "against",
                f"any {target.colluding} of the {target.parties} parties together in all rounds, and who sees the results",
            ),
            ("if all others collude", "not bounded" if math.isinf(others) else f"epsilon {others:.4g} {at}"),
            ("protocol", f"{self.plan.protocol.name}, {self.plan.protocol.trusts}"),
            ("connects to", "; ".join(map(str, self.others))),
            *(("through a relay", relay) for relay in relays_of(self.parties)),
            ("keys", self.keys),
            *(("taken for granted", str(one)) for one in self.assumptions),
            ("digest", self.digest),
        ]
        return "\n".join(f"{name}: {text}" for name, text in lines)
