"""What a process says when it ends by a defect: where, and which kind of error, but not its text, which may quote a value."""

from __future__ import annotations

import sys
import threading
import traceback
from types import TracebackType


def hide_error_texts() -> None:
    """From now on an error that nobody handles is shown by :func:`without_text`, in the main thread and in others."""
    sys.excepthook = _show
    threading.excepthook = lambda told: _show(told.exc_type, told.exc_value, told.exc_traceback)


def without_text(kind: type[BaseException], trace: TracebackType | None) -> str:
    """The places of a traceback and the kind of the error, one line each."""
    places = [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in traceback.extract_tb(trace)]
    title = f"quietmean: a defect, {kind.__name__}; its text is left out, since it may contain a private value:"
    return "\n".join([title, *places]) + "\n"


def _show(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    sys.stderr.write(without_text(kind, trace))
