"""A party of CorDP-DME: one message, hidden by own noise and by noise shared with its partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quietmean.core.noise import NoiseGroup
from quietmean.core.party import Message, PartyId, Release, Step, Vector, total_weight
from quietmean.protocols.cordp_dme.spec import CordpDmeParameters
from quietmean.protocols.private_value import PrivateValue


@dataclass(frozen=True, slots=True)
class CordpDmeState:
    """``hidden``: the value with all noise on it, shape (d,), while this party still has to publish it; else None."""

    round: int
    hidden: Vector | None


class CordpDmeParty(PrivateValue[CordpDmeParameters]):
    """Draws all noise before the round. In the round it sends the hidden value to the aggregator; without one it publishes it.

    The aggregator adds what it received to its own and publishes the sum.
    """

    rounds = 1
    state_type = CordpDmeState

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
        # In a fixed order, so that a restarted party gets the same sum to the last bit.
        messages = sorted(received, key=lambda message: message.sender)
        total = self._numbers.total([state.hidden, *(message.vector for message in messages)])
        weight = total_weight(self._weight, messages)
        return Step(finished, release=Release(total, weight))

    def miss_round(self, state: CordpDmeState) -> Step[CordpDmeState]:
        return Step(CordpDmeState(2, None))

    def expects(self, state: CordpDmeState) -> frozenset[PartyId]:
        return self._schedule.senders(1, self._party)

    def _hidden_value(self) -> Vector:
        size, parameters, numbers = self._value.size, self._parameters, self._numbers
        hidden = self._value + numbers.noise(self._noise, NoiseGroup.INDEPENDENT, 0, parameters.sigma_own, size)
        for other in self._schedule.partners(self._party):
            # One end adds and the other subtracts: the larger number adds.
            sign = 1.0 if other < self._party else -1.0
            shared = numbers.noise(self._noise, NoiseGroup.CANCELLING, 0, parameters.sigma_pair, size, shared_with=other)
            hidden = hidden + shared * sign
        return numbers.total([hidden])
