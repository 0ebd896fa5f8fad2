"""Requests and answers of two parties over one connection, in both directions.

Reading never waits for writing. What is short goes before what is long, so that answers, heartbeats and withdrawals do not wait
behind the megabytes of a share; whatever is short stays in order, and so does whatever is long. A request that its caller gives
up is not sent if it has not begun to be, and taken back in the middle of its parts if it has: nothing that is sent after that can
arrive before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.net.transport import Connection, Endpoint
from quietmean.node.net.wire import PART, AnswerFrame, AnyFrame, AnyRequest, Begin, Ending, Farewell, Payload, Request
from quietmean.node.tasks import Tasks, stop_all

REQUESTS_PER_CONNECTION = 16
_CLOSING_SECONDS = 1.0

OnAnswer: TypeAlias = Callable[[AnswerFrame], None]
Handler: TypeAlias = Callable[[PartyId, AnyRequest, Payload], Awaitable[AnswerFrame]]


class _Outgoing:
    """A frame that waits to be sent. ``done``: set once all of it was given to the connection, if anybody asks."""

    __slots__ = ("done", "frame", "payload", "sent", "withdrawn")

    def __init__(self, frame: AnyFrame, payload: Payload = b"", done: asyncio.Future[None] | None = None) -> None:
        self.frame = frame
        self.payload = memoryview(payload)
        self.done = done
        self.sent = 0
        self.withdrawn = False


class Duplex:
    """A connection on which both sides ask and answer.

    ``dialled``: by this party. ``handle`` answers the peer's requests; without one, none may come.

    ``kept_once``: this connection has been kept once although the peer began another one.
    """

    def __init__(
        self, connection: Connection, endpoint: Endpoint, peer: PartyId, handle: Handler | None, *, dialled: bool
    ) -> None:
        self.dialled = dialled
        self.kept_once = False
        # Each process has a leaf certificate of its own.
        self.process = hashlib.sha256(connection.certificate or b"").digest()
        self._connection = connection
        self._endpoint = endpoint
        self._peer = peer
        self._handle = handle
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[asyncio.Future[AnswerFrame], OnAnswer]] = {}
        self._short: deque[_Outgoing] = deque()
        self._long: deque[_Outgoing] = deque()
        self._under_way: _Outgoing | None = None
        self._more = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._answering = Tasks(endpoint.fail)
        self._writing = Tasks(endpoint.fail)
        self._over = False
        self.farewell: Ending | None = None
        self._before: tuple[AnyFrame, Payload] | None = None

    async def ask(self, request: AnyRequest, payload: Payload, on_answer: OnAnswer) -> AnswerFrame:
        """The answer to one request. Raises OSError or EOFError if the connection is lost before it is read."""
        if self._over:
            raise ConnectionError("connection lost")
        number = next(self._numbers)
        answer: asyncio.Future[AnswerFrame] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer, on_answer
        outgoing = _Outgoing(msgspec.structs.replace(request, number=number), payload)
        self._enqueue(outgoing)
        try:
            return await answer
        finally:
            outgoing.withdrawn = True
            self._more.set()
            self._waiting.pop(number, None)

    def begin(self, begin: Begin) -> None:
        """Send this before anything else."""
        self._enqueue(_Outgoing(begin))

    def first(self, frame: AnyFrame, payload: Payload) -> None:
        """Keep a frame that was read from the connection before :meth:`run`, which handles it first."""
        self._before = frame, payload

    async def run(self) -> None:
        """Read, answer and write until the connection is lost, which raises OSError or EOFError; PeerError for a bad peer."""
        self._writing.spawn(self._write())
        reason: Exception = ConnectionError("connection lost")
        try:
            if self._before is not None:
                self._take(*self._before)
                self._before = None
            while True:
                # No name for what came: a long payload must not stay in memory until the next one comes.
                self._take(*await self._connection.receive(self._endpoint.limits))
        except (OSError, EOFError) as error:
            reason = ConnectionError(str(error))
            raise
        finally:
            self._over = True
            for unanswered, _ in self._waiting.values():
                if not unanswered.done():
                    unanswered.set_exception(reason)
                    # Where its caller has given up at this very moment, nobody else retrieves it.
                    unanswered.exception()
            self._all_sent.set()
            await stop_all(self._writing, self._answering)

    def abort(self) -> None:
        """Drop the connection now: nothing that is on its way is read."""
        self._connection.abort()

    async def close(self, why: Ending | None = None) -> None:
        """Send what waits, for at most a second, and close; last of all ``why`` this process ends."""
        if why is not None and not self._over:
            self._enqueue(_Outgoing(Farewell(why)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._all_sent.wait()
        await self._connection.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _take(self, frame: AnyFrame, payload: Payload) -> None:
        if isinstance(frame, AnswerFrame):
            self._endpoint.heard(self._peer, (frame.phase, frame.round))
            waiting, on_answer = self._waiting.get(frame.number, (None, None))
            if waiting is not None and on_answer is not None and not waiting.done():
                on_answer(frame)
                waiting.set_result(frame)
            return
        if isinstance(frame, Farewell):
            self.farewell = frame.why
            self._endpoint.ended(self._peer, frame.why)
            return
        if not isinstance(frame, Request):
            raise PeerError("it sent something else than a request or an answer")
        if self._handle is None:
            raise PeerError("it sent a request where an answer was due")
        if len(self._answering) >= REQUESTS_PER_CONNECTION:
            raise PeerError(f"it sent more than {REQUESTS_PER_CONNECTION} requests at once")
        self._answering.spawn(self._answer(self._handle, frame, payload))

    async def _answer(self, handle: Handler, request: AnyRequest, payload: Payload) -> None:
        try:
            answer = await handle(self._peer, request, payload)
        except PeerError as error:
            self._endpoint.refusal(self._endpoint.roster.name(self._peer), str(error))
            self.abort()
            return
        except ConnectionAbortedError:
            # It stays unanswered, which anyone who handles requests knows: it comes again, on a new connection.
            self.abort()
            return
        except BaseException:
            self.abort()
            raise
        # Until it is written it counts as a request in progress: who does not read its answers is cut off.
        written = asyncio.get_running_loop().create_future()
        self._enqueue(_Outgoing(answer, done=written))
        await written

    # --- writing -----------------------------------------------------------------------------------------------------

    def _enqueue(self, outgoing: _Outgoing) -> None:
        """Send it at once if nothing is before it. An answer must be on its way before its request has any other effectwhere.

        Else a process that dies right then has taken part in something of which the peer never learns that it did: parties that
        have agreed, and one that waits for an answer of the dead one.
        """
        free = not self._short and (self._under_way is None or not self._under_way.withdrawn)
        if free and len(outgoing.payload) <= PART and self._connection.send_now(outgoing.frame, outgoing.payload):
            if outgoing.done is not None:
                outgoing.done.set_result(None)
            return
        (self._long if len(outgoing.payload) > PART else self._short).append(outgoing)
        self._all_sent.clear()
        self._more.set()

    async def _write(self) -> None:
        try:
            while True:
                self._more.clear()
                if not await self._write_next():
                    self._all_sent.set()
                    await self._more.wait()
        except (OSError, EOFError):
            # The reader sees the same loss and cleans up.
            self.abort()
        except BaseException:
            self.abort()
            raise

    async def _write_next(self) -> bool:
        """Write one frame or part; whether there was one."""
        long = self._under_way
        if long is not None and long.withdrawn:
            # Before anything else: what comes after must not overtake it.
            self._under_way = None
            await self._connection.send_part(b"")
        elif self._short:
            outgoing = self._short.popleft()
            if not outgoing.withdrawn:
                await self._connection.send(outgoing.frame, outgoing.payload)
            if outgoing.done is not None and not outgoing.done.done():
                outgoing.done.set_result(None)
        elif long is not None:
            part = long.payload[long.sent : long.sent + PART]
            long.sent += len(part)
            if long.sent == len(long.payload):
                self._under_way = None
            await self._connection.send_part(part)
        elif self._long:
            outgoing = self._long.popleft()
            if not outgoing.withdrawn:
                self._under_way = outgoing
                await self._connection.announce(outgoing.frame, len(outgoing.payload))
        else:
            return False
        return True
