"""What a protocol must bring: a frozen value with its parameters, a party machine, and a program of the whole population."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.assumptions import OVERHEARD, SILENT_WITH_GOSSIP, Assumption, with_own
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.numbers import REAL, Numbers
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, PopulationNoise, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.eavesdropping import CanBeOverheard
from quietmean.protocols.literature import Publication
from quietmean.protocols.mechanism.attack import CanBeAttacked
from quietmean.protocols.mechanism.checking import CanBeChecked
from quietmean.protocols.mechanism.fitting import FitsTarget
from quietmean.protocols.mechanism.gate import CanBeGated
from quietmean.protocols.mechanism.roles import GivesRoles
from quietmean.protocols.mechanism.traffic import SendsMessages
from quietmean.protocols.mechanism.values import TakesValues
from quietmean.protocols.releases import Releases
from quietmean.transcript import Transcript
from quietmean.transcript.numbers import Arithmetic, NumericReading, NumericTerms, RealRows
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

if TYPE_CHECKING:
    from quietmean.privacy import LossConversion
    from quietmean.transcript.symbols import SymbolicReading

NOTHING_BOUNDS = "nothing bounds what this protocol may give away"


class Mechanism(FitsTarget, TakesValues, SendsMessages, GivesRoles, CanBeChecked, CanBeGated, CanBeOverheard, CanBeAttacked):
    """A configured protocol: a frozen value whose fields are its parameters; noise levels are standard deviations.

    Who writes one brings ``name``, ``summary`` and ``sources`` (publications that it comes from, its own first); ``rounds`` and
    :meth:`draw_schedule`; :meth:`machine` and :meth:`population`; :meth:`defaults` and :meth:`with_noise`, or a formula for the
    noise (:class:`~quietmean.protocols.kinds.SelfCalibrating`); and, for a promise before the start, :meth:`worst_coalition` and
    :meth:`a_priori`. All else has a default: each base class is one capability that a protocol may have, and says what holds
    without it. Class attributes state what holds for all parameters.
    """

    summary: ClassVar[str]
    sources: ClassVar[tuple[Publication, ...]] = ()

    def fixed_schedule(self, parties: int) -> Schedule | None:
        """The schedule where the parameters alone determine it: execution files then leave it out. None where a seed decides."""
        return None

    def could_have(self, schedule: Schedule) -> bool:
        """Whether such a schedule is ever drawn, as far as that can be told: a document of a stranger may have any other."""
        fixed = self.fixed_schedule(schedule.parties)
        return fixed is None or np.array_equal(fixed.neighbours, schedule.neighbours)

    @abstractmethod
    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PartyMachine[Any]:
        """The party's state machine, bound to its value (d,), its public weight and its noise."""

    def population(
        self, schedule: Schedule, trace: ExecutionTrace, values: Rows, weights: Array, noise: PopulationTerms, out: Reading
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

    @property
    def rounding_step(self) -> float:
        """How far rounding moves a coordinate of a party's vector, at most."""
        return self.numbers().step

    def arithmetic(self) -> Arithmetic:
        """The numbers that parties hold. They are divided and rounded as the machines do it."""
        return RealRows(self.numbers())

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """The program with symbols: equal to the traced one, or (see :meth:`full_transcript`) with the same privacy loss."""
        return self.symbols(schedule, trace).transcript()

    def full_transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """Equal to the traced one; overridden where :meth:`transcript` leaves out what follows from the rest."""
        return self.transcript(schedule, trace)

    def symbols(self, schedule: Schedule, trace: ExecutionTrace) -> SymbolicReading:
        """The program read with symbols."""
        # Running parties need no matrices: they start without this import.
        from quietmean.transcript.symbols import SymbolicReading

        reading, weights = SymbolicReading(schedule.parties), np.ones(schedule.parties)
        self.population(schedule, trace, reading.values, weights, reading.noise, reading)
        return reading

    def with_seen(self, transcript: Transcript, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """A transcript of this history with all that receivers saw and did not use; see :class:`ExecutionTrace`."""
        return transcript if trace.seen is None else transcript.with_seen(trace.unused(schedule))

    def batch(
        self, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, noise: PopulationNoise
    ) -> Releases:
        """The program with numbers, values (n, d), weights (n,): equal to the machines on the same noise, up to rounding.

        Raises :class:`InputError` if the values do not fit the plan.
        """
        self.check_values(values)
        arithmetic = self.arithmetic()
        reading, terms = NumericReading(values, arithmetic), NumericTerms(noise, len(values), values.shape[1], arithmetic.numbers)
        results = self.population(schedule, trace, reading.values, weights, terms, reading)
        return Releases(reading.vectors(results.rows), results.weight, results.by)

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        """The conversion of the view of the transcript into (epsilon, delta), by default in real arithmetic. Weights (n,)."""
        # Running parties do not need it.
        from quietmean.privacy import REAL_ARITHMETIC, WithoutNoise

        return REAL_ARITHMETIC if self.private else WithoutNoise(self.unprotected)

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound | None:
        """mu of the view that the transcript describes, at most, whichever ``size`` parties collude; None without a formula.

        :attr:`trusted` parties do not collude. Replacement of one party's value by another at L2 distance <= ``sensitivity``.
        """
        return None

    def worst_coalition_with(
        self,
        schedule: Schedule,
        trace: ExecutionTrace,
        sensitivity: float,
        size: int,
        given: frozenset[PartyId],
        watched: frozenset[PartyId] | None = None,
    ) -> CoalitionBound | None:
        """As :meth:`worst_coalition`, for ``size`` parties that collude with all of ``given``. Of the latter it says nothing.

        ``watched``: those of whom it is asked, by default all. Of the others it may say more than is known, or infinity.
        """
        # What holds for more colluders holds for fewer.
        return self.worst_coalition(schedule, trace, sensitivity, min(size + len(given), schedule.parties - 1))

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        """What an execution costs at most, whichever ``size`` parties collude and whatever happens while parties still send.

        That includes all dropouts, lost and late messages. A plan promises it, and a ledger reserves its mu, beta and tv.
        ``delta``: where epsilon will be read, of which some bounds use a part. Replacement at L2 distance <= ``sensitivity``;
        :attr:`trusted` parties do not collude.
        """
        return APriori(math.inf, NOTHING_BOUNDS if self.private else "nothing: there is no noise")

    def assumptions(self) -> tuple[Assumption, ...]:
        """All that figures about any execution take for granted, but for who colludes and what the numbers are.

        Those that hold for every protocol, with :meth:`own_assumptions`. Certificates, receipts, reports and commands show them.
        """
        channels = (OVERHEARD,) if self.rounds > 1 and self.is_overheard(2) else ()
        silent = (SILENT_WITH_GOSSIP,) if self.transfers_mass else ()
        return with_own(*channels, *silent, *self.own_assumptions())
