"""One party of Muffliato, as a state machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quietmean.core.noise import NoiseGroup
from quietmean.core.party import Message, PartyId, Release, Step, Vector
from quietmean.protocols.muffliato.mixing import shares
from quietmean.protocols.muffliato.spec import MuffliatoParameters
from quietmean.protocols.private_value import PrivateValue


@dataclass(frozen=True, slots=True)
class MuffliatoState:
    """``held`` is x(t), shape (d,), with its weight; ``previous`` is x(t-1)."""

    round: int
    held: Vector
    weight: float
    previous: Vector
    previous_weight: float


class MuffliatoParty(PrivateValue[MuffliatoParameters]):
    """Adds noise once, then sends what it holds to its neighbours, round after round, and averages with theirs.

    An exchange counts for a party if it knows that both messages arrived. If both parties know, the exchange does not change the
    sum over all parties. If only one of the two messages arrived, neither party uses it, though its receiver has seen it. If one
    party does not know that its own message arrived, only the other one uses the exchange.
    """

    state_type = MuffliatoState

    @property
    def rounds(self) -> int:
        return self._parameters.rounds

    def start(self) -> Step[MuffliatoState]:
        numbers, sigma = self._numbers, self._parameters.sigma
        own = numbers.noise(self._noise, NoiseGroup.INDEPENDENT, 0, sigma, self._value.size)
        noisy = numbers.total([self._value, own])
        return self._proceed(MuffliatoState(1, noisy, self._weight, noisy, self._weight))

    def end_round(
        self, state: MuffliatoState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[MuffliatoState]:
        planned = shares(self._schedule, state.round, self._party)
        exchanged = [message for message in received if message.sender in delivered and message.sender in planned]
        # In a fixed order, so that a restarted party gets the same sum to the last bit.
        exchanged.sort(key=lambda message: message.sender)
        kept = 1.0 - sum(planned[message.sender] for message in exchanged)
        mixed, weight = state.held * kept, state.weight * kept
        for message in exchanged:
            share = planned[message.sender]
            mixed, weight = mixed + message.vector * share, weight + message.weight * share
        return self._proceed(self._accelerated(state, mixed, weight))

    def miss_round(self, state: MuffliatoState) -> Step[MuffliatoState]:
        later = self._accelerated(state, state.held, state.weight)
        return Step(later) if later.round > self.rounds else self._proceed(later)

    def expects(self, state: MuffliatoState) -> frozenset[PartyId]:
        return self._schedule.senders(state.round, self._party)

    def _accelerated(self, state: MuffliatoState, mixed: Vector, weight: float) -> MuffliatoState:
        momentum = self._parameters.gamma
        held = mixed * momentum + state.previous * (1.0 - momentum)
        its_weight = momentum * weight + (1.0 - momentum) * state.previous_weight
        return MuffliatoState(state.round + 1, held, its_weight, state.held, state.weight)

    def _proceed(self, state: MuffliatoState) -> Step[MuffliatoState]:
        if state.round > self.rounds:
            return Step(state, release=Release(state.held, state.weight))
        recipients = self._schedule.recipients(state.round, self._party)
        if not recipients:
            return Step(state)
        return Step(state, (Message(self._party, recipients, state.round, state.held, state.weight),))
