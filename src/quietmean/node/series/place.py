"""Places in a series: the position of a node in one round, and the number of the round, in the two numbers of a frame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Self

import msgspec

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.monitor import Monitor
from quietmean.node.net import AnswerFrame, AnyRequest, Link, Payload, in_round
from quietmean.node.phase import Phase, Position

_PHASES = 8


class RoundPosition(NamedTuple):
    """``position``: in a round; ordered as time is."""

    round: int
    position: Position

    def announced(self) -> Position:
        """As it is announced to the others: phases are counted on over all rounds."""
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
    """What one round sees of the connection to a peer, which outlives it.

    A peer that is past this round is like one whose process has ended: it never answers in this round again.
    """

    def __init__(self, link: Link, peer: PartyId, number: int, past: Callable[[], bool], monitor: Monitor) -> None:
        self._link = link
        self._peer = peer
        self._number = number
        self._past = past
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
        return self._past() or self._link.unreachable

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: Callable[[AnswerFrame], None] = lambda answer: None,
        unless: Callable[[], bool] = lambda: False,
    ) -> AnswerFrame:
        """As :meth:`Link.ask`; without an end if the peer is past this round."""

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
        """Nothing: the connection is for the next round, too."""
