"""One party of push-sum with injections (IncA, Algorithm 2), as a state machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from quietmean.core.noise import NoiseGroup
from quietmean.core.numbers import numbers_for
from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.push_sum.parameters import GUARD_TERM, PushSumParameters, Terms


@dataclass(frozen=True, slots=True)
class PushSumState:
    """``held`` is y, shape (d,); ``weight`` the portion of values in it; ``injections`` how many rows (c, Z) were used."""

    round: int
    held: Vector
    weight: float
    injections: int


class PushSumParty:
    """Holds y, sends equal shares of it each round, adds the next portion of its noisy value."""

    state_type = PushSumState

    def __init__(
        self,
        parameters: PushSumParameters,
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
        numbers = self._numbers = numbers_for(value, parameters.numbers())
        star, delta, guard = parameters.sigma_star, parameters.sigma_delta, parameters.sigma_guard
        size = value.size
        self._noisy_value = numbers.value(value) + numbers.noise(noise, NoiseGroup.INDEPENDENT, 0, star, size)
        # A row mostly subtracts the noise that the one before it added: that need not be drawn twice.
        self._cancelled_noise = lru_cache(maxsize=2)(lambda index: numbers.draw(noise, NoiseGroup.CANCELLING, index, delta, size))
        self._guard = lru_cache(maxsize=1)(lambda: numbers.draw(noise, NoiseGroup.GUARD, 0, guard, size))

    @property
    def rounds(self) -> int:
        return self._parameters.rounds

    def start(self) -> Step[PushSumState]:
        portion = float(self._parameters.injections.portion[0])
        injected = self._injection(portion, self._parameters.terms(0, last=False))
        return self._proceed(PushSumState(1, injected, portion * self._weight, 1))

    def end_round(self, state: PushSumState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[PushSumState]:
        injection = self._parameters.injections
        last = state.round == self.rounds
        portion = float(injection.portion[state.injections])
        terms = self._parameters.terms(state.injections, last=last)
        parts = self._parts(state.round)
        kept = self._numbers.kept(state.held, parts, len(delivered))
        weight = state.weight * (1.0 - len(delivered) * (1.0 / parts)) + portion * self._weight
        # In a fixed order, so that a restarted party gets the same sum to the last bit.
        messages = sorted(received, key=lambda message: (message.sender, message.round))
        for message in messages:
            weight += message.weight
        held = self._numbers.total([kept, self._injection(portion, terms), *(message.vector for message in messages)])
        return self._proceed(PushSumState(state.round + 1, held, weight, state.injections + 1))

    def miss_round(self, state: PushSumState) -> Step[PushSumState]:
        later = replace(state, round=state.round + 1)
        return Step(later) if later.round > self.rounds else self._proceed(later)

    def expects(self, state: PushSumState) -> frozenset[PartyId]:
        return self._schedule.senders(state.round, self._party)

    def _proceed(self, state: PushSumState) -> Step[PushSumState]:
        if state.round > self.rounds:
            return Step(state, release=Release(state.held, state.weight))
        recipients = self._schedule.recipients(state.round, self._party)
        if not recipients:
            return Step(state)
        parts = self._parts(state.round)
        share, weight = self._numbers.share(state.held, parts), state.weight * (1.0 / parts)
        return Step(state, (Message(self._party, recipients, state.round, share, weight),))

    def _parts(self, round_: int) -> int:
        return len(self._schedule.recipients(round_, self._party)) + 1

    def _injection(self, portion: float, terms: Terms) -> Vector:
        vector = self._noisy_value * portion
        for index, coefficient in terms:
            array, factor = self._guard() if index == GUARD_TERM else self._cancelled_noise(index)
            vector = vector + array * (coefficient * factor)
        # On a grid with discrete noise this is whole up to rounding, and becomes so exactly.
        return self._numbers.injected(vector)
