"""The state that the parts of a running session share, whom it suspects, and the one way in which all wait for other parties."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from quietmean.core.party import PartyId
from quietmean.node.monitor import Late, Report, Waiting, iso_time
from quietmean.node.net import AnswerFrame, Heartbeat, Transfer
from quietmean.node.phase import Phase, Position
from quietmean.node.session.carrier import Now, PeerLink, never
from quietmean.node.session.inbox import Inbox
from quietmean.node.session.logs import GossipedLogs
from quietmean.node.session.settings import NodeSettings
from quietmean.node.storage import Outgoing, Store
from quietmean.node.tasks import Fail, Tasks

# Time between two heartbeats to a late party, as a part of the round's time-out.
HEARTBEAT_INTERVAL = 0.25
# Longest wait for a party that answers heartbeats, in time-outs; and how many times that in later phases, in which an honest
# party may still be waiting for another one in the phase before.
LONGEST_WAIT = 4.0
_LATER_PHASES = {Phase.GATE: 2, Phase.DISSEMINATION: 2, Phase.FINALIZATION: 3}
# Wait for a suspected party, as a part of the wait for others.
SUSPECT_WAIT = 0.2
# The wait for a silent party: this many times what rounds have taken (mean and four deviations, as in the retransmission timer of
# TCP, RFC 6298), at least the floor's part of the time-out, at most all of it.
TIMEOUT_FACTOR = 4.0
FLOOR = 0.5
_MEMORY = 0.125
# Additional part of the time-out for answers that are on their way.
GRACE = 0.1
# Where a party is from which nothing of this session comes any more: beyond all of its phases.
_LEFT: Position = (int(Phase.FINALIZATION) + 1, 0)


def longest_wait(phase: int) -> float:
    """The longest wait for a party that answers heartbeats, in time-outs of a round."""
    return LONGEST_WAIT * _LATER_PHASES.get(Phase(phase), 1)


class FailureDetector:
    """Positions (phase, round) as the parties reported them, and the suspected parties. All times are in seconds."""

    def __init__(self, round_timeout: float, clock: Callable[[], float], gone_timeout: float | None = None) -> None:
        self._timeout = round_timeout
        self.gone_timeout = round_timeout if gone_timeout is None else gone_timeout
        self._clock = clock
        self._mean: float | None = None
        self._deviation = 0.0
        self._positions: dict[PartyId, Position] = {}
        self._suspects: set[PartyId] = set()
        self._absent: set[PartyId] = set()
        self._expected: set[PartyId] = set()
        self._stalled: dict[PartyId, int] = {}
        self._faulty: set[PartyId] = set()
        self._last_activity: dict[PartyId, float] = {}

    def heard(self, party: PartyId, position: Position) -> None:
        """A message of a party, which ends a suspicion. Positions only grow: one is durable before its party reports it."""
        before = self._positions.get(party)
        if before is None or position > before:
            self._positions[party] = position
        for noted in (self._suspects, self._absent, self._expected):
            if noted:
                noted.discard(party)
        self._last_activity[party] = self._clock()

    def record_wait(self, seconds: float) -> None:
        """Note the duration of a wait in which nobody was missing at the end."""
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
        self._deviation += _MEMORY * (abs(seconds - self._mean) - self._deviation)
        self._mean += _MEMORY * (seconds - self._mean)

    @property
    def silence_timeout(self) -> float:
        """How long to wait for a silent party: by what rounds have taken, between the floor and the round's time-out."""
        if self._mean is None:
            return self._timeout
        return min(max(TIMEOUT_FACTOR * (self._mean + 4 * self._deviation), FLOOR * self._timeout), self._timeout)

    def missed(self, party: PartyId) -> None:
        """Suspect a party: a whole wait passed without any activity of it."""
        self._suspects.add(party)

    def gave_up(self, party: PartyId, phase: int, start: float) -> None:
        """A wait for a party that began at ``start``, in a phase, is over now without what was due.

        If it gave signs of life and nothing else in the longest wait, they prolong no wait of this phase again. Else anyone who
        sends nothing delays some honest parties in each round, so that others give those up.
        """
        if self._last_activity.get(party, start) <= start:
            self.missed(party)
        elif self._clock() >= start + longest_wait(phase) * self._timeout:
            self._stalled[party] = phase

    def delivered(self, party: PartyId) -> None:
        """A message of a party, as a correct one sends it, in time or late."""
        self._stalled.pop(party, None)

    def found_faulty(self, party: PartyId) -> None:
        """Wait no more for a party that sent what no correct one does: it sends the same again."""
        self._faulty.add(party)

    def leave(self, party: PartyId) -> None:
        """Wait no more for a party that is past this whole session: it never comes back to it."""
        self.heard(party, _LEFT)

    def has_left(self, party: PartyId) -> bool:
        return self._positions.get(party, (0, 0)) >= _LEFT

    def presume_absent(self, party: PartyId) -> None:
        """Wait no more for a party that was not there just before, until it is heard."""
        self._suspects.add(party)
        self._absent.add(party)

    def expect(self, party: PartyId) -> None:
        """A party may take the whole time-out before it is heard first: what it has to do before does not go by the network."""
        self._expected.add(party)

    def suspected(self, party: PartyId) -> bool:
        return party in self._suspects

    def is_past(self, party: PartyId, position: Position) -> bool:
        reached = self._positions.get(party)
        return reached is not None and reached > position

    def may_have_begun(self, party: PartyId, position: Position) -> bool:
        """Whether a party was in this round already, as far as is known; who was never heard may have been anywhere."""
        return self._positions.get(party, position) >= position

    def all_past(self, parties: Iterable[PartyId], position: Position) -> bool:
        """Whether all of ``parties`` with a known position that are not suspected are past ``position``, and there is one."""
        positions = [self._positions[party] for party in parties if party in self._positions and party not in self._suspects]
        return bool(positions) and min(positions) > position

    def full_time(self, start: float, gone: bool) -> float:
        """The end of a wait that suspicion does not shorten."""
        return start + (min(self._timeout, self.gone_timeout) if gone else self._timeout)

    def longest(self, phase: int) -> float:
        """The longest that anybody is waited for in a phase, in seconds from the beginning of the wait."""
        return max(longest_wait(phase), 1.0 + GRACE) * self._timeout

    def deadline(self, party: PartyId, phase: int, start: float, answer_due: bool, gone: bool = False) -> float:
        """The end of the wait for a party that began at ``start``, in a phase; ``gone``: nobody listens at its address now."""
        if party in self._absent or party in self._faulty or self.has_left(party):
            return start
        silence, stalled = self._timeout if party in self._expected else self.silence_timeout, self._stalled.get(party) == phase
        window = silence * (SUSPECT_WAIT if party in self._suspects or stalled else 1.0)
        # Time for an answer that is on its way; after a sign of life two more heartbeats, repeatedly, up to the longest wait.
        grace, alive = GRACE * self._timeout, 2 * HEARTBEAT_INTERVAL * self._timeout
        if gone:
            window, grace, alive = (min(wait, self.gone_timeout) for wait in (window, grace, alive))
        end = start + window + (grace if answer_due else 0.0)
        sign = start if stalled else self._last_activity.get(party, start)
        return max(end, min(sign + alive, start + longest_wait(phase) * self._timeout)) if sign > start else end


