"""What is agreed on, by whom, and under which seal: what a party says yes to, of a study as of a session."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from quietmean.core.assumptions import Assumption, QueryStatement, assumptions_json
from quietmean.core.codec import digest
from quietmean.core.domain import Links
from quietmean.core.errors import InputError, named
from quietmean.core.party import PartyId
from quietmean.core.readable import Fact, ShortFact
from quietmean.core.tables import table_html
from quietmean.graphs import ExecutionTrace
from quietmean.node.net import Address, RelayAddress, Roster, format_address
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge, compose
from quietmean.privacy.analysis import WORTHLESS, a_priori, any_of, cost_text, everybody_else, is_worthless
from quietmean.protocols import Target
from quietmean.randomness import Seed
from quietmean.statistics import Column
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.deadlines import start_text
from quietmean.studies.agreement.sealed import Sealed

# What a contract calls a line that is an assumption.
ASSUMED = "taken for granted"
_RELAY_LEARNS = "learns who takes part, from where, when, and how many bytes pass; never what is in them"


@dataclass(frozen=True)
class Signatory:
    """A party that a contract names; ``address``: where it is dialled, None where messages or contributions are files."""

    name: str
    key: str
    address: Address | None = None

    def __str__(self) -> str:
        return self.name if self.address is None else f"{self.name} at {format_address(self.address)}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"name": self.name, "key": self.key, "address": None if self.address is None else format_address(self.address)}


class ContractFact:
    """One thing that a contract says: how it is called and put to people, and its fields in the JSON document."""

    def __init__(self, name: str, *sentences: str, **fields: Any) -> None:
        self.name, self.sentences, self.fields = name, sentences, fields


@dataclass(frozen=True, eq=False, repr=False)
class Agreement(ABC):
    """What ``party`` of the ``parties`` says yes to, and what a site's policy and its approvers look at.

    All parties of a ``study`` have the same one, but for who they are and what the owner of their data declares of a query.
    ``sealed``: where study and parties came sealed by a convener. ``contributes``: by file, and connects to nobody. ``query``:
    what this party's owner declares of the one over its data. ``target``: of all that is
    asked for, ``plan``: of one execution by all, the first of ``plans``, of all numbers of parties with which it may start.
    ``asks_for``: kind and text of each statistic; ``used`` and ``declared``: columns.
    """

    study: AnyStudy
    parties: tuple[Signatory, ...]
    party: PartyId
    sealed: Sealed | None = None
    contributes: bool = False
    query: QueryStatement = field(default_factory=QueryStatement)

    @property
    @abstractmethod
    def plans(self) -> Sequence[Plan]: ...

    @property
    @abstractmethod
    def target(self) -> Target: ...

    @property
    @abstractmethod
    def charge(self) -> Charge:
        """What is reserved for it, however many start."""

    @property
    @abstractmethod
    def epsilon_a_priori(self) -> float:
        """What it costs at most, however many start."""

    @property
    @abstractmethod
    def asks_for(self) -> Sequence[tuple[str, str]]: ...

    @property
    def used(self) -> Sequence[Column]:
        return ()

    @property
    def declared(self) -> Sequence[Column]:
        return ()

    @property
    def rounds(self) -> int:
        """How many executions of the plan there are at the most, one after the other."""
        return 1

    @property
    def assumptions(self) -> Sequence[Assumption]:
        return (*self.plan.assumptions, *self.query.assumptions)

    @abstractmethod
    def _title(self) -> ContractFact: ...

    @abstractmethod
    def _question(self) -> Iterable[ContractFact]:
        """What is asked for, and what that protects."""

    @abstractmethod
    def _answer(self) -> Iterable[ContractFact]:
        """What is known of the answer beforehand, and how far one party can move it."""

    def facts(self) -> list[ContractFact]:
        """List what it is about, and what it says: terminal, pages and JSON are made of this."""
        plan, target = self.plan, self.target
        protocol, why = plan.protocol, f": {self._why}" if self._why else ""
        trust = protocol.traits.trust
        fields = {"epsilon_a_priori": self.epsilon_a_priori, "delta": target.delta, "enforced_by": plan.a_priori.enforced_by}
        cost = ContractFact("costs at most", self._cost(), **fields)
        # What is not promised comes first.
        first = plan.above_target is not None
        return [
            self._title(),
            *([cost] if first else []),
            *self._question(),
            *([] if first else [cost]),
            ContractFact("against", self._against(), colluding=target.colluding),
            self._if_more(),
            ContractFact("protocol", f"{protocol.name}, {trust}{why}", protocol=protocol.name, trust=trust),
            *self._together(),
            *self._connections(),
            *self._answer(),
            ContractFact(ASSUMED, *map(str, self.assumptions), assumptions=assumptions_json(self.assumptions)),
            ContractFact("digest", self.digest, digest=self.digest, party=self.own.name, plan=plan.digest),
        ]

    @property
    @abstractmethod
    def always(self) -> tuple[ShortFact, ...]:
        """What this party has to see before a yes, as far as it is known without data."""

    def expected_shortly(self) -> list[str]:
        """Return what is known of the answer beforehand, a few words for each statistic."""
        return []

    def lines(self) -> list[tuple[str, str]]:
        """Return what it says, in sentences for people."""
        return [(fact.name, sentence) for fact in self.facts() for sentence in fact.sentences]

    def to_json(self) -> dict[str, Any]:
        """Return what ``quietmean site contract --json`` prints."""
        document = {name: value for fact in self.facts() for name, value in fact.fields.items()}
        always = [{"key": fact.key, "text": str(fact.text)} for fact in self.always]
        return document | {"accept": self.accept_digest, "always": always}

    def __str__(self) -> str:
        """For who says yes: a line for each thing."""
        return "\n".join(f"{name}: {text}" for name, text in self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table_html([{"": name, "contract": text} for name, text in self.lines()])

    @abstractmethod
    def _stated(self) -> dict[str, Any]:
        """What the digest covers besides the parties and the plan, without a seal."""

    @property
    def _why(self) -> str:
        """Why its protocol was taken, or nothing."""
        return ""

    @property
    def plan(self) -> Plan:
        return self.plans[0]

    @property
    def fewest(self) -> int:
        """With how many parties it may start."""
        return self.plans[-1].target.parties

    @property
    def own(self) -> Signatory:
        return self.parties[self.party]

    @property
    def others(self) -> list[Signatory]:
        return [party for party in self.parties if party is not self.own]

    @property
    def name(self) -> str:
        return self.study.name

    @property
    def relays(self) -> list[str]:
        return relays_of(self.parties)

    @cached_property
    def digest(self) -> str:
        """What a yes is about, SHA-256, hexadecimal: the seal's; else of what is asked, parties with their keys, plan."""
        if self.sealed is not None:
            return self.sealed.digest
        parties = [[party.name, party.key] for party in self.parties]
        plans = {"plans": [plan.digest for plan in self.plans]} if self.study.starts_with_quorum else {}
        return digest({**self._stated(), **plans, "parties": parties, "plan": self.plan.digest})

    @cached_property
    def accept_digest(self) -> str:
        """What says yes in advance, SHA-256, hexadecimal: of the digest, of this party, and of what it has to see before."""
        always = [[fact.key, str(fact.text)] for fact in self.always]
        own = [self.own.name, self.own.key]
        return digest({"format": "quietmean-accept-1", "agreement": self.digest, "party": own, "always": always})

    @cached_property
    def everybody_else(self) -> float:
        """Epsilon of this party if all others collude and nobody leaves, of all plans; infinite where nothing is left then."""
        return max(
            against_all_others(plan, min(self.party, plan.target.parties - 1), self.target.delta, self.rounds)
            for plan in self.plans
        )

    @property
    def _left(self) -> str:
        """What is left if all others collude, at the delta of all that is asked for."""
        alone = self.everybody_else
        if math.isinf(alone):
            return "not bounded"
        named = f", {WORTHLESS}" if self.left_is_worthless else ""
        return f"{cost_text(alone, self.target.delta)}{named}"

    @cached_property
    def left_is_worthless(self) -> bool:
        """Is what is left if all others collude a share of Laplace noise only?"""
        return is_worthless(self.everybody_else, self.plan.a_priori)

    @property
    def promises(self) -> tuple[Fact, Fact]:
        """What it costs at most, and what is left if more collude than that."""
        epsilon, delta, unit = self.epsilon_a_priori, self.target.delta, str(self.target.unit)
        promised = a_priori(epsilon, delta, unit, self._colluders(), self.plan.a_priori)
        return promised, everybody_else(self.everybody_else, delta, unit, promised=self.plan.a_priori)

    def _colluders(self) -> str:
        """Who may collude, in words."""
        trusted = [self.parties[party].name for party in sorted(self.plan.protocol.traits.trusted)]
        return any_of(self.target.colluding, len(self.parties), trusted)

    def _cost(self) -> str:
        """What is known beforehand."""
        promised = cost_text(self.epsilon_a_priori, self.target.delta, below=self.plan.charge.delta_below)
        return f"{promised}, guaranteed before the start, enforced by {self.plan.a_priori.enforced_by}"

    def _against(self) -> str:
        """Who may collude, and see the result."""
        return f"{self._colluders()}, and who sees the result"

    def _if_more(self) -> ContractFact:
        return ContractFact("if all others collude", self._left, epsilon_if_all_others_collude=self.everybody_else)

    def _together(self) -> list[ContractFact]:
        """With whom it takes part."""
        how = "with" if self.own.address is None else "connects to"
        return [ContractFact("through a folder, with" if self.study.by_folder else how, "; ".join(map(str, self.others)))]

    def _connections(self) -> list[ContractFact]:
        """When it starts and waits, who else learns of it, and which keys protect it."""
        study, plans = self.study, self.plans
        facts = [ContractFact("parties", parties=[party.to_json() for party in self.parties])]
        if study.start_by is not None:
            quorum = {str(plan.target.parties): plan.digest for plan in plans}
            document = {"minimum": self.fewest, "start_by": study.start_by.isoformat(), "plans": quorum}
            facts.append(ContractFact("starts", start_text(study.start_by, len(self.parties), self.fewest), quorum=document))
        if study.deadlines is not None:
            fields = study.deadlines.to_json(plans)
            facts.append(ContractFact("waits", study.deadlines.in_words(plans, self.rounds), deadlines=fields))
        through = (f"{relay} {_RELAY_LEARNS}" for relay in self.relays)
        facts.append(ContractFact("through a relay", *through, relays=self.relays))
        return [*facts, ContractFact("keys", self.keys, links=str(self.links), post_quantum=self.post_quantum)]

    @property
    def links(self) -> Links:
        return self.study.keyed_by

    @property
    def keys(self) -> str:
        """What protects what parties tell each other, and noise that they share, in words."""
        return "; ".join((self.links.text, *without_ml_kem(self.plan, self.contributes)))

    @property
    def post_quantum(self) -> bool:
        """Whether all of it rests on ML-KEM-768 besides X25519."""
        return self.links == Links.HYBRID and not without_ml_kem(self.plan, self.contributes)


