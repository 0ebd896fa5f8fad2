"""The listening side: lets in the parties of this study, answers their requests, and shows everybody else the door."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from quietmean.core.errors import InputError, PeerError
from quietmean.core.party import PartyId
from quietmean.node.roster import Address, format_address
from quietmean.node.transport import HANDSHAKE_SECONDS, Connection, Endpoint
from quietmean.node.wire import VERSION, Answer, AnyFrame, AnyRequest, Hello, Limits, Refused, Request, Welcome

# A stranger's place is held for one handshake time-out at most; further ones wait in the kernel's queue.
STRANGERS = 64
CONNECTIONS_PER_PARTY = 3
REQUESTS_PER_CONNECTION = 16
_STREAM_LIMIT = 256 * 1024

Position: TypeAlias = tuple[int, int]
Handler: TypeAlias = Callable[[PartyId, AnyRequest, bytes], Awaitable[Answer]]


def open_socket(address: Address) -> socket.socket:
    """Bind and listen. Raises :class:`InputError` if the address is taken or not this machine's."""
    host, port = address
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server(address, family=family, backlog=128)
    except OSError as error:
        raise InputError(
            f"cannot listen on {format_address(address)} ({error.strerror}): stop what uses it, or mend your address in the roster"
        ) from None


class Listener:
    """Accepts connections until closed. ``handle`` answers one request; ``position`` says where this node is."""

    def __init__(
        self,
        endpoint: Endpoint,
        listening: socket.socket,
        handle: Handler,
        position: Callable[[], Position],
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._endpoint = endpoint
        self._listening = listening
        self._handle = handle
        self._position = position
        self._handshake_seconds = handshake_seconds
        self._strangers = asyncio.Semaphore(STRANGERS)
        self._guests: dict[PartyId, list[Connection]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._listening.setblocking(False)
        self._spawn(self._accept())

    async def close(self) -> None:
        """Stop listening, then end every connection, buffered answers first."""
        self._listening.close()
        await asyncio.gather(*(guest.close() for guests in self._guests.values() for guest in guests))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._strangers.acquire()
            try:
                accepted, address = await loop.sock_accept(self._listening)
            except OSError:
                # Out of file descriptors, or the peer was gone already: breathe, then go on.
                self._strangers.release()
                if self._listening.fileno() < 0:
                    return
                await asyncio.sleep(0.1)
                continue
            self._spawn(self._welcome(accepted, format_address(address[:2])))

    async def _welcome(self, accepted: socket.socket, address: str) -> None:
        who, connection, party = address, None, None
        try:
            try:
                connection = await self._shake_hands(accepted)
                party = self._endpoint.credentials.accepted_party(connection.certificate)
                who = self._endpoint.roster.name(party)
                await asyncio.wait_for(self._check_hello(connection, party), self._handshake_seconds)
            finally:
                self._strangers.release()
            await self._serve(connection, party)
        except PeerError as error:
            self._endpoint.refusal(who, str(error))
        except (OSError, EOFError) as error:
            if party is None or isinstance(error, TimeoutError):
                self._endpoint.refusal(who, f"TLS handshake failed ({_brief(error)})" if party is None else "no greeting in time")
        finally:
            if connection is not None:
                await connection.close()

    async def _shake_hands(self, accepted: socket.socket) -> Connection:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_STREAM_LIMIT, loop)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._endpoint.credentials.server,
                ssl_handshake_timeout=self._handshake_seconds,
                ssl_shutdown_timeout=1.0,
            )
        except BaseException:
            accepted.close()
            raise
        return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), self._endpoint.traffic)

    async def _check_hello(self, connection: Connection, party: PartyId) -> None:
        frame, _ = await connection.receive(Limits.before_welcome())
        reason = self._objection(frame, party)
        if reason:
            await connection.send(Refused(reason))
            raise PeerError(reason)
        await connection.send(Welcome(*self._position()))

    def _objection(self, frame: AnyFrame, party: PartyId) -> str:
        if not isinstance(frame, Hello):
            return "no greeting came first"
        if frame.version != VERSION:
            return f"version differs: {frame.version} there, {VERSION} here: install the same version of quietmean"
        if frame.party != party:
            return f"it claims to be party {frame.party}, but its key is party {party}'s: compare the roster files"
        if frame.study != self._endpoint.study:
            return "study differs: compare study file and roster, all parties need the same"
        return ""

    async def _serve(self, connection: Connection, party: PartyId) -> None:
        guests = self._guests.setdefault(party, [])
        guests.append(connection)
        if len(guests) > CONNECTIONS_PER_PARTY:
            # The newest one is from the live process; older ones may be half-open remains.
            guests[0].abort()
        answering: set[asyncio.Task[None]] = set()
        try:
            while True:
                frame, payload = await connection.receive(self._endpoint.limits)
                if not isinstance(frame, Request):
                    raise PeerError("it sent something else than a request")
                if len(answering) >= REQUESTS_PER_CONNECTION:
                    raise PeerError(f"more than {REQUESTS_PER_CONNECTION} requests at once")
                task = asyncio.create_task(self._answer(connection, party, frame, payload))
                answering.add(task)
                task.add_done_callback(answering.discard)
        finally:
            guests.remove(connection)
            await _cancel(answering)

    async def _answer(self, connection: Connection, party: PartyId, request: AnyRequest, payload: bytes) -> None:
        try:
            await connection.send(await self._handle(party, request, payload))
        except PeerError as error:
            self._endpoint.refusal(self._endpoint.roster.name(party), str(error))
            connection.abort()
        except OSError:
            # The reader sees the same loss and cleans up.
            connection.abort()


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


def _brief(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    return str(error).splitlines()[0] if str(error) else "it went away"
