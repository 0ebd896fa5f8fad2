"""One server for all contributors of a study, until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from quietmean.core.http_server import HTTP_SERVER
from quietmean.drop.app import Drop
from quietmean.node.net import Address
from quietmean.node.relay import open_entrance
from quietmean.node.tasks import Supervisor, Tasks


@dataclass(frozen=True)
class DropServer:
    """Listens on ``address``. ``certificate``: of the host, and its private key; None for plain HTTP."""

    drop: Drop
    address: Address
    certificate: tuple[Path, Path] | None

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        """Serve until the event is set: what was begun is answered then.

        Raises :class:`InputError` for an address that it cannot listen on.
        """
        supervisor = Supervisor()
        beside = Tasks(supervisor.fail)
        server = _Server(self._config())

        async def until_stopped() -> None:
            await stop.wait()
            server.should_exit = True

        with open_entrance(self.address) as listening:
            beside.spawn(self.drop.write_down())
            beside.spawn(until_stopped())
            ready()
            try:
                await supervisor.run(server.serve(sockets=[listening]))
            finally:
                await beside.stop()

    def _config(self) -> uvicorn.Config:
        chain, key = self.certificate or (None, None)
        limits = self.drop.limits
        return uvicorn.Config(
            self.drop.app(),
            http=_bounded(limits.connections, limits.slow),
            ssl_certfile=chain,
            ssl_keyfile=key,
            limit_concurrency=limits.connections,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=10,
            **HTTP_SERVER,
        )


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: anyone who runs the server has handlers of its own."""
        yield


def _bounded(connections: int, seconds: float) -> type[H11Protocol]:
    """Bound the server's connections: no more than that many, and none for longer."""

    class Bounded(H11Protocol):
        end: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            if len(self.connections) >= connections:
                transport.abort()
                return
            super().connection_made(transport)
            self.end = asyncio.get_running_loop().call_later(2 * seconds, transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.end is not None:
                self.end.cancel()
                super().connection_lost(exc)

    return Bounded
