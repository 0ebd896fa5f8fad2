"""What connects parties of one process: no bytes, sockets or keys, but the requests themselves, handed from one to the other.

It keeps the promises of connections and no more: who has ended is unreachable, and of what failed the asking side learns that it
failed, or nothing. What is counted as sent are the frames that connections would carry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.monitor import Report
from quietmean.node.net import AnswerFrame, AnyRequest, Payload, Transfer, WithheldError, encode_frame
from quietmean.node.party import Participant
from quietmean.node.phase import Phase
from quietmean.node.session import Carrier, NodeResult, RetryPolicy, retry

_BACKOFF = 0.05
# Of what parties have in common, the last ones are kept.
_KEPT = 8
# Why a connection that failed has failed.
NOBODY, BROKEN = "nobody listens at its address", "connection lost"


def closed_to_shares(participant: Participant) -> bool:
    """Whether it reads no share of a mixing round any more, since a gate follows."""
    session = participant.session
    return session is not None and session.closed_to_shares


@lru_cache(maxsize=256)
def _size_of_answer(answer: AnswerFrame) -> int:
    return len(encode_frame(answer))


class MemoryNetwork:
    """Who is reachable now: ``sessions`` by party, with the number of times that each has ended."""

    def __init__(self, parties: int) -> None:
        self.sessions: dict[PartyId, Participant] = {}
        self.deaths = [0] * parties
        self._waiting: dict[PartyId, list[asyncio.Future[None]]] = {}
        self._made: list[tuple[object, object]] = []
        self._last_sent: tuple[AnyRequest | None, int] = None, 0

    def carrier(self, party: PartyId) -> Carrier:
        """What carries the requests of a party."""
        links = self.links(party)
        return Carrier(links, now=lambda peer, request, payload: links[peer].now(request, payload), shared=self._once)

    def _once(self, key: object, make: Callable[[], Any]) -> Any:
        """What has this key, made once for all parties."""
        for known, made in self._made:
            if known == key:
                return made
        self._made = [(key, make()), *self._made][:_KEPT]
        return self._made[0][1]

    def links(self, party: PartyId) -> dict[PartyId, MemoryLink]:
        return {peer: MemoryLink(self, party, peer) for peer in range(len(self.deaths)) if peer != party}

    def enter(self, party: PartyId, participant: Participant) -> None:
        """From now on it is reachable."""
        self.sessions[party] = participant
        for waiting in self._waiting.pop(party, ()):
            if not waiting.done():
                waiting.set_result(None)

    async def until_there(self, party: PartyId) -> None:
        """Wait until a party is reachable."""
        if party not in self.sessions:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(party, []).append(waiting)
            await waiting

    def die(self, party: PartyId) -> None:
        """A party ends: it answers nobody any more."""
        self.sessions.pop(party, None)
        self.deaths[party] += 1

    def now(self, sender: PartyId, receiver: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame | None:
        """The answer, where nothing has to be waited for. Raises ConnectionError where the sender notices that it failed."""
        session = self._reachable(receiver, request)
        try:
            answer = session.handle_now(sender, request, payload)
        except Exception as error:
            self._refuse(session, sender, error)
        if answer is not None:
            session.monitor.traffic.received += (size := self._size(request, payload))
            self.sessions[sender].monitor.traffic.sent += size
            self._answered(sender, receiver, request, answer)
        return answer

    def _size(self, request: AnyRequest, payload: Payload) -> int:
        """Bytes of a frame. A party sends many others the same request, one after the other."""
        before, header = self._last_sent
        if request is not before:
            header = len(encode_frame(request))
            self._last_sent = request, header
        return header + len(payload)

    def _reachable(self, receiver: PartyId, request: AnyRequest) -> Participant:
        session = self.sessions.get(receiver)
        if session is None:
            raise ConnectionRefusedError(NOBODY)
        if isinstance(request, Transfer) and request.phase == Phase.MIXING and closed_to_shares(session):
            raise ConnectionResetError(BROKEN)
        return session

    def _answered(self, sender: PartyId, receiver: PartyId, request: AnyRequest, answer: AnswerFrame) -> None:
        asking = self.sessions[sender]
        self._count(receiver, sender, _size_of_answer(answer))
        asking.heard(receiver, (answer.phase, answer.round))
        asking.answered(receiver, request, answer)

    async def carry(
        self, sender: PartyId, receiver: PartyId, request: AnyRequest, payload: Payload, on_answer: Callable[[AnswerFrame], None]
    ) -> AnswerFrame:
        """One try. Raises ConnectionError where the sender notices that it failed."""
        session, life = self._reachable(receiver, request), self.deaths[sender]
        self._count(sender, receiver, self._size(request, payload))
        try:
            answer = await session.handle(sender, request, payload)
        except Exception as error:
            self._refuse(session, sender, error)
        if sender not in self.sessions or self.deaths[sender] != life:
            raise ConnectionResetError(BROKEN)
        on_answer(answer)
        self._answered(sender, receiver, request, answer)
        return answer

    def _refuse(self, session: Participant, sender: PartyId, error: Exception) -> NoReturn:
        """Raise what the sender notices of an error in a receiver's session."""
        if isinstance(error, ConnectionAbortedError):
            # Its session has ended with an error, and drops the connection.
            raise error
        if isinstance(error, PeerError):
            session.refused(session.settings.names[sender], str(error))
        else:
            session.fail(error)
        raise ConnectionResetError(BROKEN) from error

    def _count(self, sender: PartyId, receiver: PartyId, size: int) -> None:
        if (one := self.sessions.get(sender)) is not None:
            one.monitor.traffic.sent += size
        if (other := self.sessions.get(receiver)) is not None:
            other.monitor.traffic.received += size


