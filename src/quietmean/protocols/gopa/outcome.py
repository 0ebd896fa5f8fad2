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
    """Masks of shape (n,): the parties whose masked value ``arrived``, those ``informed`` of it, and those that ``rolled_back``.

    Who is informed received the aggregator's list with its own name, and sends its rollback; who has rolled back is informed, and
    its message reached the aggregator in time. ``released``: the aggregator stayed to the end and had something to release.
    """

    arrived: Mask
    informed: Mask
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
        informed &= arrived
        rolled_back = informed & to_aggregator[ROLL_BACK - 1]
        released = bool(trace.finished[aggregator] and arrived[aggregator])
        rolled_back[aggregator] = released
        return cls(arrived, informed, rolled_back, released)
