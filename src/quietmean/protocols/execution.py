"""An execution: all that is public about a run. Everything else (transcript, machines, batch run) follows from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.assumptions import Key
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.codec import convert, to_plain
from quietmean.core.domain import Neighbouring
from quietmean.core.errors import InputError, unfit_field
from quietmean.core.file_kinds import FileKind, naming_release, read_json
from quietmean.core.keywords import python_call
from quietmean.core.output import Output
from quietmean.core.party import NoiseSource, PartyId, PartyMachine, PopulationNoise, Vector
from quietmean.core.schema import parameters_of
from quietmean.graphs import ExecutionTrace, Schedule, complete_pairs
from quietmean.protocols import Mechanism, Releases, get_protocol
from quietmean.protocols.execution_files import (
    KINDS,
    OneShot,
    full_rounds,
    lost_entries,
    schedule_lists,
    seen_entries,
    with_lost,
    with_seen,
)
from quietmean.protocols.fields import check_entries, optional_choice, optional_field, required_field
from quietmean.protocols.interception import Interception, require_promise_if_read, whichever_are_read
from quietmean.protocols.mechanism import (
    assumptions_of,
    could_have,
    decoded,
    fixed_schedule,
    full_transcript,
    run_machines,
    traced_transcript,
)
from quietmean.protocols.target import is_random
from quietmean.transcript import LockstepResult, Transcript

if TYPE_CHECKING:
    from quietmean.core.assumptions import Assumption
    from quietmean.privacy import CertificateTerms, Eavesdropper, PrivacyAnalysis

# The entries of every execution file, besides the parameters of its protocol.
_ENTRIES = (
    "protocol",
    "parties",
    "rounds",
    "online",
    "sensitivity",
    "neighbouring",
    "neighbours",
    "pairs",
    "lost",
    "seen",
    "settled",
    "weights",
    "left_out",
    "eavesdropping",
    "intercepted",
)
# The most parties, and rounds, of a file that does not list who was online; files of :meth:`Execution.save` do.
_MOST_UNLISTED = 1000
# The most parties of a schedule with all pairs, which take 800 MB.
_MOST_ALL_PAIRED = 10_000
# A party's value that counts to this much less than others counts as whole.
_WHOLE = 1e-3
# In files, all pairs.
ALL_PAIRS = "all"


@dataclass(frozen=True, eq=False, repr=False)
class Execution:
    """A configured protocol, its schedule, and a trace of dropouts and lost messages.

    ``sensitivity`` is the L2 distance by which one protected unit can move its party's value, ``neighbouring`` how it changes;
    ``weights`` are the parties' public weights, shape (n,): the result is sum(values) / sum(weights). A party without records has
    weight 0. Raises :class:`InputError` for a sensitivity that is not positive and a weight below 0, or of 0 where the protocol
    needs records.
    ``kept``: what was promised against coalitions of these sizes since something besides the protocol, a gate, kept it.
    ``left_out``: parties whose releases count as seen by everybody, and are not in the result: of a study by file, those whose
    file was not there when the others were added up, and may still come; of one between machines, whose release did not arrive.
    ``interception``: the messages between parties that are read, where the target says so and that tells anything.
    """

    protocol: Mechanism
    schedule: Schedule
    trace: ExecutionTrace
    sensitivity: float
    weights: Array
    kept: Mapping[int, APriori] = field(default_factory=dict)
    left_out: frozenset[PartyId] = frozenset()
    neighbouring: Neighbouring = Neighbouring.REPLACEMENT
    interception: Interception | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.sensitivity) and self.sensitivity > 0):
            raise InputError(f"sensitivity is {self.sensitivity:g}. Give the L2 diameter of one unit's domain, a number > 0.")
        if self.weights.shape != (self.parties,) or not (np.isfinite(self.weights).all() and (self.weights >= 0).all()):
            raise InputError(f"weights must be {self.parties} finite numbers of at least 0. Give one per party.")
        if self.protocol.traits.needs_records and not self.weights.all():
            raise InputError(f"protocol {self.protocol.name} takes no weight of 0. Give every party one above 0.")
        if self.interception is not None:
            require_promise_if_read(self.protocol, self.interception.eavesdropping)

    def __repr__(self) -> str:
        gone = self.parties - int(self.trace.finished.sum())
        return (
            f"Execution({self.protocol!r}, {self.parties} parties, {self.schedule.rounds} rounds, {gone} dropped out permanently)"
        )

    def __getstate__(self) -> dict[str, Any]:
        """What was computed once stays here: other processes compute it again."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @property
    def parties(self) -> int:
        return self.schedule.parties

    def transcript(self) -> Transcript:
        """The declared transcript; built once."""
        return self._transcript

    @cached_property
    def _transcript(self) -> Transcript:
        return self._with_seen(self.protocol.transcript(self.schedule, self.trace))

    def full_transcript(self) -> Transcript:
        """The declared transcript with every message in it, also where :meth:`transcript` leaves out what follows from others."""
        return self._with_seen(full_transcript(self.protocol, self.schedule, self.trace))

    def _with_seen(self, transcript: Transcript) -> Transcript:
        """The execution with all that receivers saw and did not use; see :class:`ExecutionTrace`."""
        if self.trace.seen is None or self.protocol.traits.ignores_unused:
            return transcript
        return transcript.with_seen(self.trace.unused(self.schedule))

    def traced_transcript(self) -> Transcript:
        """The transcript traced through the real party machines."""
        return self._with_seen(traced_transcript(self.protocol, self.schedule, self.trace, self.weights))

    def error_variance(self) -> float | None:
        """Variance per coordinate of the noise in the result, if the protocol states it; else it follows from the transcript."""
        return self.protocol.error_variance(self.schedule, self.trace, self.weights)

    def privacy(self, delta: float) -> PrivacyAnalysis:
        """The privacy loss of its parties, with epsilons at ``delta``; computed once for each delta.

        Raises :class:`InputError` for an impossible delta, and if a parameter is missing that certificates need.
        """
        # Imported here since it takes long, and running parties do not need it.
        from quietmean.privacy import PrivacyAnalysis

        if delta not in self._analyses:
            terms = self.terms(delta)
            self._analyses[delta] = PrivacyAnalysis(
                self.transcript(), terms, self.protocol.traits.trusted, bound=self._worst_coalition
            )
        return self._analyses[delta]

    def terms(self, delta: float) -> CertificateTerms:
        """What the numbers of its certificates mean and take for granted. Raises :class:`InputError` as :meth:`privacy` does."""
        from quietmean.privacy import CertificateTerms

        conversion = self.protocol.loss_conversion(self.schedule, self.trace, self.weights, delta)

        @cache
        def promise(size: int, corrupt: frozenset[PartyId]) -> APriori:
            if corrupt & self.protocol.traits.trusted:
                return APriori(math.inf, "nothing: a party that must be trusted colludes")
            return self.a_priori(size, delta)

        guarantee, relation = self.neighbouring.claim(self.protocol.traits.guarantee), self.neighbouring
        return CertificateTerms(
            self.sensitivity, delta, conversion, guarantee, self._granted, promise, relation, self.eavesdropper
        )

    @property
    def _granted(self) -> tuple[Assumption, ...]:
        assumptions = assumptions_of(self.protocol)
        if self.interception is None:
            return assumptions
        return tuple(self.interception.assumption if assumption.key == Key.CHANNELS else assumption for assumption in assumptions)

    @cached_property
    def eavesdropper(self) -> Eavesdropper:
        """Who reads messages, no matter who colludes; the target said so. Certificates count it unless another one is given."""
        from quietmean.privacy import Eavesdropper

        nobody = Eavesdropper()
        return nobody if self.interception is None else self.interception.eavesdropper(self.schedule, self.trace)

    @property
    def refunds(self) -> bool:
        """Is its figure of what happened what it cost? Not where that is about one set of messages of many."""
        random = self.interception is not None and is_random(self.interception.eavesdropping)
        return self.protocol.traits.refunds and not random

    @cached_property
    def _analyses(self) -> dict[float, PrivacyAnalysis]:
        return {}

    def a_priori(self, size: int, delta: float) -> APriori:
        """What could have been promised before the start, against ``size`` colluders; see :meth:`Mechanism.a_priori`."""
        promised = self.protocol.a_priori(self.parties, size, self.sensitivity, delta)
        if self.interception is not None:
            promised = whichever_are_read(self.protocol, promised, self.interception.eavesdropping)
        return min(self.kept.get(size, promised), promised, key=lambda bound: bound.mu)

    def _worst_coalition(self, size: int) -> CoalitionBound | None:
        if self.interception is not None:
            # The proofs of protocols are about coalitions that see the messages sent to them and no others.
            return None
        return self.protocol.worst_coalition(self.schedule, self.trace, self.sensitivity, size)

    def run(self, values: Vector, noise: PopulationNoise) -> LockstepResult:
        """Run the real party machines in lockstep on values (n, d)."""
        return run_machines(self.protocol, self.schedule, self.trace, values, self.weights, noise)

    def run_batch(self, values: Vector, noise: PopulationNoise) -> Releases:
        """Run the batch kernel on values (n, d)."""
        return self.protocol.batch(self.schedule, self.trace, values, self.weights, noise)

    def estimate(self, releases: Releases) -> Vector:
        """The mean that every party computes from what was released, shape (d,)."""
        return self.decode(*releases.total())

    def decode(self, vector: Vector, weight: float) -> Vector:
        """The estimate, (d,), from the sums of vectors, (d,), and weights of all that was released.

        NaN where nobody who counts has a record: nothing has a mean.
        """
        if not self.counted_weight():
            return np.full_like(vector, np.nan)
        return decoded(self.protocol, self.parties, vector, weight, int(self.contributors().sum()))

    def contributors(self) -> Mask:
        """The parties whose values are in the result, shape (n,), read-only."""
        return self._contributors

    @cached_property
    def _contributors(self) -> Mask:
        counted = self.protocol.contributors(self.schedule, self._trace_of_result).copy()
        if not self.protocol.traits.transfers_mass:
            counted[list(self.left_out)] = False
        counted.flags.writeable = False
        return counted

    @cached_property
    def parts(self) -> Array:
        """How much of each party's value counts in the result, shape (n,): 1 for all of it, or as much as of any other.

        Where values are passed on, who leaves in between counts in part, and so do those of whom it took much along.
        """
        counted, trace = self.contributors().astype(np.float64), self._trace_of_result
        all_or_nothing = bool(self.left_out) and not self.protocol.traits.transfers_mass
        if trace.finished.all() or all_or_nothing or not counted.any():
            return counted
        parts = self.protocol.TRAITS.parts(self.protocol, self.schedule, trace)
        relative: Array = parts / parts.max()
        return relative

    @property
    def in_part(self) -> dict[PartyId, float]:
        """The parties that count in part, and in which."""
        parts = self.parts
        return {party: float(parts[party]) for party in np.flatnonzero((parts > 0) & (parts < 1 - _WHOLE)).tolist()}

    def counted_weight(self) -> float:
        """The parties' weights, of each as much as counts."""
        return float(self.parts @ self.weights)

    def without(self, parties: frozenset[PartyId]) -> Execution:
        """Return the execution with the releases of these parties left out of the result."""
        return replace(self, left_out=parties)

    @property
    def in_result(self) -> Execution:
        """The execution without what is left out: what the error of the result follows from, but not its privacy."""
        return replace(self, trace=self._trace_of_result, left_out=frozenset()) if self.left_out else self

    @property
    def _trace_of_result(self) -> ExecutionTrace:
        """The trace without the releases that are left out; where shares are passed on, the shares in them are lost."""
        if not self.left_out:
            return self.trace
        if self.protocol.traits.transfers_mass:
            return replace(self.trace, unheard=self.left_out)
        online = self.trace.online.copy()
        online[-1, list(self.left_out)] = False
        return replace(self.trace, online=online)

    def machine(self, party: PartyId, value: Vector, noise: NoiseSource) -> PartyMachine[Any]:
        """The state machine of one party, bound to its value (d,) and its noise."""
        return self.protocol.machine(self.schedule, party, value, float(self.weights[party]), noise)

    def with_trace(self, trace: ExecutionTrace) -> Execution:
        """Return the execution of this schedule under another trace."""
        return replace(self, trace=trace)

    def arrivals(self) -> Callable[[int, PartyId, PartyId], bool]:
        """Did the message of (round, sender, receiver) arrive?"""
        return self.trace.arrivals(self.schedule)

    def to_json(self) -> dict[str, Any]:
        """The execution file's content (stable format)."""
        document: dict[str, Any] = {
            "protocol": self.protocol.name,
            "parties": self.parties,
            "rounds": self.schedule.rounds,
            "online": self.trace.online.tolist(),
            "sensitivity": self.sensitivity,
        }
        if not self._is_fixed:
            document["neighbours"] = (
                schedule_lists(self.schedule) if self.protocol.traits.sends_to_all else self.schedule.to_lists()
            )
        if self.schedule.pairs.size:
            document["pairs"] = ALL_PAIRS if self.schedule.all_paired else self.schedule.pairs.tolist()
        document |= self.protocol.describe()
        document |= {name: listed for name, listed in self._message_lists().items() if listed}
        if self.left_out:
            document["left_out"] = sorted(self.left_out)
        if self.interception is not None:
            document |= self.interception.to_json()
        if len(self.trace.settled):
            document["settled"] = self.trace.settled.tolist()
        if self.neighbouring != Neighbouring.REPLACEMENT:
            document["neighbouring"] = str(self.neighbouring)
        if not (self.weights == 1.0).all():
            document["weights"] = self.weights.tolist()
        plain: dict[str, Any] = to_plain(document)
        return plain

    @property
    def _is_fixed(self) -> bool:
        """Whether the schedule follows from the parameters."""
        fixed = self.protocol.traits.fixed_schedule
        return fixed and np.array_equal(fixed_schedule(self.protocol, self.parties).neighbours, self.schedule.neighbours)

    def _message_lists(self) -> dict[str, list[Any]]:
        schedule, trace = self.schedule, self.trace
        if self.protocol.traits.sends_to_all:
            return {"lost": lost_entries(schedule, trace), "seen": seen_entries(schedule, trace)}
        lost: list[Any] = []
        if trace.lost is not None:
            rounds, senders, slots = np.nonzero(trace.lost)
            lost = np.stack([rounds + 1, senders, schedule.neighbours[rounds, senders, slots]], axis=1).tolist()
        return {"lost": lost, "seen": [list(message) for message in trace.unused(schedule)]}

    @classmethod
    @python_call
    def load(cls, path: str | Path) -> Execution | OneShot:
        """Read an execution from an execution file or a receipt, or from the file of a noise mechanism.

        Raises :class:`InputError`.
        """
        return read_execution(read_json(Path(path), FileKind.RECEIPT, FileKind.SESSION_RECEIPT))

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Execution:
        """Read an execution from an execution file's content. Raises :class:`InputError` with the field that is wrong."""
        if str(raw.get("format", "")).startswith("quietmean-plan"):
            raise InputError("this file is a plan, of which nothing has happened yet. Give a receipt or an execution file.")
        kind = get_protocol(required_field(raw, "protocol", str))
        parties = required_field(raw, "parties", int)
        if parties < 1:
            raise InputError(f"parties is {parties}. Choose at least 1 party.")
        own = [parameter.key for parameter in parameters_of(kind).values()]
        check_entries(raw, [*_ENTRIES, *own])
        # The file may be a stranger's: sizes that it only claims are refused before anything of that size is allocated.
        online = _array_field(raw, "online", list[list[bool]], [[True] * parties] if parties <= _MOST_UNLISTED else [])
        if not online or any(len(row) != parties for row in online):
            raise InputError(f"online must have rows of {parties} parties. Give one for each of the rounds 0..T.")
        protocol = kind.read(raw).resolved(parties)
        rounds = protocol.rounds
        if "online" not in raw and rounds <= _MOST_UNLISTED:
            online *= rounds + 1
        neighbours = _array_field(raw, "neighbours", list[list[list[int]] | Literal["all"]], [])
        other = InputError(
            f"neighbours has {len(neighbours)} rounds but {protocol.name} has {rounds}. Give one list per round 1..T."
        )
        if "neighbours" in raw and len(neighbours) != rounds:
            raise other
        if len(online) != rounds + 1:
            raise InputError(f"online must have {rounds + 1} rows (rounds 0..{rounds}) of {parties} parties. Give one for each.")
        is_fixed = "neighbours" not in raw and protocol.traits.fixed_schedule
        fixed = fixed_schedule(protocol, parties) if is_fixed else None
        if fixed is None and len(neighbours) != rounds:
            raise other
        schedule = fixed or Schedule.from_lists(full_rounds(neighbours, parties), parties, _pairs(raw, parties))
        if not could_have(protocol, schedule):
            raise InputError(f"neighbours are not as {protocol.name} can have them. Leave them as they were when it ran.")
        settled = np.array(_array_field(raw, "settled", list[tuple[int, int, int, int]], []), dtype=np.int64).reshape(-1, 4)
        trace = with_lost(schedule, ExecutionTrace(np.array(online, dtype=np.bool_), settled=settled), raw.get("lost", []))
        return cls(
            protocol,
            schedule,
            with_seen(schedule, trace, raw.get("seen", [])),
            optional_field(raw, "sensitivity", float, 1.0),
            np.array(_array_field(raw, "weights", list[float], [1.0] * parties), dtype=np.float64),
            left_out=_left_out(raw, parties),
            neighbouring=optional_choice(raw, "neighbouring", Neighbouring, Neighbouring.REPLACEMENT),
            interception=Interception.from_json(raw, schedule),
        )

    @python_call
    def save(self, path: str | Path) -> None:
        """Write the execution file. Raises :class:`InputError` for another file that is there."""
        Output(Path(path), "the execution", "").write_json(self.to_json())


