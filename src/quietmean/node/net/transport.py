"""Connections between parties: one TCP + TLS stream for each direction, opened by the party that sends the requests.

Requests go from the dialling side to the listening side; answers come back on the same connection, in any order.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import msgspec

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.node.net.roster import Address, Roster
from quietmean.node.net.stream import ByteStream
from quietmean.node.net.terms import difference
from quietmean.node.net.tls import Credentials
from quietmean.node.net.wire import (
    VERSION,
    Answer,
    AnyFrame,
    AnyRequest,
    Differs,
    Hello,
    Limits,
    Payload,
    Refused,
    Welcome,
    encode_frame,
    read_frame,
)
from quietmean.node.phase import Position

OnAnswer: TypeAlias = Callable[[Answer], None]

# Decides, once there is a connection, that a request must not be sent after all.
Unless: TypeAlias = Callable[[], bool]

HANDSHAKE_SECONDS = 10.0
SHUTDOWN_SECONDS = 1.0
_FIRST_BACKOFF, _LAST_BACKOFF = 0.05, 1.0
_CLOSING_SECONDS = 1.0


class WithheldError(Exception):
    """A request was not sent, since the peer is where it must not have it any more."""


@dataclass(slots=True)
class Traffic:
    """Bytes of all frames of this node, headers and payloads, without TLS and TCP overhead."""

    sent: int = 0
    received: int = 0


@dataclass(frozen=True)
class Endpoint:
    """What all connections of a node share.

    ``study`` is the session digest, ``fields`` digests of its terms by their path.
    ``refusal(peer, reason)`` is called for every refusal, by either side; ``heard(party, position)`` for every answer.
    """

    party: PartyId
    roster: Roster
    study: str
    credentials: Credentials
    limits: Limits
    refusal: Callable[[str, str], None]
    heard: Callable[[PartyId, Position], None]
    traffic: Traffic = field(default_factory=Traffic)
    fields: Mapping[str, bytes] = field(default_factory=dict)


class Connection:
    """Frames over one stream."""

    def __init__(self, stream: ByteStream, traffic: Traffic) -> None:
        self._stream = stream
        self._traffic = traffic
        self._writing = asyncio.Lock()
        self.aborted = False

    @classmethod
    async def dial(cls, address: Address, context: ssl.SSLContext, traffic: Traffic) -> Self:
        """Connect, with the TLS handshake. No server name is sent: with pinned keys it has no use."""
        stream = ByteStream()
        host, port = address
        await asyncio.get_running_loop().create_connection(
            lambda: stream,
            host,
            port,
            ssl=context,
            server_hostname="",
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
        return cls(stream, traffic)

    @property
    def certificate(self) -> bytes | None:
        """The peer's leaf, DER."""
        return self._stream.certificate

    async def send(self, frame: AnyFrame, payload: Payload = b"") -> None:
        head = encode_frame(frame, len(payload))
        self._traffic.sent += len(head) + len(payload)
        # One frame after the other, and no more in memory than the peer reads.
        async with self._writing:
            await self._stream.write(head, payload)

    async def receive(self, limits: Limits) -> tuple[AnyFrame, Payload]:
        frame, payload, size = await read_frame(self._stream, limits)
        if self.aborted:
            # What lay unread in the buffer is not looked at.
            raise EOFError("the connection was dropped")
        self._traffic.received += size
        return frame, payload

    def abort(self) -> None:
        self.aborted = True
        self._stream.abort()

    async def close(self) -> None:
        """Send what is still buffered, for at most a second, and close."""
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self._stream.close()
        except TimeoutError:
            self.abort()


