"""A coroutine as a plain call, wherever it is called from."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


def blocking(coroutine: Coroutine[Any, Any, Result], loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> Result:
    """Runs it to its end, in a ``loop`` of this kind, and returns its result.

    Where an event loop runs already, as in a notebook, it is run by a loop of its own in a thread. Ctrl-C cancels it, and it ends
    what it has begun before this returns.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(coroutine, loop)
    return _InThread(coroutine, loop).result()


def _run(coroutine: Coroutine[Any, Any, Result], loop: Callable[[], asyncio.AbstractEventLoop] | None) -> Result:
    if loop is None:
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(coroutine)


class _InThread(Generic[Result]):
    def __init__(self, coroutine: Coroutine[Any, Any, Result], loop: Callable[[], asyncio.AbstractEventLoop] | None) -> None:
        self._coroutine, self._kind = coroutine, loop
        self._task: asyncio.Task[Any] | None = None
        self._begun = threading.Event()
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="quietmean", daemon=True)

    def result(self) -> Result:
        self._thread.start()
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self._cancel()
            self._thread.join()
            raise
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(_run(self._whole(), self._kind))
        except BaseException as error:
            # It is raised again where the result is asked for.
            self._error = error
        finally:
            self._begun.set()

    async def _whole(self) -> Result:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        return await self._coroutine

    def _cancel(self) -> None:
        self._begun.wait()
        if self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
