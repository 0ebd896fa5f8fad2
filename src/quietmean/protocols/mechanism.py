"""What a protocol must bring: a frozen value with its parameters, a party machine, and a program of the whole population."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from quietmean.core import lazy
from quietmean.core.arrays import Array, Mask
from quietmean.core.assumptions import OVERHEARD, SHARED_KEYS, SILENT_WITH_GOSSIP, Assumption, with_own
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.errors import InputError, ProtocolFailure, named
from quietmean.core.grid import REAL, Numbers
from quietmean.core.keywords import python_call
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, PopulationNoise, Vector
from quietmean.core.schema import Configured, filled, parameters_of, require_complete
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.target import Target
from quietmean.protocols.traits import Traits, Volume
from quietmean.randomness import Seed
from quietmean.transcript import LockstepResult, Transcript, run_lockstep, trace_machines
from quietmean.transcript.numbers import NumericReading, NumericTerms, RealRows, divisible_rows
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion
    from quietmean.transcript.symbols import SymbolicReading


@dataclass(frozen=True, eq=False)
class Releases:
    """What all parties made public: vectors (n, d), weights (n,), and the parties ``by`` (n,) that released at all."""

    vector: Vector
    weight: Array
    by: Mask

    def total(self) -> tuple[Vector, float]:
        """The sums of vectors, (d,), and of weights over all that released. Raises :class:`ProtocolFailure` if there is none."""
        weight = float(self.weight[self.by].sum())
        if not self.by.any() or weight <= 0:
            raise ProtocolFailure(
                "nobody released a result, as all parties dropped out before the last round. Plan for fewer dropouts."
            )
        return self.vector[self.by].sum(axis=0), weight

    def estimate(self) -> Vector:
        """The plain mean, shape (d,): total vector over total weight."""
        vector, weight = self.total()
        mean: Vector = vector / weight
        return mean


NOTHING_BOUNDS = "nothing bounds what this protocol may give away"


@dataclass(frozen=True)
class Design:
    """A protocol made for a target, the predicted mean squared error per coordinate (noise; lost values), and its certificate."""

    protocol: Mechanism
    mse_noise: float
    mse_dropout_bias: float
    certificate: str


@dataclass(frozen=True)
class Closing:
    """What a party's last state says: public ``warnings`` for its user; ``nothing_published``: nobody can have published a thing.

    ``protocol``: the protocol with what the state says of the execution beyond its history, for receipts.
    """

    protocol: Mechanism
    warnings: tuple[str, ...] = ()
    nothing_published: bool = False


class Mechanism(Configured, ABC):
    """A configured protocol: a frozen value whose fields are its parameters; noise levels are standard deviations.

    Who writes one brings ``name`` and ``TRAITS``; ``rounds`` and :meth:`draw_schedule`; :meth:`machine`, and where machines in
    step are too slow :meth:`population`; :meth:`defaults` and :meth:`with_noise`, or a formula for the noise, :meth:`design`;
    and, for a promise before the start, :meth:`worst_coalition` and :meth:`a_priori`. All else has a default. Every value that
    a method takes is replaced by another at L2 distance <= ``sensitivity`` at most; trusted parties do not collude; ``delta``
    is where epsilon will be read. Arrays of parties have shape (n,), values (n, d).
    """

    name: ClassVar[str]
    TRAITS: ClassVar[Traits] = Traits()

    @cached_property
    def traits(self) -> Traits:
        """:attr:`TRAITS`, which hold for all parameters, with those that depend on them."""
        return self.TRAITS

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what is computed from them: functions in the traits cannot be pickled."""
        return {name: value for name, value in self.__dict__.items() if name != "traits"}

    def resolved(self, parties: int) -> Self:
        """The parameters, complete, with defaults for what files may leave out.

        Raises :class:`InputError` for what is missing or unfit.
        """
        require_complete(self)
        self.TRAITS.check_parties(self, parties)
        return self

    # --- the least noise for a target: by a formula, or by calibration on simulated executions ---

    def design(self, target: Target) -> Design | None:
        """The complete value for a target, by a formula. Raises :class:`InputError` where there is none; None for calibration."""
        return None

    def defaults(self, target: Target) -> dict[str, Any]:
        """The best values of open fields for a target. Raises :class:`InputError` for options that it cannot have."""
        return {}

    def with_noise(self, star: float, delta: float) -> Self:
        """The parameters with other noise: ``star`` stays in the result, ``delta`` is cancelled (unused where there is none).

        By default they are the fields ``sigma_star`` and ``sigma_delta``, where there are such.
        """
        levels = {"sigma_star": star, "sigma_delta": delta}
        return replace(self, **{name: level for name, level in levels.items() if name in parameters_of(type(self))})

    @python_call
    def calibrate(
        self, target: Target, *, calibration: str = "exact", executions: int | None = None, no_privacy: bool = False
    ) -> Any:
        """The plan of this protocol for a target: see :func:`quietmean.planning.calibrate.calibrate`."""
        require_privacy(self, no_privacy)
        return lazy.calibrate(target, self, calibration=calibration, executions=executions)

    # --- what is sent ---

    @property
    @abstractmethod
    def rounds(self) -> int:
        """The number T of rounds before the release."""

    @abstractmethod
    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        """The recipients of every party in every round, from a public seed."""

    def traffic(self, parties: int, dimension: int) -> Volume:
        """How much is sent; by default a vector a message, along the schedule."""
        return Volume(vector_bytes(self, dimension))

    # --- what is computed: by a party, and by all at once, read with numbers or with symbols ---

    @abstractmethod
    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PartyMachine[Any]:
        """The party's state machine, bound to its value (d,), its public weight and its noise."""

    def ending(self, state: Any) -> Closing:
        """What a party's last state tells."""
        return Closing(self)

    def population(
        self, schedule: Schedule, trace: ExecutionTrace, values: Rows, weights: Array, noise: PopulationTerms, out: Reading
    ) -> Results[Rows]:
        """All parties at once, linear and fast; a protocol without it is traced and simulated through its machines."""
        raise TypeError(f"{self.name} has no population program: its machines are all there is")

    def numbers(self) -> Numbers:
        """What values and noise are, for the machines and for the population program alike."""
        return REAL

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """The program with symbols: equal to the traced one, or with the same privacy loss. Without a program the traced one."""
        if not _has_program(self):
            return traced_transcript(self, schedule, trace, np.ones(schedule.parties))
        return program_transcript(self, schedule, trace)

    def batch(
        self, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, noise: PopulationNoise
    ) -> Releases:
        """The program with numbers: equal to the machines on the same noise, up to rounding. Raises :class:`InputError`."""
        self.TRAITS.inputs.check(self, values)
        if not _has_program(self):
            return released_by_machines(self, schedule, trace, values, weights, noise)
        # What is passed on is divided and rounded as the machines do it.
        arithmetic = (divisible_rows if self.traits.transfers_mass else RealRows)(self.numbers())
        reading, terms = NumericReading(values, arithmetic), NumericTerms(noise, len(values), values.shape[1], arithmetic.numbers)
        results = self.population(schedule, trace, reading.values, weights, terms, reading)
        return Releases(reading.vectors(results.rows), results.weight, results.by)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        """The parties whose values are in the result, shape (n,), if only in part."""
        return trace.finished

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> float | None:
        """Variance per coordinate of the noise in the result, at most, if it does not follow from the transcript. Else None."""
        return None

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        """The conversion of the view of the transcript into (epsilon, delta), by default in real arithmetic."""
        # Running parties do not need it.
        from quietmean.privacy import REAL_ARITHMETIC, WithoutNoise

        return REAL_ARITHMETIC if self.traits.private else WithoutNoise(unprotected(self))

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound | None:
        """mu of the view that the transcript describes, at most, whichever ``size`` parties collude; None without a formula."""
        return None

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        """What an execution costs at most, whichever ``size`` parties collude and are lost: it is promised, and reserved."""
        return APriori(math.inf, NOTHING_BOUNDS if self.traits.private else "nothing, since it adds no noise")


