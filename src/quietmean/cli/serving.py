"""Commands that serve others until they are stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

from quietmean.core.few_lines import keep_logs_short


class PageServer(Protocol):
    """What runs until the event is set, and calls ``ready`` once it listens."""

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None: ...


async def serve(server: PageServer, ready: Callable[[], None]) -> None:
    """Until SIGINT or SIGTERM: the end that its operator wants, so no failure."""
    # The event loop reports each broken connection.
    keep_logs_short("asyncio", "quietmean.node")
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await server.run(stop, ready)
