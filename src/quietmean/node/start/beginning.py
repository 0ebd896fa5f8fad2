"""The start of one party, through outages: from where its store says that it was, to the settings of those who are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quietmean.core.party import PartyId
from quietmean.node.monitor import Report
from quietmean.node.net import AnswerFrame, Start
from quietmean.node.phase import Position
from quietmean.node.session import NodeSettings, PeerLink
from quietmean.node.start.machine import Attempt
from quietmean.node.start.phase import StartPhase
from quietmean.node.start.policy import Closed, Received
from quietmean.node.start.record import load_progress
from quietmean.node.start.started import Started
from quietmean.node.storage import Store
from quietmean.node.tasks import Fail

OnStart = Callable[[Started], None]


def ignore_start(started: Started) -> None:
    """Ignore that a study has started: the default."""


class Beginning:
    """:meth:`attach` its links, :meth:`open` it, then :meth:`run`; :meth:`open` and run it again after an outage.

    ``started`` once it is settled who is in, of which ``on_start`` learns once. ``restarted``: a process before this one, or this
    one before an outage, may have been handed messages.
    """

    def __init__(
        self,
        settings: NodeSettings,
        store: Store,
        report: Report,
        fail: Fail,
        refused: Callable[[str, str], None],
        on_start: OnStart = ignore_start,
    ) -> None:
        self._settings, self._store, self._report = settings, store, report
        self._on_failure, self._refused, self._on_start = fail, refused, on_start
        self._gathering: StartPhase | None = None
        self.started: Started | None = None
        self.restarted = False

    def attach(self, links: Mapping[PartyId, PeerLink], closed: Closed | None = None, came: Received = tuple) -> None:
        """``links`` to all parties of the roster; ``closed`` and ``came``: see :class:`StartPhase`."""
        self._links, self._closed, self._came = links, closed, came

    async def open(self) -> None:
        """Where this party is, is what its store says; of one that has its result, nothing is announced to anybody any more."""
        if self._gathering is not None:
            await self._gathering.stop()
            self._store.reopen()
            self.restarted = True
        self.load()
        if self._store.result() is None:
            self._gathering = StartPhase(
                self._settings, self._store, self._links, self._report, self._on_failure, self._refused, self._closed, self._came
            )

    def load(self) -> None:
        """Read where this party is, without any link."""
        progress = load_progress(self._store.progress())
        self.restarted = self.restarted or progress.attempt is not None
        if progress.bound and progress.attempt is not None:
            self._settle(progress.attempt)

    async def run(self) -> Started:
        """Announce, from now on, and return once it is settled who is in. Raises as :meth:`StartPhase.until_bound`."""
        self.gathering.start()
        return self.started or self._settle(await self.gathering.until_bound())

    async def stop(self) -> None:
        """Announce nothing to the others any more."""
        if self._gathering is not None:
            await self._gathering.stop()

    def fail(self, error: BaseException) -> None:
        """End it with an error of what goes on beside it."""
        if self._gathering is not None:
            self._gathering.fail(error)

    @property
    def gathering(self) -> StartPhase:
        """The attempts to start. Raises ConnectionAbortedError before this is opened: nobody is answered yet."""
        if self._gathering is None:
            raise ConnectionAbortedError("this party has not begun")
        return self._gathering

    @property
    def error(self) -> BaseException | None:
        """What has ended the start here, if it was not its own end."""
        return None if self._gathering is None else self._gathering.error

    @property
    def settings(self) -> NodeSettings:
        """The settings of this party as one of those who are in, once that is settled."""
        return self._settings if self.started is None else self.started.settings

    def place(self, party: PartyId) -> PartyId | None:
        """The index of a party of the roster in those who are in; None of who is not, and before that is settled."""
        return None if self.started is None else self.started.place(party)

    def handle(self, sender: PartyId, frame: Start, position: Position) -> AnswerFrame:
        """See :meth:`StartPhase.handle`."""
        return self.gathering.handle(sender, frame, position)

    def _settle(self, attempt: Attempt) -> Started:
        if self.started is None:
            self.started = Started.of(self._settings, attempt, self._store.encapsulated())
            self._store.use_grid(self.started.settings.plan.grid)
            self._on_start(self.started)
        return self.started