def without_ml_kem(plan: Plan, contributes: bool = False) -> list[str]:
    """What rests on X25519 alone with any links; ``contributes``: by file, where parties tell each other nothing before."""
    protocol, reasons = plan.protocol, []
    if contributes and protocol.traits.shares_noise:
        reasons.append("the noise that pairs share rests on X25519 alone, as by file they tell each other nothing before")
    if protocol.traits.agrees_on_keys:
        reasons.append(f"the masks of {protocol.name} rest on X25519 alone against its aggregator")
    return reasons


def signatories(agreed: Sealed | tuple[AnyStudy, Roster]) -> tuple[AnyStudy, tuple[Signatory, ...], Sealed | None]:
    """What is agreed on, its parties, dialled unless messages are files, and the seal where it has one."""
    if isinstance(agreed, Sealed):
        study, sealed = agreed.terms, agreed
        listed = [(entry.name, entry.identity, entry.dialled) for entry in agreed.entries]
    else:
        (study, roster), sealed = agreed, None
        listed = [(entry.name, entry.public_key, entry.address) for entry in roster.entries]
    return study, tuple(Signatory(name, key, None if study.by_folder else address) for name, key, address in listed), sealed


def place_of(name: str | None, parties: Sequence[Signatory]) -> PartyId:
    """Index of the party of this name. Raises :class:`InputError` if there is none."""
    names = [party.name for party in parties]
    if name not in names:
        raise InputError(
            f"{name or 'this site'} is not one of the parties, {', '.join(names)}. Say which with {named('party', 'NAME')}."
        )
    return names.index(name)


def relays_of(parties: Sequence[Signatory]) -> list[str]:
    """Hosts and ports of the relays at which parties are called."""
    relays = {party.address for party in parties if isinstance(party.address, RelayAddress)}
    return sorted(format_address((relay.host, relay.port)) for relay in relays)


def against_all_others(plan: Plan, party: PartyId, delta: float, rounds: int = 1) -> float:
    """Epsilon of a party in so many executions of a plan if all others collude and nobody leaves; infinite where nothing is
    left then."""
    if not plan.protocol.traits.has_transcript:
        # Only what is guaranteed against every coalition is known.
        return compose([plan.charge] * rounds).epsilon(delta)
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties)
    analysis = plan.execution(Seed.public("contract"), everyone).privacy(delta)
    others = [other for other in range(plan.target.parties) if other != party]
    return analysis.epsilon(analysis.against(others).max_mu * math.sqrt(rounds)) if rounds else 0.0
