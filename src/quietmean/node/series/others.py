"""What one party knows of where the others are in a series: who is past which round, who is silent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

from quietmean.core.party import PartyId
from quietmean.node.net import Heartbeat, Link, in_round
from quietmean.node.phase import Phase
from quietmean.node.series.place import RoundPosition
from quietmean.node.tasks import Fail, Tasks, report_defect

# So often it is looked whether all have answered (s).
_LOOK = 0.02


class Others:
    """``links`` to all of them; ``colluding``: so many may lie; who says nothing for ``silence`` seconds is silent.

    ``fail`` is told of an error in the background.
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
