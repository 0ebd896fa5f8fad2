"""The settings of a node: identity, roster, what it brings, store, transport and time-outs of one party in one study."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from quietmean.core.codec import digest
from quietmean.core.domain import Links
from quietmean.core.errors import InputError
from quietmean.core.limits import require_wait
from quietmean.core.outage import require_space, room_beside
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, Vector
from quietmean.graphs import Schedule
from quietmean.node.folder import FolderSettings
from quietmean.node.monitor import Event, NodeView, Report
from quietmean.node.net import Address, Identity, Limits, Roster
from quietmean.node.storage import Lasting, Store, input_digest, size_of
from quietmean.planning import Admitted, Plan
from quietmean.planning.stated_weights import StatedWeights
from quietmean.randomness import Encapsulated, Seed


@dataclass(frozen=True, slots=True)
class Opening:
    """What a party commits to: 32 random bytes, its public weight, its X25519 public key for this study."""

    nonce: bytes = field(repr=False)
    weight: float
    exchange: bytes


def commitment_hash(study: str, party: PartyId, opening: Opening) -> bytes:
    # It names the party: nobody can present another's commitment as its own.
    text = f"quietmean commit\n{study}\n{party}\n{opening.weight!r}\n".encode()
    return hashlib.sha256(text + opening.nonce + opening.exchange).digest()


def public_seed(study: str, openings: Mapping[PartyId, Opening]) -> Seed:
    """The public seed of a study of these parties."""
    ordered = (openings[party] for party in sorted(openings))
    labels = [label for commitment in ordered for label in (commitment.nonce, f"{commitment.weight!r}", commitment.exchange)]
    return Seed.public("schedule", study, *labels)


def seed_check(seed: Seed) -> bytes:
    """What messages say of the public seed that their sender has, so that who got other nonces notices it."""
    return seed.derive("agreement check").secret[:8]


@dataclass(frozen=True)
class PairKeys:
    """The ML-KEM-768 keys of the parties' entries: the ``own`` private one, and the ``public`` ones by place in the roster.

    The own one is gone once this party has the result.
    """

    own: MLKEM768PrivateKey | None = field(repr=False)
    public: Mapping[PartyId, bytes] = field(repr=False)


def _silent(event: Event) -> None:
    """Report nothing, which is the default."""


class _MissingError(Exception):
    """The store has not been made yet."""


@dataclass(frozen=True)
class PlannedValue:
    """The plan for a number of parties, and this party's vector on its grid.

    ``wiped``: the vector is overwritten with zeros as soon as it is not needed any more, so it can be used once.
    """

    plan: Plan
    value: Admitted
    wiped: bool = False

    def __post_init__(self) -> None:
        self.value.require_of(self.plan)

    @property
    def vector(self) -> Vector:
        return self.value.vector

    @property
    def weight(self) -> float:
        return self.value.weight

    def machine(self, schedule: Schedule, party: PartyId, roster: Roster, noise: NoiseSource) -> PartyMachine[Any]:
        """The machine of this party in the study of those of the roster."""
        return self.plan.machine(schedule, party, self.value, noise)

    @property
    def deals_value(self) -> bool:
        """Whether nothing needs the vector once the machine's first step is durable."""
        return self.plan.protocol.traits.deals_value

    def forget(self) -> None:
        """Overwrite what is not needed any more, if it may be."""
        if self.wiped:
            self.value.wipe()


@dataclass(frozen=True)
class PlannedMachine:
    """The plan for a number of parties of one that brings no vector, and what makes its machine: a member of a committee."""

    plan: Plan
    make: Callable[[Roster, NoiseSource], PartyMachine[Any]] = field(repr=False)
    deals_value: ClassVar[bool] = False
    weight: ClassVar[float] = 1.0

    @property
    def vector(self) -> Vector:
        return np.zeros(0)

    def machine(self, schedule: Schedule, party: PartyId, roster: Roster, noise: NoiseSource) -> PartyMachine[Any]:
        """The machine of this party in the study of those of the roster."""
        return self.make(roster, noise)

    def forget(self) -> None:
        """Do nothing: a member has no vector."""


