"""Run one party of a study, from the first connection to the result: in the attempts to start, then in the session."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from quietmean.core.errors import InputError, StorageError
from quietmean.core.party import PartyId
from quietmean.node.folder import FolderSettings, FolderTransport, Outbox
from quietmean.node.mesh import Member, Mesh
from quietmean.node.monitor import AlreadyOver, Monitor, PeerEnded
from quietmean.node.net import (
    Credentials,
    Ending,
    Endpoint,
    Traffic,
)
from quietmean.node.party import OnStart, Participant, Party, ignore_start
from quietmean.node.preflight import Agreed
from quietmean.node.session import (
    Carrier,
    NodeResult,
    NodeSettings,
    RetryPolicy,
    retry,
)
from quietmean.node.storage import Store, outbox_path
from quietmean.node.tasks import Tasks


async def run_party(settings: NodeSettings, on_start: OnStart = ignore_start) -> NodeResult:
    """Take part in a study until its end. After that the result is in the store, and is returned without the others;
    by folder, what they may still wait for is put.

    ``on_start`` is called once it is settled who is in; parties in the result have their places of these. Raises
    :class:`InputError` for what the user can correct (address in use, another study's store, other data than before),
    :class:`NotStarted` for a study that goes on without this party, and :class:`ProtocolFailure` if it did not start or nothing
    of it came back.
    """
    async with contextlib.AsyncExitStack() as stack:
        for brought in settings.brought_for_each:
            # However it ends; in a complete run the session did this before.
            stack.callback(brought.forget)
        party = Participant(settings, await stack.enter_async_context(opened(settings)), on_start)
        # Only once this process holds the store: the status file of another process must stay.
        stack.enter_context(party.monitor)
        over = party.store.result() is not None
        if over and settings.folder is not None:
            await put_what_waits(settings, settings.folder, party, party.monitor)
        if over and (before := await party.open()) is not None:
            party.monitor.event(AlreadyOver())
            result = before
        elif settings.folder is None:
            result = await _by_connections(party)
        else:
            result = await _by_folder(party, settings.folder)
        return remarked(result, party.inside, party.monitor)


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


@contextlib.asynccontextmanager
async def over_connections(party: Party, member: Member) -> AsyncIterator[Mesh]:
    """The connections of ``party``, as which ``member`` answers: over TLS, at addresses of the parties' own or at a relay, as the
    roster says. Nobody is answered before they are started; at the end the party announces nothing more first.
    """
    settings, monitor = party.settings, party.monitor
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
        closing.push_async_callback(party.stop)
        yield mesh


@contextlib.asynccontextmanager
async def over_folder(
    settings: NodeSettings,
    folder: FolderSettings,
    member: Member,
    monitor: Monitor,
    outbox: Callable[[Path, str, PartyId], Outbox] = Outbox,
) -> AsyncIterator[tuple[FolderTransport, Tasks]]:
    """The files of the party of these settings, as which ``member`` answers, and the tasks that look after them.

    Nothing is put or read before it is watched; at the end the tasks stop first.
    """
    endpoint = endpoint_of(settings, member, monitor.traffic, {})
    with contextlib.closing(outbox(outbox_path(settings.store), settings.study, settings.party)) as own:
        post, watching = FolderTransport(endpoint, settings.identity, folder, own, member.handle), Tasks(member.fail)
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(post.close)
            closing.push_async_callback(watching.stop)
            yield post, watching


async def put_what_waits(settings: NodeSettings, folder: FolderSettings, member: Member, monitor: Monitor) -> None:
    """Put the last messages of what is over here, a study or a round: a process that died at its end may have left them in the
    outbox.
    """
    if folder.mailbox is not None and outbox_path(settings.store).exists():
        # There is a result, whatever becomes of this: the others wait for its answers until their time.
        with contextlib.suppress(InputError, StorageError):
            async with over_folder(settings, folder, member, monitor):
                pass


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


async def _by_connections(party: Participant) -> NodeResult:
    """Take part over TLS, at addresses of the parties' own or at a relay, as the roster says."""

    async def attempt() -> NodeResult:
        if (before := await party.open()) is not None:
            return before
        mesh.start()
        return await party.run()

    def failed() -> None:
        party.fail(StorageError("another session follows"))
        mesh.drop()

    async with over_connections(party, party) as mesh:
        party.attach(Carrier(mesh.links, mesh.disconnect, compute=asyncio.to_thread))
        return await retry(attempt, party.store.path, RetryPolicy(party.monitor.event, party.settings), failed)


async def _by_folder(party: Participant, folder: FolderSettings) -> NodeResult:
    """Take part by files. It ends at once where the store proves not to be the newest of this party."""

    async def attempt() -> NodeResult:
        async with over_folder(party.settings, folder, party, party.monitor) as (post, watching):
            party.attach(Carrier.by_folder(post))
            if (before := await party.open()) is not None:
                return before
            watching.spawn(post.watch(folder.quiet))
            try:
                return await party.run()
            finally:
                await party.stop()

    return await retry(attempt, party.store.path, RetryPolicy(party.monitor.event, party.settings))


def remarked(result: NodeResult, settings: NodeSettings, monitor: Monitor) -> NodeResult:
    """The result, once its status says what is to be said of it."""
    if settings.observers.status is not None:
        monitor.remark = result.in_part_text(settings.names)
    return result
