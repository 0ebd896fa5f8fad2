"""The messages that arrived over each link, those that their senders know of, and the links in use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.consensus.spec import ALL, ConsensusParameters, DirectedEdges


@dataclass(frozen=True, eq=False)
class Deliveries:
    """All (T, 2m), rounds by links: did a message arrive, does its sender know that, and was it handed to its receiver at all?

    ``arrived`` is true wherever ``acknowledged`` is, and ``handed`` wherever ``arrived`` is. ``all_or_none``: does a party use
    either all of its links or none of them?
    """

    links: DirectedEdges
    arrived: Mask
    acknowledged: Mask
    handed: Mask
    all_or_none: bool = False

    @classmethod
    def of(cls, parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace) -> Deliveries:
        links = parameters.links
        tables = (*trace.deliveries(schedule), trace.handed(schedule))
        arrived, acknowledged, handed = (table[:, links.sender, links.slot] for table in tables)
        return cls(links, arrived, acknowledged, handed, parameters.open_edges == ALL)

    @classmethod
    def complete(cls, parameters: ConsensusParameters) -> Deliveries:
        everything: Mask = np.ones((parameters.rounds, len(parameters.links)), dtype=np.bool_)
        return cls(parameters.links, everything, everything, everything)

    @property
    def all_known(self) -> bool:
        """Did everything arrive, and do all senders know?"""
        return bool(self.acknowledged.all())

    def opened(self) -> Mask:
        """Does the sender use the link at first? Shape (2m,).

        It does if it received the other end's message and knows that its own arrived, of this link or of all its links.
        """
        return self._exchanged_first() & self.tells()[self.links.sender]

    def tells(self) -> Mask:
        """May the party send what depends on its value, and has it a result? Shape (n,)."""
        parties = len(self.links.first) - 1
        if not self.all_or_none:
            return np.ones(parties, dtype=np.bool_)
        unopened = np.bincount(self.links.sender[~self._exchanged_first()], minlength=parties)
        tells: Mask = unopened == 0
        return tells

    def _exchanged_first(self) -> Mask:
        both: Mask = self.acknowledged[0] & self.arrived[0][self.links.reverse]
        return both

    def exchanged(self, iteration: int, active: Mask) -> tuple[Mask, Mask]:
        """Which messages are delivered and received, both (2m,), if the links ``active`` (2m,) are used.

        For link (i, j): does i know that its message reached j, and did it receive the message of j? A party that does not use a
        link refuses messages over it.
        """
        both = active & active[self.links.reverse]
        return self.acknowledged[iteration] & both, self.arrived[iteration][self.links.reverse] & both


def still_in_use(active: Mask, silent: Ints, lively: Mask, patience: int) -> tuple[Mask, Ints]:
    """The links in use after a round, and for how many rounds each has been silent; all arrays (2m,).

    ``lively``: links with a message in one direction or both in that round.
    """
    silent = np.where(lively, 0, silent + 1)
    return active & (silent < patience), silent


def edges_in_use(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace) -> Mask:
    """The edges that both ends use after the last round, shape (m,), in the order of ``parameters.edges``."""
    links, deliveries = parameters.links, Deliveries.of(parameters, schedule, trace)
    active, silent = deliveries.opened(), np.zeros(len(links), dtype=np.int64)
    for iteration in range(1, parameters.rounds):
        delivered, received = deliveries.exchanged(iteration, active)
        active, silent = still_in_use(active, silent, delivered | received, parameters.patience)
    forward: Mask = (active & active[links.reverse])[links.sign > 0]
    return forward
