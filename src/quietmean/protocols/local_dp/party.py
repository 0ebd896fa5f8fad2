"""A party that publishes its noisy value at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector


@dataclass(frozen=True, slots=True)
class LocalDpState:
    round: int


class LocalDpParty:
    rounds = 0
    state_type = LocalDpState

    def __init__(self, sigma: float, value: Vector, weight: float, noise: NoiseSource) -> None:
        self._release = Release(value + noise.normal("star", 0, value.size) * sigma, weight)

    def start(self) -> Step[LocalDpState]:
        return Step(LocalDpState(1), release=self._release)

    def end_round(self, state: LocalDpState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[LocalDpState]:
        raise ValueError("local DP has no rounds")

    def miss_round(self, state: LocalDpState) -> Step[LocalDpState]:
        raise ValueError("local DP has no rounds")

    def expects(self, state: LocalDpState) -> frozenset[PartyId]:
        return frozenset()
