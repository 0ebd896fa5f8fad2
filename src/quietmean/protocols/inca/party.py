"""One party of IncA (Algorithm 2), as a state machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.inca.spec import IncaParameters, Terms


@dataclass(frozen=True, slots=True)
class IncaState:
    """``held`` is y, shape (d,); ``weight`` the portion of values in it; ``injections`` how many rows (c, Z) were used."""

    round: int
    held: Vector
    weight: float
    injections: int


class IncaParty:
    """Holds y, sends equal shares of it each round, adds the next portion of its noisy value."""

    state_type = IncaState

    def __init__(
        self,
        parameters: IncaParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> None:
        self._parameters = parameters
        self._schedule = schedule
        self._party = party
        self._weight = weight
        self._noise = noise
        self._dimension = value.size
        self._noisy_value = value + self._scaled_noise("star", 0, parameters.sigma_star)

    @property
    def rounds(self) -> int:
        return self._parameters.rounds

    def start(self) -> Step[IncaState]:
        portion = float(self._parameters.injection.portion[0])
        held = self._add_noise(self._noisy_value * portion, self._parameters.injection.rows[0])
        return self._proceed(IncaState(1, held, portion * self._weight, 1))

    def end_round(self, state: IncaState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[IncaState]:
        injection = self._parameters.injection
        last = state.round == self.rounds
        portion = float(injection.portion[state.injections])
        kept = 1.0 - len(delivered) * self._share(state.round)
        held = state.held * kept + self._noisy_value * portion
        weight = state.weight * kept + portion * self._weight
        # In a fixed order, so that a restarted party gets the same sum to the last bit.
        for message in sorted(received, key=lambda message: (message.sender, message.round)):
            held = held + message.vector
            weight += message.weight
        terms = injection.cancellations[state.injections] if last else injection.rows[state.injections]
        return self._proceed(IncaState(state.round + 1, self._add_noise(held, terms), weight, state.injections + 1))

    def miss_round(self, state: IncaState) -> Step[IncaState]:
        later = replace(state, round=state.round + 1)
        return Step(later) if later.round > self.rounds else self._proceed(later)

    def expects(self, state: IncaState) -> frozenset[PartyId]:
        return self._schedule.senders(state.round, self._party)

    def _proceed(self, state: IncaState) -> Step[IncaState]:
        if state.round > self.rounds:
            return Step(state, release=Release(state.held, state.weight))
        recipients = self._schedule.recipients(state.round, self._party)
        if not recipients:
            return Step(state)
        share = self._share(state.round)
        return Step(state, (Message(self._party, recipients, state.round, state.held * share, state.weight * share),))

    def _share(self, round_: int) -> float:
        return 1.0 / (len(self._schedule.recipients(round_, self._party)) + 1)

    def _add_noise(self, vector: Vector, terms: Terms) -> Vector:
        for index, coefficient in terms:
            vector = vector + self._scaled_noise("delta", index, coefficient * self._parameters.sigma_delta)
        return vector

    def _scaled_noise(self, purpose: str, index: int, scale: float) -> Vector:
        return self._noise.normal(purpose, index, self._dimension) * scale
