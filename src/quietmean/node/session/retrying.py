"""Through an outage of this machine: a session that its disk or memory ended is begun anew, as after the death of a process.

Nothing else is certain: after an error nobody knows what is on the disk, and what was handed to the session before may be lost.
What is on the disk counts, those who were not answered send again, and the rest is as it is with a process that is started again.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from quietmean.core.errors import StorageError
from quietmean.core.outage import outage_of
from quietmean.node.monitor import Report, Stalled, iso_time
from quietmean.node.session.context import LONGEST_WAIT
from quietmean.node.session.settings import NodeSettings

Result = TypeVar("Result")

_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0


class RetryPolicy:
    """How long a party waits for its own machine, in all: as long as others may wait for a party."""

    def __init__(self, report: Report, settings: NodeSettings) -> None:
        self._report, self._settings = report, settings
        self._left = max(settings.waits.start, LONGEST_WAIT * settings.waits.round)
        self._pause = _FIRST_PAUSE
        self._reported = ""

    async def wait(self, outage: StorageError) -> None:
        """Wait a little while, longer each time. Raises the outage once patience is over."""
        if self._left <= 0:
            raise outage
        if str(outage) != self._reported:
            self._reported = str(outage)
            self._report(Stalled(str(outage), self._settings.room(), iso_time(time.time() + self._left)))
        pause = min(self._pause, self._left)
        self._pause = min(2 * self._pause, _LAST_PAUSE)
        self._left -= pause
        await asyncio.sleep(pause)


async def retry(
    attempt: Callable[[], Awaitable[Result]], path: Path, patience: RetryPolicy, failed: Callable[[], None] = lambda: None
) -> Result:
    """What ``attempt`` returns, which is made again after every outage, of the disk with ``path`` or of memory.

    ``failed`` is called as soon as one has failed: it drops the connections. Raises :class:`StorageError` when patience ends.
    """
    while True:
        try:
            return await attempt()
        except (StorageError, OSError, MemoryError, ImportError, RuntimeError, sqlite3.OperationalError) as error:
            outage = outage_of(error, path)
            if outage is None:
                raise
        failed()
        await patience.wait(outage)
