"""Bytes over one TLS connection, read straight into their final buffer and encrypted in pieces that fit the processor cache.

Streams of the standard library copy incoming data three times and outgoing data once as a whole. For vectors of a megabyte that
costs more than the encryption.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Final, cast

import numpy as np

from quietmean.node.net.wire import Payload

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

    @property
    def certificate(self) -> bytes | None:
        """The peer's leaf, DER."""
        tls: ssl.SSLObject = self._connected.get_extra_info("ssl_object")
        return tls.getpeercert(True)

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
