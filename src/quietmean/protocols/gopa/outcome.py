"""The parties that published, and those that removed uncancelled noise again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.gopa.spec import ANNOUNCE, PUBLISH, ROLL_BACK

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GopaOutcome:
    """Masks of shape (n,): the parties whose masked value ``arrived``, and those that have ``rolled_back``.

    The latter received the aggregator's list, and their own message reached it in time. ``released``: the aggregator stayed to
    the end and had something to release.
    """

    arrived: Mask
    rolled_back: Mask
    released: bool

    @classmethod
    def of(cls, aggregator: PartyId, schedule: Schedule, trace: ExecutionTrace) -> GopaOutcome:
        reached = trace.delivered(schedule)
        to_aggregator = (reached & (schedule.neighbours == aggregator)).any(axis=2)
        arrived = to_aggregator[PUBLISH - 1].copy()
        arrived[aggregator] = trace.online[PUBLISH, aggregator]
        informed = np.zeros(schedule.parties, dtype=np.bool_)
        informed[schedule.neighbours[ANNOUNCE - 1, aggregator][reached[ANNOUNCE - 1, aggregator]]] = True
        rolled_back = arrived & informed & to_aggregator[ROLL_BACK - 1]
        released = bool(trace.finished[aggregator] and arrived[aggregator])
        rolled_back[aggregator] = released
        return cls(arrived, rolled_back, released)
