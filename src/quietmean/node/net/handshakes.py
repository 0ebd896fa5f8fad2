"""Incoming connections whose handshake is in progress: a bounded number, with fair eviction by network."""

from __future__ import annotations

import ipaddress
import itertools
from asyncio import Task
from collections.abc import Iterator
from socket import socket
from typing import Generic, TypeVar

S = TypeVar("S")


class PendingHandshake:
    """An accepted connection that is not authenticated yet.

    A task that is cancelled before its first step cannot close the socket; until the task takes the socket, :meth:`cancel` closes
    it.
    """

    def __init__(self, accepted: socket, address: str) -> None:
        self.address = address
        self.task: Task[None] | None = None
        self._socket: socket | None = accepted

    def take_socket(self) -> socket:
        """The socket, which the caller closes from now on. RuntimeError if it was taken before."""
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
    """At most ``places`` handshakes at a time. Addresses are kept only while their handshakes last, so memory is bounded.

    No limit holds per address: all parties of a study may be behind one. When no place is left, the oldest handshake of the
    network with the most handshakes is evicted. A new connection is therefore accepted at once, and anyone who opens many
    connections evicts its own first.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._arrivals = itertools.count()
        # By network, oldest first.
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
        """The oldest handshake of the network with the most; of networks with equally many, the one with the oldest handshake."""
        fullest = max(self._by_network.values(), key=lambda handshakes: (len(handshakes), -next(iter(handshakes.values()))))
        return next(iter(fullest))

    def add(self, handshake: S, host: str) -> None:
        network = network_of(host)
        self._network_of[handshake] = network
        self._by_network.setdefault(network, {})[handshake] = next(self._arrivals)

    def remove(self, handshake: S) -> None:
        """Free its place, if it has one."""
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
