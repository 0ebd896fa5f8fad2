"""One line that says what a call does, where somebody sees it: in a notebook, or on a terminal. Nothing is imported for it."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from quietmean.api import rooms

# Takes a text, and how much of what is done, from 0 to 1; None where the end is not known.
Say = Callable[[str, float | None], None]
# Seconds between two texts.
_APART = 0.2
_CLEAR_LINE = "\r\033[K"


@contextmanager
def progress_line() -> Iterator[Say]:
    """What the block says is shown until it ends; nothing where neither a notebook nor a terminal is."""
    show = _in_notebook() or _on_terminal()
    if show is None:
        yield _nothing
        return
    last = ("", 0.0)

    def say(text: str, part: float | None = None) -> None:
        nonlocal last
        if text != last[0] and time.monotonic() - last[1] >= _APART:
            last = text, time.monotonic()
            show(text, part)

    try:
        yield say
    finally:
        show("", None)


def what_goes_on(event: Mapping[str, Any], whose: str) -> tuple[str, float | None] | None:
    """What a node's event is for one who waits; None where it is nothing. ``whose``: of whom it tells."""
    if event.get("event") not in ("agreement", "round"):
        return None
    part = int(event["round"]) / max(int(event["of"]), 1) if event["event"] == "round" else None
    return f"{whose}{rooms.monitor.place_of(event)}{rooms.monitor.wait_of(event)}", part


def _nothing(text: str, part: float | None = None) -> None:
    """Nobody looks."""


def _in_notebook() -> Say | None:
    """The line below a cell that runs; None outside of a notebook's kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    notebook = import_module("IPython.display")
    handle = notebook.display(notebook.HTML(""), display_id=True)

    def show(text: str, part: float | None) -> None:
        bar = "" if part is None else f'<progress max="1" value="{part:.3f}"></progress> '
        handle.update(notebook.HTML(f"{bar}{html.escape(text)}"))

    return show


def _on_terminal() -> Say | None:
    if not (sys.stderr and sys.stderr.isatty()):
        return None

    def show(text: str, part: float | None) -> None:
        sys.stderr.write(f"{_CLEAR_LINE}{''.join(sign for sign in text if sign.isprintable())}")
        sys.stderr.flush()

    return show