Protocol = TypeVar("Protocol", bound=Mechanism)


def template_of(protocol: Protocol, target: Target) -> Protocol:
    """The protocol complete, for calibration: noise levels of 1, and for open fields the best values for the target."""
    return filled(protocol, **protocol.defaults(target)).with_noise(1.0, 1.0).resolved(target.parties)


def decoded(protocol: Mechanism, parties: int, vector: Vector, weight: float, counted: int | None = None) -> Vector:
    """The estimate, (d,), from the sums of the releases of ``counted`` parties, by default of weight 1: post-processing."""
    return protocol.TRAITS.decode(protocol, parties, vector, weight, counted)


def vector_bytes(protocol: Mechanism, dimension: int) -> float:
    """Bytes of a vector that is sent or released."""
    return protocol.traits.coordinate_bytes(protocol) * dimension


def could_have(protocol: Mechanism, schedule: Schedule) -> bool:
    """Whether such a schedule is ever drawn, as far as that can be known: a document of a stranger may have any other."""
    traits = protocol.traits
    if traits.fixed_schedule and not np.array_equal(fixed_schedule(protocol, schedule.parties).neighbours, schedule.neighbours):
        return False
    return traits.can_draw(protocol, schedule)


def fixed_schedule(protocol: Mechanism, parties: int) -> Schedule:
    """The schedule of a protocol where the parameters alone determine it: no seed has a part in it."""
    return protocol.draw_schedule(parties, Seed.public("fixed"))


def hidden_variance(protocol: Mechanism) -> float:
    """The variance of the noise on a value in what all others together can know of it before its owner's release.

    Infinite where nothing can be known, or where no figure is given.
    """
    gate = protocol.TRAITS.gate
    return math.inf if gate is None else gate.variance(protocol)


