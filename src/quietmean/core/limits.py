"""Limits that agreements state and nodes keep to: how long anybody waits, and with how many parties a study starts."""

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
        raise InputError(f"{name} is {seconds:g} s. Choose a number from {shortest:g} to {LONGEST_SECONDS:.0f} seconds.")


# A session has so many attempts and no more: who can abort them all draws the public seed so often.
ATTEMPTS: Final = 10


def least_minimum(parties: int, colluding: int) -> int:
    """The fewest parties with which a study may start or end: more than (parties + colluding) / 2.

    Two sets of so many parties have more parties in common than collude, so an honest one; it takes part once.
    """
    return (parties + colluding) // 2 + 1
