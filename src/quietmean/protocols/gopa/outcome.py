"""The parties that published, and those that removed uncancelled noise again."""

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
    """Masks of shape (n,): the parties whose masked value ``arrived``, and those that have ``rolled_back``.

    The latter received the collector's list, and their own message reached it in time. ``released``: the collector stayed to the
    end and had something to release.
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
        informed = np.zeros(schedule.parties, dtype=np.bool_)
        informed[schedule.neighbours[TELL - 1, collector][reached[TELL - 1, collector]]] = True
        rolled_back = arrived & informed & to_collector[ROLL_BACK - 1]
        released = bool(trace.finished[collector] and arrived[collector])
        rolled_back[collector] = released
        return cls(arrived, rolled_back, released)
