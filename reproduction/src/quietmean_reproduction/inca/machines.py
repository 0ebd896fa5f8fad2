"""What the real party machines cost: processor time of every call, bytes of every message. No network, no waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import Message, PartyId, PartyMachine, Release

# A message's scalar weight, beside its vector of float64.
_WEIGHT_BYTES = 8


@dataclass(frozen=True, eq=False)
class Meter:
    """Meters of each party: ``seconds`` of processor time of one thread, and bytes ``sent``, payload only; shape (n,)."""

    seconds: NDArray[np.float64]
    sent: NDArray[np.float64]
    releases: dict[PartyId, Release] = field(default_factory=dict)

    @classmethod
    def of(cls, parties: int) -> Meter:
        return cls(np.zeros(parties), np.zeros(parties))

    def timed(self, party: PartyId, call: Callable[..., Any], *arguments: Any) -> Any:
        begun = time.thread_time()
        result = call(*arguments)
        self.seconds[party] += time.thread_time() - begun
        return result

    def drive(self, machines: Sequence[PartyMachine[Any]], online: NDArray[np.bool_]) -> None:
        """Run all rounds; ``online`` has shape (T + 1, n). Starting a machine is timed, making it is up to the caller."""
        steps = [self.timed(party, machine.start) for party, machine in enumerate(machines)]
        for round_ in range(1, machines[0].rounds + 1):
            here = np.nonzero(online[round_])[0].tolist()
            inboxes: dict[PartyId, list[Message]] = {party: [] for party in here}
            delivered: dict[PartyId, set[PartyId]] = {party: set() for party in here}
            for party in here:
                for message in steps[party].send:
                    size = message.vector.nbytes + _WEIGHT_BYTES if message.vector.size else 0
                    for other in set(message.recipients) & inboxes.keys():
                        inboxes[other].append(message)
                        delivered[party].add(other)
                        self.sent[party] += size + len(message.content)
            for party, machine in enumerate(machines):
                state = steps[party].state
                if party in inboxes:
                    arrived = frozenset(delivered[party])
                    steps[party] = self.timed(party, machine.end_round, state, inboxes[party], arrived)
                else:
                    steps[party] = machine.miss_round(state)
        for party, step in enumerate(steps):
            if step.release is not None:
                self.releases[party] = step.release
