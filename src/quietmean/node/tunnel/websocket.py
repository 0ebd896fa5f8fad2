"""The parts of WebSocket (RFC 6455) that a relay and its parties use: the upgrade, and binary frames as a stream of bytes.

Frames are read piece by piece as their bytes come, so that nobody has to keep a whole one. Text, extensions and reserved bits are
refused.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np

from quietmean.core.errors import InputError, PeerError
from quietmean.node.net import Address, Payload, format_address
from quietmean.randomness import fresh_bytes

CONTINUED: Final = 0x0
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA
# Longest payload of a frame that is read, and of one that is sent.
LONGEST_FRAME: Final = 1 << 20
PIECE: Final = 32 * 1024
# Longest payload of a close, ping or pong (RFC 6455, 5.5).
LONGEST_CONTROL: Final = 125
LONGEST_HEAD: Final = 8 * 1024
END_OF_HEAD: Final = b"\r\n\r\n"
# RFC 6455, 1.3.
_MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_EXTENDED = {126: 2, 127: 8}


class Piece(NamedTuple):
    """A part of a frame's payload, or all of it; ``begins`` and ``ends``: whether the frame does with it."""

    opcode: int
    content: bytes
    begins: bool
    ends: bool


@dataclass(frozen=True)
class FrameHead:
    """First line and headers of an HTTP message; names of headers in small letters."""

    first: tuple[str, ...]
    headers: dict[str, str]

    @classmethod
    def parse(cls, raw: bytes) -> FrameHead:
        """Read a frame head from all bytes before the empty line. Raises :class:`PeerError`."""
        first, *lines = raw.decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            name = name.strip().lower()
            if not colon or not name or name in headers:
                raise PeerError("it sent no proper HTTP")
            headers[name] = value.strip()
        return cls(tuple(first.split(" ", 2)), headers)

    def wants_websocket(self) -> bool:
        """Whether it asks for an upgrade to WebSocket, version 13."""
        tokens = {token.strip().lower() for token in self.headers.get("connection", "").split(",")}
        return (
            self.headers.get("upgrade", "").lower() == "websocket"
            and "upgrade" in tokens
            and self.headers.get("sec-websocket-version") == "13"
            and "sec-websocket-key" in self.headers
        )


def upgrade_request(host: str, path: str) -> tuple[bytes, str]:
    """The request that asks for WebSocket, and the ``Sec-WebSocket-Accept`` that the answer must have."""
    key = base64.b64encode(fresh_bytes(16)).decode()
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
    )
    return "\r\n".join(lines).encode() + END_OF_HEAD, accept_of(key)


def upgrade_answer(head: FrameHead) -> bytes:
    accept = accept_of(head.headers["sec-websocket-key"])
    lines = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Accept: {accept}")
    return "\r\n".join(lines).encode() + END_OF_HEAD


def accept_of(key: str) -> str:
    return base64.b64encode(hashlib.sha1(key.encode("latin-1") + _MAGIC, usedforsecurity=False).digest()).decode()


def frame(opcode: int, payload: Payload, *, masked: bool) -> bytes:
    """One whole frame. ``masked``: by a client, under a fresh key, as the standard asks for it."""
    size = len(payload)
    if size < 126:
        length = bytes([size | 0x80 * masked])
    elif size < 1 << 16:
        length = bytes([126 | 0x80 * masked]) + size.to_bytes(2, "big")
    else:
        length = bytes([127 | 0x80 * masked]) + size.to_bytes(8, "big")
    head = bytes([0x80 | opcode]) + length
    if not masked:
        return head + bytes(payload)
    key = fresh_bytes(4)
    return head + key + xored(payload, key, 0)