class MemoryLink:
    """What a session has instead of a connection."""

    __slots__ = ("_closed", "_connected_to", "_network", "_party", "_peer", "trouble", "unreachable")

    def __init__(self, network: MemoryNetwork, party: PartyId, peer: PartyId) -> None:
        self._network, self._party, self._peer = network, party, peer
        self.trouble = "no answer yet"
        self.unreachable = False
        # How often the peer had ended when it was connected, and whether it read no share any more.
        self._connected_to, self._closed = -1, False

    def now(self, request: AnyRequest, payload: Payload) -> AnswerFrame | None:
        """The answer, where nothing has to be waited for; None where it has to be asked for."""
        self._connect()
        try:
            return self._network.now(self._party, self._peer, request, payload)
        except ConnectionError:
            return None

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: Callable[[AnswerFrame], None] = lambda answer: None,
        unless: Callable[[], bool] = lambda: False,
    ) -> AnswerFrame:
        numbered = msgspec.structs.replace(request, number=1)
        while True:
            self._connect()
            if unless():
                raise WithheldError
            try:
                answer = await self._network.carry(self._party, self._peer, numbered, payload, on_answer)
            except ConnectionError as error:
                self.trouble, self.unreachable = str(error), isinstance(error, ConnectionRefusedError)
                if self.unreachable:
                    await self._network.until_there(self._peer)
                else:
                    await asyncio.sleep(_BACKOFF)
            else:
                self.unreachable = False
                return answer

    def _connect(self) -> None:
        """To a new process, or after the connection was dropped: the welcome says where the peer is."""
        sessions = self._network.sessions
        own, other = sessions.get(self._party), sessions.get(self._peer)
        if own is None or other is None:
            return
        deaths, closed = self._network.deaths[self._peer], closed_to_shares(other)
        if deaths != self._connected_to or closed != self._closed:
            self._connected_to, self._closed = deaths, closed
            own.heard(self._peer, other.position)

    async def close(self) -> None:
        """Nothing is open."""


async def take_part(participant: Participant, network: MemoryNetwork, place: PartyId, report: Report) -> NodeResult:
    """Take part over memory links, from where the store says that this party was, to the result; through outages."""

    async def attempt() -> NodeResult:
        participant.attach(network.carrier(place))
        if (before := await participant.open()) is not None:
            return before
        network.enter(place, participant)
        return await participant.run()

    patience = RetryPolicy(report, participant.settings)
    try:
        return await retry(attempt, participant.store.path, patience, lambda: network.die(place))
    finally:
        await participant.stop()
