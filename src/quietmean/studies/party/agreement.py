"""What is agreed on, by whom, and under which seal: what the contracts of a study and of a session have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from quietmean.core.codec import digest
from quietmean.core.domain import Links
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.node.net import Address, RelayAddress, Roster, format_address
from quietmean.planning.plan import Plan
from quietmean.protocols import Target
from quietmean.statistics import Column
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.sealed import Sealed


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

    ``sealed``: where it came sealed by a convener. ``contributes``: by file, and connects to nobody. ``target``: of all that is
    asked for, ``plan``: of one execution. ``asks_for``: kind and text of each statistic; ``used`` and ``declared``: columns.
    ``fewest``: with how many parties it may start.
    """

    parties: tuple[Signatory, ...]
    party: PartyId
    sealed: Sealed | None
    contributes: bool = False

    @property
    @abstractmethod
    def plan(self) -> Plan: ...

    @property
    @abstractmethod
    def target(self) -> Target: ...

    @property
    @abstractmethod
    def epsilon_a_priori(self) -> float: ...

    @property
    @abstractmethod
    def fewest(self) -> int: ...

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

    @property
    @abstractmethod
    def _asked(self) -> AnyStudy: ...

    @abstractmethod
    def _stated(self) -> dict[str, Any]:
        """What the digest covers besides the parties and the plan, where there is no seal."""

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
        return digest({**self._stated(), "parties": parties, "plan": self.plan.digest})

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
    if contributes and protocol.shares_noise:
        reasons.append("the noise that pairs share rests on X25519 alone, as by file they tell each other nothing before")
    if protocol.agrees_on_keys:
        reasons.append(f"the masks of {protocol.name} rest on X25519 alone against its aggregator")
    return reasons


def signatories(agreed: Sealed | tuple[AnyStudy, Roster]) -> tuple[AnyStudy, tuple[Signatory, ...], Sealed | None]:
    """What is agreed on, its parties, and the seal where it has one."""
    if isinstance(agreed, Sealed):
        return agreed.asked, tuple(Signatory(entry.name, entry.identity, entry.dialled) for entry in agreed.entries), agreed
    asked, roster = agreed
    return asked, tuple(Signatory(entry.name, entry.public_key, entry.address) for entry in roster.entries), None


def place_of(name: str | None, parties: Sequence[Signatory]) -> PartyId:
    """Of the party of this name. Raises :class:`InputError` if there is none."""
    names = [party.name for party in parties]
    if name not in names:
        raise InputError(f"{name or 'this site'} is none of the parties, {', '.join(names)}: say which with --party NAME")
    return names.index(name)


def relays_of(parties: Sequence[Signatory]) -> list[str]:
    """Hosts and ports of the relays at which parties are called."""
    relays = {party.address for party in parties if isinstance(party.address, RelayAddress)}
    return sorted(format_address((relay.host, relay.port)) for relay in relays)