def xored(payload: Payload, key: bytes, offset: int) -> bytes:
    """``payload`` masked, or unmasked, where it begins at ``offset`` in its frame."""
    size = len(payload)
    turned = key[offset % 4 :] + key[: offset % 4]
    if size < 64:
        return bytes(byte ^ turned[index % 4] for index, byte in enumerate(payload))
    whole = size - size % 4
    words = np.frombuffer(payload, dtype="<u4", count=whole // 4) ^ np.frombuffer(turned, dtype="<u4")[0]
    masked: bytes = words.astype("<u4", copy=False).tobytes()
    return masked + bytes(byte ^ turned[index] for index, byte in enumerate(payload[whole:]))


class FrameParser:
    """Parses frames of a WebSocket.

    ``masked``: whether the other side's frames have to be, so whether it is a client.
    """

    def __init__(self, *, masked: bool) -> None:
        self._masked = masked
        self._head = bytearray()
        self._needed = 2
        # Of the frame whose payload is being read.
        self._opcode = -1
        self._key = b""
        self._size = self._read = 0
        self._control = bytearray()
        # Whether more frames of the same message are to come: only those of a message of ours.
        self._unfinished = False

    def feed(self, data: memoryview) -> Iterator[Piece]:
        """The pieces in the next bytes. Close, ping and pong come whole. Raises :class:`PeerError` for what is not allowed."""
        start = 0
        while start < len(data):
            if self._opcode < 0:
                taken = min(self._needed - len(self._head), len(data) - start)
                self._head += data[start : start + taken]
                start += taken
                if len(self._head) == self._needed:
                    self._parse_head()
                if self._opcode < 0 or self._size:
                    continue
                yield self._take(memoryview(b""))
                continue
            taken = min(self._size - self._read, len(data) - start)
            piece = data[start : start + taken]
            start += taken
            if self._opcode >= CLOSE:
                self._control += xored(piece, self._key, self._read) if self._masked else piece
                self._read += taken
                if self._read == self._size:
                    yield self._take_control()
                continue
            yield self._take(piece)

    def _take(self, piece: memoryview) -> Piece:
        if self._opcode >= CLOSE:
            return self._take_control()
        content = xored(piece, self._key, self._read) if self._masked else bytes(piece)
        begins = self._read == 0
        self._read += len(piece)
        ends = self._read == self._size
        opcode = self._opcode
        if ends:
            self._opcode = -1
        return Piece(opcode, content, begins, ends)

    def _take_control(self) -> Piece:
        piece = Piece(self._opcode, bytes(self._control), True, True)
        self._control.clear()
        self._opcode = -1
        return piece

    def _parse_head(self) -> None:
        head = self._head
        first, second = head[0], head[1]
        opcode, final, length = first & 0x0F, bool(first & 0x80), second & 0x7F
        if len(head) == 2:
            if first & 0x70:
                raise PeerError("a frame has reserved bits")
            if bool(second & 0x80) != self._masked:
                raise PeerError("a frame is masked where it must not be, or the other way round")
            if opcode not in (CONTINUED, BINARY, CLOSE, PING, PONG):
                raise PeerError(f"it sent a frame of kind {opcode} instead of a binary one")
            if opcode >= CLOSE and (not final or length > LONGEST_CONTROL):
                raise PeerError("a close, ping or pong is in parts, or too long")
            if opcode < CLOSE and (opcode == CONTINUED) != self._unfinished:
                raise PeerError("a message begins inside another, or goes on after its end")
            self._needed = 2 + _EXTENDED.get(length, 0) + 4 * self._masked
            if self._needed > 2:
                return
        extended = _EXTENDED.get(length, 0)
        size = int.from_bytes(head[2 : 2 + extended], "big") if extended else length
        if size > LONGEST_FRAME:
            raise PeerError(f"it sent a frame of {size} bytes, above the limit of {LONGEST_FRAME}")
        if opcode < CLOSE:
            self._unfinished = not final
        self._key = bytes(head[2 + extended :])
        self._opcode, self._size, self._read = opcode, size, 0
        self._head.clear()
        self._needed = 2


@dataclass(frozen=True)
class WebProxy:
    """A proxy of the web on the way to a relay.

    ``login``: user and password, or empty.
    """

    host: str
    port: int
    login: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        return format_address((self.host, self.port))


def is_loopback(host: str) -> bool:
    """Whether an address, or the name localhost, never leaves this machine."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def proxy_for(address: Address, environment: Mapping[str, str] = os.environ) -> WebProxy | None:
    """The proxy of ``https_proxy`` or ``HTTPS_PROXY``, unless ``no_proxy`` or ``NO_PROXY`` exempts the host; never for loopback.

    Raises :class:`InputError` for a proxy in a form that is not known.
    """
    host, _ = address
    text = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    if not text or is_loopback(host) or _exempt(host, environment.get("no_proxy") or environment.get("NO_PROXY") or ""):
        return None
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    # The text may hold a password: it is not shown.
    if parts.scheme != "http" or not parts.hostname or not port:
        raise InputError("the proxy in HTTPS_PROXY is not http://[USER:PASSWORD@]HOST:PORT. Write it so, or unset it.")
    login = "" if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return WebProxy(parts.hostname, port, login)


def _exempt(host: str, text: str) -> bool:
    host = host.lower().rstrip(".")
    for entry in (part.strip().lower() for part in text.split(",")):
        if entry == "*":
            return True
        name = entry.lstrip("*").lstrip(".").rpartition(":")[0] if entry.count(":") == 1 else entry.lstrip("*").lstrip(".")
        if name and (host == name or host.endswith(f".{name}") or _in_network(host, name)):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


async def connect_through(proxy: WebProxy, address: Address) -> socket.socket:
    """A socket at whose other end is ``address``. Raises OSError that says what the proxy answered."""
    connected = await _connected((proxy.host, proxy.port), f"nobody listens at the proxy {proxy.name}")
    try:
        await _ask(connected, proxy, format_address(address))
    except BaseException:
        connected.close()
        raise
    return connected


async def _ask(connected: socket.socket, proxy: WebProxy, target: str) -> None:
    loop = asyncio.get_running_loop()
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.login:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(proxy.login.encode()).decode()}")
    await loop.sock_sendall(connected, "\r\n".join(lines).encode() + END_OF_HEAD)
    answer = b""
    while END_OF_HEAD not in answer:
        more = await loop.sock_recv(connected, 4096)
        if not more or len(answer) > LONGEST_HEAD:
            raise ConnectionError(f"the proxy {proxy.name} closed the connection, or is not an HTTP proxy")
        answer += more
    status = answer.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    code = status[1] if len(status) > 1 else ""
    if code == "407":
        raise ConnectionError(f"the proxy {proxy.name} wants another login. Write it in HTTPS_PROXY (Basic only)")
    if code != "200" or not answer.endswith(END_OF_HEAD):
        shown = code if code.isdigit() and len(code) == 3 else "no HTTP"
        raise ConnectionError(f"the proxy {proxy.name} does not connect to {target} (its answer: {shown})")


async def _connected(address: Address, trouble: str) -> socket.socket:
    loop = asyncio.get_running_loop()
    last: OSError = ConnectionRefusedError(trouble)
    for family, kind, protocol, _, endpoint in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        trying = socket.socket(family, kind, protocol)
        trying.setblocking(False)
        try:
            await loop.sock_connect(trying, endpoint)
        except ConnectionRefusedError:
            trying.close()
        except OSError as error:
            trying.close()
            last = error
        except BaseException:
            trying.close()
            raise
        else:
            return trying
    raise last
