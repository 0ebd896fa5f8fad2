"""Run one party of a study, from the first connection to the result."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from quietmean.core.errors import StorageError
from quietmean.core.party import PartyId
from quietmean.node.folder import FolderSettings, FolderTransport, Outbox
from quietmean.node.mesh import Member, Mesh
from quietmean.node.monitor import AlreadyOver, Monitor, PeerEnded
from quietmean.node.net import AnswerFrame, AnyRequest, Credentials, Ending, Endpoint, Payload, Traffic
from quietmean.node.participant import Participant
from quietmean.node.phase import Position
from quietmean.node.preflight import Agreed
from quietmean.node.session import NodeResult, NodeSettings, RetryPolicy, retry
from quietmean.node.start import OnStart, ignore_start
from quietmean.node.storage import OUTBOX, Store
from quietmean.node.tasks import Tasks


async def run_party(settings: NodeSettings, on_start: OnStart = ignore_start) -> NodeResult:
    """Take part in a study until its end. After that the result is in the store, and is returned without any network.

    ``on_start`` is called once it is settled who is in; parties in the result have their places of these. Raises
    :class:`InputError` for what the user can correct (address in use, another study's store, other data than before),
    :class:`NotStarted` for a study that goes on without this party, and :class:`ProtocolFailure` if it did not start or nothing
    of it came back.
    """
    async with contextlib.AsyncExitStack() as stack:
        for brought in settings.brought_for_each:
            # However it ends; in a complete run the session did this before.
            stack.callback(brought.forget)
        store = await stack.enter_async_context(opened(settings))
        # Only once this process holds the store: the status file of another process must stay.
        monitor = stack.enter_context(monitor_of(settings))
        party = _Party(settings, store, monitor, on_start)
        if store.result() is not None:
            return await party.kept()
        return await (party.by_connections() if settings.folder is None else party.by_folder(settings.folder))


@contextlib.asynccontextmanager
async def opened(settings: NodeSettings) -> AsyncIterator[Store]:
    """The store of the party of these settings, through outages; it and a socket that was handed over are closed at the end."""

    async def attempt() -> Store:
        if not settings.store.exists():
            settings.require_space()
        return settings.open_store()

    patience = RetryPolicy(settings.observers.report, settings)
    with (
        settings.transport if isinstance(settings.transport, socket.socket) else contextlib.nullcontext(),
        contextlib.closing(await retry(attempt, settings.store, patience)) as store,
    ):
        yield store


def monitor_of(settings: NodeSettings) -> Monitor:
    """Shows what the node of these settings does."""
    observers = settings.observers
    study = {"study": settings.plan.context.get("study"), "session": settings.study, "protocol": settings.plan.protocol.name}
    return Monitor(settings.party, settings.names, study, Traffic(), observers.report, observers.observe, observers.status)


@contextlib.asynccontextmanager
async def over_connections(
    settings: NodeSettings, member: Member, monitor: Monitor, stop: Callable[[], Coroutine[Any, Any, None]]
) -> AsyncIterator[Mesh]:
    """The connections of the party of these settings, as which ``member`` answers: over TLS, at addresses of the parties' own or
    at a relay, as the roster says. Nobody is answered before they are started; at the end ``stop`` comes first.
    """
    agreed = Agreed.of(settings.roster, settings.plan)

    def ended(peer: PartyId, why: Ending) -> None:
        # Anyone who is done leaves, which is not news.
        if why is not Ending.OVER:
            monitor.event(PeerEnded(settings.names[peer], why.in_words))

    async def leave(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await mesh.close(Ending.of(kind))

    endpoint = replace(endpoint_of(settings, member, monitor.traffic, agreed.fields), ended=ended)
    mesh = Mesh(settings.identity, endpoint, member, lambda: agreed.readiness(member.position))
    mesh.bind(None if isinstance(settings.transport, FolderSettings) else settings.transport)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_exit(leave)
        closing.push_async_callback(stop)
        yield mesh


def endpoint_of(settings: NodeSettings, member: Member, traffic: Traffic, fields: Mapping[str, bytes]) -> Endpoint:
    """The endpoint of a party, as which ``member`` answers; ``fields``: what both ends of a connection compare first."""
    credentials = Credentials(settings.identity, settings.roster, settings.study)
    return Endpoint(
        party=settings.party,
        roster=settings.roster,
        study=settings.study,
        credentials=credentials,
        limits=settings.limits,
        refusal=member.refused,
        heard=member.heard,
        traffic=traffic,
        fields=fields,
        fail=member.fail,
        answered=member.answered,
        links=settings.keys.links,
    )


class _Party:
    """A participant over one of the transports, whose traffic the monitor shows."""

    def __init__(self, settings: NodeSettings, store: Store, monitor: Monitor, on_start: OnStart) -> None:
        self._settings, self._store, self._monitor = settings, store, monitor
        self._participant = Participant(settings, store, monitor.traffic, monitor.event, on_start)
        self._patience = RetryPolicy(monitor.event, settings)
        self.refused, self.fail, self.answered = self._participant.refused, self._participant.fail, monitor.acknowledged

    # --- as the others see it ----------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        return self._participant.position

    def heard(self, peer: PartyId, position: Position) -> None:
        self._participant.heard(peer, position)
        self._monitor.heard(peer, position)

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
        answer = await self._participant.handle(sender, request, payload)
        self._monitor.arrived(sender, request, answer)
        return answer

    # --- over a transport --------------------------------------------------------------------------------------------

    async def kept(self) -> NodeResult:
        """What is in a store whose study is over."""
        before = await self._participant.open()
        if before is None:
            raise RuntimeError("a study that is over has a result")
        self._monitor.event(AlreadyOver())
        return self._remarked(before)

    async def by_connections(self) -> NodeResult:
        """Over TLS, at addresses of the parties' own or at a relay, as the roster says."""
        participant = self._participant

        async def attempt() -> NodeResult:
            if (before := await participant.open()) is not None:
                return before
            mesh.start()
            return await participant.run()

        def failed() -> None:
            self.fail(StorageError("another session follows"))
            mesh.drop()

        async with over_connections(self._settings, self, self._monitor, participant.stop) as mesh:
            participant.attach(mesh.links, mesh.disconnect)
            return self._remarked(await retry(attempt, self._store.path, self._patience, failed))

    async def by_folder(self, folder: FolderSettings) -> NodeResult:
        """By files. It ends at once where the store proves not to be the newest of this party."""
        settings, participant = self._settings, self._participant
        endpoint = endpoint_of(settings, self, self._monitor.traffic, {})

        async def attempt() -> NodeResult:
            with contextlib.closing(Outbox(outbox_path(settings.store), settings.study, settings.party)) as outbox:
                post = FolderTransport(endpoint, settings.identity, folder, outbox, self.handle)
                participant.attach(post.links, closed=post.closed, came=post.came)
                if (before := await participant.open()) is not None:
                    return before
                watching = Tasks(self.fail)
                async with contextlib.AsyncExitStack() as closing:
                    closing.push_async_callback(post.close)
                    closing.push_async_callback(watching.stop)
                    closing.push_async_callback(participant.stop)
                    watching.spawn(post.watch(folder.quiet))
                    return await participant.run()

        return self._remarked(await retry(attempt, self._store.path, self._patience))

    def _remarked(self, result: NodeResult) -> NodeResult:
        return remarked(result, self._participant.settings, self._monitor)


def remarked(result: NodeResult, settings: NodeSettings, monitor: Monitor) -> NodeResult:
    """The result, once its status says what is to be said of it."""
    if settings.observers.status is not None:
        monitor.remark = result.in_part_text(settings.names)
    return result


def outbox_path(store: Path) -> Path:
    """What a party puts into a folder, beside its store."""
    return store.with_name(store.name + OUTBOX)
