"""Run one party of a study, from the first connection to the result: in the attempts to start, then in the session."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from quietmean.core.errors import PeerError, StorageError
from quietmean.core.party import PartyId
from quietmean.node.folder import FolderSettings, FolderTransport, Outbox
from quietmean.node.mesh import Member, Mesh
from quietmean.node.monitor import AlreadyOver, Monitor, PeerEnded, Report
from quietmean.node.net import (
    ACCEPTED,
    REFUSED,
    AnswerFrame,
    AnyRequest,
    Credentials,
    Ending,
    Endpoint,
    GateLog,
    Heartbeat,
    Log,
    Payload,
    Refusals,
    Start,
    Traffic,
    Transfer,
    Vote,
)
from quietmean.node.phase import Phase, Position
from quietmean.node.preflight import Agreed
from quietmean.node.session import (
    Carrier,
    NodeResult,
    NodeSettings,
    RetryPolicy,
    StudySession,
    decode_log,
    kept_result,
    note_refusal,
    read_vector,
    retry,
)
from quietmean.node.start import Beginning, OnStart, Started, ignore_start
from quietmean.node.storage import Store, outbox_path
from quietmean.node.tasks import Tasks, first_of

# So long a request of a party that is further waits until this one is bound, too; without limit where it cannot be in another
# attempt (s).
_PATIENCE = 15.0


class Participant:
    """:meth:`attach` its links, :meth:`open` it, then :meth:`run`; :meth:`open` and run it again after an outage.

    ``on_start`` is called once it is settled who is in. Everything that others see counts parties as the roster does; what the
    session sees, as those who are in are numbered.
    """

    def __init__(
        self, settings: NodeSettings, store: Store, traffic: Traffic, report: Report, on_start: OnStart = ignore_start
    ) -> None:
        self._settings, self._store, self._traffic, self._report = settings, store, traffic, report
        self._beginning = Beginning(settings, store, report, self.fail, self.refused, on_start)
        # Another one follows after each outage.
        self._session: StudySession | None = None
        self._follows = asyncio.Event()
        self._refusals = Refusals()
        self._begun = asyncio.Event()
        # What could be read before the session began, and was not answered.
        self._handed: list[tuple[PartyId, Transfer]] = []
        # By sender: which message is held, and what is set once another one follows it.
        self._last_held: dict[PartyId, tuple[Position, asyncio.Event]] = {}

    def attach(self, carrier: Carrier) -> None:
        """``carrier`` carries requests to all parties of the roster."""
        self._carrier = carrier
        self._beginning.attach(carrier)

    async def open(self) -> NodeResult | None:
        """Where this party is, is what its store says. Returns the result if the study is over for it."""
        await self._beginning.open()
        if (before := kept_result(self._store)) is not None:
            return before
        if self._beginning.started is not None:
            # From the first moment on: who connects learns where it is.
            self._begin(self._beginning.started)
        return None

    async def run(self) -> NodeResult:
        """From where the store says that this party was, to the result.

        Raises :class:`NotStarted` for a study without this party, and :class:`ProtocolFailure` if it did not start or nothing of
        it came back.
        """
        begun = self._beginning.started is not None
        started = await self._beginning.run()
        if not begun:
            self._begin(started)
        return await self._current.run()

    @property
    def _current(self) -> StudySession:
        if self._session is None:
            raise RuntimeError("the session has not begun")
        return self._session

    @property
    def settings(self) -> NodeSettings:
        """The settings of this party in the study of who is in, once that is settled."""
        return self._beginning.settings

    async def stop(self) -> None:
        """Announce nothing to the others any more."""
        await self._beginning.stop()

    def _begin(self, started: Started) -> None:
        session = StudySession(
            started.settings,
            self._store,
            self._carrier.between(started.members),
            self._traffic,
            self._report,
            self._refusals,
            restarted=self._beginning.restarted,
        )
        for sender, transfer in self._handed:
            if (index := started.place(sender)) is not None:
                session.handed(index, transfer)
        self._handed.clear()
        self._session = session
        self._follows.set()
        self._begun.set()

    # --- as the others see it ----------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        return (int(Phase.AGREEMENT), 0) if self._session is None else self._session.position

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
        """The answer to a request of ``sender``, a party of the roster. Raises as :meth:`Session.handle`."""
        if isinstance(request, Start):
            return self._beginning.handle(sender, request, self.position)
        if self._session is None:
            if (answer := self._answer_early(sender, request, payload)) is not None:
                return answer
            held = await self._held(sender, request)
            if held is None:
                return AnswerFrame(request.number, REFUSED, *self.position)
            request = held
        index = self._beginning.place(sender)
        if index is None:
            raise PeerError("it takes part in a study that has not started with it here")
        if self._current.failed:
            # A party whose machine stalls is there for the others: it says where it is, and whatever else they ask waits for the
            # next session, as long as a round does.
            if isinstance(request, Heartbeat):
                return AnswerFrame(request.number, ACCEPTED, *self.position)
            self._follows.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.waits.round):
                    await self._follows.wait()
        return await self._current.handle(index, request, payload)

    def _answer_early(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame | None:
        """The answer to what need not wait until this party is bound. Raises :class:`PeerError` for what it would never take.

        Where fewer may start, it is not known yet by which plan.
        """
        plan, waits_for_all = self._settings.plan, self._settings.start is None
        match request:
            case Heartbeat():
                return AnswerFrame(request.number, ACCEPTED, *self.position)
            case GateLog() | Vote():
                # Asked again.
                return AnswerFrame(request.number, REFUSED, *self.position)
            case Log() if waits_for_all:
                decode_log(payload, len(self._settings.names), plan.protocol.rounds)
                if not self._may_have_begun:
                    return AnswerFrame(request.number, REFUSED, *self.position)
            case Transfer() if waits_for_all:
                read_vector(request, payload, plan.grid)
                self._beginning.gathering.began(sender, request.agreement)
        return None

    @property
    def _may_have_begun(self) -> bool:
        """Whether others may be further than this party: nobody is before all have committed."""
        attempt = self._beginning.gathering.progress.attempt
        return attempt is not None and attempt.all_committed

    async def _held(self, sender: PartyId, request: AnyRequest) -> AnyRequest | None:
        """The request, once this party is bound: who is goes on at once, and what it said of all others makes this one follow.

        Of the messages of one sender only the last one is held, as in a session: None for one that another one follows.
        """
        if not isinstance(request, Transfer):
            await self._until_begun()
            return request
        clock = asyncio.get_running_loop().time
        came, position = clock(), (request.phase, request.round)
        before, passed_over = self._last_held.get(sender, (position, asyncio.Event()))
        if before != position:
            # Copies of one message have one fate.
            passed_over.set()
            passed_over = asyncio.Event()
        self._last_held[sender] = position, passed_over
        try:
            await first_of(self._until_begun(), passed_over.wait())
        except BaseException:
            self._note_handed(sender, request)
            raise
        if passed_over.is_set():
            self._note_handed(sender, request)
            return None
        return msgspec.structs.replace(request, valid_for=max(0, request.valid_for - int(1000 * (clock() - came))))

    async def _until_begun(self) -> None:
        try:
            # What is in a folder is read once, in its order: who bound this party's sender binds this party, too.
            async with asyncio.timeout(None if self._settings.start is None or self._settings.folder else _PATIENCE):
                await self._begun.wait()
        except TimeoutError:
            raise PeerError("it takes part in a study that has not started with it here") from None

    def _note_handed(self, sender: PartyId, transfer: Transfer) -> None:
        if self._session is not None and (index := self._beginning.place(sender)) is not None:
            self._session.handed(index, transfer)
        else:
            self._handed.append((sender, transfer))

    def heard(self, peer: PartyId, position: Position) -> None:
        """Where a party of the roster says that it is, with a greeting or an answer."""
        if self._session is not None and (index := self._beginning.place(peer)) is not None:
            self._session.heard(index, position)

    def refused(self, peer: str, reason: str) -> None:
        """Something was refused, by either side; ``peer``: a name or an address."""
        note_refusal(self._refusals, self._report, peer, reason)

    def fail(self, error: BaseException) -> None:
        """End what goes on with an error of what goes on beside it."""
        if self._session is not None and not self._session.failed:
            self._session.fail(error)
        else:
            self._beginning.fail(error)


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
        result = await party.kept()
        if result is None:
            result = await (party.by_connections() if settings.folder is None else party.by_folder(settings.folder))
        return remarked(result, party.settings, monitor)


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
    def settings(self) -> NodeSettings:
        return self._participant.settings

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

    async def kept(self) -> NodeResult | None:
        """What is in a store whose study is over."""
        before = await self._participant.open() if self._store.result() is not None else None
        if before is not None:
            self._monitor.event(AlreadyOver())
        return before

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
            participant.attach(Carrier(mesh.links, mesh.disconnect, compute=asyncio.to_thread))
            return await retry(attempt, self._store.path, self._patience, failed)

    async def by_folder(self, folder: FolderSettings) -> NodeResult:
        """By files. It ends at once where the store proves not to be the newest of this party."""
        participant = self._participant

        async def attempt() -> NodeResult:
            async with over_folder(self._settings, folder, self, self._monitor) as (post, watching):
                participant.attach(Carrier.by_folder(post))
                if (before := await participant.open()) is not None:
                    return before
                watching.spawn(post.watch(folder.quiet))
                try:
                    return await participant.run()
                finally:
                    await participant.stop()

        return await retry(attempt, self._store.path, self._patience)


def remarked(result: NodeResult, settings: NodeSettings, monitor: Monitor) -> NodeResult:
    """The result, once its status says what is to be said of it."""
    if settings.observers.status is not None:
        monitor.remark = result.in_part_text(settings.names)
    return result