def read_execution(raw: Mapping[str, Any]) -> Execution | OneShot:
    """An execution file's content: a protocol's execution or a noise mechanism. Raises :class:`InputError`."""
    kind = raw.get("protocol")
    with naming_release(raw):
        return KINDS[kind](raw) if isinstance(kind, str) and kind in KINDS else Execution.from_json(raw)


def _left_out(raw: Mapping[str, Any], parties: int) -> frozenset[PartyId]:
    left_out: frozenset[PartyId] = frozenset(_array_field(raw, "left_out", list[int], []))
    if not left_out <= set(range(parties)) or len(left_out) == parties:
        raise InputError(f"left_out names {sorted(left_out)}. Name some of the parties 0..{parties - 1}, not all.")
    return left_out


def _pairs(raw: Mapping[str, Any], parties: int) -> Ints:
    if raw.get("pairs") == ALL_PAIRS:
        if parties > _MOST_ALL_PAIRED:
            raise InputError(f"all pairs of {parties} parties do not fit into memory. Choose {_MOST_ALL_PAIRED} parties at most.")
        return complete_pairs(parties)
    return np.array(_array_field(raw, "pairs", list[tuple[int, int]], []), dtype=np.int64).reshape(-1, 2)


def _array_field(raw: Mapping[str, Any], name: str, kind: Any, default: Any) -> Any:
    return convert(raw.get(name, default), kind, partial(unfit_field, name))
