"""How many peers a party dials at a time: where a hundred share one machine, all at once would be too late for each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

# Handshakes at a time, and for how long one counts: peers that do not answer hold up nobody.
AT_ONCE, LONGEST = 4, 1.0


class Pace:
    """Turns at dialling: so many at a time, but for those that have lasted longer than ``longest`` seconds."""

    def __init__(self, at_once: int = AT_ONCE, longest: float = LONGEST) -> None:
        self._longest = longest
        self._free = asyncio.Semaphore(at_once)

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn. It ends with the body, or before it after the longest time."""
        await self._free.acquire()
        held = True

        def end() -> None:
            nonlocal held
            if held:
                held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._longest, end)
        try:
            yield
        finally:
            timer.cancel()
            end()
