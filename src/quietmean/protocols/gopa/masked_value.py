"""The common part of all machines of GOPA: a value under its party's own noise and the noise that pairs share."""

from __future__ import annotations

from collections.abc import Iterable

from quietmean.core.noise import NoiseGroup
from quietmean.core.numbers import numbers_for
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.gopa.spec import GopaParameters, sign


class MaskedValue:
    """One party's value, its noise, and its partners by the schedule."""

    def __init__(
        self,
        parameters: GopaParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> None:
        self._parameters = parameters
        self._schedule = schedule
        self._party = party
        self._partners = schedule.partners(party)
        self._numbers = numbers_for(value, parameters.numbers())
        self._value = self._numbers.value(value)
        self._weight = weight
        self._noise = noise

    def _masked(self, partners: Iterable[PartyId]) -> Vector:
        """Value, own noise and the noise shared with each of these partners."""
        size, sigma = self._value.size, self._parameters.sigma_star
        own = self._numbers.noise(self._noise, NoiseGroup.INDEPENDENT, 0, sigma, size)
        return self._numbers.total([self._value, own, *map(self._shared, partners)])

    def _shared(self, other: PartyId) -> Vector:
        size, sigma = self._value.size, self._parameters.sigma_delta
        shared = self._numbers.shared_noise(self._noise, other, NoiseGroup.CANCELLING, 0, sigma, size)
        return shared * sign(self._party, other)
