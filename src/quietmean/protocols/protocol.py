"""What a protocol must bring: a frozen value with its parameters, a party machine, and a program of the whole population."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core import late
from quietmean.core.assumptions import OVERHEARD, SILENT_WITH_GOSSIP, Assumption, with_own
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.errors import InputError
from quietmean.core.input_domain import Ball, Box, InputDomain
from quietmean.core.numbers import REAL, Numbers
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, PopulationNoise, Vector
from quietmean.core.schema import OPEN, Configured, Parameter, nearest, parameters_of
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.eavesdropping import CanBeOverheard
from quietmean.protocols.literature import Publication
from quietmean.protocols.opening import Opening
from quietmean.protocols.releases import Releases
from quietmean.protocols.server import Server
from quietmean.protocols.target import Target
from quietmean.randomness import Seed
from quietmean.transcript import Transcript
from quietmean.transcript.numbers import Arithmetic, NumericReading, NumericTerms, RealRows
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion
    from quietmean.transcript.symbols import SymbolicReading

ANY_DOMAIN = "any bounded set"
NOTHING_BOUNDS = "nothing bounds what this protocol may give away"


class Protocol(Configured, CanBeOverheard, ABC):
    """A configured protocol: a frozen value whose fields are its parameters; noise levels are standard deviations.

    Fields that are open are filled in for a target. Class attributes state what holds for all parameters:

    ``sources``: publications that it comes from, its own first; ``aliases``: other names, each with the options it stands for.
    ``guarantee``: what it promises, one clause, which every certificate prints.
    ``private``: false where nothing protects values, and then ``reveals`` says what is revealed and to whom.
    ``linear``: machines only add, subtract and scale, so that the declared transcript can be traced. If false, the transcript
    describes what the protocol's own (computational) claim leaves visible, which ``guarantee`` names.
    ``releases_are_public``: what a party releases is known to all parties. If false, every party computes a result for itself.
    ``transfers_mass``: what a party sends is subtracted from what it holds, and must be added again if it does not arrive.
    ``refuses_messages``: a party may stop accepting messages of its schedule. If false, it must expect all of them.
    ``sends_to_all``: in nearly all rounds everybody may send to all others; execution files then do not list these messages.
    ``tolerates_dropouts``: parties may drop out permanently without being exposed. If false, it is planned only if it is named.
    ``batchable``: independent executions may be run as one large one. False where party numbers carry roles.
    ``domain``: the values that it accepts. If these are not any bounded set, it is planned only if it is named.
    ``keeps_target``: a plan promises beforehand, whatever happens, no more than its target; where it has a gate, with the gate.
    ``gated``: a gate before the release can be held: plans see to it that nearly all histories pass it.
    ``has_transcript``: false where a view has no linear-Gaussian description; then only ``guarantee`` is certified.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    sources: ClassVar[tuple[Publication, ...]] = ()
    aliases: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    server: ClassVar[Server] = Server.NONE
    trust: ClassVar[str] = "no server"
    guarantee: ClassVar[str] = "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional"
    private: ClassVar[bool] = True
    reveals: ClassVar[str] = "every party's value"
    linear: ClassVar[bool] = True
    releases_are_public: ClassVar[bool] = True
    transfers_mass: ClassVar[bool] = False
    refuses_messages: ClassVar[bool] = False
    sends_to_all: ClassVar[bool] = False
    tolerates_dropouts: ClassVar[bool] = True
    batchable: ClassVar[bool] = True
    domain: ClassVar[str] = ANY_DOMAIN
    # Does it take sums over private numbers of records? Not where the weight says how long a value may be.
    hides_counts: ClassVar[bool] = True
    has_transcript: ClassVar[bool] = True
    gated: ClassVar[bool] = False
    keeps_target: ClassVar[bool] = False

    # --- from what is written to a value, and to one that is complete ---

    @classmethod
    def parse(cls, raw: Mapping[str, Any], parties: int) -> Self:
        """The complete value that an execution file describes. Raises :class:`InputError`."""
        return cls.read(raw).resolved(parties)

    @classmethod
    def options(cls) -> dict[str, Parameter]:
        """The parameters that a user may choose when planning, by their names in files."""
        return {one.key: one for one in parameters_of(cls).values() if one.option}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From options by name; all other fields are open. Raises :class:`InputError` for an unknown name."""
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
        """Complete, for so many parties, with defaults for what files may leave out.

        Raises :class:`InputError` for a missing field, and for parameters that do not fit the number of parties.
        """
        self.require_complete()
        self.check_parties(parties)
        return self

    def check_parties(self, parties: int) -> None:
        """Raises :class:`InputError` for parameters that do not fit the number of parties."""
        return

    def template(self, target: Target) -> Self:
        """Complete, for calibration: noise levels of 1, and for open fields the best values for the target."""
        return self.filled(**self.defaults(target)).with_noise(1.0, 1.0).resolved(target.parties)

    def defaults(self, target: Target) -> dict[str, Any]:
        """The best values of open fields for a target."""
        return {}

    def with_noise(self, star: float, delta: float) -> Self:
        """The same with other noise levels: ``star`` stays in the result, ``delta`` is cancelled (unused where there is none)."""
        return self

    def variance_before_release(self) -> float:
        """The variance of the noise on a value in all that every other party together can know of it before its owner's release.

        Per coordinate, for every history; infinite where nothing can be known, or where no figure is given.
        """
        return math.inf

    def guarded(self, variance: float) -> Self:
        """The same with so much more noise, cancelled by the release, that :meth:`variance_before_release` is at least that."""
        return self

    def finalize(self, target: Target) -> Self:
        """With the fields filled in that depend on the calibrated noise. Raises :class:`InputError` if no value is possible."""
        return self

    def refuse_levels(self) -> None:
        """Raises :class:`InputError` if a field is given that calibration computes."""
        for name, one in parameters_of(type(self)).items():
            value = getattr(self, name)
            if not one.option and value is not OPEN and value != one.default:
                raise InputError(f"{one.key} is given, but calibration chooses it: leave it out")

    def calibrate(
        self, target: Target, *, calibration: str = "exact", executions: int | None = None, no_privacy: bool = False
    ) -> Any:
        """The :class:`~quietmean.planning.plan.Plan` of this protocol for a target: open fields and noise levels are chosen.

        See :func:`quietmean.planning.calibrate.calibrate`. Raises :class:`InputError` for an impossible target, and for a
        protocol without privacy unless ``no_privacy`` asks for that.
        """
        self.require_privacy(no_privacy)
        return late.calibrate(target, self, calibration=calibration, executions=executions)

    @property
    def is_private(self) -> bool:
        """:attr:`private`, and there is noise."""
        levels = [getattr(self, name) for name in parameters_of(type(self)) if name.startswith("sigma")]
        # An open level is chosen by calibration.
        noisy = [bool(np.any(level > 0)) if isinstance(level, int | float | np.ndarray) else True for level in levels]
        return self.private and (not noisy or any(noisy))

    @property
    def unprotected(self) -> str:
        """What there is to know about a protocol that is not :attr:`private`: one clause."""
        return f"{self.name} has no differential privacy, epsilon is infinite, and it reveals {self.reveals}"

    def require_privacy(self, no_privacy: bool) -> None:
        """Raises :class:`InputError` for a protocol without privacy, unless that is what was asked for."""
        if no_privacy and self.is_private:
            raise InputError(f"no privacy is asked for, but {self.name} has it: leave --no-privacy (in Python no_privacy) out")
        if not (no_privacy or self.is_private):
            raise InputError(
                f"{self.unprotected}: choose another protocol, or ask for that with --no-privacy (in Python no_privacy=True)"
            )

    @property
    def trusts(self) -> str:
        """:attr:`trust`, where it depends on the parameters."""
        return self.trust

    @property
    def promises(self) -> bool:
        """:attr:`keeps_target`, where it depends on the parameters."""
        return self.keeps_target

    # --- what happens ---

    @property
    @abstractmethod
    def rounds(self) -> int:
        """The number T of rounds before the release."""

    @property
    def usual_rounds(self) -> int:
        """The rounds of a run in which nothing is repeated: dropouts that plans and simulations count with spread over these."""
        return self.rounds

    @abstractmethod
    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        """The recipients of every party in every round, from a public seed."""

    def fixed_schedule(self, parties: int) -> Schedule | None:
        """The schedule where the parameters alone determine it: execution files then leave it out. None where a seed decides."""
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
        """All parties at once: the machines' linear computation, read with numbers or with symbols.

        ``values`` have n rows (d,), ``weights`` the shape (n,). A function of the parameters and these arguments, in a file of
        its own, becomes the method by ``population = population``. A protocol without such a program defines :meth:`transcript`
        and :meth:`batch` itself.
        """
        raise TypeError(f"{self.name} has no population program: it has to bring its own transcript and batch")

    def numbers(self) -> Numbers:
        """What values and noise are, for the machines and for the population program alike."""
        return REAL

    def arithmetic(self) -> Arithmetic:
        """The numbers that parties hold. They are divided and rounded as the machines do it."""
        return RealRows(self.numbers())

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """The program with symbols: equal to the traced one, or (see :meth:`full_transcript`) with the same privacy loss."""
        return self.symbols(schedule, trace).transcript()

    def with_seen(self, transcript: Transcript, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """A transcript of this history with all that receivers saw and did not use; see :class:`ExecutionTrace`."""
        return transcript if trace.seen is None else transcript.with_seen(trace.unused(schedule))

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
        """The program with numbers, values (n, d), weights (n,): equal to the machines on the same noise, up to rounding.

        Raises :class:`InputError` if the values do not fit the plan.
        """
        self.check_values(values)
        arithmetic = self.arithmetic()
        reading, terms = NumericReading(values, arithmetic), NumericTerms(noise, len(values), values.shape[1], arithmetic.numbers)
        results = self.population(schedule, trace, reading.values, weights, terms, reading)
        return Releases(reading.vectors(results.rows), results.weight, results.by)

    def loss_conversion(
        self, schedule: Schedule, trace: ExecutionTrace, weights: NDArray[np.float64], delta: float
    ) -> LossConversion:
        """The conversion of the view of the transcript into (epsilon, delta), by default in real arithmetic. Weights (n,)."""
        # Running parties do not need it.
        from quietmean.privacy import REAL_ARITHMETIC, WithoutNoise

        return REAL_ARITHMETIC if self.private else WithoutNoise(self.unprotected)

    def assumptions(self) -> tuple[Assumption, ...]:
        """All that figures about any execution take for granted, but for who colludes and what the numbers are.

        Those that hold for every protocol, with :meth:`own_assumptions`. Certificates, receipts, reports and commands show them.
        """
        channels = (OVERHEARD,) if self.rounds > 1 and self.is_overheard(2) else ()
        silent = (SILENT_WITH_GOSSIP,) if self.transfers_mass else ()
        return with_own(*channels, *silent, *self.own_assumptions())

    def own_assumptions(self) -> tuple[Assumption, ...]:
        """What this protocol takes for granted besides: whom one must trust with what, and which ciphers must hold.

        One with the key of a standing assumption takes its place.
        """
        return ()

    @property
    def refunds(self) -> bool:
        """Whether a ledger gets back what an execution cost less than was charged: where that follows from the past by rounds."""
        return True

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound | None:
        """mu of the view that the transcript describes, at most, whichever ``size`` parties collude; None without a formula.

        :attr:`trusted` parties do not collude. Replacement of one party's value by another at L2 distance <= ``sensitivity``.
        """
        return None

    def worst_coalition_with(
        self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int, given: frozenset[PartyId]
    ) -> CoalitionBound | None:
        """As :meth:`worst_coalition`, for ``size`` parties that collude with all of ``given``. Of the latter it says nothing."""
        # What holds for more colluders holds for fewer.
        return self.worst_coalition(schedule, trace, sensitivity, min(size + len(given), schedule.parties - 1))

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        """What an execution costs at most, whichever ``size`` parties collude and whatever happens while parties still send.

        That includes all dropouts, lost and late messages. A plan promises it, and a ledger reserves its mu, beta and tv.
        ``delta``: where epsilon will be read, of which some bounds use a part. Replacement at L2 distance <= ``sensitivity``;
        :attr:`trusted` parties do not collude.
        """
        return APriori(math.inf, NOTHING_BOUNDS if self.private else "nothing: there is no noise")

    # --- roles of parties ---

    def releasers(self, parties: int) -> frozenset[PartyId]:
        """The parties that release something at the end if they stay online."""
        return frozenset(range(parties))

    @property
    def trusted(self) -> frozenset[PartyId]:
        """Parties that the protocol's claim needs honest: a coalition with one of them learns everything."""
        return frozenset()

    @property
    def indispensable(self) -> frozenset[PartyId]:
        """Parties without which there is no result: plans and simulations assume that they stay. By default, those trusted."""
        return self.trusted

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> NDArray[np.bool_]:
        """The parties whose values are in the result, shape (n,), if only in part. By default, those that finished."""
        return trace.finished

    def parts(self, schedule: Schedule, trace: ExecutionTrace) -> NDArray[np.float64]:
        """How much of each party's value is in the result, shape (n,), up to a common factor. By default all or nothing."""
        return self.contributors(schedule, trace).astype(np.float64)

    # --- values, and what is sent ---

    @property
    def grid(self) -> float:
        """The step of the public grid of all vectors that are sent or released (32 bits a coordinate); 0 for float64."""
        return 0.0

    @property
    def by_file(self) -> bool:
        """Whether a party's release follows from its value, its noise and the parties' keys alone: a file can carry it."""
        return False

    @property
    def is_linear(self) -> bool:
        """:attr:`linear`, where it depends on the parameters."""
        return self.linear

    @property
    def linear_bound(self) -> Self | None:
        """A linear protocol, of whose messages all that this one sends is a function; itself if :attr:`is_linear`, or None."""
        return self if self.is_linear else None

    def is_overheard(self, round_: int) -> bool:
        """Are messages of this round sent over open channels, so that every party is assumed to know them?"""
        return False

    def input_domain(self, target: Target) -> InputDomain:
        """Where the vector of one unit lies for a plan that states no domain; its diameter is the sensitivity at most.

        By default the cube from 0 up, whose diagonal is the sensitivity.
        """
        return InputDomain.box(target.dimension, 0.0, target.sensitivity / math.sqrt(target.dimension))

    @property
    def takes_private_counts(self) -> bool:
        """:attr:`hides_counts`, where it depends on the parameters."""
        return self.hides_counts

    def value_region(self, target: Target, weight: float = 1.0) -> Box | Ball | None:
        """Where a vector of that public weight is held as it is, for whoever clips or limits; a plan refuses any other domain."""
        return None

    def for_domain(self, target: Target, domain: InputDomain) -> Self:
        """The same, planned for this target, with a region that holds a ``domain`` of one unit, unless another was asked for."""
        return self

    def noise_variance(self, target: Target) -> float | None:
        """The expected variance of noise in the mean, per coordinate, where parameters tell it without simulation."""
        return None

    def project_to_domain(self, values: Vector, weights: NDArray[np.float64]) -> Vector:
        """Values (n, d) made to fit ``domain``, for simulations and tests: unchanged if that is any bounded set. Weights (n,)."""
        return values

    def check_weight(self, weight: float) -> None:
        """Raises :class:`InputError` if the plan has no room for a party of that public weight."""
        return

    def check_values(self, values: Vector) -> None:
        """Raises :class:`InputError` if values, (d,) or (n, d), do not fit the plan. The error does not contain them."""
        return

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

    # --- results ---

    def decode(self, parties: int, vector: Vector, weight: float, counted: int | None = None) -> Vector:
        """The estimate, shape (d,), from the sums of all releases, ``vector`` (d,) and ``weight``: public post-processing.

        ``counted``: how many parties are in the sums; by default each weighs 1.
        """
        return vector / weight

    def error_variance(self, schedule: Schedule, trace: ExecutionTrace, weights: NDArray[np.float64]) -> float | None:
        """Variance per coordinate of the noise in the result, where it does not follow from the transcript; None elsewhere.

        Where each party ends with a result of its own: the largest over the parties that finished. Infinite without a result.
        In squared units of the values; ``weights`` have shape (n,).
        """
        return None

    def report_fields(self, target: Target) -> dict[str, Any]:
        """Further figures of a plan, in the terms of the protocol's own paper: plain JSON data."""
        return {}

    def warnings(self, state: Any) -> tuple[str, ...]:
        """Warnings for a party's user that follow from its last state. They are public."""
        return ()

    def opening(
        self,
        schedule: Schedule,
        trace: ExecutionTrace,
        weights: Vector,
        sensitivity: float,
        corrupt: frozenset[PartyId],
        target: PartyId,
    ) -> Opening[Protocol] | None:
        """How to attack it where messages are not linear; None if there is no attack. Only asked where :attr:`is_linear` is not.

        Raises :class:`InputError` where there is none for these parameters.
        """
        return None

    def nothing_published(self, state: Any) -> bool:
        """Whether a party's last state, without a release, proves that nobody can have published anything."""
        return False

    def as_carried_out(self, state: Any) -> Self:
        """For receipts: the same with what a party's last state says of the execution beyond its history."""
        return self
