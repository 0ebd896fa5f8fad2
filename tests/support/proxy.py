"""A bad network between the processes of a local run: TCP proxies that delay, stall and cut, and partition on command.

A proxy cannot drop a packet: TCP would send it again. What a lost packet looks like from above is a pause, of about a
retransmission time-out, and then everything in order; now and then it is a connection that is gone. That is what is done here,
for each chunk that is read, in each direction on its own. A partition holds back everything, also what is already on its way;
when it ends, it arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from quietmean.core.party import PartyId
from quietmean.node.net import Address
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed

_LOOPBACK = "127.0.0.1"
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class ProxyConditions:
    """Seconds are uniform between two bounds, probabilities are per chunk.

    ``delay``: of each direction of each connection, the same for all its chunks, so that their order is kept. ``stall``: how
    long a chunk waits that was "lost" with probability ``loss``, on top of the delay; it holds up all behind it. ``reset``: the
    connection is cut, and what is on its way with it. ``twice``: the chunk arrives twice, which no TCP does and an adversary may.
    """

    seed: int = 0
    delay: tuple[float, float] = (0.02, 0.2)
    loss: float = 0.05
    stall: tuple[float, float] = (0.2, 1.0)
    reset: float = 0.005
    twice: float = 0.0


# A network that does nothing to what passes.
GOOD = ProxyConditions(delay=(0.0, 0.0), loss=0.0, reset=0.0)


@dataclass
class ProxyReport:
    """What happened so far; ``largest`` is the most connections at once."""

    connections: int = 0
    largest: int = 0
    chunks: int = 0
    bytes: int = 0
    stalls: int = 0
    resets: int = 0
    twice: int = 0


class BadNetwork:
    """One proxy for each ordered pair of parties. Pass :meth:`between` to ``run_local`` as its ``proxies``."""

    def __init__(self, conditions: ProxyConditions) -> None:
        self.report = ProxyReport()
        self.conditions = conditions
        self._rng = BitStream(insecure_seed(conditions.seed, "roads"))
        self._side: frozenset[PartyId] = frozenset()
        self._whole = asyncio.Event()
        self._whole.set()
        self._open: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def between(self, listening: Sequence[Address]) -> AsyncIterator[Sequence[Sequence[Address]]]:
        """Where each party is to dial the others; to itself it dials straight."""
        async with contextlib.AsyncExitStack() as stack:
            dialled = []
            for sender in range(len(listening)):
                row = list(listening)
                for receiver in range(len(listening)):
                    if receiver != sender:
                        row[receiver] = await self._serve(stack, sender, receiver, listening[receiver])
                dialled.append(row)
            try:
                yield dialled
            finally:
                await self._let_go()

    @contextlib.asynccontextmanager
    async def before(self, places: Mapping[PartyId, tuple[int, Address]]) -> AsyncIterator[None]:
        """A proxy before each party, at a port where whoever dials finds it, and where it listens; who dials is not known."""
        async with contextlib.AsyncExitStack() as stack:
            for receiver, (port, listening) in places.items():
                await self._serve(stack, -1, receiver, listening, port)
            try:
                yield
            finally:
                await self._let_go()

    async def cut(self, *, reset: bool) -> None:
        """All connections end now, as those of a process that is gone do, or by a reset."""
        for writer in list(self._writers):
            if reset:
                _reset(writer)
            writer.transport.abort()
        await self._let_go()

    async def _let_go(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def separate(self, side: frozenset[PartyId]) -> None:
        """From now on nothing passes between the parties of ``side`` and the others."""
        self._side = side
        self._whole.clear()

    def rejoin(self) -> None:
        """The partition is over; what was held back goes on its way."""
        self._side = frozenset()
        self._whole.set()

    async def _serve(
        self, stack: contextlib.AsyncExitStack, sender: PartyId, receiver: PartyId, target: Address, port: int = 0
    ) -> Address:
        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # The server's own task, which it would not end by itself when it closes.
            task = asyncio.current_task()
            if task is not None:
                self._open.add(task)
                task.add_done_callback(self._open.discard)
            await self._carry((sender, receiver), target, reader, writer)

        server = await stack.enter_async_context(await asyncio.start_server(carry, _LOOPBACK, port))
        host, bound = server.sockets[0].getsockname()
        return host, bound

    async def _carry(
        self, pair: tuple[PartyId, PartyId], target: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, both directions, until either end is gone."""
        self.report.connections += 1
        self.report.largest = max(self.report.largest, len(self._open))
        writers = [writer]
        self._writers.add(writer)
        try:
            await self._passage(pair)
            far_reader, far_writer = await asyncio.open_connection(*target)
            writers.append(far_writer)
            self._writers.add(far_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._one_way(pair, reader, far_writer))
                both.create_task(self._one_way(pair, far_reader, writer))
        except* (OSError, EOFError):
            pass
        except* asyncio.CancelledError:
            # The end of the run; the task has nothing else to do than to let go.
            pass
        finally:
            for open_writer in writers:
                open_writer.transport.abort()
                self._writers.discard(open_writer)

    async def _one_way(self, pair: tuple[PartyId, PartyId], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Chunks in order, each after its delay. Raises EOFError at the end, which ends the other direction too."""
        loop = asyncio.get_running_loop()
        delay = self._between(self.conditions.delay)
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)

        async def deliver() -> None:
            while True:
                due, chunk = await under_way.get()
                await asyncio.sleep(due - loop.time())
                if self._happens(self.conditions.loss):
                    self.report.stalls += 1
                    await asyncio.sleep(self._between(self.conditions.stall))
                if self._happens(self.conditions.reset):
                    self.report.resets += 1
                    raise ConnectionResetError("cut on the way")
                await self._passage(pair)
                if not chunk:
                    raise EOFError
                self.report.chunks += 1
                self.report.bytes += len(chunk)
                writer.write(chunk)
                if self._happens(self.conditions.twice):
                    self.report.twice += 1
                    writer.write(chunk)
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(deliver())
            while True:
                chunk = await reader.read(_CHUNK)
                await under_way.put((loop.time() + delay, chunk))
                if not chunk:
                    break

    async def _passage(self, pair: tuple[PartyId, PartyId]) -> None:
        while (pair[0] in self._side) != (pair[1] in self._side):
            await self._whole.wait()

    def _between(self, bounds: tuple[float, float]) -> float:
        low, high = bounds
        return low + (high - low) * float(self._rng.uniform(1)[0])

    def _happens(self, probability: float) -> bool:
        return probability > 0 and float(self._rng.uniform(1)[0]) < probability


def _reset(writer: asyncio.StreamWriter) -> None:
    """The other end is told that the connection was broken, instead of its end."""
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
