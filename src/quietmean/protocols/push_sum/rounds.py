"""The rounds in which parties are online."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.graphs import ExecutionTrace


def next_online(trace: ExecutionTrace) -> NDArray[np.int64]:
    """Shape (T + 1, n); entry (t, i): the first round after t in which i is online; T + 1 if there is none."""
    rounds = len(trace.online) - 1
    upcoming = np.full(trace.online.shape, rounds + 1)
    for round_ in range(rounds - 1, -1, -1):
        upcoming[round_] = np.where(trace.online[round_ + 1], round_ + 1, upcoming[round_ + 1])
    return upcoming


def forgotten(trace: ExecutionTrace) -> NDArray[np.bool_]:
    """Shape (T + 1, n): is what a party holds after a round never sent or released, since it left?"""
    is_forgotten: NDArray[np.bool_] = next_online(trace) >= len(trace.online)
    # What it holds after the last round is its release.
    is_forgotten[-1] = False
    return is_forgotten
