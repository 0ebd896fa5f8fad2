"""Certificates against all coalitions of c parties: every coalition is tried where that is feasible, else bounded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Array, Ints
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.party import PartyId
from quietmean.core.workers import Workers, one_thread
from quietmean.privacy.certificate import Certificate, CertificateTerms, CoalitionCertificate, Scope
from quietmean.privacy.information import CoalitionSolver
from quietmean.privacy.information.coalition_batches import DOUBTFUL, CoalitionBatch, CoalitionBatches
from quietmean.privacy.information.coalition_solver import PER_COALITION, TripleBounds, triple_seconds
from quietmean.privacy.information.matrix import widened
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript

CONFIDENCE = 0.95
# This many coalitions are tried whatever they cost; more, if trying all costs at most this many multiplications.
_LEAST_TRIED, _EFFORT = 500, 5e10
# From so many on, what coalitions have in common is worked out once.
_LEAST_BATCHED = 50
# The most coalitions that are ever tried: as many as the effort allows at the fixed cost of each.
MOST_TRIED = int(_EFFORT / PER_COALITION)
# Coalitions that differ by a smaller factor are equally bad.
_EQUAL = 1.0 + 1e-9


@dataclass(frozen=True, eq=False)
class ProvenMu:
    """``mu`` of each party, shape (n,), that holds against every coalition of a size.

    ``proof`` and ``chance``: see :class:`~quietmean.core.bounds.CoalitionBound`.
    """

    mu: Array
    proof: str
    chance: float = 0.0


def exceed_bound(draws: int, exceeding: int, confidence: float = CONFIDENCE, choices: int = 1) -> float:
    """Clopper-Pearson upper bound on the probability of an event seen ``exceeding`` times in ``draws`` independent draws.

    ``choices``: from how many events the one was picked after a look at the draws; the bound holds for all at once (Bonferroni).
    """
    if exceeding >= draws:
        return 1.0
    return float(special.betaincinv(exceeding + 1, draws - exceeding, 1 - (1 - confidence) / choices))


def most_tried(solver: CoalitionSolver, size: int) -> int:
    """How many coalitions of ``size`` are tried one by one by default: as many as take seconds."""
    return max(_LEAST_TRIED, int(_EFFORT / solver.effort(size)))


@dataclass(frozen=True)
class Effort:
    """What may be spent on trying every coalition: ``seconds`` of one core, as counted beforehand, by ``workers``, a number of
    processes or the address of a Dask scheduler; see :class:`~quietmean.core.workers.Workers`."""

    seconds: float = 0.0
    workers: int | str = 1

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise InputError(f"effort is {self.seconds:g}. Choose how many seconds of one processor core to use, 0 or more.")
        Workers(self.workers)


def every_coalition(
    solver: CoalitionSolver,
    terms: CertificateTerms,
    trusted: frozenset[PartyId],
    size: int,
    limit: int | None,
    seed: Seed,
    bound: Callable[[], ProvenMu],
    effort: Effort,
) -> CoalitionCertificate:
    """Try every coalition of ``size`` parties if there are at most ``limit`` of them, or if the ``effort`` allows; else ``bound``
    gives what holds for all.

    By default the limit is :func:`most_tried`. Where the bound holds, some are looked for and as many random ones are tried:
    as many as ``limit``, by default 500, or fewer beyond 200 parties, where each costs more. ``trusted`` parties are assumed
    never to collude, and the certificate says so. Raises :class:`InputError` for a size that leaves nobody honest.
    """
    parties = solver.transcript.parties
    able = require_honest(size, parties, trusted)
    tally = _Tally(solver, terms, trusted, size)
    count = math.comb(len(able), size)
    needed = solver.seconds(size, count)
    few = count <= (most_tried(solver, size) if limit is None else limit)
    if size == 3 and not few and (undecided := tally.add_triples(able, effort)) is not None:
        if not undecided.left:
            return tally.certificate(Scope.TRIED)
        return tally.bounded(undecided.better(bound()), undecided.seconds)
    if few or needed <= effort.seconds:
        batches = solver.batches if count >= _LEAST_BATCHED or not few else None
        if few or batches is not None:
            tally.add_every(able, batches, Workers(effort.workers))
            return tally.certificate(Scope.TRIED)
        needed = math.inf
    draws = max(20, int((limit or _LEAST_TRIED) * min(1.0, (200 / parties) ** 2)))
    _search(tally, able, draws)
    with one_thread():
        for coalition in random_coalitions(able, size, draws, seed):
            tally.add(coalition)
    return tally.bounded(bound(), needed)


def require_honest(size: int, parties: int, trusted: frozenset[PartyId]) -> list[PartyId]:
    """The parties that may collude. Raises :class:`InputError` for so many of them that nobody honest is left."""
    able = _able(parties, trusted)
    if size < 0:
        raise InputError(f"{size} parties colluding is impossible. Choose 0..{min(parties - 1, len(able))}.")
    if size >= parties or size > len(able):
        raise InputError(f"{size} of {parties} parties colluding leaves nobody honest. Choose 0..{min(parties - 1, len(able))}.")
    return able


def search_coalitions(
    solver: CoalitionSolver, terms: CertificateTerms, trusted: frozenset[PartyId], size: int, limit: int
) -> CoalitionCertificate:
    """Look for a bad coalition with at most ``limit`` tries: those who got most of one party's messages, then exchange moves.

    The result is a lower bound on the worst case of this execution.
    """
    tally = _Tally(solver, terms, trusted, size)
    _search(tally, _able(solver.transcript.parties, trusted), limit)
    return tally.certificate(Scope.FOUND)


def _search(tally: _Tally, able: Sequence[PartyId], limit: int) -> None:
    with one_thread():
        for coalition in neighbour_coalitions(tally.transcript, tally.size):
            if tally.tried < limit // 2 and set(coalition) <= set(able):
                tally.add(coalition)
        improved = tally.size > 0
        while improved and tally.tried < limit:
            improved = any(tally.add(moved) for moved in _exchanges(tally.worst, able) if tally.tried < limit)


def _able(parties: int, trusted: frozenset[PartyId]) -> list[PartyId]:
    """The parties that may collude."""
    return [party for party in range(parties) if party not in trusted]


def _exchanges(coalition: frozenset[PartyId], able: Sequence[PartyId]) -> Iterator[tuple[PartyId, ...]]:
    """The coalition with one member replaced by an outsider."""
    for outsider in able:
        if outsider not in coalition:
            for member in sorted(coalition):
                yield tuple(sorted(coalition - {member} | {outsider}))


@dataclass(frozen=True)
class _Undecided:
    """A number of coalitions that may be worse than the worst tried; what is ``proven`` of all, and what it takes to
    decide all."""

    left: int
    proven: ProvenMu
    seconds: float

    def better(self, other: ProvenMu) -> ProvenMu:
        """The better of two bounds for each party."""
        if not (self.proven.mu < other.mu).any():
            return other
        mu = np.minimum(self.proven.mu, other.mu)
        return replace(self.proven if (mu == self.proven.mu).all() else other, mu=mu, chance=other.chance)


class _Tally:
    """The worst so far, over coalitions that are added one by one; each counts once."""

    def __init__(self, solver: CoalitionSolver, terms: CertificateTerms, trusted: frozenset[PartyId], size: int) -> None:
        self._solver = solver
        self._terms = terms
        self._trusted = trusted
        self.size = size
        self._mu, self._everybody = np.zeros(solver.transcript.parties), range(solver.transcript.parties)
        self._largest = 0.0
        # What batches say of each value at most.
        self._information = np.zeros(solver.transcript.parties)
        self._exact = True
        self._seen: set[frozenset[PartyId]] = set()
        self.worst = frozenset[PartyId]()
        self.tried = 0

    def add(self, coalition: Sequence[PartyId]) -> bool:
        """Try a coalition; returns whether it is worse than all before, by more than rounding."""
        members = frozenset(coalition)
        self.tried += 1
        if members in self._seen:
            return False
        self._seen.add(members)
        adversary = self._terms.eavesdropper.with_corrupt(members)
        certificate = Certificate(adversary, self._terms, self._solver.information(coalition))
        self._exact &= certificate.information.exact
        return self._worse(members, list(certificate.honest), certificate.mu_upper)

    def add_every(self, able: Sequence[PartyId], batches: CoalitionBatches | None, workers: Workers) -> None:
        """Every coalition of the size, which nobody tried before."""
        if not self._terms.conversion.reads_view:
            for coalition in itertools.combinations(able, self.size):
                self.tried += 1
                self._add_bound(coalition, np.zeros(len(self._everybody)))
            return
        with one_thread():
            if batches is None:
                for coalition in itertools.combinations(able, self.size):
                    self.add(coalition)
            else:
                for batch in batches.tried(able, self.size, workers):
                    self.add_all(batch)

    def add_triples(self, able: Sequence[PartyId], effort: Effort) -> _Undecided | None:
        """All coalitions of three, but those that cannot be worse than one that is tried, as far as the effort allows.

        None where it does not allow to begin, or bounds cannot be had.
        """
        count, parties, workers = math.comb(len(able), 3), self.transcript.parties, Workers(effort.workers)
        first = self._solver.seconds(2, math.comb(len(able), 2)) + triple_seconds(count, parties)
        if first > effort.seconds or (batches := self._solver.batches) is None:
            return None
        with one_thread():
            triples = TripleBounds.of(batches, list(able), workers)
            self._add_those(batches, triples.likely(), workers)
            # Where hardly anything depends on who colludes, bounds are this near.
            floor = self._information * _EQUAL
            left = triples.exceeding(floor, workers)
            needed = first + self._solver.seconds(3, len(left))
            allowed = len(left) if needed <= effort.seconds else int(len(left) * (effort.seconds - first) / (needed - first))
            self._add_those(batches, left[:allowed], workers)
            largest = np.maximum(floor, triples.largest(left[allowed:]))
        conversion, sensitivity = self._terms.conversion, self._terms.sensitivity
        mu = conversion.mu_against_any(3, sensitivity * np.sqrt(largest), sensitivity)
        if allowed == len(left):
            # Those that were left out say no more than the floor.
            self._mu, self.tried = np.maximum(self._mu, mu), count
        return _Undecided(len(left) - allowed, ProvenMu(mu, "what pairs tell, and have in common"), needed)

    def _add_those(self, batches: CoalitionBatches, coalitions: Ints, workers: Workers) -> None:
        for batch in batches.those(np.unique(coalitions, axis=0), workers):
            self.add_all(batch)

    def add_all(self, batch: CoalitionBatch) -> None:
        """Coalitions that nobody tried before, solved together; one that is doubtful is solved alone."""
        # Of what is doubtful the error is infinite, and zero times infinity is not a number.
        errors = np.where(batch.error <= DOUBTFUL, batch.error, 0.0)
        bounds = widened(self._terms.sensitivity * np.sqrt(batch.information), errors[:, None])
        for last, error, bound, information in zip(batch.last, batch.error.tolist(), bounds, batch.information, strict=True):
            coalition = (*batch.prefix, last)
            if not error <= DOUBTFUL:
                self.add(coalition)
                continue
            self.tried += 1
            honest = self._add_bound(coalition, bound)
            self._information[honest] = np.maximum(self._information[honest], information[honest])

    def _add_bound(self, coalition: Sequence[PartyId], bound: Array) -> list[PartyId]:
        """A coalition of which mu of the view is at most ``bound`` (n,); returns who is honest."""
        members = frozenset(coalition)
        honest = [party for party in self._everybody if party not in members]
        adversary = self._terms.eavesdropper.with_corrupt(members)
        mu = self._terms.conversion.mu(adversary, honest, bound[honest], self._terms.sensitivity)
        self._worse(members, honest, mu)
        return honest

    def _worse(self, members: frozenset[PartyId], honest: Sequence[PartyId], mu: Array) -> bool:
        """Whether they are worse than all before; either way, they count."""
        # Peer to peer, rounding would otherwise lead the search.
        largest = float(mu.max(initial=0.0))
        worse = largest > self._largest * _EQUAL
        if worse:
            self.worst = members
        self._largest = max(self._largest, largest)
        self._mu[honest] = np.maximum(self._mu[honest], mu)
        return worse

    @property
    def transcript(self) -> Transcript:
        return self._solver.transcript

    def bounded(self, proven: ProvenMu, seconds: float) -> CoalitionCertificate:
        """What holds for all, beside the worst that was found; ``seconds``: what it takes to decide all."""
        largest = self.certificate(Scope.FOUND)
        # Only rounding can put the bound below the worst coalition found.
        shown = replace(largest, mu=np.maximum(proven.mu, largest.mu), scope=Scope.BOUNDED, exact=False, found=largest)
        return replace(shown, proof=proven.proof, chance=proven.chance, seconds=seconds)

    def certificate(self, scope: Scope) -> CoalitionCertificate:
        return CoalitionCertificate(
            size=self.size,
            terms=self._terms,
            mu=self._mu,
            worst=self.worst,
            tried=self.tried,
            scope=scope,
            trusted=self._trusted,
            exact=self._exact,
        )


def random_coalitions(able: Sequence[PartyId], size: int, count: int, seed: Seed) -> Iterator[tuple[PartyId, ...]]:
    """Uniform random coalitions of one size of the parties that may collude."""
    stream = BitStream(seed)
    for _ in range(count):
        yield tuple(able[index] for index in stream.permutation(len(able))[:size])


def neighbour_coalitions(transcript: Transcript, size: int) -> Iterator[tuple[PartyId, ...]]:
    """The coalition of those who got most messages of each party, then of those who share most noise with it."""
    received = transcript.message_known.toarray().astype(np.int64)
    knowing = transcript.noise_known.astype(np.int64)
    shared = (knowing.T @ knowing).toarray()
    for party in range(transcript.parties):
        counts = received[(transcript.sender == party) & ~transcript.released].sum(axis=0)
        counts[party] = -1
        yield tuple(int(other) for other in np.lexsort((-shared[party], -counts))[:size])
