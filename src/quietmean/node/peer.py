"""Run one party of a study, from the first connection to the result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from quietmean.core.party import PartyId
from quietmean.node.folder import FolderPost, FolderSettings, Outbox
from quietmean.node.monitor import AlreadyOver, Monitor
from quietmean.node.net import (
    Answer,
    AnyRequest,
    Credentials,
    Endpoint,
    Handler,
    Limits,
    Link,
    Listener,
    OnAnswer,
    Payload,
    Route,
    Traffic,
)
from quietmean.node.phase import Position
from quietmean.node.preflight import Agreed
from quietmean.node.session import NodeResult, NodeSettings, Session, kept_result
from quietmean.node.storage import Store
from quietmean.node.tunnel import Reach


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
            stack.callback(settings.value.fill, 0.0)
        store = settings.open_store()
        stack.callback(store.close)
        # Only once this process holds the store: the status file of another process must stay.
        monitor = stack.enter_context(monitor_of(settings))
        if (before := kept_result(store)) is not None:
            monitor.event(AlreadyOver())
            return before
        if settings.folder is not None:
            return await _run_by_folder(settings, store, monitor, settings.folder)
        return await _run_by_connections(settings, store, monitor)


def monitor_of(settings: NodeSettings) -> Monitor:
    """Shows what the node of these settings does."""
    study = {"study": settings.plan.context.get("study"), "session": settings.study, "protocol": settings.plan.protocol.name}
    return Monitor(settings.party, settings.names, study, Traffic(), settings.report, settings.observe, settings.status)


class MonitoredLink(Link):
    """Passes every answer to the monitor."""

    def __init__(
        self,
        endpoint: Endpoint,
        peer: PartyId,
        route: Route,
        handle: Handler,
        position: Callable[[], Position],
        monitor: Monitor,
    ) -> None:
        super().__init__(endpoint, peer, route, handle, position)
        self._on_answer = partial(monitor.acknowledged, peer)

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: OnAnswer = lambda answer: None,
        unless: Callable[[], bool] = lambda: False,
    ) -> Answer:
        def answered(answer: Answer) -> None:
            on_answer(answer)
            self._on_answer(request, answer)

        return await super().ask(request, payload, answered, unless)


class _Receiver:
    """What comes in goes to the session, and is shown. The session is made after its links, which need this."""

    session: Session

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def endpoint(self, settings: NodeSettings, fields: Mapping[str, bytes]) -> Endpoint:
        """What all links of the session share."""
        plan, roster = settings.plan, settings.roster
        target = plan.target
        content = plan.protocol.content_limit(target.parties, target.dimension)
        limits = Limits.of_study(target.parties, plan.protocol.rounds, target.dimension, content, plan.grid)
        credentials = Credentials(settings.identity, roster, settings.study)
        traffic = self._monitor.traffic
        return Endpoint(settings.party, roster, settings.study, credentials, limits, self.refused, self.heard, traffic, fields)

    @property
    def position(self) -> Position:
        return self.session.position

    def refused(self, name: str, reason: str) -> None:
        self.session.refused(name, reason)

    def heard(self, peer: PartyId, position: Position) -> None:
        self.session.heard(peer, position)
        self._monitor.heard(peer, position)

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> Answer:
        answer = await self.session.handle(sender, request, payload)
        self._monitor.arrived(sender, request, answer)
        return answer


async def _run_by_connections(settings: NodeSettings, store: Store, monitor: Monitor) -> NodeResult:
    """A session over TLS: one listener, and a link to each of the others, whoever dialled.

    Who is dialled, and where this party is, is the roster's: at addresses of their own, or at a relay.
    """
    agreed = Agreed.of(settings.roster, settings.plan)
    receiver = _Receiver(monitor)
    endpoint = receiver.endpoint(settings, agreed.fields)
    reach = Reach(settings.identity, settings.roster)
    links: dict[PartyId, Link] = {
        peer: MonitoredLink(endpoint, peer, reach.route(peer), receiver.handle, lambda: receiver.position, monitor)
        for peer in range(len(settings.roster))
        if peer != settings.party
    }
    session = receiver.session = Session(settings, store, links, monitor.traffic, monitor.event)
    listening = settings.listen_socket or reach.open_socket(settings.listen)
    listener = Listener(
        endpoint,
        listening,
        receiver.handle,
        lambda: session.position,
        readiness=lambda: agreed.readiness(session.position),
        links=links,
    )
    session.at_gate(listener.cut_off, asyncio.to_thread)
    listener.start()
    reach.attend(listener, session.refused)
    try:
        return await session.run()
    finally:
        for link in links.values():
            link.stop()
        await reach.leave()
        await listener.close()
        await session.close_links()
        await reach.close()


async def _run_by_folder(settings: NodeSettings, store: Store, monitor: Monitor, folder: FolderSettings) -> NodeResult:
    """A session whose messages are files. It ends at once where the store proves not to be the newest of this party."""
    receiver = _Receiver(monitor)
    endpoint = receiver.endpoint(settings, {})
    with contextlib.closing(Outbox(outbox_path(settings.store), settings.study, settings.party)) as outbox:
        post = FolderPost(endpoint, settings.identity, folder, outbox, receiver.handle, monitor.acknowledged)
        session = receiver.session = Session(settings, store, post.links, monitor.traffic, monitor.event, post.closed)
        watching, running = asyncio.create_task(post.watch(folder.quiet)), asyncio.create_task(session.run())
        try:
            await asyncio.wait({watching, running}, return_when=asyncio.FIRST_COMPLETED)
            return await (running if running.done() else _never(watching))
        finally:
            for task in (watching, running):
                task.cancel()
            await asyncio.gather(watching, running, return_exceptions=True)
            await post.close()


async def _never(watching: asyncio.Task[None]) -> NodeResult:
    await watching
    raise AssertionError("the folder is watched to the end")


def outbox_path(store: Path) -> Path:
    """What a party puts into a folder, beside its store."""
    return store.with_name(f"{store.name}.outbox")
