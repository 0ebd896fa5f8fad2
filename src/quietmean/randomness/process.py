"""Randomness of a process that was forked."""

from __future__ import annotations

import numpy as np


def renew_after_fork() -> None:
    """Seed numpy's global generator anew: a child has a copy of its parent's. Nothing of this package uses it.

    The generators of the system, of ``secrets``, ``random``, ``ssl`` and ``cryptography`` differ after a fork by themselves.
    """
    np.random.seed()
