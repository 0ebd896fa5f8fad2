"""One TLS connection as bytes, read into their final buffer and encrypted in small pieces; and as frames, opened where sealed.

Streams of the standard library copy incoming data three times and outgoing data once as a whole. For vectors of a megabyte that
costs more than the encryption.

A sealed frame is ``4 bytes header length | 4 bytes payload length | AES-256-GCM of header and payload, 16 bytes longer``. The
lengths are those of what is sealed, and are authenticated with it. The nonce is the number of the frame in its direction of this
connection, which nobody sends: a frame that is repeated, left out, or moved does not open. Each direction of each connection has
a key of its own, so no number comes twice under one key.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from dataclasses import dataclass
from typing import Final, Protocol, cast

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import PeerError
from quietmean.core.grid import LARGEST_SHARE, from_units, on_grid, to_units
from quietmean.core.party import Vector
from quietmean.node.net.wire import PART, PREFIX, TAG, AnyFrame, Limits, Payload, decode_header

# What is longer is sent in pieces of this size, each encrypted and written while it is in the cache.
PIECE: Final = 64 * 1024
# What is longer is read into a buffer of its own. TLS records are no larger.
STAGE: Final = 16 * 1024


# A peer that is gone without a word, or a router on the way that forgot the connection, is noticed after about this (s).
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 40_000))


def _prepare(connected: socket.socket | None) -> None:
    """So that what is short is sent at once, and a connection of which nothing is left at the other end does not stay for hours.

    The loop does the former for sockets that it made; one that was accepted, it does not know to be of TCP.
    """
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class ByteStream(asyncio.BufferedProtocol):
    """One reader and one writer at a time. Both raise OSError, or EOFError, once the connection is lost."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # The peer's leaf, DER. It is read at once: after bytes that are no TLS the library has none any more.
        self.certificate: bytes | None = None
        # Allocated in connection_made, after the handshake: unauthenticated peers take no buffer.
        self._staged = memoryview(b"")
        self._begin = self._end = 0
        # Where a long read goes, and how much of it is there.
        self._target: memoryview | None = None
        self._filled = 0
        self._reading: asyncio.Future[None] | None = None
        self._paused = False
        self._writing: asyncio.Future[None] | None = None
        self._write_paused = False
        self._lost: Exception | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()

    async def readexactly(self, size: int, /) -> Payload:
        """The next ``size`` bytes. Raises EOFError where the stream ends before.

        An announced size reserves addresses, not memory: pages come into being as bytes arrive.
        """
        if size > STAGE:
            return await self._read_long(size)
        while self._end - self._begin < size:
            self._make_room(size)
            await self._more()
        self._begin += size
        return bytes(self._staged[self._begin - size : self._begin])

    async def _read_long(self, size: int) -> memoryview:
        target = np.empty(size, dtype=np.uint8).data
        staged = self._end - self._begin
        target[:staged] = self._staged[self._begin : self._end]
        self._begin = self._end = 0
        self._target, self._filled = target, staged
        try:
            while self._filled < size:
                await self._more()
        finally:
            self._target = None
        return target

    def _make_room(self, size: int) -> None:
        """So that ``size`` bytes fit from where reading stands."""
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._begin + size > STAGE:
            rest = bytes(self._staged[self._begin : self._end])
            self._staged[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)

    async def _more(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._reading = self._loop.create_future()
        if self._paused:
            self._paused = False
            self._connected.resume_reading()
        try:
            await self._reading
        finally:
            self._reading = None

    async def write(self, data: Payload) -> None:
        """Send, and return once the send buffer has room for more. What is given must not be changed any more."""
        if len(data) <= PIECE:
            await self._send(data)
            return
        view = memoryview(data)
        for begin in range(0, len(view), PIECE):
            await self._send(view[begin : begin + PIECE])

    @property
    def has_room(self) -> bool:
        """Whether the send buffer has room for more."""
        return self._lost is None and not self._write_paused

    def write_now(self, data: Payload) -> None:
        """Send without waiting, where there is room."""
        self._connected.write(data)

    async def _send(self, piece: Payload) -> None:
        if self._lost is not None:
            raise ConnectionResetError(str(self._lost))
        self._connected.write(piece)
        if self._write_paused:
            self._writing = self._loop.create_future()
            await self._writing

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Send what is still buffered and close; returns when the connection is closed."""
        if self._transport is not None:
            # A TLS transport that is closed twice can do nothing any more, not even be aborted (CPython 3.11).
            if not self._transport.is_closing():
                self._transport.close()
            await asyncio.shield(self._closed)

    @property
    def _connected(self) -> asyncio.Transport:
        if self._transport is None:
            raise ConnectionError("not connected")
        return self._transport

    # --- called by the event loop --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        _prepare(transport.get_extra_info("socket"))
        tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
        self.certificate = tls.getpeercert(True)
        self._staged = memoryview(bytearray(STAGE))
        transport.set_write_buffer_limits(high=PIECE)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._target is not None:
            return self._target[self._filled :]
        return self._staged[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._target is not None:
            self._filled += nbytes
            if self._filled < len(self._target):
                return
            # Data that arrive before the next read go to the staging buffer.
            self._target = None
        else:
            self._end += nbytes
            if self._end == STAGE:
                # No room left: the peer has to wait until somebody reads.
                self._paused = True
                self._connected.pause_reading()
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)

    def eof_received(self) -> None:
        self._end_with(EOFError("the stream has ended"))

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._writing is not None and not self._writing.done():
            self._writing.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end_with(error or EOFError("the connection was closed"))
        if not self._closed.done():
            self._closed.set_result(None)

    def _end_with(self, error: Exception) -> None:
        self._lost = self._lost or error
        if self._reading is not None and not self._reading.done():
            self._reading.set_exception(self._lost)
        if self._writing is not None and not self._writing.done():
            self._writing.set_exception(ConnectionResetError(str(self._lost)))


_NONCE: Final = 12


class FrameCipher:
    """One direction of one connection. ``key``: 32 bytes. Frames are sealed or opened in the order in which they are sent."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._number = 0

    def seal(self, head: bytes, payload: Payload) -> memoryview:
        """The bytes of a frame or part: ``head`` begins with its lengths."""
        lengths = head[: PREFIX.size]
        content = b"".join((head[PREFIX.size :], payload)) if len(head) > PREFIX.size else payload
        # Nothing is written to it twice.
        sealed = np.empty(PREFIX.size + len(content) + TAG, dtype=np.uint8).data
        sealed[: PREFIX.size] = lengths
        self._cipher.encrypt_into(self._next(), content, lengths, sealed[PREFIX.size :])
        return sealed

    def open(self, lengths: Payload, sealed: Payload) -> bytes:
        """What follows these lengths. Raises :class:`PeerError` for what was not sealed as the next frame of this direction."""
        try:
            return self._cipher.decrypt(self._next(), sealed, lengths)
        except InvalidTag:
            raise _forged() from None

    def open_into(self, lengths: Payload, sealed: Payload, buffer: memoryview) -> None:
        """Open a frame into ``buffer``, which is as long as the content."""
        try:
            self._cipher.decrypt_into(self._next(), sealed, lengths, buffer)
        except InvalidTag:
            raise _forged() from None

    def _next(self) -> bytes:
        number = self._number
        self._number += 1
        return number.to_bytes(_NONCE, "big")


def _forged() -> PeerError:
    return PeerError("it sent a frame that the other end of this connection did not seal. Somebody in between changed it")


class Reader(Protocol):
    """Where frames are read from."""

    async def readexactly(self, n: int, /) -> Payload: ...


class FrameReader:
    """Puts the frames of one connection together. ``cipher`` opens them, once they are sealed."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        # The message whose parts are coming, the size of its payload, and what is there of it.
        self._long: AnyFrame | None = None
        self._size = 0
        self._parts: memoryview | None = None
        self._filled = 0
        self.cipher: FrameCipher | None = None
        self.read = 0

    async def next(self, limits: Limits) -> tuple[AnyFrame, Payload]:
        """The next frame that is whole, and its payload; :attr:`read` counts the bytes.

        Raises :class:`PeerError`, and EOFError where the stream ends.
        """
        while True:
            lengths = await self._take(PREFIX.size)
            header_size, payload_size = PREFIX.unpack(lengths)
            if header_size == 0:
                if (whole := await self._take_part(lengths, payload_size)) is not None:
                    return whole
                continue
            limits.check(header_size, payload_size)
            frame, payload = await self._take_frame(lengths, header_size, payload_size, limits)
            if payload_size <= PART:
                return frame, payload
            if self._long is not None:
                raise PeerError("it sent a second long message before the first one was whole")
            self._long, self._size, self._filled = frame, payload_size, 0

    async def _take(self, size: int) -> Payload:
        taken = await self._reader.readexactly(size)
        self.read += size
        return taken

    async def _take_frame(
        self, lengths: Payload, header_size: int, payload_size: int, limits: Limits
    ) -> tuple[AnyFrame, Payload]:
        """A header, and a payload that is not announced only."""
        behind = payload_size if payload_size <= PART else 0
        if self.cipher is None:
            frame = decode_header(await self._take(header_size))
            limits.check_payload(frame, payload_size)
            return frame, await self._take(behind)
        content = self.cipher.open(lengths, await self._take(header_size + behind + TAG))
        frame = decode_header(content[:header_size])
        limits.check_payload(frame, payload_size)
        return frame, content[header_size:]

    async def _take_part(self, lengths: Payload, size: int) -> tuple[AnyFrame, Payload] | None:
        if self._long is None:
            raise PeerError("it sent a part of no message")
        due = min(PART, self._size - self._filled)
        if size not in (0, due):
            raise PeerError(f"it sent a part of {size} bytes instead of {due}")
        part = await self._take(size if self.cipher is None else size + TAG)
        if size == 0:
            if self.cipher is not None:
                self.cipher.open(lengths, part)
            self._long, self._parts = None, None
            return None
        if self._parts is None:
            # An announced size reserves addresses, not memory: pages come into being as bytes arrive.
            self._parts = np.empty(self._size, dtype=np.uint8).data
        buffer = self._parts[self._filled : self._filled + size]
        if self.cipher is None:
            buffer[:] = part
        else:
            self.cipher.open_into(lengths, part, buffer)
        self._filled += size
        if self._filled < self._size:
            return None
        whole = self._long, self._parts
        self._long, self._parts = None, None
        return whole


async def read_frame(reader: Reader, limits: Limits) -> tuple[AnyFrame, Payload, int]:
    """One frame, its payload and the bytes of both, where nothing else comes between its parts. Raises as a FrameReader does."""
    frames = FrameReader(reader)
    frame, payload = await frames.next(limits)
    return frame, payload, frames.read


def encode_vector(vector: Vector, grid: float = 0.0) -> memoryview:
    """The bytes of a vector of shape (d,): int32 steps of ``grid``, 4 bytes each, if there is a grid and all steps fit.

    Else float64, 8 bytes each, not copied. Only releases can have steps that need more than 32 bits; float64 holds them exactly.
    """
    if grid and on_grid(vector, grid):
        units = to_units(vector, grid)
        if np.abs(units).max(initial=0) <= LARGEST_SHARE:
            return _bytes_of(units.astype("<i4"))
    return _bytes_of(np.ascontiguousarray(vector, dtype="<f8"))


def _bytes_of(array: Array | NDArray[np.int32]) -> memoryview:
    # A memoryview of no items could not be cast.
    raw: NDArray[np.uint8] = array.reshape(-1).view(np.uint8)
    return raw.data


def decode_vector(raw: Payload, width: int = 8, grid: float = 0.0) -> Vector:
    """The vector, shape (d,). ``width``: bytes per number, 4 or 8.

    Raises :class:`PeerError` unless all numbers are finite and, if there is a grid, on it.
    """
    if len(raw) % width or (width != 8 and not grid):
        raise PeerError(f"it sent a vector of {len(raw)} bytes in values of {width}, which is not of this study")
    if not len(raw):
        # Of most messages of a protocol with a content of its own.
        return np.empty(0)
    if width == 4:
        return from_units(np.frombuffer(raw, dtype="<i4"), grid)
    vector = np.frombuffer(raw, dtype="<f8").astype(np.float64, copy=False)
    # Any entry that is not finite makes this so; large finite ones can too, then every entry is checked.
    with np.errstate(all="ignore"):
        square = float(np.dot(vector, vector))
    if not math.isfinite(square) and not np.isfinite(vector).all():
        raise PeerError("it sent a vector with an entry that is not finite")
    if grid and not on_grid(vector, grid):
        raise PeerError(f"it sent a vector with an entry off the study's grid of {grid:g}, or beyond 2^53 of its steps")
    return vector


@dataclass(frozen=True, slots=True)
class VectorCodec:
    """The vectors of one study: ``dimension`` values each, on a grid of step ``grid`` if that is not 0."""

    dimension: int
    grid: float = 0.0

    def encode(self, vector: Vector) -> memoryview:
        """The bytes of a vector of shape (dimension,): see :func:`encode_vector`."""
        return encode_vector(vector, self.grid)

    def width(self, raw: Payload) -> int:
        """Bytes per number in what :meth:`encode` returned, from its length."""
        return 4 if self.grid and raw and len(raw) == 4 * self.dimension else 8

    def decode(self, raw: Payload) -> Vector:
        return decode_vector(raw, self.width(raw), self.grid)
