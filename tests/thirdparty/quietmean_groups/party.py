"""One party: publishes its value under its own noise and under noise that it shares with the others of its group."""

from __future__ import annotations

from quietmean.core.party import NoiseSource, PartyId, Release, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.publishing import PublishingParty


class GroupMasksParty(PublishingParty):
    """Sends nothing to anybody in particular. Round 1 means publishing: a party that misses it has published nothing."""

    def __init__(
        self, sigmas: tuple[float, float], schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> None:
        sigma_star, sigma_delta = sigmas
        hidden = value + noise.normal("star", 0, value.size) * sigma_star
        for other in schedule.partners(party):
            # Both ends draw the same. The larger number adds it and the smaller subtracts it, so that it cancels.
            sign = 1.0 if party > other else -1.0
            hidden = hidden + noise.shared_normal(other, "delta", 0, value.size) * (sign * sigma_delta)
        super().__init__(Release(hidden, weight))
