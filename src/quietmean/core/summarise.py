"""Logs of processes that serve strangers for months: who sends rubbish does not fill the disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from quietmean.core.readable import count_of

# The most lines of one kind in this many seconds.
MOST, SECONDS = 10, 3600.0


class FewLines(logging.Filter):
    """Lets ``most`` lines of one kind pass each ``seconds``; the next one to pass says how many were left out.

    A kind is a place in the code, whatever it says: texts may have an address or a number of their own each time.
    """

    def __init__(self, most: int = MOST, seconds: float = SECONDS, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._most, self._seconds, self._clock = most, seconds, clock
        # Of each kind: since when, how many passed, how many did not.
        self._kinds: dict[tuple[str, str, int], tuple[float, int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = (record.name, record.pathname, record.lineno), self._clock()
        begun, passed, left_out = self._kinds.get(kind, (now, 0, 0))
        if now - begun >= self._seconds:
            begun, passed = now, 0
        if passed == self._most:
            self._kinds[kind] = begun, passed, left_out + 1
            return False
        if left_out:
            lines = count_of(left_out, "line of this kind was", "lines of this kind were")
            record.msg, record.args = f"{record.getMessage()} ({lines} left out before)", ()
        self._kinds[kind] = begun, passed + 1, 0
        return True


def keep_logs_short(*names: str) -> None:
    """From now on what these loggers say passes :class:`FewLines`."""
    for name in names:
        logger = logging.getLogger(name)
        if not any(isinstance(attached, FewLines) for attached in logger.filters):
            logger.addFilter(FewLines())
