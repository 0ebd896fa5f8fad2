"""Which round a party takes part in next: the first one for which it is in time, once the others are about to begin it."""

from __future__ import annotations

import asyncio

from quietmean.core.errors import ProtocolFailure
from quietmean.node.phase import Phase, Position
from quietmean.node.series.others import Others
from quietmean.node.series.place import RoundPosition
from quietmean.node.session import NodeSettings

# Where a round ends.
CLOSING: Position = (int(Phase.FINALIZATION), 0)
# While others are further or behind, they are asked so often where they are; who is started again asks for so long first (s).
_SOON, _ASKING, FIRST_ASKING = 0.02, 0.1, 2.0
# Later than so many round time-outs after the others began a round, a party is late for it.
_LATE = 0.5
_LAST_CHANCE: Position = (int(Phase.DISSEMINATION), 1)


class RoundAhead:
    """``settings``: of this party among those who are in; ``rounds``: the last one; ``here``: where it says that it is."""

    def __init__(self, where: Others, settings: NodeSettings, rounds: int, here: int) -> None:
        self._where, self._settings, self._rounds, self._here = where, settings, rounds, here

    async def catch_up(self) -> None:
        """Ask the others where they are; of a party that was away, until anybody says so, as long as a round waits."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.round_timeout
        await self._where.ask(FIRST_ASKING, self._here)
        while self._where.place() is None and loop.time() < until:
            await asyncio.sleep(_ASKING)
            await self._where.ask(FIRST_ASKING, self._here)

    async def require_others(self) -> None:
        """Raises :class:`ProtocolFailure`, and nothing is begun, where too few others can be reached for a mean."""
        loop, plan = asyncio.get_running_loop(), self._settings.plan
        least = max(2, int(getattr(plan.protocol, "minimum", 2)), plan.target.parties // 2 + 1 if plan.gated else 2)
        until = loop.time() + self._settings.round_timeout
        there = self._where.not_silent()
        while len(there) < least - 1:
            if loop.time() >= until:
                names = ", ".join(self._settings.names[party] for party in sorted(there)) or "nobody"
                raise ProtocolFailure(
                    f"{names} can be reached, and a round takes {least} parties with this one: nothing was begun, try again later"
                )
            await asyncio.sleep(_ASKING)
            there |= await self._where.ask(FIRST_ASKING, self._here)

    async def in_time(self, first: int, *, returning: bool) -> int:
        """The first round, from ``first`` on, for which this party is in time, once the others are about to begin it."""
        number = first
        while number <= self._rounds:
            current = self._first_open(number, returning=returning or number > first)
            if current == number:
                current = await self._wait_for(number, returning=returning or number > first)
            if current == number:
                break
            number = current
        return number

    def _first_open(self, number: int, *, returning: bool) -> int:
        """``number``, or a later round if the others are too far for it; ``returning``: this party was away."""
        place = self._where.place()
        if place is None or place.round < number:
            return number
        late = returning or self._where.begun_for > _LATE * self._settings.round_timeout
        return place.round + (place.position > (self._first_wait if late else _LAST_CHANCE))

    @property
    def _first_wait(self) -> Position:
        """Where those who are in time wait for all others first."""
        protocol = self._settings.plan.protocol
        one_shot = protocol.rounds == 1 and protocol.releases_are_public
        return (int(Phase.DISSEMINATION), 1) if one_shot else (int(Phase.MIXING), 1)

    async def _wait_for(self, number: int, *, returning: bool) -> int:
        """Until the others are about to end the round before, or do not get on with it; the number that is right then."""
        protocol, loop = self._settings.plan.protocol, asyncio.get_running_loop()
        until = loop.time() + (protocol.rounds + 2) * self._settings.round_timeout
        while (place := self._where.place()) is not None and place < RoundPosition(number - 1, CLOSING) and loop.time() < until:
            await asyncio.sleep(_SOON)
            await self._where.ask(_ASKING, self._here)
        return self._first_open(number, returning=returning)
