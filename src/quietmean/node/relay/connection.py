"""One connection to a relay: HTTP, the upgrade, the proof of an identity, then a call, an answer, or the bytes of a pair."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, cast

from quietmean.core.errors import PeerError
from quietmean.node.net import Group
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

# At most this much of what one connection has sent waits in memory to be sent on, besides one piece that is being read.
WRITE_BUFFER = 32 * 1024


@dataclass
class Counts:
    """Since the start; nothing about anybody."""

    accepted: int = 0
    refused: int = 0
    evicted: int = 0
    attended: int = 0
    called: int = 0
    joined: int = 0
    absent: int = 0
    cut: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class RelayLimits:
    """Numbers are those of one relay process, times in seconds.

    ``connections``: of all kinds; ``unproven``: of those, who has not proved an identity, and for at most ``unproven_seconds``.
    ``pairs``: joined pairs of parties at a time; a pair holds at most 2 * (32 + 64) KiB of their bytes. ``pairs_of_two``: at a
    time, dialled by one of two parties to the other. ``parties_of_session``, ``sessions_of_identity``: who can be called.
    ``calls``: waiting for their receivers, and ``calls_of_identity`` by one caller.
    ``burst`` and ``rate``: connections that an identity may begin at once, and a second; ``burst_of_network`` and
    ``rate_of_network``: those of one network address before any proof.
    ``first_bytes``, ``first_seconds``: each of a pair must have sent so much in that time, else their handshake cannot be
    complete and the pair is cut; after ``failures`` such pairs a caller may call the same party ``failure_rate`` times a second.
    ``stalled_seconds``: a receiver that takes nothing
    for so long is cut off.
    """

    connections: int = 10_400
    unproven: int = 256
    unproven_seconds: float = 10.0
    pairs: int = 5000
    pairs_of_two: int = 2
    parties_of_session: int = 1024
    sessions_of_identity: int = 16
    calls: int = 5000
    calls_of_identity: int = 256
    burst: float = 1024.0
    rate: float = 64.0
    burst_of_network: float = 4096.0
    rate_of_network: float = 256.0
    first_bytes: int = 512
    first_seconds: float = 15.0
    failures: float = 8.0
    failure_rate: float = 0.5
    stalled_seconds: float = 120.0


class Buckets:
    """Token buckets by key. A full bucket is not kept, so memory is that of those who have come lately, and bounded besides."""

    def __init__(self, burst: float, rate: float, most: int = 65_536) -> None:
        self._burst, self._rate, self._most = burst, rate, most
        # Tokens, and when they were so many.
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def has(self, key: Hashable, now: float) -> bool:
        """Whether there is a token."""
        return self._level(key, now) >= 1.0

    def take(self, key: Hashable, now: float) -> bool:
        """Take a token, if there is one; whether there was."""
        if not self.has(key, now) or (key not in self._levels and len(self._levels) >= self._most):
            return False
        self._levels[key] = self._level(key, now) - 1.0, now
        return True

    def fine(self, key: Hashable, now: float, price: float) -> None:
        """Take so many, whether or not they are there, but never below none."""
        if key in self._levels or len(self._levels) < self._most:
            self._levels[key] = max(self._level(key, now) - price, 0.0), now

    def forget_full(self, now: float) -> None:
        self._levels = {key: (level, then) for key, (level, then) in self._levels.items() if self._level(key, now) < self._burst}

    def _level(self, key: Hashable, now: float) -> float:
        level, then = self._levels.get(key, (self._burst, now))
        return min(self._burst, level + (now - then) * self._rate)


@dataclass(frozen=True)
class Admission:
    """Who may use a relay.

    ``sessions``: by the tag of a sealed study's group, the keys (32 bytes) of its members; ``keys``: identities that may meet
    in any session; ``anybody``: anyone who proves any identity.
    """

    sessions: Mapping[bytes, frozenset[bytes]] = field(default_factory=dict)
    keys: frozenset[bytes] = frozenset()
    anybody: bool = False

    @classmethod
    def of(
        cls, sealed: Mapping[str, frozenset[bytes]], keys: frozenset[bytes] = frozenset(), *, anybody: bool = False
    ) -> Admission:
        """``sealed``: the members of sealed studies by their digests (hexadecimal)."""
        return cls({Group.of_session(digest).tag: members for digest, members in sealed.items()}, keys, anybody)

    def admits(self, group: bytes, key: bytes) -> bool:
        return self.anybody or key in self.keys or key in self.sessions.get(group, frozenset())


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
        # Once it has proved an identity, or is lost.
        self.settled = asyncio.Event()
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
        self.settled.set()
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
