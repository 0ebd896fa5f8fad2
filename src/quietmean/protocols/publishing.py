"""The machine of parties that only publish something. No message is sent to a single party."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quietmean.core.party import Message, PartyId, Release, Step


@dataclass(frozen=True, slots=True)
class PublishingState:
    """The round in progress, nothing else."""

    round: int


# Why an eavesdropper on protocols of such parties learns no more than the public.
ALL_PUBLISHED = "all that a party sends is published"


class PublishingParty:
    """Publish in round 1: a party that misses it publishes nothing."""

    rounds = 1
    state_type = PublishingState

    def __init__(self, release: Release) -> None:
        self._release = release

    def start(self) -> Step[PublishingState]:
        return Step(PublishingState(1))

    def end_round(
        self, state: PublishingState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[PublishingState]:
        return Step(PublishingState(2), release=self._release)

    def miss_round(self, state: PublishingState) -> Step[PublishingState]:
        return Step(PublishingState(2))

    def expects(self, state: PublishingState) -> frozenset[PartyId]:
        return frozenset()
