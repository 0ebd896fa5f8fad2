"""A party's connection to a relay: WebSocket outside, messages first, then the bytes of one other party through a socket pair.

The party's own TLS runs at the other end of the socket pair, as it would over TCP: relay and proxies see only
what that encrypts.

What a party and a relay say to each other before a stream begins: who somebody is, who is called, who calls.

A party proves its identity key by a signature over words of both sides: the relay's fresh nonce, the relay's name as the party
dialled it, and what it asks for, under a label of its own. What a relay chooses alone is never signed. The clock is not asked:
the nonce shows that a proof is fresh, and clocks of parties may be wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from typing import Final, Literal, TypeAlias, cast

import msgspec

from quietmean.core.codec import decode
from quietmean.core.errors import InputError, PeerError
from quietmean.node.net import Group, Identity, Purpose, format_public_key, is_signed, public_key_bytes
from quietmean.node.tunnel.websocket import (
    BINARY,
    CLOSE,
    END_OF_HEAD,
    LONGEST_HEAD,
    PING,
    PONG,
    FrameHead,
    FrameParser,
    Piece,
    frame,
    upgrade_request,
)

PATH: Final = "/quietmean/1"
HEALTH: Final = "/health"
NONCE_BYTES: Final = 32
TICKET_BYTES: Final = 16
# Longest message, in bytes.
LONGEST_MESSAGE: Final = 2048
# A party sends a ping so often (s): proxies and routers forget connections on which nothing moves.
PING_SECONDS: Final = 20.0
# Who was not heard for so long is gone (s).
SILENCE_SECONDS: Final = 65.0
# How long a call waits for its receiver (s).
CALL_SECONDS: Final = 8.0

Role: TypeAlias = Literal["attend", "visit", "call", "answer"]


class Nonce(msgspec.Struct, frozen=True, tag="nonce", forbid_unknown_fields=True):
    """The relay's first word: a nonce to be signed."""

    nonce: bytes


class Proof(msgspec.Struct, frozen=True, tag="proof", forbid_unknown_fields=True):
    """A party's first word: its signature of the nonce.

    ``attend``: it can be called under ``label``, its own, from now on instead of any other process of it; ``visit``: only if
    none is there. ``call``: it calls ``label``. ``answer``: it answers the call with this ``ticket``.

    ``group`` is that of the session, ``key`` the party's identity (32 bytes), ``relay`` the name under which it dialled.
    """

    role: Role
    group: bytes
    label: bytes
    key: bytes
    relay: str
    ticket: bytes
    signature: bytes


class Attending(msgspec.Struct, frozen=True, tag="attending", forbid_unknown_fields=True):
    """The relay's answer to ``attend`` and ``visit``."""


class Call(msgspec.Struct, frozen=True, tag="call", forbid_unknown_fields=True):
    """The relay to one that attends: ``caller`` (32 bytes of its key) calls; dial back with the ticket."""

    ticket: bytes
    caller: bytes


class Joined(msgspec.Struct, frozen=True, tag="joined", forbid_unknown_fields=True):
    """The relay to both: from here on the bytes are those of the other party."""


class Turned(msgspec.Struct, frozen=True, tag="turned", forbid_unknown_fields=True):
    """The relay turns a party away, or its call found nobody. ``absent``: the called party is not there now."""

    reason: str
    absent: bool = False


FromRelay: TypeAlias = Nonce | Attending | Call | Joined | Turned
_encode = msgspec.msgpack.Encoder().encode


def encode_message(message: FromRelay | Proof) -> bytes:
    return _encode(message)


def decode_message(raw: bytes) -> FromRelay:
    """Read a message of the relay. Raises :class:`PeerError`."""
    message: FromRelay = decode(raw, FromRelay, lambda reason: PeerError("it sent a message that is not a relay's"))
    return message


