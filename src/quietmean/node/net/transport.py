"""One connection between two parties, frame by frame, how it is reached, and what all connections of a node share."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from quietmean.core.domain import Links
from quietmean.core.party import PartyId
from quietmean.core.readable import printable
from quietmean.node.net.addresses import Address, numbers_to_dial
from quietmean.node.net.identity import Group, Roster, public_key_bytes
from quietmean.node.net.stream import ByteStream, FrameCipher, FrameReader
from quietmean.node.net.tls import Credentials, foreign_issuer
from quietmean.node.net.wire import AnswerFrame, AnyFrame, AnyRequest, Ending, Limits, Payload, encode_frame, encode_part
from quietmean.node.phase import Position
from quietmean.node.tasks import Fail, report_defect

# Handshakes at a time, and for how long one counts: peers that do not answer hold up nobody.
AT_ONCE, LONGEST = 4, 1.0


class Pace:
    """Turns at dialling: so many at a time, but for those that have lasted longer than ``longest`` seconds."""

    def __init__(self, at_once: int = AT_ONCE, longest: float = LONGEST) -> None:
        self._longest = longest
        self._free = asyncio.Semaphore(at_once)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn. It ends with the body, or before it after the longest time."""
        await self._free.acquire()
        held = True

        def end() -> None:
            nonlocal held
            if held:
                held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._longest, end)
        try:
            yield
        finally:
            timer.cancel()
            end()


HANDSHAKE_SECONDS = 10.0
SHUTDOWN_SECONDS = 1.0
_CLOSING_SECONDS = 1.0


@dataclass(slots=True)
class Traffic:
    """Bytes of all frames of this node, headers and payloads, without TLS and TCP overhead."""

    sent: int = 0
    received: int = 0


@dataclass(frozen=True)
class Endpoint:
    """What all connections of a node share.

    ``study`` is the session digest, ``fields`` digests of its terms by their path, ``links`` what its connections are keyed by.
    ``refusal(peer, reason)`` is called for every refusal, by either side; ``heard(party, position)`` for every answer, and
    ``answered(party, request, answer)`` with the request that it answers; ``ended(party, why)`` where a process says that it
    ends; ``fail(error)`` for an error that no peer has made, after which this node cannot go on as if nothing had happened.
    ``pace``: in which its peers are dialled.
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
    fail: Fail = report_defect
    answered: Callable[[PartyId, AnyRequest, AnswerFrame], None] = lambda peer, request, answer: None
    ended: Callable[[PartyId, Ending], None] = lambda peer, why: None
    links: Links = Links.X25519
    pace: Pace = field(default_factory=Pace)


class Connection:
    """Frames over one stream."""

    def __init__(self, stream: ByteStream, traffic: Traffic) -> None:
        self._stream = stream
        self._frames = FrameReader(stream)
        self._traffic = traffic
        self._writing = asyncio.Lock()
        self._cipher: FrameCipher | None = None
        self.aborted = False

    @classmethod
    async def dial(cls, address: Address, context: ssl.SSLContext, traffic: Traffic) -> Self:
        """Connect over TCP, with the TLS handshake."""
        return cls(await dial_tcp(address, context), traffic)

    @property
    def certificate(self) -> bytes | None:
        """The peer's leaf, DER."""
        return self._stream.certificate

    def seal_sent(self, cipher: FrameCipher) -> None:
        """Seal what is sent, from the next frame on."""
        self._cipher = cipher

    def open_received(self, cipher: FrameCipher) -> None:
        """Require that what is received is sealed, from the next frame on."""
        self._frames.cipher = cipher

    async def send(self, frame: AnyFrame, payload: Payload = b"") -> None:
        """A frame whose payload is at most as long as a part."""
        await self._write(encode_frame(frame, len(payload)), payload)

    def send_now(self, frame: AnyFrame, payload: Payload = b"") -> bool:
        """Send a frame whose payload is at most as long as a part, if nothing is before it; whether it was sent."""
        if self.aborted or self._writing.locked() or not self._stream.has_room:
            return False
        self._stream.write_now(self._sealed(encode_frame(frame, len(payload)), payload))
        return True

    async def announce(self, frame: AnyFrame, size: int) -> None:
        """A frame whose payload of ``size`` bytes follows in parts."""
        await self._write(encode_frame(frame, size))

    async def send_part(self, part: Payload) -> None:
        """The next part of what was announced; an empty one takes the message back."""
        await self._write(encode_part(len(part)), part)

    async def _write(self, head: bytes, payload: Payload = b"") -> None:
        # One frame after the other, and no more in memory than the peer reads; sealed in the order in which they are sent.
        async with self._writing:
            await self._stream.write(self._sealed(head, payload))

    def _sealed(self, head: bytes, payload: Payload) -> Payload:
        """The bytes to be sent next, and no others: they are counted, also by the cipher."""
        data = head + payload if self._cipher is None else self._cipher.seal(head, payload)
        self._traffic.sent += len(data)
        return data

    async def receive(self, limits: Limits) -> tuple[AnyFrame, Payload]:
        before = self._frames.read
        try:
            frame, payload = await self._frames.next(limits)
        finally:
            self._traffic.received += self._frames.read - before
        if self.aborted:
            # What lay unread in the buffer is not looked at.
            raise EOFError("the connection was dropped")
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


