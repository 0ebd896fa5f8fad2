"""How long anybody may be told to wait for others."""

from __future__ import annotations

import math
from typing import Final

from quietmean.core.errors import InputError

DAY: Final = 86400.0
# In seconds. Nobody answers within less, and nobody keeps a process running for longer.
SHORTEST_SECONDS: Final = 1e-3
LONGEST_SECONDS: Final = 31 * DAY


def require_wait(name: str, seconds: float, shortest: float = SHORTEST_SECONDS) -> None:
    """Raises :class:`InputError` for ``seconds`` that nobody waits, naming what they are given as."""
    if not (math.isfinite(seconds) and shortest <= seconds <= LONGEST_SECONDS):
        raise InputError(f"{name} is {seconds:g} s: choose a number from {shortest:g} to {LONGEST_SECONDS:.0f} seconds")
