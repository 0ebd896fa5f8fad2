"""What is agreed on, by whom, and under which seal: what the contracts of a study and of a session have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from quietmean.core.codec import digest
from quietmean.core.domain import Links
from quietmean.core.errors import InputError, named
from quietmean.core.fact import Fact
from quietmean.core.party import PartyId
from quietmean.core.query_statement import QueryStatement
from quietmean.core.readable import count_of
from quietmean.core.tables import table_html
from quietmean.graphs import ExecutionTrace
from quietmean.node.net import Address, RelayAddress, Roster, format_address
from quietmean.planning.plan import Plan
from quietmean.privacy.facts import a_priori, any_of, cost_text, everybody_else
from quietmean.protocols import Target
from quietmean.randomness import Seed
from quietmean.statistics import Column
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.deadlines import in_hours, in_words
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


class Agreement(ABC):
    """What all parties have alike, but for who they are, and what a site's policy and its approvers look at.

    ``sealed``: where it came sealed by a convener. ``contributes``: by file, and connects to nobody. ``query``: what
    this party's owner declares of the one over its data. ``target``: of all that is
    asked for, ``plan``: of one execution by all, the first of ``plans``, of all numbers of parties with which it may start.
    ``asks_for``: kind and text of each statistic; ``used`` and ``declared``: columns.
    """

    parties: tuple[Signatory, ...]
    party: PartyId
    sealed: Sealed | None
    contributes: bool = False
    query: QueryStatement = QueryStatement()

    @property
    @abstractmethod
    def plans(self) -> Sequence[Plan]: ...

    @property
    @abstractmethod
    def target(self) -> Target: ...

    @property
    @abstractmethod
    def epsilon_a_priori(self) -> float: ...

    @property
    @abstractmethod
    def asks_for(self) -> Sequence[tuple[str, str]]: ...

    @property
    @abstractmethod
    def used(self) -> Sequence[Column]: ...

    @property
    @abstractmethod
    def declared(self) -> Sequence[Column]: ...

    @abstractmethod
    def lines(self) -> Sequence[tuple[str, str]]:
        """What it is about, and what it says: for people."""

    def __str__(self) -> str:
        """For who says yes: a line for each thing."""
        return "\n".join(f"{name}: {text}" for name, text in self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return table_html([{"": name, "contract": text} for name, text in self.lines()])

    @property
    @abstractmethod
    def _asked(self) -> AnyStudy: ...

    @abstractmethod
    def _stated(self) -> dict[str, Any]:
        """What the digest covers besides the parties and the plan, where there is no seal."""

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
        return self._asked.name

    @property
    def relays(self) -> list[str]:
        return relays_of(self.parties)

    @cached_property
    def digest(self) -> str:
        """What a yes is about, SHA-256, hexadecimal: the seal's; else of what is asked, parties with their keys, plan."""
        if self.sealed is not None:
            return self.sealed.digest
        parties = [[party.name, party.key] for party in self.parties]
        plans = {"plans": [plan.digest for plan in self.plans]} if self._asked.starts_with_quorum else {}
        return digest({**self._stated(), **plans, "parties": parties, "plan": self.plan.digest})

    def against_all_others(self, plan: Plan, party: PartyId, delta: float, rounds: int = 1) -> float:
        """Epsilon of a party in so many executions of a plan if all others collude and nobody leaves; infinite where nothing is
        left then."""
        everyone = ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties)
        analysis = plan.execution(Seed.public("contract"), everyone).privacy(delta)
        others = [other for other in range(plan.target.parties) if other != party]
        return analysis.epsilon(analysis.against(others).max_mu * math.sqrt(rounds)) if rounds else 0.0

    @cached_property
    def everybody_else(self) -> float:
        """Epsilon of this party if all others collude and nobody leaves, whoever is in; infinite where nothing is left then."""
        return max(
            self.against_all_others(plan, min(self.party, plan.target.parties - 1), self.target.delta, self._executions)
            for plan in self.plans
        )

    @property
    def _left(self) -> str:
        """What is left if all others collude, at the delta of all that is asked for."""
        alone = self.everybody_else
        return "not bounded" if math.isinf(alone) else cost_text(alone, self.target.delta)

    @property
    def facts(self) -> tuple[Fact, Fact]:
        """What it costs at most, and what is left if more collude than that."""
        epsilon, delta, unit = self.epsilon_a_priori, self.target.delta, str(self.target.unit)
        promised = a_priori(epsilon, delta, unit, self._colluders(), self.plan.a_priori.enforced_by)
        return promised, everybody_else(self.everybody_else, delta, unit)

    def _colluders(self) -> str:
        """Who may collude, in words."""
        trusted = [self.parties[party].name for party in sorted(self.plan.protocol.traits.trusted)]
        return any_of(self.target.colluding, len(self.parties), trusted)

    def _quorum_json(self) -> dict[str, Any]:
        start_by = self._asked.start_by
        if start_by is None:
            return {}
        plans = {str(plan.target.parties): plan.digest for plan in self.plans}
        return {"quorum": {"minimum": self.fewest, "start_by": start_by.isoformat(), "plans": plans}}

    def _start(self) -> list[str]:
        """When and with whom it starts, where it does not wait for all."""
        start_by, parties = self._asked.start_by, len(self.parties)
        if start_by is None:
            return []
        fewer = f", with those who are there if they are {self.fewest} or more, or before that if its first convener says so"
        if self.fewest == parties:
            fewer = ""
        return [
            f"as soon as all {parties} parties are there, or at {in_words(start_by)}{fewer}; who is in is agreed on first, by "
            "proposal of one of the parties, and whoever is not in takes no part"
        ]

    def _deadlines_json(self) -> dict[str, Any]:
        deadlines = self._asked.deadlines
        if deadlines is None:
            return {}
        table = deadlines.timetable(self.plans)
        ends = {name: datetime.fromtimestamp(end, UTC).isoformat() for name, end in table}
        return {"deadlines": {"poll_seconds": deadlines.poll, "ends": ends}}

    def _waits(self) -> list[str]:
        """Until when others are waited for, where messages are files in a folder."""
        deadlines = self._asked.deadlines
        if deadlines is None:
            return []
        table, each = deadlines.timetable(self.plans), in_hours(deadlines.interval)
        start, end = (in_words(datetime.fromtimestamp(time, UTC)) for time in (table.first, table.last_end(self._executions)))
        steps = len(table.waits) - 1
        rounds = (
            f"for {count_of(steps, 'round')}"
            if self._executions == 1
            else f"for {self._executions} rounds of {count_of(steps, 'step')}"
        )
        return [
            f"for the start until {start}, then {rounds}, each {each} longer, until {end} at the latest; every party looks into "
            f"the folder every {in_hours(deadlines.poll)} or more often, and what is put there counts as seen"
        ]

    def _connection_lines(self) -> list[tuple[str, str]]:
        """When it starts and waits, who else learns of it, and which keys protect it."""
        return [
            *(("starts", sentence) for sentence in self._start()),
            *(("waits", sentence) for sentence in self._waits()),
            *(("through a relay", f"{relay} {_RELAY_LEARNS}") for relay in self.relays),
            ("keys", self.keys),
        ]

    def _how(self) -> str:
        """In which way it takes part with the others."""
        if self._asked.by_folder:
            return "through a folder, with"
        return "with" if self.own.address is None else "connects to"

    @property
    def _executions(self) -> int:
        """How many executions of the plan there are at the most, one after the other."""
        return 1

    @property
    def links(self) -> Links:
        return self._asked.keyed_by

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
    """What is agreed on, its parties, and the seal where it has one."""
    if isinstance(agreed, Sealed):
        return agreed.terms, tuple(Signatory(entry.name, entry.identity, entry.dialled) for entry in agreed.entries), agreed
    study, roster = agreed
    return study, tuple(Signatory(entry.name, entry.public_key, entry.address) for entry in roster.entries), None


def place_of(name: str | None, parties: Sequence[Signatory]) -> PartyId:
    """Of the party of this name. Raises :class:`InputError` if there is none."""
    names = [party.name for party in parties]
    if name not in names:
        raise InputError(
            f"{name or 'this site'} is none of the parties, {', '.join(names)}: say which with {named('party', 'NAME')}"
        )
    return names.index(name)


def relays_of(parties: Sequence[Signatory]) -> list[str]:
    """Hosts and ports of the relays at which parties are called."""
    relays = {party.address for party in parties if isinstance(party.address, RelayAddress)}
    return sorted(format_address((relay.host, relay.port)) for relay in relays)
