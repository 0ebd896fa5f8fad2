"""An event loop whose clock jumps: who sleeps is woken at once, at the time that the clock then shows.

A study that takes minutes of time-outs runs in milliseconds, and always in the same order.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from quietmean.core.blocking import blocking

Result = TypeVar("Result")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time passes only while nothing is ready to run. No sockets and no threads: nothing from outside would wake it."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now

    def jump(self, seconds: float) -> None:
        self._now += seconds


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody else, and no time-out is running: this would last for ever")
        self._loop.jump(max(timeout, 0.0))
        return super().select(0)


def run_virtually(main: Coroutine[Any, Any, Result]) -> Result:
    """What it returns, in virtual time."""
    return blocking(main, VirtualTimeLoop)
