"""What a party of a session between machines says yes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

from quietmean.core.assumptions import Assumption, assumptions_json
from quietmean.core.codec import canonical_json
from quietmean.core.party import PartyId
from quietmean.core.readable import count_of
from quietmean.core.start_quorum import least_minimum
from quietmean.node import Roster, Started
from quietmean.planning.automatic import Choice
from quietmean.planning.influence import Influence, planned_influence
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.privacy.facts import cost_text
from quietmean.protocols import Target
from quietmean.statistics import Column
from quietmean.studies.agreement.any_study import AnyStudy, require_session
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.session_terms import SessionTerms
from quietmean.studies.outcome.feasible import feasible, feasible_sealed
from quietmean.studies.outcome.influence import coordinate_json, coordinate_text
from quietmean.studies.party import ASSUMED, Agreement, Contract, Signatory, place_of, signatories

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


@dataclass(frozen=True, eq=False, repr=False)
class SessionContract(Agreement):
    """What ``party`` of the ``parties`` says yes to, once for all rounds; the same for all parties, but for who they are.

    ``sealed``: where session and parties came sealed by a convener.
    """

    study: SessionStudy
    parties: tuple[Signatory, ...]
    party: PartyId
    sealed: Sealed | None = None

    @classmethod
    def for_party(cls, name: str | None, agreed: Sealed | tuple[AnyStudy, Roster]) -> Self:
        """For the party of this name. Raises :class:`InputError` if there is none, and where a study is agreed on."""
        study, parties, sealed = signatories(agreed)
        return cls(require_session(study), parties, place_of(name, parties), sealed)

    @cached_property
    def terms_by_size(self) -> dict[int, SessionTerms]:
        """For each number of parties with which it may start; of all of them first. Raises as :func:`feasible`."""
        terms = self.study.terms_by_size(len(self.parties))
        plans = {size: each.plan for size, each in terms.items()}
        feasible(self.study, len(self.parties), planned=Choice(plans.pop(len(self.parties)), smaller=plans))
        return terms

    @property
    def terms(self) -> SessionTerms:
        return self.terms_by_size[len(self.parties)]

    @property
    def _asked(self) -> SessionStudy:
        return self.study

    def _stated(self) -> dict[str, Any]:
        return {"format": "quietmean-session-contract-1", "session": self.study.describe()}

    @cached_property
    def plans(self) -> list[Plan]:
        """Of each round."""
        return [terms.plan for terms in self.terms_by_size.values()]

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
        return self.charge_of(self.study.rounds)

    def charge_of(self, rounds: int) -> Charge:
        """What so many rounds cost at most, whoever is in."""
        return reduce(Charge.larger, (terms.charge(rounds) for terms in self.terms_by_size.values()))

    @property
    def asks_for(self) -> list[tuple[str, str]]:
        return [(KIND, f"{KIND}({count_of(self.study.dimension, 'coordinate')}, {count_of(self.study.rounds, 'round')})")]

    @property
    def used(self) -> Sequence[Column]:
        """None that a file declares: vectors come from the party's own program."""
        return ()

    @property
    def declared(self) -> Sequence[Column]:
        return ()

    @property
    def _executions(self) -> int:
        return self.study.rounds

    def among(self, started: Started | None) -> PartOfSession:
        """What it is for those who are in; for all, before that is settled."""
        return PartOfSession(self, started)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return (*self.plan.assumptions, STOPPING, OWN_PROGRAM)

    @cached_property
    def influence(self) -> Influence | None:
        """How far one party can move a round's mean of vectors of norm 1 if all are there; None for too many parties."""
        return planned_influence(self.plan)

    def _moved(self) -> list[str]:
        return [] if self.influence is None else [coordinate_text(self.influence, self.study.clip)]

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
            "epsilon_if_all_others_collude": self.everybody_else,
            "protocol": self.plan.protocol.name,
            "trust": self.plan.protocol.traits.trust,
            "plan": self.plan.digest,
            **self._quorum_json(),
            **self._deadlines_json(),
            "influence": None if self.influence is None else coordinate_json(self.influence, self.study.clip),
            "relays": self.relays,
            "links": str(self.links),
            "post_quantum": self.post_quantum,
            "assumptions": assumptions_json(self.assumptions),
        }

    def lines(self) -> list[tuple[str, str]]:
        """What it is about, and what it says: for people."""
        study, target = self.study, self.target
        means = count_of(study.rounds, "mean")
        return [
            ("session", study.name),
            *((("for", canonical_json(study.purpose).decode()),) if study.purpose else ()),
            ("asks for", f"at most {means} of vectors of {count_of(study.dimension, 'coordinate')}, of L2 norm {study.clip:g}"),
            ("protects", f"one {study.unit} over all rounds together, under {target.neighbouring}"),
            (
                "costs at most",
                f"{cost_text(self.epsilon_a_priori, study.delta)}, enforced by {self.plan.a_priori.enforced_by}",
            ),
            (
                "against",
                f"{self._colluders()} in all rounds, and who sees the results",
            ),
            ("if all others collude", self._left),
            ("protocol", f"{self.plan.protocol.name}, {self.plan.protocol.traits.trust}"),
            (self._how(), "; ".join(map(str, self.others))),
            *self._connection_lines(),
            *(("one party can move", sentence) for sentence in self._moved()),
            *((ASSUMED, str(assumption)) for assumption in self.assumptions),
            ("digest", self.digest),
        ]


@dataclass(frozen=True)
class PartOfSession:
    """A session among those who are in at its start, for all its rounds."""

    contract: SessionContract
    started: Started | None

    @property
    def names(self) -> tuple[str, ...]:
        """Of those who are in, in their order."""
        parties = self.contract.parties
        return tuple(party.name for party in parties) if self.started is None else self.started.settings.names

    @property
    def terms(self) -> SessionTerms:
        return self.contract.terms_by_size[len(self.names)]

    @property
    def least(self) -> int:
        """With how many vectors there is a mean: with fewer, of a session that does not wait for all, there could be another."""
        target = self.contract.target
        return least_minimum(target.parties, target.colluding) if self.contract.study.starts_with_quorum else 1

    def everybody_else(self, rounds: int) -> float:
        """Epsilon of this party after so many rounds if all others collude and nobody leaves; infinite where nothing is left."""
        party = self.names.index(self.contract.own.name)
        return self.contract.against_all_others(self.terms.plan, party, self.contract.study.delta, rounds)

    def start_json(self) -> dict[str, Any]:
        """For the receipt, of a session that does not wait for all: who was in at the start."""
        if self.started is None or not self.contract.study.starts_with_quorum:
            return {}
        start = {"attempt": self.started.attempt, "members": list(self.names), "not_in_at_start": list(self.started.absent)}
        return {"start": start}


def contract_for(name: str | None, agreed: Sealed | tuple[AnyStudy, Roster]) -> Contract | SessionContract:
    """What the party of this name says yes to, with the plan that every party makes. Raises :class:`InputError` if there is none,
    and for a study without privacy."""
    study, parties, _ = signatories(agreed)
    if isinstance(study, SessionStudy):
        contract = SessionContract.for_party(name, agreed)
        contract.plan  # noqa: B018 - computed once, here
        return contract
    choice = feasible_sealed(agreed) if isinstance(agreed, Sealed) else feasible(study, len(parties))
    return Contract.for_party(name, agreed, choice)
