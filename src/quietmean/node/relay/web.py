"""A web server behind a front: strangers who only connect, or connect too often, keep nobody waiting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from quietmean.core.http_server import HTTP_SERVER
from quietmean.node.relay.front import Front, FrontLimits


class _Connection(H11Protocol):
    """One connection, which tells when it is lost."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.settled = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave its place to others."""
        self.settled.set()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Drop it at once."""
        # There is none before the handshake is over.
        if getattr(self, "transport", None) is not None:
            self.transport.abort()


class WebServer(uvicorn.Server):
    """Serves an application at a socket that listens; ``more``: keywords of :class:`uvicorn.Config`. ``signals``: whether it ends
    by Ctrl-C, for whoever has no handlers of signals.
    """

    def __init__(self, app: Any, listening: socket.socket, limits: FrontLimits, *, signals: bool, **more: Any) -> None:
        super().__init__(uvicorn.Config(app, http=H11Protocol, **HTTP_SERVER, **more))
        self._listening, self._limits, self._signals = listening, limits, signals

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture them where they are this server's."""
        with super().capture_signals() if self._signals else nullcontext():
            yield

    def serve_here(self) -> None:
        """Serve until it is told to stop, or by Ctrl-C."""
        self.run(sockets=[])

    async def startup(self, sockets: Any = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._front = Front(
            self._listening,
            lambda: _Connection(self.config, self.server_state, self.lifespan.state),
            self.config.ssl,
            self._limits,
        )
        self._front.start()

    async def shutdown(self, sockets: Any = None) -> None:
        """Stop listening, and answer what was begun."""
        self._front.close()
        await super().shutdown(sockets)
        await self._front.stop()
