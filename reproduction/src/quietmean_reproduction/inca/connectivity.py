"""When do the messages that an adversary does not see connect the honest parties? The precondition of IncA's Theorem 4.5.

For k = 1 it is a question of connectivity; for larger k of the rank of the vectors W_{t+1,:,i} - b_i over unseen (i, t).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import gammaln

from quietmean.graphs import Schedule

Mask = NDArray[np.bool_]

# Eigenvalues of an integer Gram matrix below this share of the largest are rounding.
_RANK = 1e-10


def unseen_messages(
    schedule: Schedule, corrupt: Mask, observed: Mask | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rounds (from 0) and senders of what no corrupt party sends or receives and nobody intercepts: (t, i) for y_i^(t).

    ``corrupt`` (n,); ``observed`` (T, n).
    """
    seen = corrupt[None, :] | corrupt[schedule.neighbours].any(axis=2)
    if observed is not None:
        seen = seen | observed
    rounds, senders = np.nonzero(~seen)
    return rounds, senders


def meets_precondition(schedule: Schedule, corrupt: Mask, observed: Mask | None = None) -> bool:
    """Are there n_H - 1 independent vectors?"""
    honest = np.nonzero(~corrupt)[0]
    place = np.cumsum(~corrupt) - 1
    rounds, senders = unseen_messages(schedule, corrupt, observed)
    receivers = schedule.neighbours[rounds, senders]
    if schedule.neighbours.shape[2] == 1:
        return _is_connected(place[senders], place[receivers[:, 0]], honest.size)
    stars = np.zeros((rounds.size, honest.size))
    row = np.arange(rounds.size)
    stars[row, place[senders]] = -receivers.shape[1]
    stars[row[:, None], place[receivers]] += 1.0
    eigenvalues = np.linalg.eigvalsh(stars.T @ stars)
    return int((eigenvalues > _RANK * eigenvalues[-1]).sum()) == honest.size - 1


def _is_connected(here: NDArray[np.int64], there: NDArray[np.int64], size: int) -> bool:
    graph = coo_array((np.ones(here.size, dtype=np.int8), (here, there)), shape=(size, size))
    components, _ = connected_components(graph, directed=False)
    return bool(components == 1)


def expected_isolated(parties: int, corrupt: int, rounds: int) -> float:
    """Expected number of honest parties without any unseen exchange after T rounds with a new receiver each (k = 1).

    Exact: party i sends to T distinct others, all of them corrupt, and each of the other honest parties misses i in its T
    distinct receivers. It bounds the probability that somebody is isolated, and all but equals that of being disconnected.
    """
    if rounds > corrupt or rounds > parties - 1:
        return 0.0

    def log_choose(a: int, b: int) -> float:
        return float(gammaln(a + 1) - gammaln(b + 1) - gammaln(a - b + 1))

    honest = parties - corrupt
    into_corrupt = log_choose(corrupt, rounds) - log_choose(parties - 1, rounds)
    missed = (honest - 1) * math.log1p(-rounds / (parties - 1)) if rounds < parties - 1 else -math.inf
    return honest * math.exp(into_corrupt + missed)


def rounds_without_failure(parties: int, corrupt: int, runs: int) -> int:
    """The least T with which ``runs`` runs more likely than not all succeed, if isolated parties are the only obstacle."""
    failures = partial(expected_isolated, parties, corrupt)
    rounds = 1
    while runs * failures(rounds) > math.log(2.0):
        rounds += 1
    return rounds
