"""What all others together compute from the messages of an execution about two honest neighbours, as they would."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quietmean.core.party import Message, PartyId, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.consensus import Consensus
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import fixed_schedule
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.transcript import run_lockstep


def execution_of(protocol: Consensus) -> Execution:
    """Everybody stays and nothing gets lost."""
    parties = protocol.parties
    trace, schedule = ExecutionTrace.everyone(protocol.rounds, parties), fixed_schedule(protocol, parties)
    return Execution(protocol, schedule, trace, 1.0, np.ones(parties))


def view_of_pair(protocol: Consensus, values: Vector, pair: tuple[PartyId, PartyId], seed: int) -> Vector:
    """From the messages of the real machines on ``values`` (n, N): three numbers for each of N runs, shape (N, 3).

    For the pair i < j these are s_i - z_{i|j}, s_j + z_{j|i} and z_{i|j} - z_{j|i}, the view of the paper's Theorem 2: nothing
    else about s_i or s_j follows from unicast messages. Both need another neighbour.
    """
    noise = InsecurePopulationNoise(seed, protocol.parties)
    execution = execution_of(protocol)
    view = _View(protocol, frozenset(pair), {}, {})
    machines = [execution.machine(party, values[party], noise.party(party)) for party in range(execution.parties)]
    run_lockstep(machines, execution.trace, lambda *_: True, view.hear)
    first, second = pair
    hidden = [view.hidden_value(party, other) for party, other in ((first, second), (second, first))]
    difference = view.step(first, second) - 2 * protocol.c * view.estimate(first, second)
    return np.stack([*hidden, difference], axis=1)


@dataclass(frozen=True, eq=False)
class _View:
    """``initial`` and ``first``: the z^(0) that corrupt parties sent or got, and everybody's first difference, by (from, to)."""

    protocol: Consensus
    honest: frozenset[PartyId]
    initial: dict[tuple[PartyId, PartyId], Vector]
    first: dict[tuple[PartyId, PartyId], Vector]

    def hear(self, message: Message, reached: frozenset[PartyId]) -> None:
        for receiver in reached:
            ends = message.sender, receiver
            # The first exchange is secret: only its ends know it.
            if message.round == 1 and not self.honest.issuperset(ends):
                self.initial[ends] = message.vector
            if message.round == 2:
                self.first[ends] = message.vector

    def step(self, sender: PartyId, receiver: PartyId) -> Vector:
        """z_{i|j} - z_{j|i} + 2 c B_{i|j} x_i at the start."""
        step: Vector = self.first[sender, receiver] / (1 - self.protocol.theta)
        return step

    def estimate(self, party: PartyId, partner: PartyId) -> Vector:
        """x^(1) of an honest party, from its message to a corrupt neighbour: z on that edge is known."""
        other = self._corrupt_neighbours(party, partner)[0]
        known = self.initial[party, other] - self.initial[other, party]
        estimate: Vector = (self.step(party, other) - known) / (2 * self.protocol.c * _sign(party, other))
        return estimate

    def hidden_value(self, party: PartyId, partner: PartyId) -> Vector:
        """s_i - B_{i|j} z_{i|j}: x^(1) without what is known of it."""
        others = self._corrupt_neighbours(party, partner)
        total = self.estimate(party, partner) * (1 + self.protocol.c * (len(others) + 1))
        hidden: Vector = total + sum(_sign(party, other) * self.initial[party, other] for other in others)
        return hidden

    def _corrupt_neighbours(self, party: PartyId, partner: PartyId) -> list[PartyId]:
        return [receiver for sender, receiver in self.first if sender == party and receiver != partner]


def _sign(party: PartyId, other: PartyId) -> float:
    """B_{i|j}."""
    return 1.0 if party < other else -1.0
