"""The mixing matrix of a round: Metropolis weights on the exchanges whose messages arrived in both directions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PartyId
from quietmean.graphs import Flow, Schedule
from quietmean.graphs.schedule import NOBODY


def planned_exchanges(schedule: Schedule, round_: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Ordered pairs (party, other) that send to each other in a round, by party, and 1 / (larger of both degrees + 1).

    Three arrays with one entry for each pair.
    """
    table = schedule.neighbours[round_ - 1]
    party, slot = np.nonzero(table != NOBODY)
    party, other = _mutual(party, table[party, slot].astype(np.int64), schedule.parties)
    degree = np.bincount(party, minlength=schedule.parties)
    return party, other, 1.0 / (np.maximum(degree[party], degree[other]) + 1.0)


# For party machines, one after the other; a batch of many executions is too large to keep.
_kept_exchanges = lru_cache(maxsize=64)(planned_exchanges)


def shares(schedule: Schedule, round_: int, party: PartyId) -> dict[PartyId, float]:
    """The parties that ``party`` exchanges with in a round, and the weight of each exchange."""
    parties, others, weights = _kept_exchanges(schedule, round_)
    own = slice(*np.searchsorted(parties, [party, party + 1]).tolist())
    return dict(zip(others[own].tolist(), weights[own].tolist(), strict=True))


def gossip_flow(schedule: Schedule, delivered: NDArray[np.bool_], acknowledged: NDArray[np.bool_], round_: int) -> Flow:
    """W of a round as it took place, shape (n, n): rows sum to 1; symmetric where all senders know what arrived.

    A party uses a message if it knows that its own reached the other party. ``delivered`` and ``acknowledged``, shape
    (T, n, k_max), are those of the trace.
    """
    table = schedule.neighbours[round_ - 1].astype(np.int64)
    sender, slot = np.nonzero(delivered[round_ - 1])
    received = _codes(table[sender, slot], sender, schedule)
    sender, slot = np.nonzero(acknowledged[round_ - 1])
    reached = _codes(sender, table[sender, slot], schedule)
    party, other, weight = planned_exchanges(schedule, round_)
    codes = _codes(party, other, schedule)
    used = _is_in(codes, received) & _is_in(codes, reached)
    party, other, weight = party[used], other[used], weight[used]
    everyone = np.arange(schedule.parties)
    kept = 1.0 - np.bincount(party, weights=weight, minlength=schedule.parties)
    to, source = np.concatenate([party, everyone]), np.concatenate([other, everyone])
    return Flow((schedule.parties, schedule.parties), to, source, np.concatenate([weight, kept]))


def _mutual(party: NDArray[np.int64], other: NDArray[np.int64], parties: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    both = _is_in(party * parties + other, other * parties + party)
    return party[both], other[both]


def _is_in(wanted: NDArray[np.int64], among: NDArray[np.int64]) -> NDArray[np.bool_]:
    # Several times faster here than numpy's, which removes repetitions first.
    ordered = np.append(np.sort(among), np.iinfo(np.int64).max)
    found: NDArray[np.bool_] = ordered[np.searchsorted(ordered, wanted)] == wanted
    return found


def _codes(party: NDArray[np.int64], other: NDArray[np.int64], schedule: Schedule) -> NDArray[np.int64]:
    return party * schedule.parties + other
