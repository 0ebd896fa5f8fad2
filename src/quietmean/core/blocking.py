"""A coroutine as a plain call, wherever it is called from."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


def blocking(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs it to its end and returns its result.

    Where an event loop runs already, as in a notebook, it is run by a loop of its own in a thread. Ctrl-C cancels it, and it ends
    what it has begun before this returns.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    return _InThread(coroutine).result()


class _InThread(Generic[Result]):
    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        self._coroutine = coroutine
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
            self._results.append(asyncio.run(self._whole()))
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
