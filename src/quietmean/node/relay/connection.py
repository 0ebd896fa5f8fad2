"""One connection to a relay: HTTP, the upgrade, the proof of an identity, then a call, an answer, or the bytes of a pair."""

from __future__ import annotations

import asyncio
import json
from enum import Enum, auto
from typing import Any, Protocol, cast

from quietmean.core.errors import PeerError
from quietmean.node.relay.limits import WRITE_BUFFER, Counts
from quietmean.node.tunnel import (
    BINARY,
    CLOSE,
    END_OF_HEAD,
    HEALTH,
    LONGEST_HEAD,
    LONGEST_MESSAGE,
    NONCE_BYTES,
    PATH,
    PING,
    PONG,
    FrameHead,
    FrameParser,
    FromRelay,
    Nonce,
    Piece,
    Proof,
    Turned,
    decode_proof,
    encode_message,
    frame,
    upgrade_answer,
)
from quietmean.randomness import fresh_bytes

# Who does not take even this many bytes of messages is cut off.
_UNREAD = 64 * 1024


class Stage(Enum):
    HEAD = auto()
    PROVING = auto()
    ATTENDING = auto()
    CALLING = auto()
    JOINED = auto()
    OVER = auto()


class Owner(Protocol):
    """Who has the connections of a relay: it knows who may do what, and which two are joined."""

    @property
    def buffer(self) -> memoryview:
        """What is read lies here; one for all connections."""

    @property
    def connections(self) -> set[RelayConnection]:
        """All that are open."""

    @property
    def counts(self) -> Counts:
        """The counts of all connections."""

    def now(self) -> float:
        """The time in seconds, of a clock that never goes back."""

    def health(self) -> dict[str, Any]:
        """The health of the relay: counts only."""

    def proved(self, connection: RelayConnection, proof: Proof) -> None:
        """Let a party do what it asks for. Raises :class:`PeerError` where it may not."""

    def lost(self, connection: RelayConnection) -> None:
        """A connection has ended."""