# Waking up later than planned by more than this part of the round's time-out means that the process was suspended.
_OWN_PAUSE = 0.05
# What a frame has room for (ms); 24 days.
_LONGEST_VALIDITY = 2**31 - 1


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
    now: Now = never
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

    def spawn_each(
        self, parties: Iterable[PartyId], now: Callable[[PartyId], bool], later: Callable[[PartyId], Coroutine[Any, Any, None]]
    ) -> list[asyncio.Task[Any]]:
        """Do something with each of some parties, ``later`` where it cannot be done ``now``. A task for each, and where parties
        are in this process, one for all who answer at once; further ones are added to the list.
        """
        if self.now is never:
            return [self.spawn(later(party)) for party in parties]

        async def each() -> None:
            tasks.extend([self.spawn(later(party)) for party in parties if not now(party)])

        tasks: list[asyncio.Task[Any]] = []
        tasks.append(self.spawn(each()))
        return tasks

    async def stop(self) -> None:
        await self._background.stop()

    def last_moment(self, begun: float | None = None, position: Position | None = None) -> str:
        """When a wait at a position, by default here, ends at the latest (ISO 8601); ``begun``: since 1970, by default now."""
        position, folder = position or self.inbox.position, self.settings.folder
        if folder is not None:
            return iso_time(folder.timetable.end(position))
        return iso_time((begun or time.time()) + self.failure_detector.longest(position[0]))

    def found_faulty(self, party: PartyId) -> None:
        """Note that a peer sent what no correct party does: a wait for it is over."""
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
        patient = not failure_detector.has_left(party) and (self._full_time == "all" or (self._full_time == "alive" and not gone))
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
