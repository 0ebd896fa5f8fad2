"""The listening side: admits the parties of this study, answers their requests, and refuses everybody else."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import itertools
import socket
import ssl
from asyncio import Task
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from quietmean.core.domain import Links
from quietmean.core.errors import InputError, PeerError, named
from quietmean.core.party import PartyId
from quietmean.node.net.addresses import Address, format_address
from quietmean.node.net.duplex import Duplex, Handler
from quietmean.node.net.key_exchange import NO_KEYS, answer_offer
from quietmean.node.net.link import Link
from quietmean.node.net.stream import ByteStream
from quietmean.node.net.tls import OTHER_LEAF, study_of
from quietmean.node.net.transport import HANDSHAKE_SECONDS, SHUTDOWN_SECONDS, Connection, Endpoint
from quietmean.node.net.wire import VERSION, AnyFrame, Begin, Check, Differs, Ending, Hello, Limits, Readiness, Refused, Welcome
from quietmean.node.phase import Position
from quietmean.node.tasks import Tasks

S = TypeVar("S")


class PendingHandshake:
    """An accepted connection that is not authenticated yet.

    A task that is cancelled before its first step cannot close the socket; until the task takes the socket, :meth:`cancel` closes
    it.
    """

    def __init__(self, accepted: socket.socket, address: str) -> None:
        self.address = address
        self.task: Task[None] | None = None
        self._socket: socket.socket | None = accepted

    def take_socket(self) -> socket.socket:
        """The socket, which the caller closes from now on. RuntimeError if it was taken before."""
        accepted, self._socket = self._socket, None
        if accepted is None:
            raise RuntimeError("The socket was handed over before and cannot be taken twice.")
        return accepted

    def cancel(self) -> None:
        if self._socket is not None:
            self.take_socket().close()
        if self.task is not None:
            self.task.cancel()


class HandshakePool(Generic[S]):
    """At most ``places`` handshakes at a time. Addresses are kept only while their handshakes last, so memory is bounded.

    No limit holds per address: all parties of a study may be behind one. When no place is left, the oldest handshake of the
    network with the most handshakes is evicted. A new connection is therefore accepted at once, and anyone who opens many
    connections evicts its own first.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._arrivals = itertools.count()
        # By network, oldest first.
        self._by_network: dict[str, dict[S, int]] = {}
        self._network_of: dict[S, str] = {}

    def __len__(self) -> int:
        return len(self._network_of)

    def __iter__(self) -> Iterator[S]:
        return iter(tuple(self._network_of))

    @property
    def full(self) -> bool:
        return len(self) >= self.places

    def next_to_evict(self) -> S:
        """The oldest handshake of the network with the most; of networks with equally many, the one with the oldest handshake."""
        fullest = max(self._by_network.values(), key=lambda handshakes: (len(handshakes), -next(iter(handshakes.values()))))
        return next(iter(fullest))

    def add(self, handshake: S, host: str) -> None:
        network = network_of(host)
        self._network_of[handshake] = network
        self._by_network.setdefault(network, {})[handshake] = next(self._arrivals)

    def remove(self, handshake: S) -> None:
        """Free its place, if it has one."""
        network = self._network_of.pop(handshake, None)
        if network is not None:
            handshakes = self._by_network[network]
            del handshakes[handshake]
            if not handshakes:
                del self._by_network[network]


def network_of(host: str) -> str:
    """An IPv4 address, or the /64 of an IPv6 address: one host may use all addresses of the latter."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


# What ends by itself: the system has no descriptor or memory for one more now.
_SCARCE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS: Final = 0.1


class Acceptor:
    """Accepts connections on a port.

    ``taken`` gets each connection and the address of its caller. All is done in the loop in which :meth:`start` is called.
    """

    # So many are accepted one after the other before anything else is looked at.
    at_once: ClassVar[int] = 32

    def __init__(self, listening: socket.socket, taken: Callable[[socket.socket, Any], None]) -> None:
        self._listening = listening
        self._taken = taken

    def start(self) -> None:
        self._listening.setblocking(False)
        self._watch()

    def close(self) -> None:
        """Take no more; the socket is closed."""
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()

    def _watch(self) -> None:
        if self._listening.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(self.at_once):
            # Not the loop's sock_accept: cancelled at the wrong moment, it loses a connection without closing it.
            try:
                accepted, address = self._listening.accept()
            except OSError as error:
                if error.errno in _SCARCE:
                    self._pause()
                return
            self._taken(accepted, address)

    def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)
        loop.call_later(_PAUSE_SECONDS, self._watch)


# Handshakes at a time, besides one for each party: all parties may connect at once, from one address. A handshake lasts one
# handshake time-out at most; when all places are taken, one is evicted for each new connection.
SPARE_HANDSHAKES = 64
# Backlog of the listening socket; where it is full, the system of the dialling side tries again after a second.
_QUEUE = 1024
CONNECTIONS_PER_PARTY = 3
# The refusal of a party that runs a check to one that has joined already.
ONLY_CHECKS = "it only checks, its part has not begun"
_OTHER_STUDY = "study differs"
# A party that sent a check closes the connection once it has read the answer.
_HANG_UP_SECONDS = 1.0


def open_socket(address: Address) -> socket.socket:
    """Bind and listen. Raises :class:`InputError` if the address is taken or not this machine's."""
    host, port = address
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server(address, family=family, backlog=_QUEUE)
    except OSError as error:
        raise InputError(
            f"cannot listen on {format_address(address)} ({error.strerror}). Stop what uses it, mend your "
            f"address in the roster, or say with {named('listen')} where to listen here."
        ) from None