# What a party brings to a study, for one number of parties.
Brought: TypeAlias = PlannedValue | PlannedMachine


@dataclass(frozen=True)
class Waits:
    """Time-outs in seconds, of a round and of the start.

    ``gone``: how long a round waits for a party whose process has ended (nobody listens at its address), if that is shorter; by
    default as long as for anybody, since it may be started again. Raises :class:`InputError` for impossible ones.
    """

    round: float = 10.0
    start: float = 60.0
    gone: float | None = None

    def __post_init__(self) -> None:
        for name, seconds in (("round time-out", self.round), ("start time-out", self.start)):
            require_wait(name, seconds)


@dataclass(frozen=True)
class Observers:
    """The receivers of a node's events, and of views of its state a few times a second.

    ``status``: a file that shows the views to other processes, and ``about``, what the node takes part in.
    """

    report: Report = _silent
    observe: Callable[[NodeView], None] | None = None
    status: Path | None = None
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteHooks:
    """What the rules of a site add to a node.

    ``before_bound`` is called with the digest of the attempt before this party is bound to it, as often as it takes: it writes
    that into the ledger. ``audit``: how far the site's audit log has come, for the others' receipts; the node passes it on as it
    is. ``weights``: which the parties may state before the start.
    """

    before_bound: Callable[[str], None] | None = None
    audit: bytes = b""
    weights: StatedWeights | None = None


@dataclass(frozen=True)
class LinkKeys:
    """Which keys protect what parties say to each other, the same for all; ``pairs``: with them, the keys of the entries."""

    links: Links = Links.X25519
    pairs: PairKeys | None = None


@dataclass(frozen=True)
class StartAgreement:
    """What each party revealed at the start, and what this one shares with each other one by the keys of their entries."""

    openings: Mapping[PartyId, Opening] = field(repr=False)
    shared: Mapping[PartyId, Encapsulated] = field(repr=False)


@dataclass(frozen=True)
class StartTerms:
    """The terms of a study that starts with those who are there: ``start_quorum`` is the least number of parties.

    They start at ``start_by`` (seconds since 1970), or all as soon as they are there. ``smaller``: for each number of parties
    from the least on, without that of all. ``asked_to_start``: whether this party's person asked for a start before its time,
    with ``start_quorum`` parties; only the first convener's counts.
    """

    start_quorum: int
    start_by: float
    smaller: Mapping[int, Brought]
    asked_to_start: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.time