def decode_proof(raw: bytes) -> Proof:
    """A proof whose parts have the right sizes. Its signature is not looked at. Raises :class:`PeerError`."""
    proof = decode(raw, Proof, lambda reason: PeerError("it said something else than who it is"))
    sizes = [len(part) for part in (proof.group, proof.label, proof.key, proof.signature)]
    tickets = TICKET_BYTES if proof.role == "answer" else 0
    if sizes != [32, 32, 32, 64] or len(proof.ticket) != tickets:
        raise PeerError("parts of its proof are too long or too short")
    return proof


def prove(
    identity: Identity, role: Role, group: Group, relay: str, nonce: bytes, *, peer: bytes = b"", ticket: bytes = b""
) -> Proof:
    """Prove who this party is: sign the relay's nonce.

    ``peer``: the key (32 bytes) of the party that is called; the own label is taken for the other roles.
    """
    if len(nonce) != NONCE_BYTES:
        raise PeerError("its nonce is too long or too short")
    key = public_key_bytes(identity.public_key)
    label = group.label(peer or key)
    signature = identity.sign(Purpose.RELAY, _signed(role, group.tag, label, relay, ticket, nonce))
    return Proof(role, group.tag, label, key, relay, ticket, signature)


def is_proved(proof: Proof, nonce: bytes) -> bool:
    """Whether the owner of the key in it said so, to this nonce."""
    content = _signed(proof.role, proof.group, proof.label, proof.relay, proof.ticket, nonce)
    try:
        return is_signed(format_public_key(proof.key), Purpose.RELAY, content, proof.signature)
    except InputError:
        return False


def _signed(role: Role, group: bytes, label: bytes, relay: str, ticket: bytes, nonce: bytes) -> bytes:
    return _encode([role, relay, group, label, ticket, nonce])


_READ: Final = 64 * 1024
_BUFFER: Final = 64 * 1024
# Messages that wait to be looked at.
_MESSAGES: Final = 1024
_CLOSING_SECONDS: Final = 15.0


