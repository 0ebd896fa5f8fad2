"""The rounds in which parties are online."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.graphs import ExecutionTrace


def next_online(trace: ExecutionTrace) -> Ints:
    """Shape (T + 1, n); entry (t, i): the first round after t in which i is online; T + 1 if there is none."""
    rounds = len(trace.online) - 1
    upcoming = np.full(trace.online.shape, rounds + 1)
    for round_ in range(rounds - 1, -1, -1):
        upcoming[round_] = np.where(trace.online[round_ + 1], round_ + 1, upcoming[round_ + 1])
    return upcoming


def forgotten(trace: ExecutionTrace) -> Mask:
    """Shape (T + 1, n): is what a party holds after a round never sent or released, since it left?"""
    is_forgotten: Mask = next_online(trace) >= len(trace.online)
    # What it holds after the last round is its release.
    is_forgotten[-1] = False
    return is_forgotten
