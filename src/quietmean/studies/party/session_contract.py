"""What a party of a session between machines says yes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Self

from quietmean.core.assumptions import Assumption
from quietmean.core.codec import canonical_json
from quietmean.core.limits import least_minimum
from quietmean.core.readable import ShortFact, count_of
from quietmean.node import Roster, Started
from quietmean.planning.automatic import Choice
from quietmean.planning.influence import Influence, planned_influence
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.protocols import Target
from quietmean.studies.agreement.any_study import AnyStudy, has_committee, require_session
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.session_terms import SessionTerms
from quietmean.studies.outcome.feasible import feasible, feasible_sealed
from quietmean.studies.outcome.influence import coordinate_json, coordinate_text
from quietmean.studies.party.agreement import Agreement, ContractFact, against_all_others, place_of, signatories
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.first_screen import always_facts

# What a site's policy calls the question of every round.
KIND = "vector-mean"
STOPPING = Assumption(
    "stopping",
    "Who takes part in a round, and when a party leaves the session, depends only on what was released.",
)
OWN_PROGRAM = Assumption(
    "own-program",
    "Each party's own program computes its vectors, and publishes nothing else of the protected unit.",
)


@dataclass(frozen=True, eq=False, repr=False)
class SessionContract(Agreement):
    """A session, to which a party says yes once for all rounds."""

    study: SessionStudy

    @classmethod
    def for_party(cls, name: str | None, agreed: Sealed | tuple[AnyStudy, Roster]) -> Self:
        """The contract for the party of this name.

        Raises :class:`InputError` if there is none, and where a study is agreed on.
        """
        study, parties, sealed = signatories(agreed)
        return cls(require_session(study), parties, place_of(name, parties), sealed)

    @cached_property
    def terms_by_size(self) -> dict[int, SessionTerms]:
        """The terms for each number of parties with which it may start; of all of them first. Raises as :func:`feasible`."""
        terms = self.study.terms_by_size(len(self.parties))
        plans = {size: each.plan for size, each in terms.items()}
        feasible(self.study, len(self.parties), planned=Choice(plans.pop(len(self.parties)), smaller=plans))
        return terms

    @property
    def terms(self) -> SessionTerms:
        return self.terms_by_size[len(self.parties)]

    def _stated(self) -> dict[str, Any]:
        return {"format": "quietmean-session-contract-1", "session": self.study.describe()}

    @cached_property
    def plans(self) -> list[Plan]:
        """The plans of each round."""
        return [terms.plan for terms in self.terms_by_size.values()]

    @cached_property
    def target(self) -> Target:
        """The target of all rounds together."""
        return self.terms.whole_target

    @property
    def epsilon_a_priori(self) -> float:
        return self.charge.epsilon(self.study.delta)

    @property
    def charge(self) -> Charge:
        return self.charge_of(self.study.rounds)

    def charge_of(self, rounds: int) -> Charge:
        """What so many rounds cost at most, however many are in."""
        return reduce(Charge.larger, (terms.charge(rounds) for terms in self.terms_by_size.values()))

    @property
    def asks_for(self) -> list[tuple[str, str]]:
        return [(KIND, f"{KIND}({count_of(self.study.dimension, 'coordinate')}, {count_of(self.study.rounds, 'round')})")]

    @property
    def rounds(self) -> int:
        return self.study.rounds

    @property
    def always(self) -> tuple[ShortFact, ...]:
        return always_facts(self)

    def of_those_in(self, started: Started | None) -> PartOfSession:
        """The part of the session for those who are in; for all, before that is settled."""
        return PartOfSession(self, started)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return assumptions_of(self.plan)

    @cached_property
    def influence(self) -> Influence | None:
        """How far one party can move a round's mean of vectors of norm 1 if all are there; None for too many parties."""
        return planned_influence(self.plan)

    def _title(self) -> ContractFact:
        return ContractFact("session", self.study.name, session=self.study.describe())

    def _question(self) -> Iterator[ContractFact]:
        study, target = self.study, self.target
        if study.purpose:
            yield ContractFact("for", study.model or canonical_json(study.purpose).decode())
        vectors = f"vectors of {count_of(study.dimension, 'coordinate')}, of L2 norm {study.clip:g}"
        yield ContractFact("asks for", f"at most {count_of(study.rounds, 'mean')} of {vectors}")
        protects = f"one {study.unit} over all rounds together; {target.neighbouring.text}"
        yield ContractFact("protects", protects, unit=str(study.unit), neighbouring=str(target.neighbouring))

    def _answer(self) -> list[ContractFact]:
        moved, clip = self.influence, self.study.clip
        if moved is None:
            return [ContractFact("", influence=None)]
        return [ContractFact("one party can move", coordinate_text(moved, clip), influence=coordinate_json(moved, clip))]

    def _against(self) -> str:
        return f"{self._colluders()} in all rounds, and who sees the results"


@dataclass(frozen=True)
class PartOfSession:
    """A session of those who are in at its start, for all its rounds."""

    contract: SessionContract
    started: Started | None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of those who are in, in their order."""
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
        return against_all_others(self.terms.plan, party, self.contract.study.delta, rounds)

    def start_json(self) -> dict[str, Any]:
        """The start for the receipt, of a session that does not wait for all: who was in."""
        if self.started is None or not self.contract.study.starts_with_quorum:
            return {}
        start = {"attempt": self.started.attempt, "members": list(self.names), "not_in_at_start": list(self.started.absent)}
        return {"start": start}


def assumptions_of(plan: Plan) -> tuple[Assumption, ...]:
    """What the figures of a session assume whose rounds have this plan."""
    return (*plan.assumptions, STOPPING, OWN_PROGRAM)


def contract_for(name: str | None, agreed: Sealed | tuple[AnyStudy, Roster]) -> Contract | SessionContract:
    """What the party of this name says yes to, with the plan that every party makes. Raises :class:`InputError` if there is none.

    Where the study has no privacy, who says yes says that to it, too.
    """
    study, parties, _ = signatories(agreed)
    if isinstance(study, SessionStudy):
        contract = SessionContract.for_party(name, agreed)
        contract.plan  # noqa: B018 - computed once, here
        return contract
    if isinstance(agreed, Sealed):
        choice, by_file = feasible_sealed(agreed, no_privacy=None), has_committee(study) or agreed.by_file
    else:
        choice, by_file = feasible(study, len(parties), no_privacy=None), False
    return replace(Contract.for_party(name, agreed, choice), contributes=by_file)
