"""A network in memory between the real participants of the node: seeded delay, loss, duplicates, reordering, partitions, crashes.

It keeps the promises of TCP and no more: what was sent to a process that has died since never arrives; of everything else the
sender learns that it failed, or nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.local.memory import BROKEN, NOBODY, MemoryNetwork, closed_to_shares
from quietmean.node.net import AnswerFrame, AnyRequest, Payload, Transfer
from quietmean.node.phase import Phase
from quietmean.node.session import Carrier
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed


@dataclass(frozen=True)
class Partition:
    """Between ``begin`` and ``end`` (seconds) nothing passes between the parties of ``side`` and the others."""

    side: frozenset[PartyId]
    begin: float
    end: float

    def separates(self, one: PartyId, other: PartyId, time: float) -> bool:
        return self.begin <= time < self.end and (one in self.side) != (other in self.side)


@dataclass(frozen=True)
class NetworkConditions:
    """Delays are exponential with mean ``delay`` seconds, which reorders; the others are probabilities per request.

    ``loss``: the connection breaks before the request arrives; ``answer_loss``: after it was handled, before the answer is back;
    ``duplicates``: it is handled twice.
    """

    seed: int = 0
    delay: float = 0.01
    loss: float = 0.0
    answer_loss: float = 0.0
    duplicates: float = 0.0
    partitions: Sequence[Partition] = ()


class FaultyNetwork(MemoryNetwork):
    """The network of a local run, in bad weather."""

    def __init__(self, parties: int, conditions: NetworkConditions) -> None:
        super().__init__(parties)
        # (phase, round, sender, receiver) of every message that came as far as a program that could read it.
        self.handed: set[tuple[int, int, PartyId, PartyId]] = set()
        # Of these the ones that came when their receiver was telling its log already.
        self.handed_late: set[tuple[int, int, PartyId, PartyId]] = set()
        self._conditions = conditions
        self._rng = BitStream(insecure_seed(conditions.seed, "weather"))
        # In the order of their beginnings: in that of a set, no two runs of a fault plan would be alike.
        self._handling: dict[PartyId, dict[asyncio.Task[None], None]] = {party: {} for party in range(parties)}

    def carrier(self, party: PartyId) -> Carrier:
        """Nobody answers at once, and each works everything out alone."""
        return Carrier(self.links(party))

    def die(self, party: PartyId) -> None:
        """The process of a party ends: whatever it was about to answer is lost."""
        super().die(party)
        for task in list(self._handling[party]):
            task.cancel()

    async def carry(
        self, sender: PartyId, receiver: PartyId, request: AnyRequest, payload: Payload, on_answer: Callable[[AnswerFrame], None]
    ) -> AnswerFrame:
        """One try. Raises ConnectionError where the sender notices that it failed."""
        if receiver not in self.sessions:
            raise ConnectionRefusedError(NOBODY)
        answer: asyncio.Future[AnswerFrame] = asyncio.get_running_loop().create_future()

        def deliver(result: AnswerFrame) -> None:
            if not answer.done():
                on_answer(result)
                answer.set_result(result)

        def fail(reason: str) -> None:
            if not answer.done():
                answer.set_exception(ConnectionResetError(reason))

        copies = 2 if self._happens(self._conditions.duplicates) else 1
        for _ in range(copies):
            # On its own: what is on its way arrives even if the sender has given up, or is no more.
            work = self._handle(sender, receiver, request, payload, deliver, fail)
            task = asyncio.get_running_loop().create_task(work)
            self._handling[receiver][task] = None
            task.add_done_callback(lambda done: self._handling[receiver].pop(done, None))
        try:
            return await answer
        finally:
            if answer.done() and not answer.cancelled():
                answer.exception()

    async def _handle(
        self,
        sender: PartyId,
        receiver: PartyId,
        request: AnyRequest,
        payload: Payload,
        deliver: Callable[[AnswerFrame], None],
        fail: Callable[[str], None],
    ) -> None:
        lives = self.deaths[sender], self.deaths[receiver]
        try:
            await self._travel(sender, receiver)
            session = self.sessions.get(receiver)
            if session is None or self.deaths[receiver] != lives[1] or self._happens(self._conditions.loss):
                return
            if closed_to_shares(session) and isinstance(request, Transfer) and request.phase == Phase.MIXING:
                # Its connection was dropped, or the request is older than what its sender said on it since.
                return
            if isinstance(request, Transfer):
                message = request.phase, request.round, sender, receiver
                self.handed.add(message)
                if session.position >= (int(Phase.FINALIZATION), 0):
                    self.handed_late.add(message)
            try:
                answer = await session.handle(sender, request, payload)
            except PeerError as error:
                session.refused(f"party {sender}", str(error))
                return
            except ConnectionAbortedError:
                # The session has ended with an error, and drops the connection.
                return
            except Exception as error:
                session.fail(error)
                return
            await self._travel(receiver, sender)
            asking = self.sessions.get(sender)
            if asking is not None and self.deaths[sender] == lives[0] and not self._happens(self._conditions.answer_loss):
                asking.heard(receiver, (answer.phase, answer.round))
                deliver(answer)
        finally:
            # Without an answer by now, the connection is gone.
            asyncio.get_running_loop().call_soon(fail, BROKEN)

    async def _travel(self, one: PartyId, other: PartyId) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(-self._conditions.delay * math.log1p(-float(self._rng.uniform(1)[0])))
        while (end := self._separated_until(one, other, loop.time())) is not None:
            await asyncio.sleep(end - loop.time() + float(self._rng.uniform(1)[0]) * self._conditions.delay)

    def _separated_until(self, one: PartyId, other: PartyId, time: float) -> float | None:
        ends = [partition.end for partition in self._conditions.partitions if partition.separates(one, other, time)]
        return max(ends) if ends else None

    def _happens(self, probability: float) -> bool:
        return probability > 0 and float(self._rng.uniform(1)[0]) < probability
