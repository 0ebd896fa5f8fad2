"""What somebody has who recorded all connections and later breaks their TLS: all that was ever given to it, in clear."""

from __future__ import annotations

import asyncio.sslproto
import contextlib
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from quietmean.core.errors import PeerError
from quietmean.node.net.wire import AnyFrame, Differs, Hello, KeyAnswer, KeyOffer, Refused, decode_header

# What is never sealed.
_IN_CLEAR = (Hello, KeyOffer, KeyAnswer, Refused, Differs)
# Gets what is about to be sent and all that was sent before in this direction; None holds it back.
Change = Callable[[bytes, bytes], bytes | None]


class Direction:
    """One direction of one connection: what was given to TLS, one item for each time."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    @property
    def raw(self) -> bytes:
        return b"".join(self.pieces)


@contextlib.contextmanager
def recorded(change: Change = lambda data, before: data) -> Iterator[list[Direction]]:
    """While this lasts, all that any connection of this process sends inside TLS.

    ``change`` is what somebody in between does to it, who has the keys of both ends of TLS.
    """
    transport: Any = vars(asyncio.sslproto)["_SSLProtocolTransport"]
    original, directions = transport.write, []
    by_transport: dict[int, Direction] = {}
    kept: list[object] = []

    def write(self: Any, data: bytes | memoryview) -> None:
        if id(self) not in by_transport:
            kept.append(self)
            by_transport[id(self)] = Direction()
            directions.append(by_transport[id(self)])
        sent = by_transport[id(self)]
        changed = change(bytes(data), sent.raw)
        if changed is not None:
            sent.pieces.append(changed)
            original(self, changed)

    transport.write = write
    try:
        yield directions
    finally:
        transport.write = original


def frames_of(raw: bytes) -> Iterator[tuple[AnyFrame, bytes]]:
    """The frames that can be read from the beginning on, with their payloads; parts are put together by nobody here."""
    place = 0
    while place + 8 <= len(raw):
        header, payload = struct.unpack(">II", raw[place : place + 8])
        place += 8
        if header == 0:
            place += payload
            continue
        try:
            frame = decode_header(raw[place : place + header])
        except PeerError:
            return
        behind = payload if payload <= 65_536 - 24 else 0
        yield frame, raw[place + header : place + header + behind]
        place += header + behind


def opened(directions: Iterable[Direction], salts: Iterable[bytes], secrets: Iterable[bytes] = ()) -> list[AnyFrame]:
    """What somebody reads beyond greeting and exchange: what is in clear, and what a key opens that does not rest on ML-KEM.

    ``salts``: digests of transcripts, all of which is on the wire; ``secrets``: what else it has.
    """
    found: list[AnyFrame] = []
    everything = list(directions)
    exchanges = [frame for each in everything for frame, _ in frames_of(each.raw) if isinstance(frame, KeyOffer | KeyAnswer)]
    keys = list(_candidates([*secrets, *_seen(exchanges)], [b"", *salts]))
    for each in everything:
        found += [frame for frame, _ in frames_of(each.raw) if not isinstance(frame, _IN_CLEAR)]
        for place, piece in enumerate(each.pieces):
            found += _by_keys(piece, place, keys)
    return found


def _seen(handshakes: Iterable[AnyFrame]) -> Iterator[bytes]:
    """What a careless derivation might have taken for a secret: all of it is on the wire."""
    yield from (b"", bytes(32))
    for frame in handshakes:
        yield from (value for value in msgspec.structs.astuple(frame) if isinstance(value, bytes))


def _candidates(secrets: Iterable[bytes], salts: Iterable[bytes]) -> Iterator[bytes]:
    for secret, salt in itertools.product(secrets, salts):
        derived = HKDF(SHA256(), 64, salt=salt or None, info=b"quietmean link 1").derive(secret)
        yield from (derived[:32], derived[32:])
        if len(secret) == 32:
            yield secret


def _by_keys(piece: bytes, place: int, keys: Iterable[bytes]) -> Iterator[AnyFrame]:
    for key, number in itertools.product(keys, {place, max(place - 1, 0), max(place - 2, 0)}):
        with contextlib.suppress(InvalidTag, ValueError, PeerError):
            content = AESGCM(key).decrypt(number.to_bytes(12, "big"), piece[8:], piece[:8])
            header, _ = struct.unpack(">II", piece[:8])
            yield decode_header(content[:header])
