"""Files that are read by a process of their own: their libraries may end it, or want more memory or time than there is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Timer
from types import ModuleType

from quietmean.core.columnar import LENGTH

# The most seconds that the process may take; and the most bytes of one of its pieces.
MOST_SECONDS = 1800.0
_LONGEST = 2**33


class EndedError(Exception):
    """The process ended before it was done: by itself with a ``code``, negative where a signal or the clock ended it."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


def pieces_apart(module: ModuleType, arguments: Sequence[str]) -> Iterator[bytes]:
    """What a process that runs the ``module`` writes (:func:`columnar.write`), as it comes. Raises :class:`EndedError`."""
    running = subprocess.Popen(
        _command(module, arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
    )
    assert running.stdout is not None  # noqa: S101
    clock = Timer(MOST_SECONDS, running.kill)
    clock.daemon = True
    clock.start()
    try:
        while length := int.from_bytes(_exactly(running, LENGTH), "big"):
            if length > _LONGEST:
                raise EndedError(-1)
            yield _exactly(running, length)
    finally:
        clock.cancel()
        with suppress(OSError):
            running.kill()
        running.stdout.close()
        running.wait()


def _exactly(running: subprocess.Popen[bytes], size: int) -> bytes:
    """So many bytes. Raises :class:`EndedError` where fewer come."""
    assert running.stdout is not None  # noqa: S101
    content = running.stdout.read(size)
    if len(content) < size:
        raise EndedError(running.wait() or -1)
    return content


def _command(module: ModuleType, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", module.__name__, *arguments]


def _environment() -> dict[str, str]:
    """Nothing is computed there that needs threads of linear algebra, whose start is a good part of the process's own."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