async def dial_tcp(address: Address, context: ssl.SSLContext, name: str = "") -> ByteStream:
    """Connect over TCP, with the TLS handshake.

    ``name`` is sent in clear, to a port that several studies share; it proves nothing: who answers is known by the pinned keys.
    """
    loop, last = asyncio.get_running_loop(), OSError(f"{address[0]} has no address")
    for host in await numbers_to_dial(address):
        stream = ByteStream()
        try:
            await loop.create_connection(
                lambda stream=stream: stream,  # type: ignore[misc]
                host,
                address[1],
                ssl=context,
                server_hostname=name,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except OSError as error:
            last = error
        else:
            return stream
    raise last


class Route(Protocol):
    """The way to one party. ``direct``: nobody stands in between, so "nobody listens" is the sign of an ended process."""

    direct: bool

    async def dial(self, context: ssl.SSLContext) -> ByteStream:
        """A stream to the party, with the TLS handshake between the parties done. Raises OSError or EOFError."""


class DirectRoute:
    """TCP to the party's address in the roster. ``name``: the server name that is asked for there, if any."""

    direct = True

    def __init__(self, address: Address, name: str = "") -> None:
        self._address = address
        self._name = name

    @classmethod
    def to(cls, roster: Roster, party: PartyId) -> Self:
        """Open a route to one of the roster, also where a proxy leads from its port to several studies."""
        entry = roster.entries[party]
        return cls(entry.address, Group.of_session(roster.digest).server_name(public_key_bytes(entry.public_key)))

    async def dial(self, context: ssl.SSLContext) -> ByteStream:
        return await dial_tcp(self._address, context, self._name)

    async def issuer(self) -> str | None:
        """Who issued the certificate that is shown at the address, if it is none of a party's. Raises OSError or EOFError.

        Only for telling people what stands in between: nothing is sent there.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stream = await dial_tcp(self._address, context, self._name)
        try:
            return foreign_issuer(stream.certificate or b"")
        finally:
            stream.abort()


# Limits of causes per peer and of peers; what exceeds them is only counted.
_CAUSES_PER_PEER = 16
_PEERS = 256
_LONGEST = 300
_PORT = re.compile(r"(?<=.):\d{1,5}$")


class Refusals:
    """Use :meth:`note` for each refusal, :meth:`lines` at the end. Memory: at most about 256 * 16 lines of 300 characters."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        self._first: dict[tuple[str, str], str] = {}
        self._further = 0

    def note(self, peer: str, reason: str) -> tuple[str, str] | None:
        """Peer and reason to be reported, safe for one line of a log; None for a repetition or beyond the limits.

        ``peer`` is a name or an address. Addresses that differ only in the port are one peer: each connection has its own port.
        """
        host, reason = _PORT.sub("", peer), _short(reason)
        causes = self._counts.get(host)
        if causes is None and len(self._counts) < _PEERS:
            causes = self._counts.setdefault(host, {})
        if causes is None or (reason not in causes and len(causes) >= _CAUSES_PER_PEER):
            self._further += 1
            # Once, so that a reader of the log knows that it is not complete.
            return ("others", "more refusals than are named one by one; they are counted") if self._further == 1 else None
        causes[reason] = causes.get(reason, 0) + 1
        if causes[reason] > 1:
            return None
        self._first[host, reason] = peer
        return peer, reason

    def lines(self) -> tuple[str, ...]:
        """One line for each reported refusal, in order, with its count if above 1; last the number beyond the limits."""
        lines = [
            f"{peer}: {reason}" + (f" ({self._counts[host][reason]} times)" if self._counts[host][reason] > 1 else "")
            for (host, reason), peer in self._first.items()
        ]
        return (*lines, f"others: {self._further} further refusals") if self._further else tuple(lines)


def _short(reason: str) -> str:
    # Parts of a reason may have been sent by an unknown peer.
    text = printable(reason)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
