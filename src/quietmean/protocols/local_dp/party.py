"""A party that publishes its noisy value."""

from __future__ import annotations

from quietmean.core.noise import NoiseGroup
from quietmean.core.numbers import Numbers, numbers_for
from quietmean.core.party import NoiseSource, Release, Vector
from quietmean.protocols.publishing import PublishingParty


class LocalDpParty(PublishingParty):
    """Publishes its value (d,) with Gaussian noise of standard deviation ``sigma``, both as ``numbers``."""

    def __init__(self, sigma: float, numbers: Numbers, value: Vector, weight: float, noise: NoiseSource) -> None:
        numbers = numbers_for(value, numbers)
        noisy = numbers.value(value) + numbers.noise(noise, NoiseGroup.INDEPENDENT, 0, sigma, value.size)
        super().__init__(Release(noisy, weight))
