"""What a process says when it ends by a defect: where, and which kind of error, but not its text, which may quote a value."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any


def hide_error_texts() -> None:
    """From now on an error that nobody handles is shown by :func:`without_text`.

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
