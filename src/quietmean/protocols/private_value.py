"""What the machine of a party has from its beginning to its end: its private value in the protocol's numbers, and its noise."""

from __future__ import annotations

from typing import Generic, TypeVar

from quietmean.core.numbers import numbers_for
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.discrete import DiscreteNoise

Parameters = TypeVar("Parameters", bound=DiscreteNoise)


class PrivateValue(Generic[Parameters]):
    """One party's ``value`` (d,) with its public ``weight``, where it is in the ``schedule``, and what draws its ``noise``."""

    def __init__(
        self, parameters: Parameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> None:
        self._parameters, self._schedule, self._party = parameters, schedule, party
        self._numbers = numbers_for(value, parameters.numbers())
        self._value, self._weight, self._noise = self._numbers.value(value), weight, noise