class RelayStream(asyncio.BufferedProtocol):
    """One WebSocket to a relay. ``name``: the relay's host and port, as it was dialled."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_READ))
        self._head: bytearray | None = bytearray()
        self._accept = ""
        self._parser = FrameParser(masked=False)
        self._message = bytearray()
        self._messages: deque[FromRelay] = deque()
        self._arrived = asyncio.Event()
        self._lost: Exception | None = None
        self._joined = False
        # What came of the other party before there was anywhere to put it.
        self._early: list[bytes] = []
        self._inner: _Inner | None = None
        self._heard = self._loop.time()
        self._pinging: asyncio.TimerHandle | None = None
        self._paused = False
        self.write_paused = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # --- for the party -------------------------------------------------------------------------------------------------

    async def message(self) -> FromRelay:
        """The relay's next message. Raises EOFError, OSError or PeerError once there is none."""
        while not self._messages:
            if self._lost is not None:
                raise self._lost
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()

    def say(self, proof: Proof) -> None:
        self.send(BINARY, encode_message(proof))

    async def begin(self) -> socket.socket:
        """Begin after :class:`Joined`: the socket at which the other party is. The caller closes it."""
        ours, theirs = socket.socketpair()
        try:
            for each in (ours, theirs):
                each.setblocking(False)
            inner = _Inner(self)
            await self._loop.create_connection(lambda: inner, sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        self._inner = inner
        for content in self._early:
            inner.write(content)
        self._early.clear()
        if self._lost is not None:
            inner.close()
        elif not inner.write_paused:
            self.read(True)
        return theirs

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Send what waits, and close."""
        if self._transport is not None and not self._transport.is_closing():
            self.send(CLOSE, (1000).to_bytes(2, "big"))
            self._transport.close()
            # Who does not read does not keep it.
            self._loop.call_later(_CLOSING_SECONDS, self.abort)

    def send(self, opcode: int, payload: bytes | memoryview) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(opcode, payload, masked=True))

    def read(self, reading: bool) -> None:
        """Read on, or let the relay wait."""
        self._paused = not reading
        if self._transport is not None and not self._transport.is_closing():
            if reading:
                self._heard = self._loop.time()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # --- called by the event loop --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request, self._accept = upgrade_request(self._name, PATH)
        self._transport.write(request)
        self._pinging = self._loop.call_later(PING_SECONDS, self._ping)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = self._loop.time()
        view = self._buffer[:nbytes]
        try:
            if self._head is not None:
                view = self._take_head(self._head, bytes(view))
            if self._head is None:
                for piece in self._parser.feed(view):
                    self._take(piece)
        except PeerError as error:
            self._end_with(error)
            self.abort()

    def eof_received(self) -> None:
        self._end_with(EOFError("the relay closed the connection"))

    def connection_lost(self, error: Exception | None) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        self._end_with(error or EOFError("the relay closed the connection"))
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self.write_paused = True
        if self._inner is not None:
            self._inner.read(False)

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._inner is not None:
            self._inner.read(True)

    # --- what comes ----------------------------------------------------------------------------------------------------

    def _take_head(self, head: bytearray, data: bytes) -> memoryview:
        head += data
        end = head.find(END_OF_HEAD)
        if end < 0:
            if len(head) > LONGEST_HEAD:
                raise PeerError("it is not a relay: its answer is too long")
            return memoryview(b"")
        answer, rest = FrameHead.parse(bytes(head[:end])), bytes(head[end + len(END_OF_HEAD) :])
        self._head = None
        if len(answer.first) < 2 or answer.first[1] != "101" or answer.headers.get("sec-websocket-accept") != self._accept:
            status = answer.first[1] if len(answer.first) > 1 and answer.first[1].isdigit() else "no status"
            raise PeerError(f"it is not a relay, or a proxy on the way does not let WebSocket through (its answer: {status[:9]})")
        return memoryview(rest)

    def _take(self, piece: Piece) -> None:
        if piece.opcode == PING:
            if not self.write_paused:
                self.send(PONG, piece.content)
        elif piece.opcode == CLOSE:
            self._end_with(EOFError("the relay ended the connection"))
            self.finish()
        elif piece.opcode != PONG:
            self._take_data(piece)

    def _take_data(self, piece: Piece) -> None:
        if self._joined:
            if self._inner is not None:
                self._inner.write(piece.content)
            else:
                self._early.append(piece.content)
            return
        self._message += piece.content
        if len(self._message) > LONGEST_MESSAGE or len(self._messages) >= _MESSAGES:
            raise PeerError("its messages are too long, or too many")
        if piece.ends:
            message = decode_message(bytes(self._message))
            self._message.clear()
            if isinstance(message, Joined):
                self._joined = True
                # Until there is somebody at the other end of the pair.
                self.read(False)
            self._messages.append(message)
            self._arrived.set()

    def _ping(self) -> None:
        if self._loop.time() - self._heard > SILENCE_SECONDS and not self._paused:
            self._end_with(ConnectionResetError("nothing is heard of the relay any more"))
            self.abort()
            return
        if not self.write_paused and self._head is None:
            self.send(PING, b"")
        self._pinging = self._loop.call_later(PING_SECONDS, self._ping)

    def _end_with(self, error: Exception) -> None:
        self._lost = self._lost or error
        self._arrived.set()
        if self._inner is not None:
            self._inner.close()


class _Inner(asyncio.BufferedProtocol):
    """The near end of the socket pair."""

    def __init__(self, outer: RelayStream) -> None:
        self._outer = outer
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_READ))
        self.write_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_BUFFER)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._outer.send(BINARY, self._buffer[:nbytes])

    def eof_received(self) -> None:
        self._outer.finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._outer.finish()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._outer.read(False)

    def resume_writing(self) -> None:
        self.write_paused = False
        self._outer.read(True)

    def write(self, content: bytes) -> None:
        if self._transport is not None and content:
            self._transport.write(content)

    def read(self, reading: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
