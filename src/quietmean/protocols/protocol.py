"""What a protocol must bring: a party machine, and a program of the whole population over the same parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, PopulationNoise, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule
from quietmean.transcript import Transcript
from quietmean.transcript.numbers import REAL, Arithmetic, NumericReading, NumericTerms
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows
from quietmean.transcript.symbols import SymbolicReading

if TYPE_CHECKING:
    from quietmean.privacy import Accounting

Parameters = TypeVar("Parameters")
ANY_DOMAIN = "any bounded set"


@dataclass(frozen=True, eq=False)
class Releases:
    """What all parties made public: vectors (n, d), weights (n,), and who released at all (n,)."""

    vector: Vector
    weight: NDArray[np.float64]
    by: NDArray[np.bool_]

    def total(self) -> tuple[Vector, float]:
        """The sums of vectors (d,) and weights over all who released."""
        weight = float(self.weight[self.by].sum())
        if not self.by.any() or weight <= 0:
            raise ProtocolFailure("nobody released a result: all parties dropped out before the last round")
        return self.vector[self.by].sum(axis=0), weight

    def estimate(self) -> Vector:
        """The plain mean, shape (d,): total vector over total weight."""
        vector, weight = self.total()
        mean: Vector = vector / weight
        return mean


@dataclass(frozen=True)
class Demand:
    """What a protocol that designs itself is asked for: a guarantee against ``colluding`` of the parties.

    ``sensitivity``: L2 change of a party's value when one protected unit is replaced; a fraction ``dropouts`` leaves for good.
    """

    parties: int
    dimension: int
    epsilon: float
    delta: float
    sensitivity: float
    colluding: int
    dropouts: float

    @property
    def responding(self) -> int:
        """How many parties stay, at least 1."""
        return max(self.parties - int(self.dropouts * self.parties + 1e-9), 1)

    @property
    def value_variance(self) -> float:
        """Per coordinate, of values spread uniformly over the domain: the assumption that turns lost values into an error."""
        return (self.sensitivity**2 / self.dimension) / 12.0

    def responding_with(self, indispensable: int) -> dict[int, float]:
        """How many parties respond, with which probability, if ``indispensable`` ones (0 or 1) always stay."""
        one_more = indispensable * (1 - self.responding / self.parties)
        chances = {self.responding: 1 - one_more, self.responding + 1: one_more}
        return {count: chance for count, chance in chances.items() if chance > 0}

    def dropout_bias(self, responding: float) -> float:
        """Mean squared error per coordinate of the mean of ``responding`` values for that of all."""
        return self.value_variance * (1.0 / responding - 1.0 / self.parties)


@dataclass(frozen=True)
class Design(Generic[Parameters]):
    """Parameters for a :class:`Demand`, the predicted error per coordinate (noise; lost values), and what is certified."""

    parameters: Parameters
    mse_noise: float
    mse_dropout_bias: float
    certificate: str


class Server(StrEnum):
    """What a protocol needs besides equal parties.

    ``collector``: one that gathers what parties send and must stay, but need not be trusted with values; ``curator``: one that
    sees them.
    """

    NONE = "none"
    COLLECTOR = "collector"
    CURATOR = "curator"

    def allows(self, other: Server) -> bool:
        """Would who accepts this accept ``other`` too?"""
        order = list(Server)
        return order.index(other) <= order.index(self)


class Protocol(ABC, Generic[Parameters]):
    """A protocol, stateless. ``parameters`` is its frozen dataclass; noise levels in it are standard deviations.

    ``linear``: machines only add, subtract and scale, so that the declared transcript can be traced; without it the transcript
    describes what the protocol's own (computational) claim leaves visible, which ``guarantee`` names.
    ``releases_are_public``: what a party releases is told to everybody; without it every party ends with the mean by itself.
    ``sends_shares``: what a party sends is taken out of what it holds, and must be put back if it does not arrive.
    ``refuses_messages``: a party may stop taking messages that its schedule has; without it, it must expect all of them.
    ``lets_go``: parties may leave for good without being exposed; without it a protocol is planned only if it is named.
    ``stackable``: independent executions may be run as one large one; false where party numbers carry roles.
    ``domain``: which values it takes; one that does not take any bounded set of them is planned only when it is named.
    ``has_transcript``: false where a view has no linear-Gaussian description, and ``guarantee`` is all there is to certify.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    server: ClassVar[Server] = Server.NONE
    trust: ClassVar[str] = "no server"
    guarantee: ClassVar[str] = "(epsilon, delta)-differential privacy under replacement, unconditional, exact"
    private: ClassVar[bool] = True
    linear: ClassVar[bool] = True
    releases_are_public: ClassVar[bool] = True
    sends_shares: ClassVar[bool] = False
    refuses_messages: ClassVar[bool] = False
    lets_go: ClassVar[bool] = True
    stackable: ClassVar[bool] = True
    domain: ClassVar[str] = ANY_DOMAIN
    has_transcript: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def parse(self, raw: Mapping[str, Any], parties: int) -> Parameters:
        """Parameters from a JSON object, checked. Raises :class:`InputError`."""

    @abstractmethod
    def describe(self, parameters: Parameters) -> dict[str, Any]:
        """The inverse of :meth:`parse`: plain JSON data."""

    @abstractmethod
    def draft(self, parties: int, options: Mapping[str, Any]) -> Parameters:
        """Parameters for calibration: all noise levels 1, the rest from ``options`` or sensible defaults."""

    def defaults(self, demand: Demand) -> dict[str, Any]:
        """Options for :meth:`draft` that depend on what is demanded; those that a user gives come first."""
        return {}

    @abstractmethod
    def with_noise(self, parameters: Parameters, star: float, delta: float) -> Parameters:
        """The same with other noise levels: ``star`` stays in the result, ``delta`` is cancelled (unused where there is none)."""

    def completed(self, parameters: Parameters, demand: Demand) -> Parameters:
        """Calibrated parameters with what depends on the noise filled in. Raises :class:`InputError` where none will do."""
        return parameters

    def design(self, demand: Demand, options: Mapping[str, Any]) -> Design[Parameters] | None:
        """Parameters computed directly; None leaves it to calibration on simulated executions."""
        return None

    def figures(self, parameters: Parameters, demand: Demand) -> dict[str, Any]:
        """What else to report of a plan, in the terms of the protocol's own paper: plain JSON data."""
        return {}

    def remarks(self, parameters: Parameters, state: Any) -> tuple[str, ...]:
        """What a party should tell its user about its last state: for people, and public."""
        return ()

    def decode(self, parameters: Parameters, parties: int, vector: Vector, weight: float) -> Vector:
        """The estimate from the sums of all releases: public post-processing."""
        return vector / weight

    def counted(self, parameters: Parameters, schedule: Schedule, history: History) -> NDArray[np.bool_]:
        """Whose value is in the result, shape (n,)."""
        return history.finished

    def message_bytes(self, parameters: Parameters, parties: int, dimension: int) -> float:
        """Bytes of one message on average, without framing."""
        return self.vector_bytes(parameters, dimension)

    def vector_bytes(self, parameters: Parameters, dimension: int) -> float:
        """Bytes of a vector that is sent or released."""
        return (4.0 if self.grid(parameters) else 8.0) * dimension

    def grid(self, parameters: Parameters) -> float:
        """The step of the public grid on which all vectors lie that are sent or released (32 bits each); 0 for float64."""
        return 0.0

    def content_limit(self, parameters: Parameters, parties: int, dimension: int) -> int:
        """The most bytes of content that any message has; 0 where messages are vectors."""
        return 0

    def is_linear(self, parameters: Parameters) -> bool:
        """:attr:`linear`, where it depends on the parameters."""
        return self.linear

    def is_overheard(self, parameters: Parameters, round_: int) -> bool:
        """Do messages of this round go over open channels, so that everybody is taken to know them?"""
        return False

    def error_variance(
        self, parameters: Parameters, schedule: Schedule, history: History, weights: NDArray[np.float64]
    ) -> float | None:
        """Variance per coordinate of the noise in the result, where it does not follow from what is released to all.

        Where each party ends with a result of its own: the largest over the parties that finished. Infinite without a result.
        """
        return None

    @abstractmethod
    def rounds(self, parameters: Parameters) -> int:
        """The number T of rounds before the release."""

    @abstractmethod
    def schedule(self, parameters: Parameters, parties: int, seed: Seed) -> Schedule:
        """Who sends to whom, from a public seed."""

    def fixed_schedule(self, parameters: Parameters, parties: int) -> Schedule | None:
        """The schedule where the parameters alone say it: execution files then leave it out. None where a seed decides."""
        return None

    def releasers(self, parameters: Parameters, parties: int) -> frozenset[PartyId]:
        """Who releases something at the end if it stays online."""
        return frozenset(range(parties))

    def trusted(self, parameters: Parameters) -> frozenset[PartyId]:
        """Parties that the protocol's claim needs honest: a coalition with one of them learns everything."""
        return frozenset()

    def indispensable(self, parameters: Parameters) -> frozenset[PartyId]:
        """Parties without whom there is no result: plans and simulations assume that they stay. Those trusted, by default."""
        return self.trusted(parameters)

    def accepted(self, values: Vector, weights: NDArray[np.float64]) -> Vector:
        """Values (n, d) made to fit ``domain``, for simulations and tests: as they are, unless it is a domain of its own."""
        return values

    def check_values(self, parameters: Parameters, values: Vector) -> None:
        """Raises :class:`InputError` if values, (d,) or (n, d), have no room in the plan. Its text does not tell them."""
        return

    @abstractmethod
    def machine(
        self, parameters: Parameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> PartyMachine[Any]:
        """The party's state machine, bound to its value (d,), its public weight and its noise."""

    def population(
        self,
        parameters: Parameters,
        schedule: Schedule,
        history: History,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        """All parties at once, values of n rows: the machines' linear computation, whether read with numbers or with symbols.

        A protocol without such a program brings :meth:`transcript` and :meth:`batch` itself.
        """
        raise TypeError(f"{self.name} has no population program: it has to bring its own transcript and batch")

    def arithmetic(self, parameters: Parameters) -> Arithmetic:
        """The numbers that parties hold; they divide and round as the machines do."""
        return REAL

    def transcript(self, parameters: Parameters, schedule: Schedule, history: History) -> Transcript:
        """The declared transcript; equal to the traced one, or (see :meth:`full_transcript`) worth the same to any coalition."""
        return self.symbols(parameters, schedule, history).transcript()

    def symbols(self, parameters: Parameters, schedule: Schedule, history: History) -> SymbolicReading:
        """The program read with symbols."""
        reading, weights = SymbolicReading(schedule.parties), np.ones(schedule.parties)
        self.population(parameters, schedule, history, reading.values, weights, reading.noise, reading)
        return reading

    def full_transcript(self, parameters: Parameters, schedule: Schedule, history: History) -> Transcript:
        """Equal to the traced one; overridden where :meth:`transcript` leaves out what follows from the rest."""
        return self.transcript(parameters, schedule, history)

    def accounting(
        self, parameters: Parameters, schedule: Schedule, history: History, weights: NDArray[np.float64], delta: float
    ) -> Accounting:
        """How the view that the transcript describes becomes (epsilon, delta); exact where all noise is Gaussian."""
        # Only now: it would take long to start, and running parties never come here.
        from quietmean.privacy import GAUSSIAN

        return GAUSSIAN

    def batch(
        self,
        parameters: Parameters,
        schedule: Schedule,
        history: History,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
    ) -> Releases:
        """The program with numbers, values (n, d): equal to the machines on the same noise, up to rounding."""
        self.check_values(parameters, values)
        reading, terms = NumericReading(values, self.arithmetic(parameters)), NumericTerms(noise, *values.shape)
        results = self.population(parameters, schedule, history, reading.values, weights, terms, reading)
        return Releases(reading.vectors(results.rows), results.weight, results.by)
