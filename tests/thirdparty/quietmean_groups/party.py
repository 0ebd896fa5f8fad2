"""One party: publishes its value under its own noise and under noise that it shares with the others of its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import Schedule


@dataclass(frozen=True, slots=True)
class GroupMasksState:
    """All that a party must remember: which round it is."""

    round: int


class GroupMasksParty:
    """Sends nothing to anybody in particular. Round 1 means publishing: a party that misses it has published nothing."""

    rounds = 1
    state_type = GroupMasksState

    def __init__(
        self,
        sigmas: tuple[float, float],
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> None:
        self._sigma_star, self._sigma_delta = sigmas
        self._schedule = schedule
        self._party = party
        self._value = value
        self._weight = weight
        self._noise = noise

    def start(self) -> Step[GroupMasksState]:
        return Step(GroupMasksState(1))

    def end_round(
        self, state: GroupMasksState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[GroupMasksState]:
        return Step(GroupMasksState(2), release=Release(self._hidden_value(), self._weight))

    def miss_round(self, state: GroupMasksState) -> Step[GroupMasksState]:
        return Step(GroupMasksState(2))

    def expects(self, state: GroupMasksState) -> frozenset[PartyId]:
        return frozenset()

    def _hidden_value(self) -> Vector:
        size = self._value.size
        hidden = self._value + self._noise.normal("star", 0, size) * self._sigma_star
        for other in self._schedule.partners(self._party):
            # Both ends draw the same. The larger number adds it and the smaller subtracts it, so that it cancels.
            sign = 1.0 if self._party > other else -1.0
            hidden = hidden + self._noise.shared_normal(other, "delta", 0, size) * (sign * self._sigma_delta)
        return hidden
