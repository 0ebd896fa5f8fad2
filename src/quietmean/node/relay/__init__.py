"""The blind relay: joins two parties that both dial out, and passes on the bytes of their own TLS, which it cannot read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from quietmean.core.errors import InputError, named
from quietmean.core.portability import allow_descriptors
from quietmean.node.net import Address, format_address, parse_address
from quietmean.node.relay.connection import WRITE_BUFFER, Admission, Buckets, RelayConnection, RelayLimits
from quietmean.node.relay.exchange import RelayExchange
from quietmean.node.relay.front import Front, FrontLimits

if TYPE_CHECKING:
    from quietmean.node.relay.web import WebServer as WebServer

# Descriptors that a process has besides its connections.
_OTHER_DESCRIPTORS: Final = 64
_QUEUE: Final = 1024
_ANY_HOST: Final = "0.0.0.0"  # noqa: S104


def parse_entrance(text: str) -> Address:
    """HOST:PORT, or :PORT for all addresses of this machine, whose host is then empty. Raises :class:`InputError`."""
    if text.startswith(":") and text.count(":") == 1:
        return "", parse_address(f"{_ANY_HOST}{text}")[1]
    return parse_address(text)


def open_entrance(address: Address) -> socket.socket:
    """Bind and listen. Raises :class:`InputError` if that is not possible."""
    host, port = address
    both = not host and socket.has_dualstack_ipv6()
    try:
        family = socket.getaddrinfo(host or _ANY_HOST, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server(address, family=socket.AF_INET6 if both else family, backlog=_QUEUE, dualstack_ipv6=both)
    except OSError as error:
        raise InputError(
            f"cannot listen on {format_address((host or _ANY_HOST, port))} ({error.strerror}). Stop what uses it, choose another "
            f"address or port with {named('listen')}, or allow this account to use ports below 1024."
        ) from None


def outer_tls(certificate: Path, private_key: Path) -> ssl.SSLContext:
    """The context for the ordinary TLS around everything. Raises :class:`InputError` that names the file."""
    for path in (certificate, private_key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}). Check the path and its rights.") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A passphrase would be asked for at a terminal, which a service does not have.
        context.load_cert_chain(certificate, private_key, password=lambda: b"")
    except (ssl.SSLError, ValueError):
        raise InputError(
            f"{certificate} and {private_key} are not a certificate and its key without a passphrase. Give both as PEM files."
        ) from None
    return context


def web_server(app: Any, listening: Any, limits: FrontLimits, *, signals: bool = False, **more: Any) -> WebServer:
    """A server of an application, behind a front, which needs uvicorn: see :class:`~quietmean.node.relay.web.WebServer`."""
    from quietmean.node.relay.web import WebServer

    return WebServer(app, listening, limits, signals=signals, **more)


def connections_possible(count: int) -> int:
    """How many connections are possible: so many, or what the system lets this process have; its own limit is raised for it."""
    return allow_descriptors(count + _OTHER_DESCRIPTORS) - _OTHER_DESCRIPTORS


_SWEEP_SECONDS = 1.0
# At the end parties are informed, and who takes longer to read that is dropped.
_GOODBYE_SECONDS = 2.0


class RelayServer:
    """Serves until stopped. ``tls``: the outer TLS; without it plain WebSocket, behind a TLS front or on loopback.

    Nothing is kept in files: parties come back by themselves after a restart.
    """

    def __init__(
        self,
        listening: socket.socket,
        admission: Admission,
        limits: RelayLimits | None = None,
        tls: ssl.SSLContext | None = None,
        names: Iterable[str] = (),
    ) -> None:
        self.limits = limits or RelayLimits()
        self._tls = tls
        self.exchange = RelayExchange(admission, self.limits, names)
        front = FrontLimits(
            connections=self.limits.unproven,
            burst=self.limits.burst_of_network,
            rate=self.limits.rate_of_network,
            handshake=self.limits.unproven_seconds,
            # The exchange ends those who are connected and prove nothing.
            longest=3 * self.limits.unproven_seconds,
        )
        self._front = Front(listening, self._connection, tls, front, full=self._is_full, counts=self.exchange.counts)

    async def run(self, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until ``stop`` is set; then everybody is informed, and the sockets are closed."""
        if self._tls is not None:
            _keep_tls_buffers_small()
        try:
            self._front.start()
            ready()
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_SWEEP_SECONDS):
                        await stop.wait()
                self.exchange.sweep()
        finally:
            await self._close()

    async def _close(self) -> None:
        self._front.close()
        await self._front.stop()
        self.exchange.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                while self.exchange.connections:
                    await asyncio.sleep(0.02)
        for connection in list(self.exchange.connections):
            connection.abort()
        await asyncio.sleep(0)

    def _is_full(self) -> bool:
        return len(self.exchange.connections) >= self.limits.connections

    def _connection(self) -> RelayConnection:
        return RelayConnection(self.exchange)


def _keep_tls_buffers_small() -> None:
    """Each TLS connection of asyncio has a buffer of 256 KiB for what it receives, and no setting for it."""
    sslproto.SSLProtocol.max_size = WRITE_BUFFER


__all__ = [
    "Admission",
    "Buckets",
    "Front",
    "FrontLimits",
    "RelayLimits",
    "RelayServer",
    "connections_possible",
    "open_entrance",
    "outer_tls",
    "parse_entrance",
    "web_server",
]
