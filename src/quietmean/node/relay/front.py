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
from quietmean.node.relay.connection import Buckets, Counts
from quietmean.node.tasks import Tasks, report_defect

# Networks that are remembered before those are forgotten that did nothing lately.
_MANY = 4096
_SHUTDOWN_SECONDS = 1.0


class Guest(Protocol):
    """What speaks on a connection. ``settled`` is set once it is lost, or is no stranger any more and needs no place."""

    settled: asyncio.Event

    def abort(self) -> None:
        """Drop the connection, if there is one."""


@dataclass(frozen=True, kw_only=True)
class FrontLimits:
    """Strangers at a time; new connections of one network each second, after a burst; seconds for a handshake, and for all that a
    stranger does.
    """

    connections: int
    burst: float
    rate: float
    handshake: float
    longest: float


@dataclass(eq=False)
class _Place:
    """A stranger's connection at any stage, its TLS handshake included; ``accepted`` until a transport owns the socket."""

    guest: Any
    accepted: socket.socket | None
    task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            # One that has not begun never does.
            self.task.cancel()
        if self.accepted is not None:
            self.accepted.close()
        self.guest.abort()


class Front:
    """Accepts for a server whose protocols ``make`` gives, each a :class:`Guest`, once started. ``tls``: of the host; None for
    plain connections. ``full``: whether the server takes nobody at all now; ``counts``: of the server, which this one goes on.

    A network that connects too often is turned away at once. Where all places are taken, the oldest connection of the network
    with the most gives way.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], Any],
        tls: ssl.SSLContext | None,
        limits: FrontLimits,
        *,
        full: Callable[[], bool] = lambda: False,
        counts: Counts | None = None,
    ) -> None:
        self._make, self._tls, self._limits, self._full = make, tls, limits, full
        self.counts = counts or Counts()
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
        """End the connections of all strangers that are left."""
        for place in self._places:
            place.cancel()
        await self._tasks.stop()

    def _accepted(self, accepted: socket.socket, address: Any) -> None:
        now = asyncio.get_running_loop().time()
        # A socket of this machine's accounts has no addresses: all are one network.
        host = str(address[0]) if address else ""
        if len(self._networks) > _MANY:
            self._networks.forget_full(now)
        if self._full() or not self._networks.take(network_of(host), now):
            self.counts.refused += 1
            accepted.close()
            return
        self.counts.accepted += 1
        accepted.setblocking(False)
        with suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._places.full:
            oldest = self._places.next_to_evict()
            self._places.remove(oldest)
            oldest.cancel()
            self.counts.evicted += 1
        place = _Place(self._make(), accepted)
        self._places.add(place, host)
        place.task = self._tasks.spawn(self._host(place))

    async def _host(self, place: _Place) -> None:
        accepted, place.accepted = place.accepted, None
        if accepted is None:
            raise RuntimeError("a connection is hosted once")
        times: dict[str, float] = {}
        if self._tls is not None:
            times = {"ssl_handshake_timeout": self._limits.handshake, "ssl_shutdown_timeout": _SHUTDOWN_SECONDS}
        try:
            async with asyncio.timeout(self._limits.longest):
                # From here on the transport owns the socket, also where the handshake fails.
                await asyncio.get_running_loop().connect_accepted_socket(lambda: place.guest, accepted, ssl=self._tls, **times)
                await place.guest.settled.wait()
        except TimeoutError:
            self.counts.cut += 1
        except OSError:
            self.counts.refused += 1
        finally:
            self._places.remove(place)
            if not place.guest.settled.is_set():
                place.guest.abort()
