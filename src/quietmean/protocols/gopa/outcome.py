"""Who published, and what was rolled back: with a collector and without one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule, arrivals
from quietmean.protocols.gopa.party import ANNOUNCE, EXCHANGE, PUBLISH, RELEASE, ROLL_BACK


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


@dataclass(frozen=True, eq=False)
class PeerOutcome:
    """The outcome without a collector: ``sharing``, (M, 2), says of which pairs the smaller and the larger party add the noise.

    ``published``, shape (n,): the parties that stayed and have as many such partners as they must have.
    """

    pairs: Ints
    sharing: Mask
    published: Mask

    @classmethod
    def of(cls, least_partners: int, schedule: Schedule, trace: ExecutionTrace) -> PeerOutcome:
        heard, acknowledged = (_table(schedule, table) for table in trace.deliveries(schedule))
        # A party counts on a partner whose message it received, and which acknowledged its own.
        counts_on = heard.T & acknowledged
        low, high = schedule.pairs.T
        sharing = np.column_stack([counts_on[low, high], counts_on[high, low]])
        partners = np.bincount(schedule.pairs[sharing], minlength=schedule.parties)
        return cls(schedule.pairs, sharing, trace.online[RELEASE] & (partners >= least_partners))

    @property
    def added(self) -> Mask:
        """Which ends of the pairs have published what they share, shape (M, 2)."""
        added: Mask = self.sharing & self.published[self.pairs]
        return added

    @property
    def left_over(self) -> int:
        """How many terms are in the sum of all that was published from one end only, and so do not cancel."""
        return int((self.added.sum(axis=1) == 1).sum())


def _table(schedule: Schedule, messages: Mask) -> Mask:
    """Whose message of the exchange (row) is marked for which recipient (column), shape (n, n)."""
    table = np.zeros((schedule.parties, schedule.parties), dtype=np.bool_)
    table[arrivals(schedule, messages, EXCHANGE)] = True
    return table
