"""Execution files: lists of messages where nearly all rounds are of all to all others, and noise mechanisms without machines.

There n (n - 1) messages a round would be listed: in the schedule, and again where nothing is sent any more. Files name what
they have in common instead. A round of the schedule is "all" where everybody may send to everybody. A list of messages has
entries [round, sender, receiver] in which null means each: [7, null, null] for all messages of round 7, [7, null, 3] for
those to party 3. Lists without such entries are read the same way.

Two kinds: ``correlated`` (any zero-mean Gaussian noise, of which no party knows another's) and ``pairwise`` (own noise, and terms
that two parties share with opposite signs). They can be certified like executions, but not run or attacked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Mask, Matrix
from quietmean.core.codec import convert
from quietmean.core.errors import InputError, unfit_field
from quietmean.core.party import NoiseGroup, PartyId
from quietmean.graphs import ExecutionTrace, Schedule, everybody
from quietmean.protocols.fields import check_entries, optional_field, required_field
from quietmean.transcript import Transcript, TranscriptBuilder

if TYPE_CHECKING:
    from quietmean.privacy import PrivacyAnalysis

# (round, sender, receiver); None means all senders or all receivers.
Entry = tuple[int, int | None, int | None]

EVERYBODY = "all"


def schedule_lists(schedule: Schedule) -> list[Any]:
    """Write the schedule: for each round "all", or one list of out-neighbours for each party."""
    full, lists = everybody(schedule.parties), []
    for round_ in range(1, schedule.rounds + 1):
        is_full = np.array_equal(schedule.neighbours[round_ - 1], full)
        rows = (list(schedule.recipients(round_, party)) for party in range(schedule.parties))
        lists.append(EVERYBODY if is_full else list(rows))
    return lists


def full_rounds(rounds: Sequence[Any], parties: int) -> list[Any]:
    """The inverse of :func:`schedule_lists`, up to lists: of all others, where a round is "all"."""
    if EVERYBODY not in rounds:
        return list(rounds)
    full = everybody(parties).tolist()
    return [full if round_ == EVERYBODY else round_ for round_ in rounds]


def lost_entries(schedule: Schedule, trace: ExecutionTrace) -> list[Entry]:
    """The lost messages of a trace, but for those that would not have arrived anyway."""
    possible = _may_be_lost(schedule, trace)
    return [] if trace.lost is None else _entries(trace.lost & possible, possible, schedule)


def seen_entries(schedule: Schedule, trace: ExecutionTrace) -> list[Entry]:
    """The messages of a trace that were seen and not used."""
    possible = trace.undelivered(schedule)
    return [] if trace.seen is None else _entries(trace.seen & possible, possible, schedule)


def with_lost(schedule: Schedule, trace: ExecutionTrace, raw: Any) -> ExecutionTrace:
    """The trace with lost messages from JSON data. Raises :class:`InputError` for what is not in the schedule."""
    listed = _read(raw, "lost")
    return replace(trace, lost=_messages(listed, "lost", _may_be_lost(schedule, trace), schedule)) if listed else trace


def with_seen(schedule: Schedule, trace: ExecutionTrace, raw: Any) -> ExecutionTrace:
    """The trace with messages that were seen and not used, from JSON data. Raises :class:`InputError` as :func:`with_lost`."""
    listed = _read(raw, "seen")
    return replace(trace, seen=_messages(listed, "seen", trace.undelivered(schedule), schedule)) if listed else trace


def _may_be_lost(schedule: Schedule, trace: ExecutionTrace) -> Mask:
    """The messages that arrive unless they are lost, shape (T, n, k_max)."""
    return replace(trace, lost=None).delivered(schedule)


def _entries(chosen: Mask, possible: Mask, schedule: Schedule) -> list[Entry]:
    """Few entries for the messages ``chosen`` of those that are ``possible``, both (T, n, k_max)."""
    entries: list[Entry] = []
    for round_index in np.nonzero(chosen.any(axis=(1, 2)))[0].tolist():
        left, others, receivers = (
            chosen[round_index].copy(),
            possible[round_index] & ~chosen[round_index],
            schedule.neighbours[round_index],
        )
        if not others.any():
            entries.append((round_index + 1, None, None))
            continue
        senders = np.broadcast_to(np.arange(schedule.parties)[:, None], receivers.shape)
        for to_receiver, ends in ((True, receivers), (False, senders)):
            for party in _wholly(left, others, ends, schedule.parties):
                entries.append((round_index + 1, None, party) if to_receiver else (round_index + 1, party, None))
                left &= ends != party
        entries += [(round_index + 1, sender, int(receivers[sender, slot])) for sender, slot in np.argwhere(left).tolist()]
    return entries


def _wholly(chosen: Mask, others: Mask, ends: NDArray[Any], parties: int) -> list[int]:
    """The parties at that end of two or more messages ``chosen`` and of no other."""
    counts = [np.bincount(ends[mask], minlength=parties) for mask in (chosen, others)]
    covered: list[int] = np.nonzero((counts[0] > 1) & (counts[1] == 0))[0].tolist()
    return covered


def _read(raw: Any, name: str) -> list[Entry]:
    """Entries from JSON data. Raises :class:`InputError` for anything else."""
    return convert(raw, list[Entry], partial(unfit_field, name))


def _messages(listed: Iterable[Entry], name: str, possible: Mask, schedule: Schedule) -> Mask:
    """The messages that are listed by ``name``, shape (T, n, k_max). With null, only those that are ``possible``.

    Raises :class:`InputError` for a message that is not in the schedule.
    """
    mask = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
    for round_, sender, receiver in listed:
        exists = 1 <= round_ <= schedule.rounds and all(end is None or 0 <= end < schedule.parties for end in (sender, receiver))
        rows = slice(sender, None if sender is None else sender + 1)
        slots = schedule.neighbours[round_ - 1, rows] if exists else np.empty((0, 0))
        chosen = slots >= 0 if receiver is None else slots == receiver
        if not chosen.any():
            shown = ", ".join("null" if end is None else str(end) for end in (round_, sender, receiver))
            raise InputError(f"{name} message [{shown}] is not in the schedule. Name [round, sender, receiver].")
        is_open = sender is None or receiver is None
        mask[round_ - 1, rows] |= chosen & possible[round_ - 1, rows] if is_open else chosen
    return mask


# Rounding of a zero eigenvalue and of a symmetric matrix, relative to the largest entry.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class CorrelatedNoise:
    """Every party publishes x_i + Z_i with (Z_1 .. Z_n) ~ N(0, covariance), the same on every coordinate; shape (n, n).

    No party knows another's noise. A corrupt party knows its own, since it knows its value. ``covariance`` may be singular:
    combinations without noise are disclosed. ``sensitivity``: L2 distance by which one unit can change its party's value.
    Raises :class:`InputError` for a matrix that is not a covariance, and for a sensitivity that is not positive.
    """

    covariance: Matrix
    sensitivity: float

    def __post_init__(self) -> None:
        _check_sensitivity(self.sensitivity)
        self.factor()

    @property
    def parties(self) -> int:
        return len(self.covariance)

    def factor(self) -> Matrix:
        """F with F F' = covariance, shape (n, rank). Raises :class:`InputError` if there is none."""
        largest = float(np.abs(self.covariance).max(initial=0.0))
        if float(np.abs(self.covariance - self.covariance.T).max(initial=0.0)) > _ROUNDING * largest:
            raise InputError("covariance is not symmetric. Make entry [i, j] equal to entry [j, i].")
        eigenvalues, vectors = np.linalg.eigh((self.covariance + self.covariance.T) / 2)
        slack = _ROUNDING * self.parties * largest
        if eigenvalues.min(initial=0.0) < -slack:
            raise InputError(
                f"covariance has eigenvalue {eigenvalues.min():.6g}: no noise has it, a covariance has none below 0. Correct it."
            )
        present = eigenvalues > slack
        factor: Matrix = vectors[:, present] * np.sqrt(eigenvalues[present])
        return factor

    def privacy(self, delta: float) -> PrivacyAnalysis:
        """What the noise hides, with epsilons at ``delta``. Raises :class:`InputError` for an impossible delta."""
        return _analysis(self, delta)

    def transcript(self) -> Transcript:
        """One public message a party; the noise terms in them are known to no party."""
        builder = TranscriptBuilder(self.parties)
        factor = self.factor()
        terms = [builder.add_noise([], 1.0, NoiseGroup.INDEPENDENT) for _ in range(factor.shape[1])]
        for party in range(self.parties):
            noise = dict(zip(terms, factor[party].tolist(), strict=True))
            builder.add_message(party, 1, values={party: 1.0}, noise=noise, released=True)
        return builder.build()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> CorrelatedNoise:
        """Read the mechanism from the file's JSON object. Raises :class:`InputError` for a missing or wrong field."""
        check_entries(raw, ("protocol", "parties", "covariance", "sensitivity"))
        parties = _parties(raw)
        rows = _converted(raw, "covariance", list[list[float]])
        if len(rows) != parties or any(len(row) != parties for row in rows):
            raise InputError(
                f"covariance has another shape. Give {parties} rows of {parties} numbers, one for each pair of parties."
            )
        covariance = np.array(rows, dtype=np.float64).reshape(parties, parties)
        if not np.isfinite(covariance).all():
            raise InputError("covariance has an entry that is not finite. Give numbers only.")
        return cls(covariance, optional_field(raw, "sensitivity", float, 1.0))


