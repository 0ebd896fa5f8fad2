"""Run one party of a study, from the first connection to the result."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from pathlib import Path

from quietmean.core.errors import Outage
from quietmean.core.party import PartyId
from quietmean.node.folder import FolderPost, FolderSettings, Outbox
from quietmean.node.mesh import Member, Mesh
from quietmean.node.monitor import AlreadyOver, Monitor
from quietmean.node.net import (
    Answer,
    AnyRequest,
    Credentials,
    Endpoint,
    Payload,
    Traffic,
)
from quietmean.node.phase import Position
from quietmean.node.preflight import Agreed
from quietmean.node.session import CurrentSession, NodeResult, NodeSettings, Patience, Session, endure, kept_result
from quietmean.node.storage import Store
from quietmean.node.tasks import Tasks


async def run_party(settings: NodeSettings) -> NodeResult:
    """Take part in a study until its end. After that the result is in the store, and is returned without any network.

    Raises :class:`InputError` for what the user can correct (address in use, another study's store, other data than before) and
    :class:`ProtocolFailure` if the study did not start or nothing of it came back.
    """
    with contextlib.ExitStack() as stack:
        if settings.listen_socket is not None:
            stack.enter_context(settings.listen_socket)
        if settings.wipe_value:
            # However it ends; in a complete run the session did this before.
            stack.callback(settings.value.wipe)
        patience = Patience(settings.report, settings)
        store = await _open_store(settings, patience)
        stack.callback(store.close)
        # Only once this process holds the store: the status file of another process must stay.
        monitor = stack.enter_context(monitor_of(settings))
        if (before := kept_result(store)) is not None:
            monitor.event(AlreadyOver())
            return remarked(before, settings, monitor)
        patience = Patience(monitor.event, settings)
        if settings.folder is not None:
            result = await _run_by_folder(settings, store, monitor, patience, settings.folder)
        else:
            result = await _run_by_connections(settings, store, monitor, patience)
        return remarked(result, settings, monitor)


def remarked(result: NodeResult, settings: NodeSettings, monitor: Monitor) -> NodeResult:
    """The result, once its status says what is to be said of it."""
    if settings.status is not None:
        monitor.remark = result.in_part_text(settings.names)
    return result


async def _open_store(settings: NodeSettings, patience: Patience) -> Store:
    async def attempt() -> Store:
        if not settings.store.exists():
            settings.require_space()
        return settings.open_store()

    return await endure(attempt, settings.store, patience)


def monitor_of(settings: NodeSettings) -> Monitor:
    """Shows what the node of these settings does."""
    study = {"study": settings.plan.context.get("study"), "session": settings.study, "protocol": settings.plan.protocol.name}
    return Monitor(settings.party, settings.names, study, Traffic(), settings.report, settings.observe, settings.status)


def mesh_of(settings: NodeSettings, member: Member, monitor: Monitor) -> Mesh:
    """The connections of the party of these settings, as which ``member`` answers."""
    agreed = Agreed.of(settings.roster, settings.plan)
    endpoint = _endpoint(settings, member, monitor.traffic, agreed.fields)
    return Mesh(settings.identity, endpoint, member, lambda: agreed.readiness(member.position))


def _endpoint(settings: NodeSettings, member: Member, traffic: Traffic, fields: Mapping[str, bytes]) -> Endpoint:
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
        links=settings.links,
    )


class _SessionMember:
    """What comes in goes to the session, and is shown. The first session is made after its links, which need this."""

    def __init__(self, monitor: Monitor, current: CurrentSession) -> None:
        self._monitor = monitor
        self._current = current
        self.answered = monitor.acknowledged
        self.fail = current.fail

    @property
    def position(self) -> Position:
        return self._current.session.position

    def refused(self, peer: str, reason: str) -> None:
        self._current.session.refused(peer, reason)

    def heard(self, peer: PartyId, position: Position) -> None:
        self._current.session.heard(peer, position)
        self._monitor.heard(peer, position)

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> Answer:
        answer = await self._current.handle(sender, request, payload)
        self._monitor.arrived(sender, request, answer)
        return answer


async def _run_by_connections(settings: NodeSettings, store: Store, monitor: Monitor, patience: Patience) -> NodeResult:
    """A session over TLS, at addresses of the parties' own or at a relay, as the roster says."""
    current = CurrentSession(settings.round_timeout)
    mesh = mesh_of(settings, _SessionMember(monitor, current), monitor)

    def new_session(*, restarted: bool) -> Session:
        session = Session(settings, store, mesh.links, monitor.traffic, monitor.event, restarted=restarted)
        session.at_gate(mesh.cut_off, asyncio.to_thread)
        return current.follow(session)

    async def attempt() -> NodeResult:
        if not current.session.failed:
            return await current.session.run()
        store.reopen()
        return kept_result(store) or await new_session(restarted=True).run()

    def failed() -> None:
        current.fail(Outage("another session follows"))
        mesh.drop()

    mesh.bind(settings.listen_socket or settings.listen)
    new_session(restarted=False)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(mesh.close)
        mesh.start()
        return await endure(attempt, store.path, patience, failed)


async def _run_by_folder(
    settings: NodeSettings, store: Store, monitor: Monitor, patience: Patience, folder: FolderSettings
) -> NodeResult:
    """A session whose messages are files. It ends at once where the store proves not to be the newest of this party."""
    attempts = itertools.count()

    async def attempt() -> NodeResult:
        restarted = next(attempts) > 0
        if restarted:
            store.reopen()
        return kept_result(store) or await _one_by_folder(settings, store, monitor, folder, restarted=restarted)

    return await endure(attempt, store.path, patience)


async def _one_by_folder(
    settings: NodeSettings, store: Store, monitor: Monitor, folder: FolderSettings, *, restarted: bool
) -> NodeResult:
    current = CurrentSession(settings.round_timeout)
    member = _SessionMember(monitor, current)
    endpoint = _endpoint(settings, member, monitor.traffic, {})
    with contextlib.closing(Outbox(outbox_path(settings.store), settings.study, settings.party)) as outbox:
        post = FolderPost(endpoint, settings.identity, folder, outbox, member.handle)
        session = current.follow(
            Session(settings, store, post.links, monitor.traffic, monitor.event, post.closed, restarted=restarted)
        )
        watching = Tasks(session.fail)
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(post.close)
            closing.push_async_callback(watching.stop)
            watching.spawn(post.watch(folder.quiet))
            return await session.run()


def outbox_path(store: Path) -> Path:
    """What a party puts into a folder, beside its store."""
    return store.with_name(f"{store.name}.outbox")