def with_guard(protocol: Mechanism, variance: float) -> Mechanism:
    """The protocol with so much more noise, cancelled by the release, that :func:`hidden_variance` is at least that."""
    gate = protocol.TRAITS.gate
    guarded: Mechanism = protocol if gate is None else gate.guarded(protocol, variance)
    return guarded


def mixing_messages(protocol: Mechanism, parties: int, dimension: int) -> float:
    """Messages that a party sends on average before the result is sent to all; an estimate where runs differ in length."""
    stated = protocol.traffic(parties, dimension).messages
    return (
        stated if stated is not None else float(protocol.draw_schedule(parties, Seed.public("cost")).out_degree.sum()) / parties
    )


def _has_program(protocol: Mechanism) -> bool:
    return type(protocol).population is not Mechanism.population


def traced_transcript(protocol: Mechanism, schedule: Schedule, trace: ExecutionTrace, weights: Array) -> Transcript:
    """The transcript traced through the party machines."""
    return trace_machines(
        schedule.parties,
        lambda party, value, noise: protocol.machine(schedule, party, value, float(weights[party]), noise),
        trace,
        trace.arrivals(schedule),
        public_releases=protocol.traits.releases_are_public,
        overheard=protocol.traits.overheard,
        refusing=protocol.traits.refuses_messages,
    )


def run_machines(
    protocol: Mechanism, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, noise: PopulationNoise
) -> LockstepResult:
    """Run the party machines in step on values (n, d)."""
    machines = [
        protocol.machine(schedule, party, values[party], float(weights[party]), noise.party(party))
        for party in range(len(values))
    ]
    return run_lockstep(machines, trace, trace.arrivals(schedule), refusing=protocol.traits.refuses_messages)


def released_by_machines(
    protocol: Mechanism, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, noise: PopulationNoise
) -> Releases:
    """What the party machines release, run in step."""
    vector, weight, by = np.zeros_like(values), np.zeros(len(values)), np.zeros(len(values), dtype=np.bool_)
    for party, release in run_machines(protocol, schedule, trace, values, weights, noise).releases.items():
        vector[party], weight[party], by[party] = release.vector, release.weight, True
    return Releases(vector, weight, by)


def full_transcript(protocol: Mechanism, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
    """The transcript equal to the traced one, also where a protocol's own leaves out what follows from the rest."""
    if protocol.traits.transcript_is_full:
        return protocol.transcript(schedule, trace)
    return program_transcript(protocol, schedule, trace)


def program_transcript(protocol: Mechanism, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
    """The transcript of the population program: equal to the one that is traced through the machines."""
    return program_symbols(protocol, schedule, trace).transcript()


def program_symbols(protocol: Mechanism, schedule: Schedule, trace: ExecutionTrace) -> SymbolicReading:
    """The population program read with symbols."""
    # Running parties need no matrices: they start without this import.
    from quietmean.transcript.symbols import SymbolicReading

    reading, weights = SymbolicReading(schedule.parties), np.ones(schedule.parties)
    protocol.population(schedule, trace, reading.values, weights, reading.noise, reading)
    return reading


def is_private(protocol: Mechanism) -> bool:
    """Whether the protocol protects values, and there is noise."""
    levels = [getattr(protocol, name) for name in parameters_of(type(protocol)) if name.startswith("sigma")]
    # An open level is chosen by calibration.
    noisy = [bool(np.any(level > 0)) if isinstance(level, int | float | np.ndarray) else True for level in levels]
    return protocol.TRAITS.private and (not noisy or any(noisy))


def unprotected(protocol: Mechanism) -> str:
    """What there is to know about a protocol that is not private: one clause."""
    return f"{protocol.name} has no differential privacy, epsilon is infinite, and it reveals {protocol.TRAITS.reveals}"


def require_privacy(protocol: Mechanism, no_privacy: bool) -> None:
    """Raises :class:`InputError` for a protocol without privacy, unless that is what was asked for."""
    private = is_private(protocol)
    if no_privacy and private:
        raise InputError(f"no privacy is asked for, but {protocol.name} has it. Leave {named('no-privacy')} out.")
    if not (no_privacy or private):
        raise InputError(f"{unprotected(protocol)}. Choose another protocol, or ask for that with {named('no-privacy', 'True')}.")


def assumptions_of(protocol: Mechanism) -> tuple[Assumption, ...]:
    """All that figures about any execution take for granted, but for who colludes and what the numbers are.

    Those that hold for every protocol, with its own. Certificates, receipts, reports and commands show them.
    """
    traits = protocol.traits
    channels = (OVERHEARD,) if protocol.rounds > 1 and traits.overheard else ()
    silent = (SILENT_WITH_GOSSIP,) if traits.transfers_mass else ()
    shared = (SHARED_KEYS,) if traits.shares_noise else ()
    return with_own(*channels, *silent, *traits.assumptions, *shared)
