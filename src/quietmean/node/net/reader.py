"""Frames put together from the bytes of one connection, and opened where they are sealed.

A sealed frame is ``4 bytes header length | 4 bytes payload length | AES-256-GCM of header and payload, 16 bytes longer``. The
lengths are those of what is sealed, and are authenticated with it. The nonce is the number of the frame in its direction of this
connection, which nobody sends: a frame that is repeated, left out, or moved does not open. Each direction of each connection has
a key of its own, so no number comes twice under one key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from quietmean.core.arrays import Array
from quietmean.core.errors import PeerError
from quietmean.core.grid import LARGEST_SHARE, from_units, on_grid, to_units
from quietmean.core.party import Vector
from quietmean.node.net.wire import PART, PREFIX, TAG, AnyFrame, Limits, Payload, decode_header

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
    return PeerError("a frame that the other end of this connection did not seal: somebody in between changed it")


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
                raise PeerError("a second long message before the first one was whole")
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
            raise PeerError("a part of no message")
        due = min(PART, self._size - self._filled)
        if size not in (0, due):
            raise PeerError(f"a part of {size} bytes where {due} were due")
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
        raise PeerError(f"a vector of {len(raw)} bytes in values of {width}, which is none of this study's")
    if width == 4:
        return from_units(np.frombuffer(raw, dtype="<i4"), grid)
    vector = np.frombuffer(raw, dtype="<f8").astype(np.float64, copy=False)
    # Any entry that is not finite makes this so; large finite ones can too, then every entry is checked.
    with np.errstate(all="ignore"):
        square = float(np.dot(vector, vector))
    if not math.isfinite(square) and not np.isfinite(vector).all():
        raise PeerError("a vector with an entry that is not finite")
    if grid and not on_grid(vector, grid):
        raise PeerError(f"a vector with an entry off the study's grid of {grid:g}, or beyond 2^53 of its steps")
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
