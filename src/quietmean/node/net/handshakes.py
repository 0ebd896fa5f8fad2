"""The places of those whose handshake is not over, and who gives way when all are taken."""

from __future__ import annotations

import ipaddress
import itertools
from asyncio import Task
from collections.abc import Iterator
from socket import socket
from typing import Generic, TypeVar

S = TypeVar("S")


class PendingHandshake:
    """Somebody at the door.

    A task that is cancelled before its first step could not close the socket: until then it is here that it gets closed.
    """

    def __init__(self, accepted: socket, address: str) -> None:
        self.address = address
        self.task: Task[None] | None = None
        self._socket: socket | None = accepted

    def take_socket(self) -> socket:
        """Whoever calls this sees to the socket from now on."""
        accepted, self._socket = self._socket, None
        if accepted is None:
            raise RuntimeError("the socket is somebody else's already")
        return accepted

    def cancel(self) -> None:
        if self._socket is not None:
            self.take_socket().close()
        if self.task is not None:
            self.task.cancel()


class HandshakePool(Generic[S]):
    """At most ``places`` strangers at a time. Where they come from is known of those that are here only, so memory is bounded.

    No address has a limit of its own: all parties of a study may sit behind one. When no place is left, the oldest stranger of
    the network that holds the most places gives way. So whoever arrives is let in at once, and whoever opens many connections
    turns out itself first.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._arrivals = itertools.count()
        # Oldest first, in each network.
        self._by_network: dict[str, dict[S, int]] = {}
        self._network_of: dict[S, str] = {}

    def __len__(self) -> int:
        return len(self._network_of)

    def __iter__(self) -> Iterator[S]:
        return iter(tuple(self._network_of))

    @property
    def full(self) -> bool:
        return len(self) >= self.places

    def next_to_evict(self) -> S:
        """The oldest of the network with the most places; of networks with equally many, that of the oldest stranger."""
        fullest = max(self._by_network.values(), key=lambda handshakes: (len(handshakes), -next(iter(handshakes.values()))))
        return next(iter(fullest))

    def add(self, handshake: S, host: str) -> None:
        network = network_of(host)
        self._network_of[handshake] = network
        self._by_network.setdefault(network, {})[handshake] = next(self._arrivals)

    def remove(self, handshake: S) -> None:
        """Its place is free; nothing happens where it has none."""
        network = self._network_of.pop(handshake, None)
        if network is not None:
            handshakes = self._by_network[network]
            del handshakes[handshake]
            if not handshakes:
                del self._by_network[network]


def network_of(host: str) -> str:
    """An IPv4 address, or the /64 of an IPv6 address: one host may use all addresses of the latter."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
