"""Parties that publish, to all or to one that collects: what machines of several protocols are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from quietmean.core.errors import InputError
from quietmean.core.grid import numbers_for
from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.discrete import DiscreteNoise
from quietmean.protocols.traits import Server, Traits


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


Parameters = TypeVar("Parameters", bound=DiscreteNoise)


class PrivateValue(Generic[Parameters]):
    """One party's ``value`` (d,) with its public ``weight``, where it is in the ``schedule``, and what draws its ``noise``."""

    def __init__(
        self, parameters: Parameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> None:
        self._parameters, self._schedule, self._party = parameters, schedule, party
        self._numbers = numbers_for(value, parameters.numbers())
        self._value, self._weight, self._noise = self._numbers.value(value), weight, noise


class ContentError(Exception):
    """A content that is not exactly of its form, or a request that must be refused; its text states why."""


def with_collector(traits: Traits, collector: PartyId | None) -> Traits:
    """Traits of a protocol with this party as its collector; None if all publish."""
    asked_for = collector is not None and traits.server == Server.NONE
    return replace(traits, collector=collector, trust=traits.trust_with_collector if asked_for else traits.trust)


def check_collector(collector: PartyId | None, parties: int, key: str = "aggregator") -> None:
    """Raises :class:`InputError` if the collector is not one of the parties."""
    if collector is not None and not 0 <= collector < parties:
        raise InputError(f"{key} is {collector}. Choose one of 0..{parties - 1}.")


def to_collector(parties: int, collector: PartyId | None) -> list[list[PartyId]]:
    """Recipients of a round in which all others send to the collector."""
    return [[] if collector is None or party == collector else [collector] for party in range(parties)]


def from_collector(parties: int, collector: PartyId | None) -> list[list[PartyId]]:
    """Recipients of a round in which the collector sends to all others."""
    return [[other for other in range(parties) if other != party] if party == collector else [] for party in range(parties)]
