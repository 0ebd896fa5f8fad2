"""What processes log: of a defect where and which kind of error, but not its text, which may quote a value; and not too much.

A process that serves strangers for months does not fill the disk with what they send.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from quietmean.core.readable import count_of


def hide_error_texts() -> None:
    """Let :func:`without_text` show errors that nobody handles, from now on.

    In the main thread and in others, in tasks and callbacks of an event loop, in destructors, and wherever one is logged.
    """
    sys.excepthook = _show
    threading.excepthook = lambda raised: _show(raised.exc_type, raised.exc_value, raised.exc_traceback)
    sys.unraisablehook = lambda raised: _show(raised.exc_type, raised.exc_value, raised.exc_traceback)
    logging.setLogRecordFactory(_LogRecord)


def without_text(kind: type[BaseException], trace: TracebackType | None) -> str:
    """The places of a traceback, one line each, the last one with the kind of the error."""
    places = [f"  {_importable(frame.filename)}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(trace)]
    title = "quietmean: a defect; its text is left out, since it may contain a private value:"
    return "\n".join([title, *places]) + f": {kind.__name__}\n"


def _importable(filename: str) -> str:
    """The file as an import finds it, such as quietmean/core/codec.py: where a machine keeps it is nobody's business."""
    file = Path(filename)
    folders = [folder for folder in map(Path.absolute, map(Path, filter(None, sys.path))) if file.is_relative_to(folder)]
    return str(file.relative_to(max(folders, key=lambda folder: len(folder.parts)))) if folders else file.name


class _LogRecord(logging.LogRecord):
    """A log record that keeps only place and kind of an error: an event loop logs tasks together with what they raised."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        if self.exc_info and self.exc_info[0] is not None:
            self.msg, self.args = without_text(self.exc_info[0], self.exc_info[2]), ()
            self.exc_info = self.exc_text = None


def _show(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    sys.stderr.write(without_text(kind, trace))


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
    """Let what these loggers say pass :class:`FewLines`, from now on."""
    for name in names:
        logger = logging.getLogger(name)
        if not any(isinstance(attached, FewLines) for attached in logger.filters):
            logger.addFilter(FewLines())
