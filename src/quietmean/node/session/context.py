"""The state that the parts of a running session share, and the one way in which all of them wait for other parties."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from quietmean.core.party import PartyId
from quietmean.node.monitor import Late, Report, Waiting, iso_time
from quietmean.node.net import AnswerFrame, AnyRequest, Heartbeat, Payload, Transfer
from quietmean.node.phase import Phase, Position
from quietmean.node.session.failure_detector import HEARTBEAT_INTERVAL, FailureDetector, longest_wait
from quietmean.node.session.gossip import GossipedLogs
from quietmean.node.session.inbox import Inbox
from quietmean.node.session.settings import NodeSettings
from quietmean.node.storage import Outgoing, Store
from quietmean.node.tasks import Fail, Tasks

# Waking up later than planned by more than this part of the round's time-out means that the process was suspended.
_OWN_PAUSE = 0.05
# What a frame has room for (ms); 24 days.
_LONGEST_VALIDITY = 2**31 - 1


class PeerLink(Protocol):
    """The connection to a peer. ``trouble``: in words, why it does not answer; ``unreachable``: nobody listens at its address."""

    trouble: str

    @property
    def unreachable(self) -> bool: ...

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: Callable[[AnswerFrame], None] = lambda answer: None,
        unless: Callable[[], bool] = lambda: False,
    ) -> AnswerFrame:
        """The peer's answer; the request is repeated after every loss of the connection, until the caller cancels.

        ``on_answer`` is called as the answer is read: an answer that came in before the caller cancelled is never lost.
        ``unless``: see :meth:`quietmean.node.net.Link.ask`.
        """

    async def close(self) -> None: ...


@dataclass
class Context:
    """One running session. ``changed`` is set whenever something arrived that a wait could be waiting for.

    ``fail`` ends the session with an error of what goes on beside it.
    ``closed`` returns when the wait at a position is over for all parties; without it each party is waited for by time-outs.
    """

    settings: NodeSettings
    store: Store
    inbox: Inbox
    links: Mapping[PartyId, PeerLink]
    failure_detector: FailureDetector
    report: Report
    changed: asyncio.Event
    fail: Fail
    agreement: bytes
    gossip: GossipedLogs
    closed: Callable[[Position], Coroutine[Any, Any, None]] | None = None
    late: list[Late] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._background = Tasks(self.fail, self.changed.set)

    @property
    def party(self) -> PartyId:
        return self.settings.party

    @property
    def round_timeout(self) -> float:
        return self.settings.waits.round

    @property
    def others(self) -> list[PartyId]:
        return sorted(self.links)

    def names(self, parties: Iterable[PartyId]) -> list[str]:
        return [self.settings.names[party] for party in sorted(parties)]

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that ends with the node at the latest and wakes the wait in progress when it is done."""
        return self._background.spawn(work)

    async def stop(self) -> None:
        await self._background.stop()

    def last_moment(self, begun: float | None = None, position: Position | None = None) -> str:
        """When a wait at a position, by default here, ends at the latest (ISO 8601); ``begun``: since 1970, by default now."""
        position, folder = position or self.inbox.position, self.settings.folder
        if folder is not None:
            return iso_time(folder.timetable.end(position))
        return iso_time((begun or time.time()) + self.failure_detector.longest(position[0]))

    def found_faulty(self, party: PartyId) -> None:
        """It sent what no correct party does: a wait for it is over."""
        self.failure_detector.found_faulty(party)
        self.changed.set()

    def transfer(self, position: Position, message: Outgoing, gossip: bytes) -> Transfer:
        """The header of a message of this (phase, round). ``gossip``: encoded logs that go along."""
        valid_for = min(int(1000 * longest_wait(position[0]) * self.round_timeout), _LONGEST_VALIDITY)
        return Transfer(0, *position, message.weight, valid_for, self.agreement, message.dimension, gossip, message.width)

    async def heartbeat(self, party: PartyId, seconds: float) -> AnswerFrame | None:
        """Send a heartbeat; the link reports the position in the answer to the failure detector. None without an answer.

        It is refused by a party that has messages of this one from later rounds.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.links[party].ask(Heartbeat(0, *self.inbox.position))
        return None


class Wait:
    """A wait for other parties. It ends when nobody is missing, or the deadlines of all who are missing have passed.

    ``missing`` gives the parties waited for, and whether each owes an answer (rather than a message). ``full_time``: for whom
    suspicion does not shorten the wait: for nobody, for parties whose process may be alive, or for all. ``at``: a position other
    than the session's, where there is a timetable of waits; with that, all deadlines are its.
    """

    def __init__(
        self,
        context: Context,
        missing: Callable[[], Mapping[PartyId, bool]],
        full_time: Literal["nobody", "alive", "all"] = "nobody",
        *,
        at: Position | None = None,
    ) -> None:
        self._context = context
        self._missing = missing
        self._full_time = full_time
        self._clock = asyncio.get_running_loop().time
        self._start, self._begun = self._clock(), time.time()
        self._position = at or context.inbox.position
        self._closing = None if context.closed is None else context.spawn(context.closed(self._position))
        self._interval = HEARTBEAT_INTERVAL * context.round_timeout
        self._next_heartbeat: dict[PartyId, float] = {}
        self._reported = self._wake = self._clock()

    async def until_over(self) -> frozenset[PartyId]:
        """Who was still missing when the wait ended."""
        try:
            return await self._until_over()
        finally:
            if self._closing is not None:
                self._closing.cancel()

    async def _until_over(self) -> frozenset[PartyId]:
        context = self._context
        while True:
            context.changed.clear()
            missing = self._missing()
            now = self._discount_own_pauses()
            deadlines = {party: self._deadline(party, answer_due) for party, answer_due in missing.items()}
            if not missing:
                context.failure_detector.record_wait(now - self._start)
            if all(deadline <= now for deadline in deadlines.values()):
                self._give_up_on(missing)
                return frozenset(missing)
            self._send_heartbeats(missing, now)
            self._report_waiting(missing, now)
            # Nothing wakes this wait where a link finds that nobody listens any more: it looks.
            look = now + context.failure_detector.gone_timeout
            self._wake = min([*(time for time in deadlines.values() if time > now), *self._next_heartbeat.values(), look])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(self._wake - now, 0.001)):
                    await context.changed.wait()

    def _discount_own_pauses(self) -> float:
        """The time now (s). Time in which this process itself did not run extends all deadlines.

        After a suspension or overload of this machine, answers may be in the socket that have not been read yet.
        """
        now = self._clock()
        paused = now - self._wake
        if paused > _OWN_PAUSE * self._context.round_timeout:
            self._start += paused
            self._begun += paused
        return now

    def _deadline(self, party: PartyId, answer_due: bool) -> float:
        if self._closing is not None:
            return -math.inf if self._closing.done() else math.inf
        # Nobody listens at its address: its process has ended.
        gone = self._context.links[party].unreachable
        failure_detector = self._context.failure_detector
        deadline = failure_detector.deadline(party, self._context.inbox.position[0], self._start, answer_due, gone)
        patient = self._full_time == "all" or (self._full_time == "alive" and not gone)
        return max(deadline, failure_detector.full_time(self._start, gone)) if patient else deadline

    def _send_heartbeats(self, missing: Mapping[PartyId, bool], now: float) -> None:
        self._next_heartbeat = {party: time for party, time in self._next_heartbeat.items() if party in missing}
        for party in missing:
            suspected = self._context.failure_detector.suspected(party)
            first = self._start if suspected else self._start + self._interval
            if now >= self._next_heartbeat.setdefault(party, first):
                self._next_heartbeat[party] = now + self._interval
                self._context.spawn(self._context.heartbeat(party, self._interval))

    def _report_waiting(self, missing: Mapping[PartyId, bool], now: float) -> None:
        if now >= self._reported + max(1.0, self._interval):
            self._reported = now
            phase, round_ = self._context.inbox.position
            self._context.report(
                Waiting(
                    Phase(phase),
                    round_,
                    tuple(self._context.names(missing)),
                    self._context.last_moment(self._begun, self._position),
                )
            )

    def _give_up_on(self, missing: Mapping[PartyId, bool]) -> None:
        if not missing:
            return
        phase, round_ = self._context.inbox.position
        late = Late(Phase(phase), round_, tuple(self._context.names(missing)))
        self._context.late.append(late)
        self._context.report(late)
        for party in missing:
            self._context.failure_detector.gave_up(party, phase, self._start)
