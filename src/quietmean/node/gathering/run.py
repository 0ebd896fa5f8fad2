"""Run one party of a study that starts with those who are there, from the first connection to the result."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from quietmean.core.errors import InputError, Outage, PeerError
from quietmean.core.party import PartyId
from quietmean.node.gathering.gathering import Gathering
from quietmean.node.gathering.record import dump_standing, load_standing
from quietmean.node.monitor import AlreadyOver, Monitor, Refusal
from quietmean.node.net import (
    ACCEPTED,
    Answer,
    AnyRequest,
    Heartbeat,
    Payload,
    Refusals,
    Roster,
    Seal,
    Start,
)
from quietmean.node.peer import mesh_of, monitor_of, remarked
from quietmean.node.phase import Phase, Position
from quietmean.node.quorum import Attempt, commitment_hash, quorum_study
from quietmean.node.session import (
    Brought,
    CurrentSession,
    NodeResult,
    NodeSettings,
    Patience,
    Quorum,
    Session,
    endure,
    kept_result,
)
from quietmean.node.storage import STARTED, Commitment, Store
from quietmean.node.tasks import Supervisor
from quietmean.randomness import Seed

# So long a request of a party that is further waits until this one is bound, too.
_PATIENCE = 15.0


@dataclass(frozen=True)
class Started:
    """A study that started: ``settings`` are those of this party among its members, which are numbered anew.

    ``attempt``: which one it was; ``members``: their places in the roster; ``absent``: names of who was not in at the start.
    """

    settings: NodeSettings
    attempt: int
    members: tuple[PartyId, ...]
    absent: tuple[str, ...]


async def run_quorum(settings: NodeSettings, on_start: Callable[[Started], None] = lambda started: None) -> NodeResult:
    """Agree on who is in, then take part. After the end the result is in the store, and is returned without any network.

    ``settings`` have a quorum. ``on_start`` is called once it is settled who is in; parties in the result have their places
    among these. Raises :class:`NotStarted` for a study without this party, and what :func:`quietmean.node.run_party` does.
    """
    quorum = settings.quorum
    if quorum is None:
        raise InputError("these settings have no quorum: run the party with run_party")
    with contextlib.ExitStack() as stack:
        if settings.listen_socket is not None:
            stack.enter_context(settings.listen_socket)
        if settings.wipe_value:
            for value in (settings.value, *(one.value for one in quorum.smaller.values())):
                stack.callback(value.wipe)
        store = settings.open_store()
        stack.callback(store.close)
        monitor = stack.enter_context(monitor_of(settings))
        standing = load_standing(store.standing())
        if standing.bound and standing.attempt is not None:
            started, own = _inside(settings, quorum, standing.attempt, store)
            with contextlib.ExitStack() as opened:
                opened.callback(own.close)
                opened.callback(_forget_secrets, settings, store, own)
                on_start(started)
                before = kept_result(own)
            if before is not None:
                monitor.event(AlreadyOver())
                return remarked(before, started.settings, monitor)
        return await _Part(settings, quorum, store, monitor, on_start).run()


def _forget_secrets(settings: NodeSettings, store: Store, own: Store) -> None:
    """Where the study is over, the seed of the attempt is needed no more. ``own``: the store of what the members did."""
    standing = load_standing(store.standing())
    if own.result() is not None and standing.attempt is not None and standing.attempt.own.seed:
        without = replace(standing.attempt.own, seed=b"")
        standing = replace(standing, attempt=replace(standing.attempt, own=without))
        store.save_standing(dump_standing(settings.party, standing), last=True)


def _inside(settings: NodeSettings, quorum: Quorum, attempt: Attempt, outer: Store) -> tuple[Started, Store]:
    """What this party is in the study of the members alone, and its store there, with the seed and nonce of the attempt.

    ``outer``: its store of the start.
    """
    members = attempt.proposal.ordered
    study = quorum_study(settings.study, attempt.proposal)
    brought = quorum.smaller.get(len(members)) or Brought(settings.plan, settings.value)
    agreed, shared = {}, outer.encapsulated()
    for place, member in enumerate(members):
        opening = attempt.openings[member]
        agreed[place] = Commitment(commitment_hash(study, member, opening), opening.nonce, opening.weight, opening.exchange)
    inside = replace(
        settings,
        # Its digest is in every label of what these parties do together.
        roster=Roster(tuple(settings.roster.entries[member] for member in members), Seal(study, tuple(range(len(members))))),
        plan=brought.plan,
        value=brought.value,
        store=settings.store.with_name(settings.store.name + STARTED),
        quorum=None,
        agreed=agreed,
        shared={place: shared[member] for place, member in enumerate(members) if member in shared},
        wipe_value=False,
    )
    # For a new store; later these are in it.
    seeds = iter([attempt.own.seed, attempt.own.opening.nonce])
    absent = tuple(name for party, name in enumerate(settings.names) if party not in attempt.members)
    return Started(inside, attempt.proposal.attempt, members, absent), inside.open_store(lambda: Seed(next(seeds)))


class _Part:
    """One listener, and a link to each of the roster, from before the start to the end."""

    def __init__(
        self,
        settings: NodeSettings,
        quorum: Quorum,
        store: Store,
        monitor: Monitor,
        on_start: Callable[[Started], None],
    ) -> None:
        self._settings, self._quorum, self._store, self._monitor = settings, quorum, store, monitor
        self._on_start = on_start
        self._current = CurrentSession(settings.round_timeout)
        # Until the session is there.
        self._supervisor = Supervisor()
        self._places: dict[PartyId, PartyId] = {}
        self._begun = asyncio.Event()
        # Of the time before the session, which has its own.
        self._refusals = Refusals()
        self.answered = monitor.acknowledged
        self._mesh = mesh_of(settings, self, monitor)
        self._gathering = self._new_gathering()

    def _new_gathering(self) -> Gathering:
        return Gathering(self._settings, self._quorum, self._store, self._mesh.links, self._monitor.event, self.fail)

    async def run(self) -> NodeResult:
        settings = self._settings
        self._mesh.bind(settings.listen_socket or settings.listen)
        patience = Patience(self._monitor.event, settings)
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(self._mesh.close)
            closing.push_async_callback(self._stop_gathering)
            self._mesh.start()
            self._gathering.start()
            attempt = await endure(self._gather, self._store.path, patience, self._mesh.drop)
            return await self._take_part(attempt, patience)

    async def _stop_gathering(self) -> None:
        # Another one may have followed the first.
        await self._gathering.stop()

    async def _gather(self) -> Attempt:
        await self._go_on()
        return await self._supervisor.run(self._gathering.until_bound())

    async def _go_on(self) -> None:
        """After an outage: where this party is in the attempts to start, is what its store says."""
        if self._store.stalled or self._supervisor.error is not None:
            await self._gathering.stop()
            self._store.reopen()
            self._supervisor = Supervisor()
            self._gathering = self._new_gathering()
            self._gathering.start()

    def fail(self, error: BaseException) -> None:
        (self._current if self._current.begun else self._supervisor).fail(error)

    async def _take_part(self, attempt: Attempt, patience: Patience) -> NodeResult:
        started, store = _inside(self._settings, self._quorum, attempt, self._store)
        inside = started.settings
        with contextlib.ExitStack() as stack:
            stack.callback(store.close)
            stack.callback(_forget_secrets, self._settings, self._store, store)
            if self._settings.wipe_value:
                stack.callback(inside.value.wipe)
            self._on_start(started)
            members = attempt.proposal.ordered
            self._places = {member: place for place, member in enumerate(members)}
            links = {place: self._mesh.links[member] for member, place in self._places.items() if member in self._mesh.links}
            attempts = itertools.count()

            async def take_part() -> NodeResult:
                restarted = next(attempts) > 0
                if restarted:
                    store.reopen()
                    await self._go_on()
                    if (before := kept_result(store)) is not None:
                        return before
                session = Session(inside, store, links, self._monitor.traffic, self._monitor.event, restarted=restarted)
                session.at_gate(lambda parties: self._mesh.cut_off(members[place] for place in parties), asyncio.to_thread)
                self._current.follow(session)
                self._begun.set()
                return await session.run()

            def failed() -> None:
                self.fail(Outage("another session follows"))
                self._mesh.drop()

            return remarked(await endure(take_part, store.path, patience, failed), inside, self._monitor)

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> Answer:
        if isinstance(request, Start):
            self._gathering.heard(sender, request)
            return Answer(request.number, ACCEPTED, *self.position)
        if not self._current.begun:
            if isinstance(request, Heartbeat):
                return Answer(request.number, ACCEPTED, *self.position)
            # Who is bound goes on at once; what it told of all others makes this party follow.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._begun.wait()
        if not self._current.begun or sender not in self._places:
            raise PeerError("it takes part in a study that has not started with it here")
        answer = await self._current.handle(self._places[sender], request, payload)
        self._monitor.arrived(sender, request, answer)
        return answer

    @property
    def position(self) -> Position:
        return self._current.session.position if self._current.begun else (int(Phase.AGREEMENT), 0)

    def heard(self, peer: PartyId, position: Position) -> None:
        if self._current.begun and peer in self._places:
            self._current.session.heard(self._places[peer], position)
        self._monitor.heard(peer, position)

    def refused(self, peer: str, reason: str) -> None:
        if self._current.begun:
            self._current.session.refused(peer, reason)
        elif (noted := self._refusals.note(peer, reason)) is not None:
            self._monitor.event(Refusal(*noted))