class RelayConnection(asyncio.BufferedProtocol):
    """Never waits: whatever comes is dealt with at once, and what cannot be sent on stops the reading of who sent it."""

    def __init__(self, exchange: Owner) -> None:
        self.exchange = exchange
        self.stage = Stage.HEAD
        self.proof: Proof | None = None
        self.nonce = fresh_bytes(NONCE_BYTES)
        self.host = ""
        # Of a joined pair.
        self.partner: RelayConnection | None = None
        self.caller = False
        self.passed = 0
        self.begun = self.heard = exchange.now()
        # Since when nothing could be sent to it, and since when it is being closed.
        self.stalled: float | None = None
        self.closing: float | None = None
        self._transport: asyncio.Transport | None = None
        self._head = bytearray()
        self._parser = FrameParser(masked=True)
        self._message = bytearray()

    @property
    def over(self) -> bool:
        return self.stage is Stage.OVER

    # --- called by the event loop --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        # Of TLS: how much that was received waits to be decrypted.
        limit = getattr(transport, "set_read_buffer_limits", None)
        if limit is not None:
            limit(high=WRITE_BUFFER)
        if self.stage is Stage.OVER:
            self._transport.abort()
            return
        self.exchange.connections.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        # One for all: what is in it is used up before anything else is read.
        return self.exchange.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = self.exchange.now()
        view = self.exchange.buffer[:nbytes]
        try:
            if self.stage is Stage.HEAD:
                view = self._take_head(bytes(view))
            if self.stage not in (Stage.HEAD, Stage.OVER):
                for piece in self._parser.feed(view):
                    self._take(piece)
                    if self.over:
                        return
        except PeerError as error:
            self.exchange.counts.refused += 1
            self.turn_away(str(error))

    def eof_received(self) -> None:
        self.finish()

    def connection_lost(self, error: Exception | None) -> None:
        self.stage = Stage.OVER
        self.exchange.lost(self)

    def pause_writing(self) -> None:
        self.stalled = self.exchange.now()
        if self.partner is not None:
            self.partner.read(False)

    def resume_writing(self) -> None:
        self.stalled = None
        if self.partner is not None:
            self.partner.read(True)

    # --- what comes ----------------------------------------------------------------------------------------------------

    def _take_head(self, data: bytes) -> memoryview:
        """What is left after the head of the request, once all of it is there."""
        self._head += data
        end = self._head.find(END_OF_HEAD)
        if end < 0:
            if len(self._head) > LONGEST_HEAD:
                raise PeerError("the head of its request is too long")
            return memoryview(b"")
        head, rest = FrameHead.parse(bytes(self._head[:end])), bytes(self._head[end + len(END_OF_HEAD) :])
        self._head.clear()
        if len(head.first) != 3 or head.first[0] != "GET" or not head.first[2].startswith("HTTP/1."):
            self._answer(400, "quietmean relay: only GET")
        elif head.first[1] == HEALTH:
            self._answer(200, json.dumps(self.exchange.health()), "application/json")
        elif head.first[1] != PATH:
            self._answer(404, "quietmean relay: nothing is here")
        elif not head.wants_websocket():
            self._answer(426, "quietmean relay: WebSocket only")
        else:
            self.host = head.headers.get("host", "")
            self._write(upgrade_answer(head))
            self.stage = Stage.PROVING
            self.say(Nonce(self.nonce))
        return memoryview(rest)

    def _answer(self, status: int, text: str, kind: str = "text/plain") -> None:
        body = text.encode() + b"\n"
        head = f"HTTP/1.1 {status} quietmean\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._write(head.encode() + body)
        self._close()

    def _take(self, piece: Piece) -> None:
        if piece.opcode == PING:
            # Who sends and does not read gets no more answers.
            if self.stalled is None:
                self._write(frame(PONG, piece.content, masked=False))
        elif piece.opcode == CLOSE:
            self.finish()
        elif piece.opcode != PONG:
            self._take_data(piece)

    def _take_data(self, piece: Piece) -> None:
        if self.stage is Stage.JOINED:
            if piece.content and self.partner is not None:
                self.passed += len(piece.content)
                self.exchange.counts.bytes += len(piece.content)
                self.partner._write(frame(BINARY, piece.content, masked=False))
            return
        if self.stage is not Stage.PROVING:
            raise PeerError("it spoke out of turn")
        self._message += piece.content
        if len(self._message) > LONGEST_MESSAGE:
            raise PeerError("its message is too long")
        if piece.ends:
            raw = bytes(self._message)
            self._message.clear()
            self.exchange.proved(self, decode_proof(raw))

    # --- what goes -----------------------------------------------------------------------------------------------------

    def say(self, message: FromRelay) -> None:
        self._write(frame(BINARY, encode_message(message), masked=False))

    def turn_away(self, reason: str, *, absent: bool = False) -> None:
        """Tell the party why it is refused, and close the connection."""
        if self.stage is Stage.HEAD:
            self._answer(400, f"quietmean relay: {reason}")
        elif self.stage not in (Stage.OVER, Stage.JOINED):
            self.say(Turned(reason, absent))
        self.finish()

    def finish(self, code: int = 1000) -> None:
        """Send what waits, and close, here and with the partner."""
        if self.stage is Stage.OVER:
            return
        if self.stage is not Stage.HEAD:
            self._write(frame(CLOSE, code.to_bytes(2, "big"), masked=False))
        self._close()
        # What was accepted of this one still goes to its partner.
        if self.partner is not None:
            self.partner.finish(code)

    def _close(self) -> None:
        self.stage = Stage.OVER
        self.closing = self.exchange.now()
        if self._transport is not None and not self._transport.is_closing():
            # Nothing more is looked at.
            self.read(False)
            self._transport.close()

    def abort(self) -> None:
        self.stage = Stage.OVER
        if self._transport is not None:
            self._transport.abort()

    def read(self, reading: bool) -> None:
        """Read on, or let the other side wait."""
        if self._transport is not None and not self._transport.is_closing():
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def join(self, partner: RelayConnection, *, caller: bool) -> None:
        self.partner, self.caller, self.stage = partner, caller, Stage.JOINED
        self.begun = self.exchange.now()

    def _write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self.stage is not Stage.JOINED and self._transport.get_write_buffer_size() > _UNREAD:
            self.abort()
