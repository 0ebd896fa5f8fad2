"""Requests of others that this party has not answered yet, by the round that they are about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from quietmean.core.party import PartyId

# So many requests of one party about rounds that this one has not begun are kept.
_HELD = 8


class OpenRequests:
    """``lost_some``: a request about a round that this party had not begun was dropped."""

    def __init__(self) -> None:
        self.lost_some = False
        self._rounds: dict[asyncio.Task[object], int] = {}
        self._held: dict[PartyId, list[asyncio.Task[object]]] = {}
        self._turned = asyncio.Event()

    @contextlib.contextmanager
    def about(self, number: int) -> Iterator[None]:
        """The request that this task answers is about this round."""
        task = _this_task()
        self._rounds[task] = number
        try:
            yield
        finally:
            del self._rounds[task]

    async def hold(self, sender: PartyId, early: Callable[[], bool]) -> None:
        """Until this party begins the round. Of one that it is not in, an old request is dropped for a new one.

        Without an answer its sender does not know whether it was used.
        """
        held, task = self._held.setdefault(sender, []), _this_task()
        if len(held) >= _HELD:
            self.lost_some = True
            held.pop(0).cancel()
        held.append(task)
        try:
            while early():
                await self._turned.wait()
        finally:
            if task in held:
                held.remove(task)

    def turn(self) -> None:
        """A round begins here."""
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def drop(self, number: int) -> None:
        """What is still unanswered about rounds up to this one is not answered any more."""
        for task in [task for task, asked in self._rounds.items() if asked <= number]:
            task.cancel()


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a request is answered outside of a task")
    return task
