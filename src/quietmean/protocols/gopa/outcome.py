"""Who published, and who took uncancelled noise out again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.gopa.spec import PUBLISH, ROLL_BACK, TELL

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GopaOutcome:
    """Masks of shape (n,): whose masked value ``arrived``, whose rollback counts (``rolled_back``: it knew, and told in time).

    ``released``: the collector was there at the end and had something to release.
    """

    arrived: Mask
    rolled_back: Mask
    released: bool

    @classmethod
    def of(cls, collector: PartyId, schedule: Schedule, trace: ExecutionTrace) -> GopaOutcome:
        reached = trace.delivered(schedule)
        to_collector = (reached & (schedule.neighbours == collector)).any(axis=2)
        arrived = to_collector[PUBLISH - 1].copy()
        arrived[collector] = trace.online[PUBLISH, collector]
        told = np.zeros(schedule.parties, dtype=np.bool_)
        told[schedule.neighbours[TELL - 1, collector][reached[TELL - 1, collector]]] = True
        rolled_back = arrived & told & to_collector[ROLL_BACK - 1]
        released = bool(trace.finished[collector] and arrived[collector])
        rolled_back[collector] = released
        return cls(arrived, rolled_back, released)