@dataclass(frozen=True, eq=False)
class PairwiseNoise:
    """Party i publishes x_i + own noise + its terms of ``edges`` (i, j, standard deviation): the larger number adds, the smaller
    subtracts. Both ends know a term.

    ``sigma_own``: standard deviations, shape (n,). A party that has not ``responded``, shape (n,), published nothing, but still
    knows its terms. ``sensitivity``: L2 distance by which one unit can change its party's value. Raises :class:`InputError` for
    numbers that are not in range.
    """

    edges: tuple[tuple[PartyId, PartyId, float], ...]
    sigma_own: Matrix
    responded: Mask
    sensitivity: float

    def __post_init__(self) -> None:
        _check_sensitivity(self.sensitivity)
        if not (np.isfinite(self.sigma_own).all() and (self.sigma_own >= 0).all()):
            raise InputError(f"sigma_own of {self.sigma_own.min():g} is not a standard deviation. Give finite numbers >= 0.")
        for first, second, sigma in self.edges:
            if not (0 <= first < self.parties and 0 <= second < self.parties and first != second):
                raise InputError(
                    f"edge [{first}, {second}, {sigma:g}] does not join two parties. Name two of 0..{self.parties - 1}."
                )
            if not (math.isfinite(sigma) and sigma >= 0):
                raise InputError(f"edge [{first}, {second}, {sigma:g}] has no standard deviation. Give a finite number >= 0.")

    @property
    def parties(self) -> int:
        return len(self.sigma_own)

    def privacy(self, delta: float) -> PrivacyAnalysis:
        """What the noise hides, with epsilons at ``delta``. Raises :class:`InputError` for an impossible delta."""
        return _analysis(self, delta)

    def transcript(self) -> Transcript:
        """One public message a party that responded."""
        builder = TranscriptBuilder(self.parties)
        noise: list[dict[int, float]] = [{} for _ in range(self.parties)]
        for party, sigma in enumerate(self.sigma_own.tolist()):
            noise[party][builder.add_noise([party], sigma, NoiseGroup.INDEPENDENT)] = 1.0
        for first, second, sigma in self.edges:
            term = builder.add_noise([first, second], sigma, NoiseGroup.CANCELLING)
            noise[max(first, second)][term], noise[min(first, second)][term] = 1.0, -1.0
        for party in np.nonzero(self.responded)[0].tolist():
            builder.add_message(party, 1, values={party: 1.0}, noise=noise[party], released=True)
        return builder.build()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> PairwiseNoise:
        """Read the mechanism from the file's JSON object. Raises :class:`InputError` for a missing or wrong field."""
        check_entries(raw, ("protocol", "parties", "edges", "sigma_own", "responded", "sensitivity"))
        parties = _parties(raw)
        edges = _converted(raw, "edges", list[tuple[int, int, float]])
        own = _converted(raw, "sigma_own", list[float])
        responded = _converted(raw, "responded", list[bool]) if "responded" in raw else [True] * parties
        for name, given in (("sigma_own", own), ("responded", responded)):
            if len(given) != parties:
                raise InputError(f"{name} has {len(given)} entries with {parties} parties. Give one for each party.")
        sensitivity = optional_field(raw, "sensitivity", float, 1.0)
        return cls(tuple(edges), np.array(own, dtype=np.float64), np.array(responded, dtype=np.bool_), sensitivity)


OneShot: TypeAlias = CorrelatedNoise | PairwiseNoise

KINDS: dict[str, Callable[[Mapping[str, Any]], OneShot]] = {
    "correlated": CorrelatedNoise.parse,
    "pairwise": PairwiseNoise.parse,
}


def _analysis(mechanism: OneShot, delta: float) -> PrivacyAnalysis:
    from quietmean.privacy import PrivacyAnalysis

    return PrivacyAnalysis.of_gaussian(mechanism.transcript(), mechanism.sensitivity, delta)


def _parties(raw: Mapping[str, Any]) -> int:
    parties = required_field(raw, "parties", int)
    if parties < 1:
        raise InputError(f"parties is {parties}. Choose at least 1 party.")
    return parties


def _check_sensitivity(sensitivity: float) -> None:
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise InputError(f"sensitivity is {sensitivity:g}. Give the L2 diameter of one unit's domain, a number > 0.")


def _converted(raw: Mapping[str, Any], name: str, kind: Any) -> Any:
    if name not in raw:
        raise InputError(f"field {name!r} is missing. Add it.")
    return convert(raw[name], kind, partial(unfit_field, name))
