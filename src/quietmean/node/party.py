"""One party of a study or of a series: in the attempts to start, then in one session after another; and what others see of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.monitor import Monitor
from quietmean.node.net import (
    ACCEPTED,
    REFUSED,
    AnswerFrame,
    AnyRequest,
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
from quietmean.node.session import (
    Carrier,
    NodeResult,
    NodeSettings,
    StudySession,
    decode_log,
    kept_result,
    note_refusal,
    read_vector,
)
from quietmean.node.start import Attempt, Started, StartPhase, load_progress
from quietmean.node.storage import Store
from quietmean.node.tasks import first_of

# So long a request of a party that is further waits until this one is bound, too; without limit where it cannot be in another
# attempt (s).
_PATIENCE = 15.0
# The position of a party before its session.
BEFORE: Position = (int(Phase.AGREEMENT), 0)

OnStart = Callable[[Started], None]


def ignore_start(started: Started) -> None:
    """Ignore that a study has started: the default."""


def monitor_of(settings: NodeSettings) -> Monitor:
    """Shows what the node of these settings does."""
    observers = settings.observers
    # A signed study is its roster's digest.
    study = {"study": settings.plan.context.get("study"), "roster": settings.roster.digest, "session": settings.study}
    study |= {"protocol": settings.plan.protocol.name, **observers.about}
    return Monitor(settings.party, settings.names, study, Traffic(), observers.report, observers.observe, observers.status)


class Party:
    """:meth:`attach` its links, :meth:`open_start`, then :meth:`agree`; both again after an outage.

    Everything that others see counts parties as the roster does; what a session sees, as those who are in are numbered.
    ``started`` once it is settled who is in, of which ``on_start`` learns once. ``restarted``: a process before this one, or this
    one before an outage, may have been handed messages. ``session``: the one that goes on here, if one does.
    """

    store: Store

    def __init__(self, settings: NodeSettings, on_start: OnStart = ignore_start) -> None:
        self.settings, self.monitor = settings, monitor_of(settings)
        self.started: Started | None = None
        self.restarted = False
        self.session: StudySession | None = None
        self._on_start = on_start
        self._gathering: StartPhase | None = None
        # What was refused where no session goes on.
        self._refusals = Refusals()

    # --- the start ---------------------------------------------------------------------------------------------------

    def attach(self, carrier: Carrier) -> None:
        """``carrier`` carries requests to all parties of the roster."""
        self._carrier = carrier

    async def open_start(self) -> None:
        """Where this party is, is what its store says; of one that has its result, nothing is announced to anybody any more."""
        if self._gathering is not None:
            await self._gathering.stop()
            self.store.reopen()
            self.restarted = True
        self.load_start()
        if self.store.result() is None:
            self._gathering = StartPhase(self.settings, self.store, self._carrier, self.monitor.event, self.fail, self.refused)

    def load_start(self) -> None:
        """Read where this party is, without any link."""
        progress = load_progress(self.store.progress())
        self.restarted = self.restarted or progress.attempt is not None
        if progress.bound and progress.attempt is not None:
            self._settle(progress.attempt)

    async def agree(self) -> Started:
        """Announce, from now on, and return once it is settled who is in. Raises as :meth:`StartPhase.until_bound`."""
        self.gathering.start()
        return self.started or self._settle(await self.gathering.until_bound())

    async def stop(self) -> None:
        """Announce nothing to the others any more."""
        if self._gathering is not None:
            await self._gathering.stop()

    @property
    def gathering(self) -> StartPhase:
        """The attempts to start. Raises ConnectionAbortedError before this is opened: nobody is answered yet."""
        if self._gathering is None:
            raise ConnectionAbortedError("this party has not begun")
        return self._gathering

    @property
    def inside(self) -> NodeSettings:
        """The settings of this party as one of those who are in, once that is settled."""
        return self.settings if self.started is None else self.started.settings

    def place(self, party: PartyId) -> PartyId | None:
        """The index of a party of the roster in those who are in; None of who is not, and before that is settled."""
        return None if self.started is None else self.started.place(party)

    def _settle(self, attempt: Attempt) -> Started:
        if self.started is None:
            self.started = Started.of(self.settings, attempt, self.store.encapsulated())
            self.store.use_grid(self.started.settings.plan.grid)
            self._on_start(self.started)
        return self.started

    # --- a session ---------------------------------------------------------------------------------------------------

    def session_of(
        self, settings: NodeSettings, store: Store, carrier: Carrier, refusals: Refusals | None = None, *, restarted: bool
    ) -> StudySession:
        """A session of this party, which the monitor shows. ``refusals``: what was refused before it."""
        monitor = self.monitor
        return StudySession(settings, store, carrier, monitor.traffic, monitor.event, refusals, restarted=restarted)

    # --- as the others see it ----------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        return BEFORE if self.session is None else self.session.position

    def heard(self, peer: PartyId, position: Position) -> None:
        """Where a party of the roster says that it is, with a greeting or an answer."""
        if self.session is not None and (index := self.place(peer)) is not None:
            self.session.heard(index, position)
        self.monitor.heard(peer, position)

    def answered(self, peer: PartyId, request: AnyRequest, answer: AnswerFrame) -> None:
        """A party of the roster has answered a request of this one."""
        self.monitor.acknowledged(peer, request, answer)

    def refused(self, peer: str, reason: str) -> None:
        """Note that something was refused, by either side; ``peer``: a name or an address."""
        if self.session is not None:
            self.session.refused(peer, reason)
        else:
            note_refusal(self._refusals, self.monitor.event, peer, reason)

    def fail(self, error: BaseException) -> None:
        """End what goes on with an error of what goes on beside it."""
        if self.session is not None and not self.session.failed:
            self.session.fail(error)
        elif self._gathering is not None:
            self._gathering.fail(error)


class Participant(Party):
    """One party of a study: :meth:`attach` its links, :meth:`open` it, then :meth:`run`; these two again after an outage."""

    def __init__(self, settings: NodeSettings, store: Store, on_start: OnStart = ignore_start) -> None:
        super().__init__(settings, on_start)
        self.store = store
        # Another session follows after each outage.
        self._follows = asyncio.Event()
        self._begun = asyncio.Event()
        # What could be read before the session began, and was not answered.
        self._handed: list[tuple[PartyId, Transfer]] = []
        # By sender: which message is held, and what is set once another one follows it.
        self._last_held: dict[PartyId, tuple[Position, asyncio.Event]] = {}

    async def open(self) -> NodeResult | None:
        """Where this party is, is what its store says. Returns the result if the study is over for it."""
        await self.open_start()
        if (before := kept_result(self.store)) is not None:
            return before
        if self.started is not None:
            # From the first moment on: who connects learns where it is.
            self._begin(self.started)
        return None

    async def run(self) -> NodeResult:
        """From where the store says that this party was, to the result.

        Raises :class:`NotStarted` for a study without this party, and :class:`ProtocolFailure` if it did not start or nothing of
        it came back.
        """
        begun = self.started is not None
        started = await self.agree()
        if not begun:
            self._begin(started)
        return await self._current.run()

    @property
    def _current(self) -> StudySession:
        if self.session is None:
            raise RuntimeError("the session has not begun")
        return self.session

    def _begin(self, started: Started) -> None:
        carrier = self._carrier.between(started.members)
        session = self.session_of(started.settings, self.store, carrier, self._refusals, restarted=self.restarted)
        for sender, transfer in self._handed:
            if (index := started.place(sender)) is not None:
                session.handed(index, transfer)
        self._handed.clear()
        self.session = session
        self._follows.set()
        self._begun.set()

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
        """The answer to a request of ``sender``, a party of the roster. Raises as :meth:`Session.handle`."""
        if (answer := self.handle_now(sender, request, payload)) is None:
            answer = await self._handle(sender, request, payload)
            self.monitor.arrived(sender, request, answer)
        return answer

    def handle_now(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame | None:
        """The answer, and None where something has to be waited for first. Raises as :meth:`handle`."""
        answer = None
        if isinstance(request, Start):
            answer = self.gathering.handle(sender, request, self.position)
        elif self.session is not None and not self.session.failed and (index := self.place(sender)) is not None:
            answer = self.session.handle_now(index, request, payload)
        if answer is not None:
            self.monitor.arrived(sender, request, answer)
        return answer

    async def _handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
        if self.session is None:
            if (answer := self._answer_early(sender, request, payload)) is not None:
                return answer
            held = await self._held(sender, request)
            if held is None:
                return AnswerFrame(request.number, REFUSED, *self.position)
            request = held
        index = self.place(sender)
        if index is None:
            raise PeerError("it sent a message for a study that did not start with it")
        if self._current.failed:
            # A party whose machine stalls is there for the others: it says where it is, and whatever else they ask waits for the
            # next session, as long as a round does.
            if isinstance(request, Heartbeat):
                return AnswerFrame(request.number, ACCEPTED, *self.position)
            self._follows.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.waits.round):
                    await self._follows.wait()
        return await self._current.handle(index, request, payload)

    def _answer_early(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame | None:
        """The answer to what need not wait until this party is bound. Raises :class:`PeerError` for what it would never take.

        Where fewer may start, it is not known yet by which plan.
        """
        plan, waits_for_all = self.settings.plan, self.settings.start is None
        match request:
            case Heartbeat():
                return AnswerFrame(request.number, ACCEPTED, *self.position)
            case GateLog() | Vote():
                # Asked again.
                return AnswerFrame(request.number, REFUSED, *self.position)
            case Log() if waits_for_all:
                decode_log(payload, len(self.settings.names), plan.protocol.rounds)
                if not self._may_have_begun:
                    return AnswerFrame(request.number, REFUSED, *self.position)
            case Transfer() if waits_for_all:
                read_vector(request, payload, plan.grid)
                self.gathering.began(sender, request.agreement)
        return None

    @property
    def _may_have_begun(self) -> bool:
        """Whether others may be further than this party: nobody is before all have committed."""
        attempt = self.gathering.progress.attempt
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
            async with asyncio.timeout(None if self.settings.start is None or self.settings.folder else _PATIENCE):
                await self._begun.wait()
        except TimeoutError:
            raise PeerError("it sent a message for a study that did not start with it") from None

    def _note_handed(self, sender: PartyId, transfer: Transfer) -> None:
        if self.session is not None and (index := self.place(sender)) is not None:
            self.session.handed(index, transfer)
        else:
            self._handed.append((sender, transfer))
