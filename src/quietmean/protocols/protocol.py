"""What a protocol must bring: a frozen value with its parameters, a party machine, and a program of the whole population."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.late import from_above
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, PopulationNoise, Vector
from quietmean.core.schema import OPEN, Configured, Parameter, nearest, parameters_of
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.target import Target
from quietmean.randomness import Seed
from quietmean.transcript import Transcript
from quietmean.transcript.numbers import REAL, Arithmetic, NumericReading, NumericTerms
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion
    from quietmean.transcript.symbols import SymbolicReading

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


class Protocol(Configured, ABC):
    """A configured protocol: a frozen value whose fields are its parameters; noise levels are standard deviations.

    Fields that are open are filled in for a target. Class attributes say what is true of the protocol whatever its parameters:

    ``guarantee``: what it promises, one clause, which every certificate prints.

    ``linear``: machines only add, subtract and scale, so that the declared transcript can be traced; without it the transcript
    describes what the protocol's own (computational) claim leaves visible, which ``guarantee`` names.
    ``releases_are_public``: what a party releases is told to everybody; without it every party ends with the mean by itself.
    ``transfers_mass``: what a party sends is taken out of what it holds, and must be put back if it does not arrive.
    ``refuses_messages``: a party may stop taking messages that its schedule has; without it, it must expect all of them.
    ``tolerates_dropouts``: parties may leave for good without being exposed; else a protocol is planned only if it is named.
    ``batchable``: independent executions may be run as one large one; false where party numbers carry roles.
    ``domain``: which values it takes; one that does not take any bounded set of them is planned only when it is named.
    ``has_transcript``: false where a view has no linear-Gaussian description, and ``guarantee`` is all there is to certify.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    server: ClassVar[Server] = Server.NONE
    trust: ClassVar[str] = "no server"
    guarantee: ClassVar[str] = "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional"
    private: ClassVar[bool] = True
    linear: ClassVar[bool] = True
    releases_are_public: ClassVar[bool] = True
    transfers_mass: ClassVar[bool] = False
    refuses_messages: ClassVar[bool] = False
    tolerates_dropouts: ClassVar[bool] = True
    batchable: ClassVar[bool] = True
    domain: ClassVar[str] = ANY_DOMAIN
    has_transcript: ClassVar[bool] = True

    # --- from what is written to a value, and to one that is complete ---

    @classmethod
    def parse(cls, raw: Mapping[str, Any], parties: int) -> Self:
        """The complete value that an execution file describes. Raises :class:`InputError`."""
        return cls.read(raw).resolved(parties)

    @classmethod
    def options(cls) -> dict[str, Parameter]:
        """What who plans may choose, by its name in files."""
        return {one.key: one for one in parameters_of(cls).values() if one.option}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From options by name; all else is open. Raises :class:`InputError` for unknown ones, with the nearest known name."""
        cls.refuse_unknown(options)
        return cls.read(options)

    @classmethod
    def refuse_unknown(cls, options: Iterable[str]) -> None:
        """Raises :class:`InputError` for a name that is no option, with the nearest one that is."""
        known = cls.options()
        for name in options:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise InputError(f"protocol {cls.name} has no option {name!r}{nearest(name, known)}: it has {listed}")

    def resolved(self, parties: int) -> Self:
        """Complete, for so many parties, with what files may leave out. Raises :class:`InputError` for what is missing."""
        self.require_complete()
        self.check_parties(parties)
        return self

    def check_parties(self, parties: int) -> None:
        """Raises :class:`InputError` for parameters that do not fit the number of parties."""
        return

    def template(self, target: Target) -> Self:
        """Complete, for calibration: noise levels of 1, and what is open as it is best for the target."""
        return self.filled(**self.defaults(target)).with_noise(1.0, 1.0).resolved(target.parties)

    def defaults(self, target: Target) -> dict[str, Any]:
        """Values of open fields, as they are best for a target."""
        return {}

    def with_noise(self, star: float, delta: float) -> Self:
        """The same with other noise levels: ``star`` stays in the result, ``delta`` is cancelled (unused where there is none)."""
        return self

    def finalize(self, target: Target) -> Self:
        """With what depends on the calibrated noise filled in. Raises :class:`InputError` where none will do."""
        return self

    def refuse_levels(self) -> None:
        """Raises :class:`InputError` where something is given that calibration is to find."""
        for name, one in parameters_of(type(self)).items():
            value = getattr(self, name)
            if not one.option and value is not OPEN and value != one.default:
                raise InputError(f"{one.key} is given, but calibration chooses it: leave it out")

    def calibrate(self, target: Target, *, calibration: str = "exact", executions: int | None = None) -> Any:
        """The :class:`~quietmean.planning.plan.Plan` of this protocol for a target: what is open is chosen, its noise above all.

        See :func:`quietmean.planning.calibrate.calibrate`. Raises :class:`InputError` for what cannot be had.
        """
        calibrate = from_above("quietmean.planning.calibrate", "calibrate")
        return calibrate(target, self, calibration=calibration, executions=executions)

    # --- what happens ---

    @property
    @abstractmethod
    def rounds(self) -> int:
        """The number T of rounds before the release."""

    @abstractmethod
    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        """Who sends to whom, from a public seed."""

    def fixed_schedule(self, parties: int) -> Schedule | None:
        """The schedule where the parameters alone say it: execution files then leave it out. None where a seed decides."""
        return None

    @abstractmethod
    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PartyMachine[Any]:
        """The party's state machine, bound to its value (d,), its public weight and its noise."""

    def population(
        self,
        schedule: Schedule,
        trace: ExecutionTrace,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        """All parties at once, values of n rows: the machines' linear computation, whether read with numbers or with symbols.

        A protocol without such a program brings :meth:`transcript` and :meth:`batch` itself.
        """
        raise TypeError(f"{self.name} has no population program: it has to bring its own transcript and batch")

    def arithmetic(self) -> Arithmetic:
        """The numbers that parties hold; they divide and round as the machines do."""
        return REAL

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """The program with symbols: equal to the traced one, or (see :meth:`full_transcript`) worth the same to any coalition."""
        return self.symbols(schedule, trace).transcript()

    def symbols(self, schedule: Schedule, trace: ExecutionTrace) -> SymbolicReading:
        """The program read with symbols."""
        # Running parties need no matrices: they start without this import.
        from quietmean.transcript.symbols import SymbolicReading

        reading, weights = SymbolicReading(schedule.parties), np.ones(schedule.parties)
        self.population(schedule, trace, reading.values, weights, reading.noise, reading)
        return reading

    def full_transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """Equal to the traced one; overridden where :meth:`transcript` leaves out what follows from the rest."""
        return self.transcript(schedule, trace)

    def batch(
        self, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: NDArray[np.float64], noise: PopulationNoise
    ) -> Releases:
        """The program with numbers, values (n, d): equal to the machines on the same noise, up to rounding."""
        self.check_values(values)
        reading, terms = NumericReading(values, self.arithmetic()), NumericTerms(noise, *values.shape)
        results = self.population(schedule, trace, reading.values, weights, terms, reading)
        return Releases(reading.vectors(results.rows), results.weight, results.by)

    def loss_conversion(
        self, schedule: Schedule, trace: ExecutionTrace, weights: NDArray[np.float64], delta: float
    ) -> LossConversion:
        """How the view that the transcript describes becomes (epsilon, delta); exact where all noise is Gaussian."""
        # Only now: it would take long to start, and running parties never come here.
        from quietmean.privacy import GAUSSIAN

        return GAUSSIAN

    # --- who plays which part ---

    def releasers(self, parties: int) -> frozenset[PartyId]:
        """Who releases something at the end if it stays online."""
        return frozenset(range(parties))

    @property
    def trusted(self) -> frozenset[PartyId]:
        """Parties that the protocol's claim needs honest: a coalition with one of them learns everything."""
        return frozenset()

    @property
    def indispensable(self) -> frozenset[PartyId]:
        """Parties without whom there is no result: plans and simulations assume that they stay. Those trusted, by default."""
        return self.trusted

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> NDArray[np.bool_]:
        """Whose value is in the result, shape (n,)."""
        return trace.finished

    # --- values, and what is sent ---

    @property
    def grid(self) -> float:
        """The step of the public grid on which all vectors lie that are sent or released (32 bits each); 0 for float64."""
        return 0.0

    @property
    def is_linear(self) -> bool:
        """:attr:`linear`, where it depends on the parameters."""
        return self.linear

    def is_overheard(self, round_: int) -> bool:
        """Do messages of this round go over open channels, so that everybody is taken to know them?"""
        return False

    def project_to_domain(self, values: Vector, weights: NDArray[np.float64]) -> Vector:
        """Values (n, d) made to fit ``domain``, for simulations and tests: as they are, unless it is a domain of its own."""
        return values

    def check_values(self, values: Vector) -> None:
        """Raises :class:`InputError` if values, (d,) or (n, d), have no room in the plan. Its text does not tell them."""
        return

    def message_bytes(self, parties: int, dimension: int) -> float:
        """Bytes of one message on average, without framing."""
        return self.vector_bytes(dimension)

    def vector_bytes(self, dimension: int) -> float:
        """Bytes of a vector that is sent or released."""
        return (4.0 if self.grid else 8.0) * dimension

    def content_limit(self, parties: int, dimension: int) -> int:
        """The most bytes of content that any message has; 0 where messages are vectors."""
        return 0

    # --- results ---

    def decode(self, parties: int, vector: Vector, weight: float) -> Vector:
        """The estimate from the sums of all releases: public post-processing."""
        return vector / weight

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: NDArray[np.float64]) -> float | None:
        """Variance per coordinate of the noise in the result, where it does not follow from what is released to all.

        Where each party ends with a result of its own: the largest over the parties that finished. Infinite without a result.
        """
        return None

    def report_fields(self, target: Target) -> dict[str, Any]:
        """What else to report of a plan, in the terms of the protocol's own paper: plain JSON data."""
        return {}

    def warnings(self, state: Any) -> tuple[str, ...]:
        """What a party should tell its user about its last state: for people, and public."""
        return ()


@dataclass(frozen=True)
class Design:
    """A protocol made for a target, the predicted error per coordinate (noise; lost values), and what is certified."""

    protocol: Protocol
    mse_noise: float
    mse_dropout_bias: float
    certificate: str


class SelfCalibrating(Protocol):
    """A protocol that finds its noise by itself; others are calibrated on simulated executions."""

    @abstractmethod
    def design(self, target: Target) -> Design:
        """The complete value for a target, computed directly. Raises :class:`InputError` where there is none."""


class Aggregated(Protocol):
    """A protocol in which one party, ``aggregator``, gathers what the others send, and releases; None if all publish."""

    batchable = False

    @property
    @abstractmethod
    def aggregator(self) -> PartyId | None: ...

    def check_parties(self, parties: int) -> None:
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