class Link:
    """The connection to one peer: dialled when first needed, and again after every loss."""

    def __init__(self, endpoint: Endpoint, peer: PartyId) -> None:
        self._endpoint = endpoint
        self._peer = peer
        self._numbers = itertools.count()
        self._dialling: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, tuple[asyncio.Future[Answer], OnAnswer]] = {}
        self._backoff = _FIRST_BACKOFF
        self.trouble = "no answer yet"
        self.unreachable = False

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: OnAnswer = lambda answer: None,
        unless: Unless = lambda: False,
    ) -> Answer:
        """The peer's answer; the request is repeated after every loss of the connection, until the caller cancels.

        ``on_answer`` is called as the answer is read: an answer that came in before the caller cancelled is never lost.
        ``unless`` is asked before each time that the request is sent, when the peer's welcome is known: if it holds,
        :class:`WithheldError` is raised instead.
        """
        while True:
            try:
                return await self._ask_once(request, payload, on_answer, unless)
            except (OSError, EOFError):
                await self._drop()

    async def _ask_once(self, request: AnyRequest, payload: Payload, on_answer: OnAnswer, unless: Unless) -> Answer:
        connection = await self._connected()
        if unless():
            raise WithheldError
        number = next(self._numbers)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer, on_answer
        try:
            await connection.send(msgspec.structs.replace(request, number=number), payload)
            return await answer
        finally:
            self._waiting.pop(number, None)
            if answer.done() and not answer.cancelled():
                # Where sending failed first, nobody else retrieves the exception that the reader set.
                answer.exception()

    async def _connected(self) -> Connection:
        while self._connection is None:
            if self._dialling is None or self._dialling.done():
                self._dialling = asyncio.create_task(self._dial_until_connected())
            # The caller may cancel, the handshake goes on: an aborted one would look like an attack to the other party.
            await asyncio.shield(self._dialling)
        return self._connection

    async def _dial_until_connected(self) -> None:
        while self._connection is None:
            try:
                self._connection = await self._dial()
            except (OSError, EOFError, PeerError) as error:
                self._note_failure(error)
                await asyncio.sleep(self._backoff)
                self._backoff = min(2 * self._backoff, _LAST_BACKOFF)

    async def _dial(self) -> Connection:
        entry, credentials = self._endpoint.roster.entries[self._peer], self._endpoint.credentials
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            connection = await Connection.dial(entry.address, credentials.client(self._peer), self._endpoint.traffic)
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self._greet(connection)
        except BaseException:
            connection.abort()
            raise
        self._backoff, self.unreachable, self.trouble = _FIRST_BACKOFF, False, "it does not answer"
        self._reading = asyncio.create_task(self._read_answers(connection))
        return connection

    async def _greet(self, connection: Connection) -> None:
        await connection.send(Hello(VERSION, self._endpoint.party, self._endpoint.study))
        frame, _ = await connection.receive(Limits.before_reply())
        if isinstance(frame, Refused):
            raise PeerError(f"peer refused: {printable(frame.reason)}")
        if isinstance(frame, Differs):
            named = difference(self._endpoint.fields, frame.fields) or "compare study file and roster, all parties need the same"
            raise PeerError(f"peer refused: {printable(f'{frame.reason}: {named}')}")
        if not isinstance(frame, Welcome):
            raise PeerError("it answered the greeting with something else")
        self._endpoint.heard(self._peer, (frame.phase, frame.round))

    async def _read_answers(self, connection: Connection) -> None:
        reason: Exception = ConnectionError("connection lost")
        try:
            while True:
                frame, _ = await connection.receive(self._endpoint.limits)
                if not isinstance(frame, Answer):
                    raise PeerError("it sent a request where an answer was due")
                self._endpoint.heard(self._peer, (frame.phase, frame.round))
                waiting, on_answer = self._waiting.get(frame.number, (None, None))
                if waiting is not None and on_answer is not None and not waiting.done():
                    on_answer(frame)
                    waiting.set_result(frame)
        except (OSError, EOFError) as error:
            reason = ConnectionError(str(error))
        except PeerError as error:
            self._report_refusal(str(error))
        finally:
            if self._connection is connection:
                self._connection = None
            connection.abort()
            for unanswered, _ in self._waiting.values():
                if not unanswered.done():
                    unanswered.set_exception(reason)

    def _note_failure(self, error: Exception) -> None:
        self.unreachable = isinstance(error, ConnectionRefusedError)
        if isinstance(error, PeerError):
            self._report_refusal(str(error))
        elif isinstance(error, ConnectionRefusedError):
            self.trouble = "nobody listens at its address"
        elif isinstance(error, ssl.SSLCertVerificationError):
            self._report_refusal("another key than the roster's answers at its address")
        elif isinstance(error, EOFError | ConnectionResetError | ssl.SSLError):
            self.trouble = "it closed the connection: is this key in its roster?"
        else:
            self.trouble = str(error) or "it does not answer"

    def _report_refusal(self, reason: str) -> None:
        # Dialling goes on, since the other node may be repaired and started again; the same reason is reported once.
        if reason != self.trouble:
            self.trouble = reason
            self._endpoint.refusal(self._endpoint.roster.name(self._peer), reason)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        await asyncio.sleep(0)

    async def close(self) -> None:
        tasks = [task for task in (self._dialling, self._reading) if task is not None]
        if self._dialling is not None:
            self._dialling.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def printable(text: str) -> str:
    """A peer's text, safe for one line of a log."""
    return "".join(character if character.isprintable() else "?" for character in text)
