"""The settings of a node: identity, roster, plan, private value, store and time-outs of one party in one study."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from quietmean.core.codec import digest
from quietmean.core.domain import Links
from quietmean.core.errors import InputError
from quietmean.core.outage import require_space, room_beside
from quietmean.core.party import NoiseSource, PartyId, PartyMachine
from quietmean.core.waits import require_wait
from quietmean.node.folder import FolderSettings
from quietmean.node.monitor import Event, NodeView, Report
from quietmean.node.net import Address, Identity, Limits, Roster
from quietmean.node.opening import Opening
from quietmean.node.storage import Store, input_digest, size_of
from quietmean.planning import Admitted, Plan
from quietmean.planning.stated_weights import StatedWeights
from quietmean.randomness import Encapsulated, Seed


@dataclass(frozen=True)
class PairKeys:
    """The ML-KEM-768 keys of the parties' entries: the ``own`` private one, and the ``public`` ones by place in the roster.

    The own one is gone once this party has the result.
    """

    own: MLKEM768PrivateKey | None = field(repr=False)
    public: Mapping[PartyId, bytes] = field(repr=False)


def _silent(event: Event) -> None:
    """The default report."""


class _MissingError(Exception):
    """The store has not been made yet."""


@dataclass(frozen=True)
class PlannedValue:
    """The plan for a number of parties, and this party's vector on its grid."""

    plan: Plan
    value: Admitted


@dataclass(frozen=True)
class StartTerms:
    """The terms of a study that starts with those who are there: ``start_quorum`` is the least number of parties.

    They start at ``start_by`` (seconds since 1970), or all as soon as they are there. ``smaller``: for each number of parties
    from the least on, without that of all. ``asked_to_start``: whether this party's person asked for a start before its time,
    with ``start_quorum`` parties; only the first convener's counts.
    """

    start_quorum: int
    start_by: float
    smaller: Mapping[int, PlannedValue]
    asked_to_start: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.time


@dataclass(frozen=True)
class NodeSettings:
    """One party in one study. ``value``: its private vector and public weight, as the plan admits it; time-outs are in seconds.

    ``gone_timeout``: how long a round waits for a party whose process has ended (nobody listens at its address), if that is
    shorter; by default as long as for anybody, since it may be started again. ``listen_socket``: bound and listening already,
    closed at the end; else the node listens on ``listen``, by default its address in the roster. ``report`` gets the events of
    :mod:`quietmean.node.monitor`, ``observe`` a view of the node's state a few times a second; the file ``status`` shows the same
    to other processes.
    ``audit``: how far this site's audit log has come, for the others' receipts; the node passes it on as it is.
    ``wipe_value``: the vector is overwritten with zeros as soon as it is not needed any more, so the
    settings can be used once. ``folder``: messages are files there, instead of connections. ``start``: with whom the study may
    start, if not with all. ``before_bound`` is called with the digest of the attempt before this party is bound to it, as often
    as it takes: it writes that into the ledger. ``agreed``: what each party revealed at the start, once it is over. ``links``:
    which keys protect what parties tell each other, the same for all. ``pairs``: with them, the keys of the entries; ``shared``:
    what this party shares by these with each other one, once the start is over. ``weights``: which the parties may state before
    the start. ``passing``: the store goes with its folder, and need not outlive a power cut. ``machine``: of a member of a
    committee, which has no value: its machine, one of those of the roster, instead of the plan's. Raises
    :class:`InputError` where fields are impossible or do not fit each other.
    """

    identity: Identity
    roster: Roster
    plan: Plan
    value: Admitted
    store: Path
    round_timeout: float = 10.0
    start_timeout: float = 60.0
    gone_timeout: float | None = None
    listen_socket: socket.socket | None = None
    listen: Address | None = None
    report: Report = _silent
    observe: Callable[[NodeView], None] | None = None
    status: Path | None = None
    wipe_value: bool = False
    audit: bytes = b""
    folder: FolderSettings | None = None
    start: StartTerms | None = None
    before_bound: Callable[[str], None] | None = None
    agreed: Mapping[PartyId, Opening] = field(default_factory=dict, repr=False)
    links: Links = Links.X25519
    pairs: PairKeys | None = None
    shared: Mapping[PartyId, Encapsulated] = field(default_factory=dict, repr=False)
    weights: StatedWeights | None = None
    passing: bool = False
    machine: Callable[[Roster, NoiseSource], PartyMachine[Any]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        target = self.plan.target
        if len(self.roster) != target.parties:
            raise InputError(f"the roster lists {len(self.roster)} parties but the plan is for {target.parties}: make them agree")
        self.value.require_of(self.plan)
        # Before any store is made.
        self.roster.find(self.identity)
        for name, seconds in (("round time-out", self.round_timeout), ("start time-out", self.start_timeout)):
            require_wait(name, seconds)
        if self.folder is not None and self.plan.gated and not target.by_folder:
            # Who was put a file can open it at any time: nothing that is on its way is unseen, as another gate counts on.
            raise InputError("the plan has a gate for parties that connect: plan the study for a folder, or let them connect")

    def forget_value(self) -> None:
        """What is not needed any more, if it may be wiped."""
        if self.wipe_value:
            self.value.wipe()

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
    def planned_values(self) -> list[PlannedValue]:
        """What this party brings for each number of parties; the first one is for all."""
        smaller = {} if self.start is None else self.start.smaller
        return [PlannedValue(self.plan, self.value), *(planned for _, planned in sorted(smaller.items()))]

    @cached_property
    def study(self) -> str:
        """The session digest: what all parties of a study must have in common, SHA-256, hexadecimal."""
        # Sessions from before there were other links stay what they are.
        links = {} if self.links == Links.X25519 else {"links": str(self.links)}
        if self.start is None:
            return digest({"format": "quietmean-session-1", "roster": self.roster.digest, "plan": self.plan.digest, **links})
        plans = [planned_value.plan.digest for planned_value in self.planned_values]
        terms = {"minimum": self.start_quorum, "start_by": self.start.start_by, "conveners": list(self.roster.conveners)}
        return digest({"format": "quietmean-quorum-1", "roster": self.roster.digest, "plans": plans, **terms, **links})

    @cached_property
    def limits(self) -> Limits:
        """The largest frames of the study, whichever of its plans it starts with."""
        plans = [planned_value.plan for planned_value in self.planned_values]
        dimension = self.plan.target.dimension
        content = max(plan.protocol.traffic(plan.target.parties, dimension).content_limit for plan in plans)
        rounds, grid = max(plan.protocol.rounds for plan in plans), max(plan.grid for plan in plans)
        return Limits.of_study(len(self.roster), rounds, dimension, content, grid)

    def require_space(self) -> None:
        """Before the start: what any study of this dimension stores at least finds room. Raises :class:`StorageError`."""
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
        for planned_value in self.planned_values[1:]:
            # The store compares the vector that is for all: under this key, the others too.
            owner = owner.derive(input_digest(owner, b"", planned_value.value.vector, planned_value.value.weight))
        return Store.open(
            self.store, self.study, self.value.vector, self.value.weight, fresh, owner, self.plan.grid, self.passing
        )

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
