"""Run one party of a study, from the first connection to the result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.codec import digest
from quietmean.core.errors import InputError, PeerError, ProtocolFailure
from quietmean.core.party import PartyId, Release, Vector
from quietmean.entropy import ExchangeKey, SecureNoise, Seed
from quietmean.node.agreement import Opening, Pledges, agree
from quietmean.node.closing import exchange_logs, own_log
from quietmean.node.context import Context, Report
from quietmean.node.door import Door
from quietmean.node.history import reconstruct
from quietmean.node.identity import Identity
from quietmean.node.listener import Listener, open_socket
from quietmean.node.result import NodeResult
from quietmean.node.roster import Roster
from quietmean.node.rounds import PhaseRunner
from quietmean.node.store import ACCEPTED, REFUSED, Store
from quietmean.node.tls import Credentials
from quietmean.node.transport import Endpoint, Link, Traffic
from quietmean.node.whereabouts import Phase, Position, Whereabouts
from quietmean.node.wire import (
    Answer,
    AnyRequest,
    Commit,
    Confirm,
    Limits,
    Log,
    PartyLog,
    Probe,
    Reveal,
    Transfer,
    Withdraw,
    decode_log,
)
from quietmean.planning import Plan

_logger = logging.getLogger("quietmean.node")


def _silent(event: dict[str, Any]) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class NodeSettings:
    """One party's part in one study. ``value`` has shape (d,) and is private; time-outs are in seconds.

    ``gone_timeout``: how long a round waits for a party whose process has ended (nobody listens at its address), if that is
    shorter; by default as long as for anybody, since it may be started again. ``listen_socket``: bound and listening already,
    closed at the end; else the node listens on its address in the roster. ``report`` hears of progress as JSON-ready dicts with
    an "event".
    """

    identity: Identity
    roster: Roster
    plan: Plan
    value: Vector = field(repr=False)
    weight: float
    store: Path
    round_timeout: float = 10.0
    start_timeout: float = 60.0
    gone_timeout: float | None = None
    listen_socket: socket.socket | None = None
    report: Report = _silent

    def __post_init__(self) -> None:
        target = self.plan.target
        if len(self.roster) != target.parties:
            raise InputError(f"the roster lists {len(self.roster)} parties but the plan is for {target.parties}: make them agree")
        if self.value.shape != (target.dimension,) or not np.isfinite(self.value).all():
            # The value itself is private: only its shape may be told.
            raise InputError(f"the value has shape {self.value.shape}: it must be {target.dimension} finite numbers, as planned")
        if not (np.isfinite(self.weight) and self.weight > 0):
            raise InputError(f"weight is {self.weight:g}: choose a finite number > 0")
        for name, seconds in (("round time-out", self.round_timeout), ("start time-out", self.start_timeout)):
            if not (np.isfinite(seconds) and seconds > 0):
                raise InputError(f"{name} is {seconds:g} s: choose a finite number of seconds > 0")

    @property
    def study(self) -> str:
        """The session digest: what all parties of a study must have in common, SHA-256, hexadecimal."""
        return digest({"format": "quietmean-session-1", "roster": self.roster.digest, "plan": self.plan.digest})


async def run_party(settings: NodeSettings) -> NodeResult:
    """Take part in a study until its end.

    Raises :class:`InputError` for what the user can mend (address in use, another study's store, other data than before) and
    :class:`ProtocolFailure` if the study did not start or nothing of it came back.
    """
    with contextlib.ExitStack() as stack:
        if settings.listen_socket is not None:
            stack.enter_context(settings.listen_socket)
        party = settings.roster.find(settings.identity)
        store = Store.open(settings.store, settings.study, settings.value, settings.weight)
        stack.callback(store.close)
        node = _Node(settings, party, store)
        return await node.run(settings.listen_socket or open_socket(settings.roster.entries[party].address))


class _Node:
    def __init__(self, settings: NodeSettings, party: PartyId, store: Store) -> None:
        self._settings = settings
        self._party = party
        self._store = store
        self._refusals: list[str] = []
        self._logs: dict[PartyId, PartyLog] = {}
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        target = settings.plan.target
        self._rounds = settings.plan.protocol.rounds(settings.plan.parameters)
        self._exchange = ExchangeKey(store.seed)
        self._shared_seeds: dict[PartyId, Seed] = {}
        content = settings.plan.protocol.content_limit(settings.plan.parameters, target.parties, target.dimension)
        limits = Limits.of_study(target.parties, self._rounds, target.dimension, content)
        whereabouts = Whereabouts(settings.round_timeout, self._clock, settings.gone_timeout)
        credentials = Credentials(settings.identity, settings.roster)
        self._traffic = Traffic()
        self._endpoint = Endpoint(
            party, settings.roster, settings.study, credentials, limits, self._refused, whereabouts.heard, self._traffic
        )
        changed = asyncio.Event()
        self._pledges = Pledges(store, settings.study, target.parties)
        self._context = Context(
            party=party,
            roster=settings.roster,
            store=store,
            door=Door(store, party, lambda: self._context.agreement, changed.set),
            links={peer: Link(self._endpoint, peer) for peer in range(target.parties) if peer != party},
            whereabouts=whereabouts,
            round_timeout=settings.round_timeout,
            report=settings.report,
            changed=changed,
        )

    async def run(self, listening: socket.socket) -> NodeResult:
        started = self._clock()
        listener = Listener(self._endpoint, listening, self._handle, lambda: self._context.door.position)
        listener.start()
        try:
            seed = await self._agree()
            await self._mix(seed)
            heard = await self._disseminate(seed)
            return await self._close(seed, heard, started)
        finally:
            await self._context.stop()
            await listener.close()
            await asyncio.gather(*(link.close() for link in self._context.links.values()))

    async def _agree(self) -> Seed:
        if self._store.state() is None:
            opening = Opening(self._store.nonce, self._settings.weight, self._exchange.public)
            await agree(self._context, self._pledges, opening, self._settings.start_timeout)
        seed = self._pledges.public_seed()
        self._context.agreement = seed.derive("agreement check").secret[:8]
        return seed

    async def _mix(self, seed: Seed) -> None:
        if self._stored_phase() > Phase.MIXING:
            return
        settings, plan = self._settings, self._settings.plan
        noise = SecureNoise(self._store.seed.derive(settings.study, plan.protocol.name), self._shared_seed)
        machine = plan.machine(plan.schedule(seed), self._party, settings.value, settings.weight, noise)
        await PhaseRunner(self._context, Phase.MIXING, machine, may_miss=True).run()

    def _shared_seed(self, other: PartyId) -> Seed:
        if other not in self._shared_seeds:
            context = f"{self._settings.study} {self._settings.plan.protocol.name}"
            self._shared_seeds[other] = self._exchange.shared_seed(self._pledges.exchange_key(other), context)
        return self._shared_seeds[other]

    async def _disseminate(self, seed: Seed) -> tuple[PartyId, ...]:
        release = self._store.release(Phase.MIXING)
        if not self._settings.plan.protocol.releases_are_public:
            return (self._party,)
        machine = self._settings.plan.dissemination_machine(self._party, release, seed)
        # The releases are public and late ones welcome: nobody misses a round of dissemination on purpose.
        state = await PhaseRunner(self._context, Phase.DISSEMINATION, machine, may_miss=False).run()
        heard: tuple[PartyId, ...] = getattr(state, "heard", ())
        return heard

    async def _close(self, seed: Seed, heard: tuple[PartyId, ...], started: float) -> NodeResult:
        log = own_log(self._context, heard)
        await exchange_logs(self._context, log, self._logs)
        plan, store = self._settings.plan, self._store
        schedule = plan.schedule(seed)
        history = reconstruct(schedule, self._logs | {self._party: log}, heard)
        # Push-sum does not tell apart whose releases are in its sums: all that were made are.
        heard = heard or tuple(np.nonzero(history.finished)[0].tolist())
        total = self._total(heard)
        return NodeResult(
            total_vector=total.vector,
            total_weight=total.weight,
            heard=heard,
            execution=plan.execution(seed, history, self._pledges.weights()),
            public_seed=seed.secret.hex(),
            transfers=len(store.arrived_there(Phase.MIXING)) + len(store.arrived_there(Phase.DISSEMINATION)),
            bytes_sent=self._traffic.sent,
            bytes_received=self._traffic.received,
            seconds=self._clock() - started,
            late=tuple(self._context.late),
            refusals=tuple(self._refusals),
            used_though_reclaimed=store.used_though_reclaimed(),
        )

    def _total(self, heard: tuple[PartyId, ...]) -> Release:
        plan = self._settings.plan
        if not plan.protocol.releases_are_public:
            return self._own_result()
        total = self._store.release(Phase.DISSEMINATION)
        others = plan.protocol.releasers(plan.parameters, plan.target.parties) - {self._party}
        if total is None or total.weight <= 0 or (others and not others & set(heard)):
            raise ProtocolFailure("no other party's result arrived here: the others had left or finished, ask one for the result")
        return total

    def _own_result(self) -> Release:
        release = self._store.release(Phase.MIXING)
        if release is None:
            raise ProtocolFailure("this party was away at the end and has no result: the others have it, ask one of them")
        return release

    def _stored_phase(self) -> int:
        stored = self._store.state()
        return Phase.AGREEMENT if stored is None else stored[0]

    async def _handle(self, sender: PartyId, request: AnyRequest, payload: bytes) -> Answer:
        context = self._context
        context.whereabouts.heard(sender, _told_position(request))
        match request:
            case Transfer():
                return await context.door.transfer(sender, request, payload)
            case Withdraw():
                return context.door.withdraw(sender, request)
            case Confirm():
                return context.door.confirm(sender, request)
            case Log():
                self._logs[sender] = decode_log(payload, len(self._settings.roster), self._rounds)
                context.changed.set()
            case Commit() | Reveal():
                return self._pledged(sender, request)
            case Probe():
                # Its position was noted above, and the answer's is what it asks for.
                context.changed.set()
        return Answer(request.number, ACCEPTED, *context.door.position)

    def _pledged(self, sender: PartyId, request: Commit | Reveal) -> Answer:
        position = self._context.door.position
        try:
            if isinstance(request, Commit):
                self._pledges.commit(sender, request.hash)
            else:
                self._pledges.reveal(sender, Opening(request.nonce, request.weight, request.exchange))
        except PeerError as error:
            # Told to the other side too: its user must know why the study does not start.
            self._refused(self._settings.roster.name(sender), str(error))
            return Answer(request.number, REFUSED, *position, reason=str(error))
        self._context.changed.set()
        return Answer(request.number, ACCEPTED, *position)

    def _refused(self, peer: str, reason: str) -> None:
        _logger.warning("refused %s: %s", peer, reason)
        self._refusals.append(f"{peer}: {reason}")
        self._settings.report({"event": "refused", "peer": peer, "reason": reason})


def _told_position(request: AnyRequest) -> Position:
    match request:
        case Transfer() | Probe():
            return request.phase, request.round
        case Log():
            return int(Phase.CLOSING), 0
        case _:
            return int(Phase.AGREEMENT), 0
