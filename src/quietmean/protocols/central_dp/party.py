"""A party that sends its value to the curator, and the curator, which adds the values up and publishes the noisy sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quietmean.core.noise import NoiseGroup
from quietmean.core.numbers import Numbers, numbers_for
from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector, total_weight
from quietmean.graphs import Schedule


@dataclass(frozen=True, slots=True)
class CentralDpState:
    """The round in progress, nothing else."""

    round: int


class CentralDpParty:
    """A party or, if its number is that of the curator, the curator; its value has shape (d,)."""

    rounds = 1
    state_type = CentralDpState

    def __init__(
        self,
        sigma: float,
        numbers: Numbers,
        curator: PartyId,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> None:
        self._sigma = sigma
        self._is_curator = party == curator
        self._schedule = schedule
        self._party = party
        self._numbers = numbers_for(value, numbers)
        self._value = self._numbers.value(value)
        self._weight = weight
        self._noise = noise

    def start(self) -> Step[CentralDpState]:
        if self._is_curator:
            return Step(CentralDpState(1))
        recipients = self._schedule.recipients(1, self._party)
        return Step(CentralDpState(1), (Message(self._party, recipients, 1, self._value, self._weight),))

    def end_round(
        self, state: CentralDpState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[CentralDpState]:
        if not self._is_curator:
            return Step(CentralDpState(2))
        messages = sorted(received, key=lambda message: message.sender)
        weight = total_weight(self._weight, messages)
        noise = self._numbers.noise(self._noise, NoiseGroup.INDEPENDENT, 0, self._sigma, self._value.size)
        total = self._numbers.total([self._value, *(message.vector for message in messages), noise])
        return Step(CentralDpState(2), release=Release(total, weight))

    def miss_round(self, state: CentralDpState) -> Step[CentralDpState]:
        return Step(CentralDpState(2))

    def expects(self, state: CentralDpState) -> frozenset[PartyId]:
        return self._schedule.senders(1, self._party)
