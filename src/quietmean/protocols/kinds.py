"""Kinds of protocols: those that find their noise by themselves, and those in which one party gathers what the others send."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.schema import parameters_of
from quietmean.protocols.mechanism import Mechanism
from quietmean.protocols.server import Server
from quietmean.protocols.target import Target


@dataclass(frozen=True)
class Design:
    """A protocol made for a target, the predicted mean squared error per coordinate (noise; lost values), and its certificate."""

    protocol: Mechanism
    mse_noise: float
    mse_dropout_bias: float
    certificate: str


class SelfCalibrating(Mechanism):
    """A protocol that finds its noise by itself; others are calibrated on simulated executions.

    ``keeps_nats``: it can be planned for a target in nats.
    """

    keeps_nats: ClassVar[bool] = False

    @property
    def designed(self) -> bool:
        """Whether it does with these parameters."""
        return True

    @abstractmethod
    def design(self, target: Target) -> Design:
        """The complete value for a target, computed directly. Raises :class:`InputError` where there is none."""


class Aggregated(Mechanism):
    """A protocol in which one party, ``aggregator``, gathers what the others send, and releases; None if all publish.

    ``trust_with_collector``: who is trusted where there is one though there need not be.
    """

    batchable = False
    trust_with_collector: ClassVar[str] = "a collector that stays and adds up truly; it is not trusted with values"

    @property
    @abstractmethod
    def aggregator(self) -> PartyId | None:
        """The party that gathers what the others send."""

    @property
    def trusts(self) -> str:
        asked_for = self.aggregator is not None and self.server == Server.NONE
        return self.trust_with_collector if asked_for else self.trust

    def check_parties(self, parties: int) -> None:
        """Raises :class:`InputError` if the aggregator is none of the parties."""
        if self.aggregator is not None and not 0 <= self.aggregator < parties:
            name = parameters_of(type(self))["aggregator"].key
            raise InputError(f"{name} is {self.aggregator}: parties are numbered 0..{parties - 1}")

    def releasers(self, parties: int) -> frozenset[PartyId]:
        return super().releasers(parties) if self.aggregator is None else frozenset({self.aggregator})

    @property
    def indispensable(self) -> frozenset[PartyId]:
        return frozenset() if self.aggregator is None else frozenset({self.aggregator})

    def to_aggregator(self, parties: int) -> list[list[PartyId]]:
        """Recipients of a round in which all others send to the aggregator."""
        to = self.aggregator
        return [[] if to is None or party == to else [to] for party in range(parties)]

    def from_aggregator(self, parties: int) -> list[list[PartyId]]:
        """Recipients of a round in which the aggregator sends to all others."""
        return [
            [other for other in range(parties) if other != party] if party == self.aggregator else [] for party in range(parties)
        ]
