"""What one party knows of where the others are in a series, and in which round it takes part next.

That is the first one for which it is in time, once the others are about to begin it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

import msgspec

from quietmean.core.errors import OutOfReach, PeerError
from quietmean.core.party import PartyId
from quietmean.node.monitor import Monitor
from quietmean.node.net import AnswerFrame, AnyRequest, Heartbeat, Link, Payload, in_round
from quietmean.node.phase import Phase, Position
from quietmean.node.session import NodeSettings
from quietmean.node.tasks import Fail, Tasks, report_defect

_PHASES = 8


class RoundPosition(NamedTuple):
    """Where a party is in a series of rounds.

    ``position``: in a round; ordered as time is.
    """

    round: int
    position: Position

    def announced(self) -> Position:
        """The position as it is announced to the others: phases are counted on over all rounds."""
        phase, round_ = self.position
        return self.round * _PHASES + phase, round_

    @classmethod
    def of(cls, counted: Position) -> Self:
        """The inverse of :meth:`announced`."""
        round_, phase = divmod(counted[0], _PHASES)
        return cls(round_, (phase, counted[1]))

    @property
    def begun(self) -> bool:
        """Whether the party has begun the round."""
        return self.position[0] > Phase.AGREEMENT


class RoundLink:
    """What one round sees of the connection to a peer, which outlives it."""

    def __init__(self, link: Link, peer: PartyId, number: int, monitor: Monitor) -> None:
        self._link = link
        self._peer = peer
        self._number = number
        self._monitor = monitor
        self._own_trouble: str | None = None

    @property
    def trouble(self) -> str:
        return self._link.trouble if self._own_trouble is None else self._own_trouble

    @trouble.setter
    def trouble(self, trouble: str) -> None:
        self._own_trouble = trouble

    @property
    def unreachable(self) -> bool:
        return self._link.unreachable

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: Callable[[AnswerFrame], None] = lambda answer: None,
        unless: Callable[[], bool] = lambda: False,
    ) -> AnswerFrame:
        """Send a request as :meth:`Link.ask`; without an end if the peer is past this round."""

        def answered(answer: AnswerFrame) -> None:
            if (inside := self._of_this_round(answer)) is not None:
                on_answer(inside)
                self._monitor.acknowledged(self._peer, request, inside)

        answer = await self._link.ask(in_round(request, self._number), payload, answered, unless)
        inside = self._of_this_round(answer)
        if inside is None:
            # Until the caller gives up, as for a peer that has left. What it did in this round before is in doubt.
            await asyncio.get_running_loop().create_future()
            raise PeerError("it is past this round")
        return inside

    def _of_this_round(self, answer: AnswerFrame) -> AnswerFrame | None:
        place = RoundPosition.of((answer.phase, answer.round))
        if self._number and place.round > self._number:
            return None
        phase, round_ = place.position if place.round == self._number else (int(Phase.AGREEMENT), 0)
        return msgspec.structs.replace(answer, phase=phase, round=round_)

    async def close(self) -> None:
        """Do nothing: the connection is for the next round, too."""


# Where a round ends.
CLOSING: Position = (int(Phase.FINALIZATION), 0)
# While others are further or behind, they are asked so often where they are; who is started again asks for so long first (s).
_SOON, _ASKING, FIRST_ASKING = 0.02, 0.1, 2.0
# Later than so many round time-outs after the others began a round, a party is late for it.
_LATE = 0.5
_LAST_CHANCE: Position = (int(Phase.DISSEMINATION), 1)


class RoundAhead:
    """The round that comes next, and where the others are.

    ``settings``: of this party as one of those who are in; ``rounds``: the last one; ``here``: where it says that it is.
    """

    def __init__(self, where: Others, settings: NodeSettings, rounds: int, here: int) -> None:
        self._where, self._settings, self._rounds, self._here = where, settings, rounds, here

    async def catch_up(self) -> None:
        """Ask the others where they are; of a party that was away, until anybody says so, as long as a round waits."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.waits.round
        await self._where.ask(FIRST_ASKING, self._here)
        while self._where.place() is None and loop.time() < until:
            await asyncio.sleep(_ASKING)
            await self._where.ask(FIRST_ASKING, self._here)

    async def require_others(self) -> None:
        """Raises :class:`OutOfReach`, and nothing is begun, where too few others can be reached for a mean."""
        loop, plan = asyncio.get_running_loop(), self._settings.plan
        least = max(2, int(getattr(plan.protocol, "minimum", 2)), plan.target.parties // 2 + 1 if plan.gated else 2)
        until = loop.time() + self._settings.waits.round
        there = self._where.not_silent()
        while len(there) < least - 1:
            # A machine that stood still for the whole wait has not read yet what came meanwhile: it asks once more.
            over = loop.time() >= until
            there |= await self._where.ask(FIRST_ASKING, self._here)
            if len(there) >= least - 1:
                break
            if over:
                names = ", ".join(self._settings.names[party] for party in sorted(there)) or "nobody"
                raise OutOfReach(
                    f"{names} can be reached, and a round takes {least} parties with this one: nothing was begun. Try again "
                    "later unless the others have ended the session."
                )
            await asyncio.sleep(_ASKING)

    async def in_time(self, first: int, *, returning: bool, passed: Callable[[int], None] = lambda number: None) -> int:
        """The first round, from ``first`` on, for which this party is in time, once the others are about to begin it.

        ``passed`` learns, as soon as that is known, up to which round it is too late.
        """
        number = first
        while number <= self._rounds:
            current = self._first_open(number, returning=returning or number > first)
            if current == number:
                current = await self._wait_for(number, returning=returning or number > first)
            if current == number:
                break
            passed(current - 1)
            self._here = number = current
        return number

    def _first_open(self, number: int, *, returning: bool) -> int:
        """``number``, or a later round if the others are too far for it; ``returning``: this party was away."""
        place = self._where.place()
        if place is None or place.round < number:
            return number
        late = returning or self._where.begun_for > _LATE * self._settings.waits.round
        return place.round + (place.position > (self._first_wait if late else _LAST_CHANCE))

    @property
    def _first_wait(self) -> Position:
        """Where those who are in time wait for all others first."""
        protocol = self._settings.plan.protocol
        one_shot = protocol.rounds == 1 and protocol.traits.releases_are_public
        return (int(Phase.DISSEMINATION), 1) if one_shot else (int(Phase.MIXING), 1)

    async def _wait_for(self, number: int, *, returning: bool) -> int:
        """Wait until the others are about to end the round before, or do not get on with it; the number that is right then."""
        protocol, loop = self._settings.plan.protocol, asyncio.get_running_loop()
        until = loop.time() + (protocol.rounds + 2) * self._settings.waits.round
        while (place := self._where.place()) is not None and place < RoundPosition(number - 1, CLOSING) and loop.time() < until:
            await asyncio.sleep(_SOON)
            await self._where.ask(_ASKING, self._here)
        return self._first_open(number, returning=returning)


# So often it is looked whether all have answered (s).
_LOOK = 0.02


class Others:
    """The links to all other parties between rounds.

    ``links`` to all of them; ``colluding``: so many may lie; who says nothing for ``silence`` seconds is silent.

    ``fail`` gets an error in the background.
    """

    def __init__(self, links: Mapping[PartyId, Link], colluding: int, silence: float, fail: Fail = report_defect) -> None:
        self.links = links
        self._colluding = colluding
        self._silence = silence
        self._tasks = Tasks(fail)
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._places: dict[PartyId, RoundPosition] = {}
        self._reached: dict[PartyId, int] = {}
        self._heard_at: dict[PartyId, float] = {}
        # The last round that one of them is known to have begun, and when that was heard first.
        self._begun_at = 0, -math.inf
        # Who was missed in the last round and has not been heard since.
        self.absent: set[PartyId] = set()

    def note(self, peer: PartyId, place: RoundPosition) -> bool:
        """A peer said where it is. Returns whether it is in a later round than it was known to be."""
        self._heard_at[peer] = self._clock()
        self.absent.discard(peer)
        before = self._places.get(peer)
        if before is None or place.round != before.round or place > before:
            self._places[peer] = place
        if place.begun and place.round > self._begun_at[0]:
            self._begun_at = place.round, self._heard_at[peer]
        later = place.round > self._reached.get(peer, 0)
        if later:
            self._reached[peer] = place.round
        return later

    def is_past(self, peer: PartyId, number: int) -> bool:
        """Whether a peer is past a round: it never comes back to one."""
        return self._reached.get(peer, 0) > number

    def silent(self, peer: PartyId) -> bool:
        """Whether a peer cannot be reached, or was not heard for long."""
        return self.links[peer].unreachable or self._clock() - self._heard_at.get(peer, -math.inf) > self._silence

    def not_silent(self) -> set[PartyId]:
        return {peer for peer in self.links if not self.silent(peer)}

    @property
    def begun_for(self) -> float:
        """Seconds since the others are known to have begun their last round."""
        return self._clock() - self._begun_at[1]

    def place(self) -> RoundPosition | None:
        """The furthest place that more parties claim than may collude; with fewer parties in reach, that all of them claim."""
        claims = sorted((place for peer, place in self._places.items() if not self.links[peer].unreachable), reverse=True)
        return claims[min(self._colluding, len(claims) - 1)] if claims else None

    def are_past(self, number: int) -> bool:
        """Whether their place is in a later round."""
        place = self.place()
        return place is not None and place.round > number

    async def ask(self, seconds: float, round_: int) -> set[PartyId]:
        """Ask all where they are, and say in which round this party is; for so long, unless all in reach have answered.

        Returns who answered.
        """

        async def ask(peer: PartyId) -> None:
            await self.links[peer].ask(in_round(Heartbeat(0, int(Phase.AGREEMENT), 0), round_))

        until, asking = self._clock() + seconds, {peer: self._tasks.spawn(ask(peer)) for peer in self.links}
        while self._clock() < until:
            open_ = [task for peer, task in asking.items() if not task.done() and not self.links[peer].unreachable]
            if not open_:
                break
            await asyncio.wait(open_, timeout=_LOOK)
        answered = {peer for peer, task in asking.items() if task.done()}
        await self._tasks.stop()
        return answered
