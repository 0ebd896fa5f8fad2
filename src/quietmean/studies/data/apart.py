"""Files that are read by a process of their own: their libraries may end it, or want more memory or time than there is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType

# The most seconds that the process may take.
MOST_SECONDS = 1800.0


def read_apart(module: ModuleType, arguments: Sequence[str]) -> tuple[int, bytes]:
    """How a process that runs the ``module`` ends, negative where a signal or the clock ended it, and what it prints."""
    command = [sys.executable, "-P", "-m", module.__name__, *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        return -1, b""
    return done.returncode, done.stdout