@dataclass(frozen=True)
class NodeSettings:
    """One party in one study: what it ``brought`` to it, and where its store is.

    ``transport``: a folder in which messages are files; or where the node listens, an address or a socket that listens already
    and is closed at the end; by default its address in the roster. ``start``: with whom the study may start, if not with all.
    ``agreed``: once the start is over. ``lasting``: what its store outlives. Raises
    :class:`InputError` where fields are impossible or do not fit each other.
    """

    identity: Identity
    roster: Roster
    brought: Brought
    store: Path
    waits: Waits = Waits()
    transport: FolderSettings | socket.socket | Address | None = None
    observers: Observers = Observers()
    start: StartTerms | None = None
    keys: LinkKeys = LinkKeys()
    site: SiteHooks = SiteHooks()
    agreed: StartAgreement | None = field(default=None, repr=False)
    lasting: Lasting = Lasting.POWER

    def __post_init__(self) -> None:
        target = self.plan.target
        if len(self.roster) != target.parties:
            raise InputError(
                f"the roster lists {len(self.roster)} parties but the plan is for {target.parties}. Make them agree."
            )
        # Before any store is made.
        self.roster.find(self.identity)
        if self.folder is not None and self.plan.gated and not target.by_folder:
            # Who was put a file can open it at any time: nothing that is on its way is unseen, as another gate counts on.
            raise InputError("the plan has a gate for parties that connect. Plan the study for a folder, or let them connect.")

    @property
    def plan(self) -> Plan:
        return self.brought.plan

    @property
    def folder(self) -> FolderSettings | None:
        """Where messages are files; None where parties connect."""
        return self.transport if isinstance(self.transport, FolderSettings) else None

    @property
    def required_agreement(self) -> StartAgreement:
        """What was agreed on at the start, which is over."""
        if self.agreed is None:
            raise RuntimeError("the start of this study is not over")
        return self.agreed

    @property
    def openings(self) -> Mapping[PartyId, Opening]:
        """What each party revealed at the start."""
        return self.required_agreement.openings

    @cached_property
    def party(self) -> PartyId:
        """This party's place in the roster."""
        return self.roster.find(self.identity)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all parties, in the roster's order."""
        return tuple(entry.name for entry in self.roster.entries)

    @property
    def start_quorum(self) -> int:
        """With how many parties at least the study starts: with all, if nothing else is agreed on."""
        return len(self.roster) if self.start is None else self.start.start_quorum

    @property
    def brought_for_each(self) -> list[Brought]:
        """What this party brings for each number of parties; the first one is for all."""
        smaller = {} if self.start is None else self.start.smaller
        return [self.brought, *(brought for _, brought in sorted(smaller.items()))]

    @cached_property
    def study(self) -> str:
        """The session digest: what all parties of a study must have in common, SHA-256, hexadecimal."""
        links = {} if self.keys.links == Links.X25519 else {"links": str(self.keys.links)}
        if self.start is None:
            return digest({"format": "quietmean-session-1", "roster": self.roster.digest, "plan": self.plan.digest, **links})
        plans = [brought.plan.digest for brought in self.brought_for_each]
        terms = {"minimum": self.start_quorum, "start_by": self.start.start_by, "conveners": list(self.roster.conveners)}
        return digest({"format": "quietmean-quorum-1", "roster": self.roster.digest, "plans": plans, **terms, **links})

    @cached_property
    def limits(self) -> Limits:
        """The largest frames of the study, whichever of its plans it starts with."""
        plans = [brought.plan for brought in self.brought_for_each]
        dimension = self.plan.target.dimension
        content = max(plan.protocol.traffic(plan.target.parties, dimension).content_limit for plan in plans)
        rounds, grid = max(plan.protocol.rounds for plan in plans), max(plan.grid for plan in plans)
        return Limits.of_study(len(self.roster), rounds, dimension, content, grid)

    def require_space(self) -> None:
        """Require before the start that what any study of this dimension stores at least finds room.

        Raises :class:`StorageError`.
        """
        if self.lasting is not Lasting.NOTHING:
            require_space(self.store, self._least_stored)

    def room(self) -> str:
        """How much there is beside the store, and what is missing at least; empty where that cannot be asked."""
        return room_beside(self.store, max(0, self._least_stored - size_of(self.store)))

    @property
    def _least_stored(self) -> int:
        # State and result, with four bytes a coordinate where they are on a grid.
        return 2 * 4 * self.plan.target.dimension

    def open_store(self, fresh: Callable[[], Seed] = Seed.from_os) -> Store:
        """The party's store for this study and input. Raises :class:`InputError`."""
        owner = self.identity.derive("store")
        for other in self.brought_for_each[1:]:
            # The store compares the vector that is for all: under this key, the others too.
            owner = owner.derive(input_digest(owner, b"", other.vector, other.weight))
        own = self.brought
        return Store.open(self.store, self.study, own.vector, own.weight, fresh, owner, self.plan.grid, self.lasting)

    def store_exists(self) -> bool:
        """Whether there is a store for this study and input. Nothing is made. Raises :class:`InputError` where a node would."""

        def nothing() -> Seed:
            raise _MissingError

        if not self.store.exists() or self.store.stat().st_size == 0:
            return False
        try:
            self.open_store(nothing).close()
        except _MissingError:
            return False
        return True
