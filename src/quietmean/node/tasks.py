"""Work in the background, each with an owner: an error that nobody takes is a node that lives on and answers nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeAlias, TypeVar

Result = TypeVar("Result")

Fail: TypeAlias = Callable[[BaseException], None]


def report_defect(error: BaseException) -> None:
    """Where nobody else can do anything about it: the event loop's handler says it."""
    asyncio.get_running_loop().call_exception_handler({"message": "a task in the background failed", "exception": error})


class Tasks:
    """Tasks of one owner; what one of them raises goes to ``fail``, and ``ended`` is called after each.

    In the order of their beginnings: they are cancelled in the same order each time.
    """

    def __init__(self, fail: Fail, ended: Callable[[], None] = lambda: None) -> None:
        self._fail = fail
        self._ended = ended
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._tasks))

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self._ended()

    def cancel(self) -> None:
        for task in self:
            task.cancel()

    async def stop(self) -> None:
        """Cancel all, and return when they have ended."""
        await stop_all(self)


async def stop_all(*owners: Tasks) -> None:
    """Cancel all tasks of these owners, and return when they have ended.

    They are cancelled before anything is waited for: also where the caller itself is cancelled at this moment, they end.
    """
    tasks = [task for owner in owners for task in owner]
    for owner in owners:
        owner.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def first_of(*works: Coroutine[Any, Any, Any], seconds: float | None = None) -> None:
    """Wait until one of these has ended, for so long at most; the others are cancelled. Raises what one that has ended raised."""
    running = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            if task.done():
                task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Supervisor:
    """The owner of work and of what goes on beside it: the first error of any of these ends the work."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._failed = asyncio.Event()

    @property
    def error(self) -> BaseException | None:
        return self._error

    def fail(self, error: BaseException) -> None:
        """Hand over what somebody else raised."""
        if self._error is None:
            self._error = error
            self._failed.set()

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What ``work`` returns. Raises its error, or the one that was handed over first, also before this began."""
        running, failed = asyncio.create_task(work), asyncio.create_task(self._failed.wait())
        try:
            await asyncio.wait({running, failed}, return_when=asyncio.FIRST_COMPLETED)
            if self._error is not None and not running.done():
                raise self._error
            return await running
        finally:
            for task in (running, failed):
                task.cancel()
            await asyncio.gather(running, failed, return_exceptions=True)
