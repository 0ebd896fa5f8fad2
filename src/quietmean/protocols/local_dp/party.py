"""A party that publishes its noisy value."""

from __future__ import annotations

from quietmean.core.noise import NoiseGroup
from quietmean.core.party import NoiseSource, Release, Vector
from quietmean.protocols.publishing import PublishingParty


class LocalDpParty(PublishingParty):
    """Publishes its value (d,) with Gaussian noise of standard deviation ``sigma``."""

    def __init__(self, sigma: float, value: Vector, weight: float, noise: NoiseSource) -> None:
        super().__init__(Release(value + noise.normal(NoiseGroup.INDEPENDENT, 0, value.size) * sigma, weight))
