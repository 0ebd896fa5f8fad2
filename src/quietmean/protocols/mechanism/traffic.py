"""What is sent: how often, how much, by which way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from quietmean.graphs import Schedule
from quietmean.protocols.mechanism.cost import PlanningCost
from quietmean.randomness import Seed

if TYPE_CHECKING:
    from quietmean.protocols.target import Target


class SendsMessages(ABC):
    """By default a vector of float64 a message, over connections.

    ``transfers_mass``: what a party sends is subtracted from what it holds, and must be added again if it does not arrive.
    ``refuses_messages``: a party may stop accepting messages of its schedule. If false, it must expect all of them.
    ``sends_to_all``: in nearly all rounds everybody may send to all others; execution files then do not list these messages.
    ``shares_noise``: pairs of parties draw the same noise, from keys that they agreed on before. ``agrees_on_keys``: its messages
    carry keys of X25519, through one of the parties. ``deals_value``: a party's machine needs its value for its first step alone,
    and has a method ``forget_value`` for when that is durable.
    """

    transfers_mass: ClassVar[bool] = False
    refuses_messages: ClassVar[bool] = False
    sends_to_all: ClassVar[bool] = False
    shares_noise: ClassVar[bool] = False
    agrees_on_keys: ClassVar[bool] = False
    deals_value: ClassVar[bool] = False

    @property
    @abstractmethod
    def rounds(self) -> int:
        """The number T of rounds before the release."""

    @abstractmethod
    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        """The recipients of every party in every round, from a public seed."""

    @property
    def usual_rounds(self) -> int:
        """The rounds of a run in which nothing is repeated: dropouts that plans and simulations count with spread over these."""
        return self.rounds

    def is_overheard(self, round_: int) -> bool:
        """Are messages of this round sent over open channels, so that every party is assumed to know them?"""
        return False

    @property
    def by_file(self) -> bool:
        """Whether a party's release follows from its value, its noise and the parties' keys alone: a file can carry it."""
        return False

    @property
    def grid(self) -> float:
        """The step of the public grid of all vectors that are sent or released (32 bits a coordinate); 0 for float64."""
        return 0.0

    def planning_cost(self, target: Target) -> PlanningCost:
        """What making a plan takes, about: measured, and the same on every machine. Nothing worth a word by default."""
        return PlanningCost()

    def mixing_messages(self, parties: int) -> float:
        """Messages that a party sends on average before the result is sent to all; an estimate where runs differ in length."""
        return float(self.draw_schedule(parties, Seed.public("cost")).out_degree.sum()) / parties

    def message_bytes(self, parties: int, dimension: int) -> float:
        """Bytes of one of these messages on average, without framing."""
        return self.vector_bytes(dimension)

    def vector_bytes(self, dimension: int) -> float:
        """Bytes of a vector that is sent or released."""
        return (4.0 if self.grid else 8.0) * dimension

    def content_limit(self, parties: int, dimension: int) -> int:
        """The most bytes of content that any message has; 0 where messages are vectors."""
        return 0
