"""The process that owns a port: it looks at what connections say first, without reading it, and hands them over."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quietmean.node.net import Acceptor, HandshakePool, hand_over, socket_name_in
from quietmean.node.port.hello import MOST, Undecided, server_name

# Pause after an incomplete greeting (s), doubled each time: what has come is not read, so the system cannot tell when there is
# more.
_FIRST_LOOK: Final = 0.01


@dataclass(frozen=True)
class PortLimits:
    """``undecided``: connections at a time that have not said whom they ask for, and ``undecided_of_network`` of one network
    address; each for at most ``seconds``. Where there is no place the oldest one goes, of the busiest address.
    """

    undecided: int = 256
    undecided_of_network: int = 64
    seconds: float = 2.0


@dataclass
class PortCounts:
    """Since the start; nothing about anybody.

    ``absent``: asked for a party that is not there; ``refused``: was none of a party, or ended; ``late``: did not say in time
    whom it asks for; ``evicted``: gave way to others.
    """

    accepted: int = 0
    handed_over: int = 0
    absent: int = 0
    refused: int = 0
    late: int = 0
    evicted: int = 0


class _Undecided:
    """A connection that has not said yet whom it asks for."""

    def __init__(self, connected: socket.socket, until: float) -> None:
        self.socket = connected
        self.until = until
        self.pause = _FIRST_LOOK
        self.timer: asyncio.TimerHandle | None = None


class PortServer:
    """Serves until stopped, the processes that have a socket in ``folder``. Nothing is read, kept or written."""

    def __init__(self, listening: socket.socket, folder: Path, limits: PortLimits | None = None) -> None:
        self.limits = limits or PortLimits()
        self.counts = PortCounts()
        self._acceptor = Acceptor(listening, lambda accepted, address: self._begin(accepted, str(address[0])))
        self._folder = folder
        self._undecided: HandshakePool[_Undecided] = HandshakePool(self.limits.undecided)
        # One buffer for all connections: what is seen is judged before the next one is looked at.
        self._seen = memoryview(bytearray(MOST))

    async def run(self, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Until ``stop`` is set; connections that were handed over live on."""
        self._acceptor.start()
        ready()
        try:
            await stop.wait()
        finally:
            self._acceptor.close()
            for caller in self._undecided:
                self._close(caller)

    # --- accepting -----------------------------------------------------------------------------------------------------

    def _begin(self, connected: socket.socket, host: str) -> None:
        connected.setblocking(False)
        self.counts.accepted += 1
        pool = self._undecided
        crowd = pool.of_network(host)
        if len(crowd) >= self.limits.undecided_of_network:
            self._evict(crowd[0])
        elif pool.full:
            self._evict(pool.next_to_evict())
        loop = asyncio.get_running_loop()
        caller = _Undecided(connected, loop.time() + self.limits.seconds)
        pool.add(caller, host)
        self._wait(caller)

    def _evict(self, caller: _Undecided) -> None:
        self.counts.evicted += 1
        self._close(caller)

    # --- deciding ------------------------------------------------------------------------------------------------------

    def _wait(self, caller: _Undecided) -> None:
        """Until it has sent something, or its time is over."""
        loop = asyncio.get_running_loop()
        loop.add_reader(caller.socket, self._look, caller)
        caller.timer = loop.call_at(caller.until, self._look, caller)

    def _look(self, caller: _Undecided) -> None:
        loop = asyncio.get_running_loop()
        self._rest(caller)
        late = loop.time() >= caller.until
        try:
            size = caller.socket.recv_into(self._seen, MOST, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            if late:
                self.counts.late += 1
                self._close(caller)
            else:
                self._wait(caller)
            return
        except OSError:
            size = 0
        name = server_name(self._seen[:size]) if size else Undecided.NONE
        if name is Undecided.MORE and not late and size < MOST:
            # Not woken by what is there already.
            caller.timer = loop.call_at(min(loop.time() + caller.pause, caller.until), self._look, caller)
            caller.pause *= 2
            return
        if isinstance(name, str):
            self._hand_over(caller, name)
        elif name is Undecided.MORE:
            self.counts.late += 1
        else:
            self.counts.refused += 1
        self._close(caller)

    def _hand_over(self, caller: _Undecided, name: str) -> None:
        # Nothing but a label gets as far as the file system.
        socket_name = socket_name_in(name)
        if socket_name is None:
            self.counts.refused += 1
        elif hand_over(self._folder, socket_name, caller.socket):
            self.counts.handed_over += 1
        else:
            self.counts.absent += 1

    def _rest(self, caller: _Undecided) -> None:
        asyncio.get_running_loop().remove_reader(caller.socket)
        if caller.timer is not None:
            caller.timer.cancel()
            caller.timer = None

    def _close(self, caller: _Undecided) -> None:
        if caller.socket.fileno() >= 0:
            self._rest(caller)
            self._undecided.remove(caller)
            with contextlib.suppress(OSError):
                caller.socket.close()
