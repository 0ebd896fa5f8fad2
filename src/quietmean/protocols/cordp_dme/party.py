"""A party of CorDP-DME: one message, hidden by own noise and by noise shared with its partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quietmean.core.noise import NoiseGroup
from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.cordp_dme.spec import CordpDmeParameters


@dataclass(frozen=True, slots=True)
class CordpDmeState:
    """``hidden``: the value with all noise on it, shape (d,), while this party still has to publish it; else None."""

    round: int
    hidden: Vector | None


class CordpDmeParty:
    """Draws all noise before the round. In the round it sends the hidden value to the aggregator; without one it publishes it.

    The aggregator adds what it received to its own and publishes the sum.
    """

    rounds = 1
    state_type = CordpDmeState

    def __init__(
        self,
        parameters: CordpDmeParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> None:
        self._parameters = parameters
        self._schedule = schedule
        self._party = party
        self._value = value
        self._weight = weight
        self._noise = noise

    def start(self) -> Step[CordpDmeState]:
        hidden = self._hidden_value()
        recipients = self._schedule.recipients(1, self._party)
        if not recipients:
            return Step(CordpDmeState(1, hidden))
        return Step(CordpDmeState(1, None), (Message(self._party, recipients, 1, hidden, self._weight),))

    def end_round(self, state: CordpDmeState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[CordpDmeState]:
        finished = CordpDmeState(2, None)
        if state.hidden is None:
            return Step(finished)
        total, weight = state.hidden, self._weight
        # In a fixed order, so that a restarted party gets the same sum to the last bit.
        for message in sorted(received, key=lambda message: message.sender):
            total = total + message.vector
            weight += message.weight
        return Step(finished, release=Release(total, weight))

    def miss_round(self, state: CordpDmeState) -> Step[CordpDmeState]:
        return Step(CordpDmeState(2, None))

    def expects(self, state: CordpDmeState) -> frozenset[PartyId]:
        return self._schedule.senders(1, self._party)

    def _hidden_value(self) -> Vector:
        size = self._value.size
        hidden = self._value + self._noise.normal(NoiseGroup.INDEPENDENT, 0, size) * self._parameters.sigma_own
        for other in self._schedule.partners(self._party):
            shared = self._noise.shared_normal(other, NoiseGroup.CANCELLING, 0, size)
            # One end adds and the other subtracts: the larger number adds.
            hidden = hidden + shared * (self._parameters.sigma_pair if other < self._party else -self._parameters.sigma_pair)
        return hidden
