"""The mixing matrix of a round: Metropolis weights on the exchanges whose messages arrived in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.party import PartyId
from quietmean.graphs import Flow, Schedule
from quietmean.graphs.schedule import NOBODY


class Exchanges(NamedTuple):
    """Parties and others that send to each other in a round, as ordered pairs by party; all with one entry for each pair.

    ``weight`` is 1 / (larger of both degrees + 1). ``sent`` is the place of the message from party to other in the flattened
    table of neighbours (n, k_max), ``received`` that of the message from other to party.
    """

    party: Ints
    other: Ints
    weight: Array
    sent: Ints
    received: Ints


def planned_exchanges(schedule: Schedule, round_: int) -> Exchanges:
    """The exchanges of a round in which every message arrives."""
    table = schedule.neighbours[round_ - 1]
    message = (table != NOBODY).ravel().nonzero()[0]
    party, other = message // max(table.shape[1], 1), table.ravel()[message].astype(np.int64)
    # In the order of unordered pairs, the two messages of an exchange are next to each other.
    pair = np.minimum(party, other) * schedule.parties + np.maximum(party, other)
    order = pair.argsort(kind="stable")
    first = (pair[order[1:]] == pair[order[:-1]]).nonzero()[0]
    back = np.full(message.size, NOBODY)
    back[order[first]], back[order[first + 1]] = order[first + 1], order[first]
    mutual = (back != NOBODY).nonzero()[0]
    party, other = party[mutual], other[mutual]
    degree = np.bincount(party, minlength=schedule.parties)
    weight = 1.0 / (np.maximum(degree[party], degree[other]) + 1.0)
    return Exchanges(party, other, weight, message[mutual], message[back[mutual]])


# For party machines, one after the other; a batch of many executions is too large to keep.
_kept_exchanges = lru_cache(maxsize=64)(planned_exchanges)


def shares(schedule: Schedule, round_: int, party: PartyId) -> dict[PartyId, float]:
    """The parties that ``party`` exchanges with in a round, and the weight of each exchange."""
    parties, others, weights, *_ = _kept_exchanges(schedule, round_)
    own = slice(*np.searchsorted(parties, [party, party + 1]).tolist())
    return dict(zip(others[own].tolist(), weights[own].tolist(), strict=True))


def gossip_flows(schedule: Schedule, delivered: Mask, acknowledged: Mask) -> Iterator[Flow]:
    """W of each round as it took place, shape (n, n): rows sum to 1; symmetric where all senders know what arrived.

    A party uses a message if it knows that its own reached the other party. ``delivered`` and ``acknowledged``, shape
    (T, n, k_max), are those of the trace.
    """
    everyone, shape = np.arange(schedule.parties), (schedule.parties, schedule.parties)
    for index, table in enumerate(schedule.neighbours):
        # A graph that stays the same has the same exchanges.
        if index == 0 or not np.array_equal(table, schedule.neighbours[index - 1]):
            planned = planned_exchanges(schedule, index + 1)
        used = delivered[index].ravel()[planned.received] & acknowledged[index].ravel()[planned.sent]
        party, other, weight = planned.party[used], planned.other[used], planned.weight[used]
        kept = 1.0 - np.bincount(party, weights=weight, minlength=schedule.parties)
        to, source = np.concatenate([party, everyone]), np.concatenate([other, everyone])
        yield Flow(shape, to, source, np.concatenate([weight, kept]))
