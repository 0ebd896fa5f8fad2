"""The front of a server for strangers: who only connects, or connects too often, keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from quietmean.node.net import Acceptor, HandshakePool, network_of
from quietmean.node.relay.connection import Buckets
from quietmean.node.tasks import Tasks, report_defect

# Networks that are remembered before those are forgotten that did nothing lately.
_MANY = 4096


class Guest(Protocol):
    """What speaks on a connection. ``over`` is set once the connection is lost; ``transport`` is None until it is there."""

    over: asyncio.Event
    transport: asyncio.Transport | None


@dataclass(frozen=True, kw_only=True)
class FrontLimits:
    """Connections at a time; new ones of one network each second, after a burst; seconds for a handshake, and for all of it."""

    connections: int
    burst: float
    rate: float
    handshake: float
    longest: float


@dataclass(eq=False)
class _Place:
    """A connection at any stage, its TLS handshake included."""

    guest: Any
    task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.guest.transport is not None:
            self.guest.transport.abort()


class Front:
    """Accepts for a server whose protocols ``make`` gives, once started. ``tls``: of the host; None for plain connections.

    A network that connects too often is turned away at once. Where all places are taken, the oldest connection of the network
    with the most gives way.
    """

    def __init__(
        self, listening: socket.socket, make: Callable[[], Any], tls: ssl.SSLContext | None, limits: FrontLimits
    ) -> None:
        self._make, self._tls, self._limits = make, tls, limits
        self._acceptor = Acceptor(listening, self._accepted)
        self._places: HandshakePool[_Place] = HandshakePool(limits.connections)
        self._networks = Buckets(limits.burst, limits.rate)
        # One stranger's handshake that fails in a way of its own must not end the service of all others.
        self._tasks = Tasks(report_defect)

    def start(self) -> None:
        """Begin to accept."""
        self._acceptor.start()

    def close(self) -> None:
        """Accept no more; the socket is closed."""
        self._acceptor.close()

    async def stop(self) -> None:
        """End all connections that are left."""
        await self._tasks.stop()

    def _accepted(self, accepted: socket.socket, address: Any) -> None:
        now = asyncio.get_running_loop().time()
        if len(self._networks) > _MANY:
            self._networks.forget_full(now)
        if not self._networks.take(network_of(str(address[0])), now):
            accepted.close()
            return
        accepted.setblocking(False)
        if self._places.full:
            oldest = self._places.next_to_evict()
            self._places.remove(oldest)
            oldest.cancel()
        place = _Place(self._make())
        self._places.add(place, str(address[0]))
        place.task = self._tasks.spawn(self._host(place, accepted))

    async def _host(self, place: _Place, accepted: socket.socket) -> None:
        seconds = None if self._tls is None else self._limits.handshake
        try:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(self._limits.longest):
                    # From here on the transport owns the socket, also where the handshake fails.
                    await asyncio.get_running_loop().connect_accepted_socket(
                        lambda: place.guest, accepted, ssl=self._tls, ssl_handshake_timeout=seconds
                    )
                    await place.guest.over.wait()
        finally:
            self._places.remove(place)
            if place.guest.transport is not None:
                place.guest.transport.abort()
            elif accepted.fileno() >= 0:
                # It was evicted before anything was done for it.
                accepted.close()