class Listener:
    """Accepts connections until closed. ``handle`` answers one request; ``position`` says where this node is.

    ``handle`` is None where nobody is admitted yet. ``readiness`` gives the answer to checks, which have no other effect;
    ``on_check`` is called with each party that sent a check, or tried to join too early. ``handshake_seconds``: time-out of TLS
    handshake and greeting. ``links`` may use the connections that their peers dialled. ``listening`` is None where
    connections come from a relay only, through :meth:`take`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        listening: socket.socket | None,
        handle: Handler | None,
        position: Callable[[], Position],
        handshake_seconds: float = HANDSHAKE_SECONDS,
        readiness: Callable[[], Readiness] | None = None,
        on_check: Callable[[PartyId], None] = lambda party: None,
        links: Mapping[PartyId, Link] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._acceptor = None if listening is None else Acceptor(listening, self._accepted)
        self._handle = handle
        self._position = position
        self._handshake_seconds = handshake_seconds
        self._readiness = readiness
        self._asked = on_check
        self._handshakes: HandshakePool[PendingHandshake] = HandshakePool(SPARE_HANDSHAKES + len(endpoint.roster))
        self._connections: dict[PartyId, list[Duplex]] = {}
        self._links = links or {}
        # By party: who got an earlier position with its welcome is cut off.
        self._barred: dict[PartyId, Position] = {}
        self.fail = endpoint.fail
        self._tasks = Tasks(self.fail)

    def start(self) -> None:
        if self._acceptor is not None:
            self._acceptor.start()

    def disconnect(self, parties: Iterable[PartyId]) -> None:
        """Drop all connections with these parties: nothing that is on its way is read. Who comes back learns the position."""
        for party in parties:
            self._barred[party] = self._position()
            if party in self._links:
                self._links[party].disconnect()
            for connection in self._connections.get(party, ()):
                connection.abort()

    def drop(self) -> None:
        """Drop all connections: nothing that is on its way is read, and whatever is unanswered comes again on a new one."""
        for link in self._links.values():
            link.disconnect()
        for connection in itertools.chain(*self._connections.values()):
            connection.abort()

    async def close(self, why: Ending | None = None) -> None:
        """Stop listening, then end every connection, buffered answers first, with ``why`` this process ends."""
        # Before its socket closes: the loop must not watch a descriptor that may be reused.
        if self._acceptor is not None:
            self._acceptor.close()
        for handshake in self._handshakes:
            handshake.cancel()
        try:
            await asyncio.gather(*(each.close(why) for connections in self._connections.values() for each in connections))
        finally:
            await self._tasks.stop()

    def take(self, accepted: socket.socket, address: str, host: str) -> None:
        """Serve anyone who is at the other end; ``address``: what to call it until then, ``host``: whom it shares places with."""
        accepted.setblocking(False)
        if self._handshakes.full:
            self._evict(self._handshakes.next_to_evict())
        handshake = PendingHandshake(accepted, address)
        self._handshakes.add(handshake, host)
        handshake.task = self._tasks.spawn(self._admit(handshake))

    def _accepted(self, accepted: socket.socket, address: Any) -> None:
        self.take(accepted, format_address(address[:2]), address[0])

    def _evict(self, handshake: PendingHandshake) -> None:
        """Cancel a handshake at any stage, and report it."""
        self._handshakes.remove(handshake)
        reason = f"it gave way: all {self._handshakes.places} places for handshakes were taken, most of them by its address"
        self._endpoint.refusal(handshake.address, reason)
        handshake.cancel()

    async def _admit(self, handshake: PendingHandshake) -> None:
        who, connection = handshake.address, None
        try:
            try:
                connection = await self._shake_hands(handshake)
                party = self._endpoint.credentials.accepted_party(connection.certificate)
                who = self._endpoint.roster.name(party)
                position = self._position()
                handle = await self._greet(connection, party)
            except asyncio.CancelledError:
                # Evicted, or this node stops: no orderly close.
                if connection is not None:
                    connection.abort()
                raise
            finally:
                self._handshakes.remove(handshake)
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                if handle is None:
                    await self._await_hang_up(connection, party)
                elif position >= self._barred.get(party, position):
                    await self._serve(connection, party, handle)
        except PeerError as error:
            self._endpoint.refusal(who, str(error))
        finally:
            if connection is not None:
                await connection.close()

    async def _shake_hands(self, handshake: PendingHandshake) -> Connection:
        stream, accepted = ByteStream(), handshake.take_socket()
        try:
            # From here on the transport owns the socket, also where the handshake fails: it must not be closed here.
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: stream,
                accepted,
                ssl=self._endpoint.credentials.server,
                ssl_handshake_timeout=self._handshake_seconds,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except OSError as error:
            raise PeerError(f"TLS handshake failed ({_brief(error)})") from None
        return Connection(stream, self._endpoint.traffic)

    async def _greet(self, connection: Connection, party: PartyId) -> Handler | None:
        """The handler of the party's requests; None if it only sent a check, which has been answered."""
        missing = "no greeting came"
        try:
            async with asyncio.timeout(self._handshake_seconds):
                frame, _ = await connection.receive(Limits.before_welcome())
                if isinstance(frame, Check) and self._readiness is not None:
                    await connection.send(self._readiness())
                    return None
                reason = self._objection(frame, party, connection.certificate)
                if not reason and self._endpoint.links == Links.HYBRID:
                    # Before anything of the study is sent.
                    missing = NO_KEYS
                    await answer_offer(self._endpoint, connection, party)
                await connection.send(self._refused(reason) if reason else Welcome(*self._position()))
        except (OSError, EOFError) as error:
            raise PeerError(f"{missing} ({_brief(error)})") from None
        if reason or self._handle is None:
            raise PeerError(reason)
        return self._handle

    def _refused(self, reason: str) -> Refused | Differs:
        return Differs(reason, dict(self._endpoint.fields)) if reason == _OTHER_STUDY else Refused(reason)

    async def _await_hang_up(self, connection: Connection, party: PartyId) -> None:
        try:
            async with asyncio.timeout(_HANG_UP_SECONDS):
                await connection.receive(Limits.before_welcome())
        finally:
            self._asked(party)

    def _objection(self, frame: AnyFrame, party: PartyId, certificate: bytes | None) -> str:
        if not isinstance(frame, Hello):
            return "no greeting came first"
        if frame.version != VERSION:
            return f"its version differs, {frame.version} there and {VERSION} here. Install the same version of quietmean"
        if frame.party != party:
            return f"it claims to be party {frame.party}, but its key is party {party}'s. Compare the roster files"
        if self._handle is None:
            self._asked(party)
            return ONLY_CHECKS
        if frame.study != self._endpoint.study:
            return _OTHER_STUDY
        return "" if study_of(certificate) == self._endpoint.study else OTHER_LEAF

    async def _serve(self, connection: Connection, party: PartyId, handle: Handler) -> None:
        duplex = Duplex(connection, self._endpoint, party, handle, dialled=False)
        connections = self._connections.setdefault(party, [])
        connections.append(duplex)
        if len(connections) > CONNECTIONS_PER_PARTY:
            # The newest one is from the live process; older ones may be half-open remains.
            connections[0].abort()
        link = self._links.get(party)
        try:
            if await self._begins(connection, duplex, link):
                await duplex.run()
        finally:
            connections.remove(duplex)
            if link is not None:
                link.lost(duplex)

    async def _begins(self, connection: Connection, duplex: Duplex, link: Link | None) -> bool:
        """Whether the connection is to be read on; it is the link's if the peer began it."""
        with contextlib.nullcontext() if link is None else link.deciding():
            frame, payload = await connection.receive(self._endpoint.limits)
        if isinstance(frame, Begin):
            return link is None or link.take(duplex, (frame.phase, frame.round))
        # Without that it is only answered.
        duplex.first(frame, payload)
        return True


def _brief(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    # The event loop ends a handshake that takes too long with ConnectionAbortedError.
    if isinstance(error, TimeoutError | ConnectionAbortedError):
        return "it took too long"
    return "it went away" if isinstance(error, EOFError | ConnectionError) else str(error)
