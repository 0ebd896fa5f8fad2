"""A party that publishes a private report of its unit vector."""

from __future__ import annotations

from quietmean.core.party import NoiseSource, Release, Vector
from quietmean.protocols.priv_unit.spec import PrivUnitParameters, direction_of, report
from quietmean.protocols.publishing import PublishingParty
from quietmean.randomness import BitStream, Seed


class PrivUnitParty(PublishingParty):
    """Publishes the report of :func:`private_report` on its value (d,)."""

    def __init__(self, parameters: PrivUnitParameters, value: Vector, weight: float, noise: NoiseSource) -> None:
        super().__init__(private_report(parameters, value, weight, noise))


def private_report(parameters: PrivUnitParameters, value: Vector, weight: float, noise: NoiseSource) -> Release:
    """PrivUnitG of the direction of ``value`` (d,), times the public weight. Raises as :func:`direction_of`."""
    stream = BitStream(Seed(noise.secret("report", 0)))
    return Release(report(parameters, direction_of(value, weight), stream) * weight, weight)
