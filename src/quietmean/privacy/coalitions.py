"""Certificates against all coalitions of c parties: every coalition is tried where that is feasible, else bounded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption, any_coalition
from quietmean.core.bounds import APriori
from quietmean.core.errors import InputError
from quietmean.core.lazy_scipy import special
from quietmean.core.party import PartyId
from quietmean.core.tables import Tabular
from quietmean.core.threads import one_thread
from quietmean.core.workers import Workers
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.certificate import Certificate, CertificateTerms
from quietmean.privacy.charge import Charge
from quietmean.privacy.information import CoalitionSolver
from quietmean.privacy.information.coalition_batches import CoalitionBatch, CoalitionBatches
from quietmean.privacy.information.coalition_solver import DOUBTFUL, PER_COALITION
from quietmean.privacy.information.matrix import widened
from quietmean.privacy.loss import UPPER_BOUND
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


class Scope(StrEnum):
    """What the numbers of a :class:`CoalitionCertificate` are about."""

    TRIED = "every coalition"
    BOUNDED = "bound for every coalition"
    FOUND = "worst coalition found"


@dataclass(frozen=True, eq=False, repr=False)
class CoalitionCertificate(Tabular):
    """The worst of all coalitions of one size, for one execution.

    ``mu`` is, for each party, an upper bound over the coalitions without it: shape (n,). If ``scope`` is "every coalition", each
    one was tried. If it is a bound for every coalition, ``proof`` says why it holds, whichever parties collude, and ``found`` is
    the worst coalition among those that were tried: the true worst lies between the two, and to try all would take about so many
    ``seconds`` of one core (see :class:`Effort`; infinite where it is not feasible). Nothing was tried, and ``found`` is None,
    where the bound is the same whoever colludes. ``chance``: see :class:`~quietmean.core.bounds.CoalitionBound`. If the scope is
    "worst coalition found", bad ones were looked for: a lower
    bound on the worst case. ``worst`` and ``tried`` are of what was tried.
    """

    size: int
    terms: CertificateTerms
    mu: Array
    worst: frozenset[PartyId]
    tried: int
    scope: Scope
    trusted: frozenset[PartyId]
    exact: bool
    proof: str = ""
    chance: float = 0.0
    found: CoalitionCertificate | None = None
    seconds: float = math.inf

    def __repr__(self) -> str:
        cost = self.terms.figures(self.a_priori, self.max_epsilon)
        return f"CoalitionCertificate({self.describe()}: {cost} ({self.numbers}))"

    def rows(self) -> list[dict[str, Any]]:
        """One row for each party."""
        return [
            {"party": party, "mu": mu, "epsilon": epsilon}
            for party, (mu, epsilon) in enumerate(zip(self.mu.tolist(), self.epsilon.tolist(), strict=True))
        ]

    @property
    def delta(self) -> float:
        """The delta at which :attr:`epsilon` holds."""
        return self.terms.delta

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """All that its figures take for granted."""
        return self.terms.assumptions(any_coalition(self.size, len(self.mu), self.trusted))

    @property
    def a_priori(self) -> APriori | None:
        """What was promised before the start, whatever would happen, against any coalition of this size."""
        return self.terms.promise(self.size, frozenset())

    @property
    def epsilon_a_priori(self) -> float | None:
        """The same at :attr:`delta`; rounded up."""
        return None if self.a_priori is None else self.terms.epsilon(self.a_priori.mu)

    @property
    def numbers(self) -> str:
        """What the numbers are: "exact" or "upper bound"."""
        return self.terms.conversion.kind if self.exact else UPPER_BOUND

    @property
    def max_mu(self) -> float:
        return float(self.mu.max(initial=0.0))

    @property
    def epsilon(self) -> Array:
        """Epsilon per party, rounded up: shape (n,)."""
        return self.terms.epsilons(self.mu)

    @property
    def max_epsilon(self) -> float:
        """Epsilon of the worst-off party, rounded up."""
        return self.terms.epsilon(self.max_mu)

    def charge(self, party: PartyId) -> Charge:
        """What a ledger is charged for a party."""
        return self.terms.charge(float(self.mu[party]))

    @property
    def exceed_probability(self) -> float:
        """The chance that some coalition costs more; 1, since nothing is claimed, where bad ones were only looked for."""
        return 1.0 if self.scope == Scope.FOUND else self.chance

    @property
    def kind(self) -> str:
        return str(self.scope)

    @property
    def exhaustive(self) -> bool:
        """Was every coalition tried?"""
        return self.scope == Scope.TRIED

    @property
    def at_least(self) -> float:
        """Epsilon of the worst-off party against the worst coalition that was tried."""
        return self.max_epsilon if self.found is None else self.found.max_epsilon

    def describe(self) -> str:
        """The adversary in words."""
        trusted = f", party {min(self.trusted)} trusted never to collude" if self.trusted else ""
        return self._coalition() + trusted + self.terms.eavesdropper.describe()

    @property
    def worst_adversary(self) -> Adversary:
        """The worst coalition that was tried, with who reads messages besides."""
        return self.terms.eavesdropper.with_corrupt(self.worst)

    def _coalition(self) -> str:
        who = "1 party" if self.size == 1 else f"{self.size} parties"
        if self.size == 0:
            return "an outsider who sees what is published"
        if self.terms.conversion.coalition is not None:
            return f"{self.terms.conversion.coalition} (by formula, whoever they are)"
        if self.scope == Scope.FOUND:
            return f"the worst coalition of {who} that was found ({self.tried} tried; a worse one may exist)"
        if self.exhaustive:
            return f"any coalition of {who} (all {self.tried} checked)"
        fails = f"; but for a chance of {self.chance:.1g}, if fixed before the graph was drawn" if self.chance else ""
        return f"any coalition of {who} (a bound: {self.proof}{fails})"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "numbers": self.numbers,
            "definition": self.terms.definition,
            "adversary": self.describe(),
            "size": self.size,
            "coalitions": self.tried,
            "exceed_probability": self.exceed_probability,
            "worst_coalition": sorted(self.worst),
            "max_mu": self.max_mu,
            "max_epsilon": self.max_epsilon,
            **({"proof": self.proof} if self.proof else {}),
            **({} if self.found is None else {"at_least_epsilon": self.at_least}),
            **({"effort_to_try_all": self.seconds} if math.isfinite(self.seconds) else {}),
        }


def exceed_bound(draws: int, exceeding: int, confidence: float = CONFIDENCE, choices: int = 1) -> float:
    """Clopper-Pearson upper bound on the probability of an event seen ``exceeding`` times in ``draws`` independent draws.

    ``choices``: among how many events the one was picked after a look at the draws; the bound holds for all at once (Bonferroni).
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
            raise InputError(f"effort is {self.seconds:g}: choose seconds of one core, 0 or more")
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
    largest, proven = tally.certificate(Scope.FOUND), bound()
    # Only rounding can put the bound below the worst coalition found.
    shown = replace(largest, mu=np.maximum(proven.mu, largest.mu), scope=Scope.BOUNDED, exact=False, found=largest)
    return replace(shown, proof=proven.proof, chance=proven.chance, seconds=needed)


def require_honest(size: int, parties: int, trusted: frozenset[PartyId]) -> list[PartyId]:
    """The parties that may collude. Raises :class:`InputError` for so many of them that nobody honest is left."""
    able = _able(parties, trusted)
    if size < 0:
        raise InputError(f"{size} parties colluding is impossible: choose 0..{min(parties - 1, len(able))}")
    if size >= parties or size > len(able):
        raise InputError(f"{size} of {parties} parties colluding leaves nobody honest: choose 0..{min(parties - 1, len(able))}")
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


class _Tally:
    """The worst so far, over coalitions that are added one by one; each counts once."""

    def __init__(self, solver: CoalitionSolver, terms: CertificateTerms, trusted: frozenset[PartyId], size: int) -> None:
        self._solver = solver
        self._terms = terms
        self._trusted = trusted
        self.size = size
        self._mu = np.zeros(solver.transcript.parties)
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
        with one_thread():
            if batches is None:
                for coalition in itertools.combinations(able, self.size):
                    self.add(coalition)
            else:
                for batch in batches.tried(able, self.size, workers):
                    self.add_all(batch)

    def add_all(self, batch: CoalitionBatch) -> None:
        """Coalitions that nobody tried before, solved together; one that is doubtful is solved alone."""
        # Of what is doubtful the error is infinite, and nothing times that is no number.
        errors = np.where(batch.error <= DOUBTFUL, batch.error, 0.0)
        bounds = widened(self._terms.sensitivity * np.sqrt(batch.information), errors[:, None])
        for last, error, bound in zip(batch.last, batch.error.tolist(), bounds, strict=True):
            coalition = (*batch.prefix, last)
            if not error <= DOUBTFUL:
                self.add(coalition)
                continue
            self.tried += 1
            members = frozenset(coalition)
            honest = [party for party in range(len(bound)) if party not in members]
            adversary = self._terms.eavesdropper.with_corrupt(members)
            mu = self._terms.conversion.mu(adversary, honest, bound[honest], self._terms.sensitivity)
            self._worse(members, honest, mu)

    def _worse(self, members: frozenset[PartyId], honest: list[PartyId], mu: Array) -> bool:
        """Whether they are worse than all before; either way, they count."""
        # Peer to peer, rounding would otherwise lead the search.
        worse = float(mu.max(initial=0.0)) > float(self._mu.max(initial=0.0)) * _EQUAL
        if worse:
            self.worst = members
        self._mu[honest] = np.maximum(self._mu[honest], mu)
        return worse

    @property
    def transcript(self) -> Transcript:
        return self._solver.transcript

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
    """Uniform random coalitions of one size among the parties that may collude."""
    stream = BitStream(seed)
    for _ in range(count):
        yield tuple(able[index] for index in stream.permutation(len(able))[:size])


def neighbour_coalitions(transcript: Transcript, size: int) -> Iterator[tuple[PartyId, ...]]:
    """For each party the coalition of those who got most of its messages, then of those who share most noise with it."""
    received = transcript.message_known.toarray().astype(np.int64)
    knowing = transcript.noise_known.astype(np.int64)
    shared = (knowing.T @ knowing).toarray()
    for party in range(transcript.parties):
        counts = received[(transcript.sender == party) & ~transcript.released].sum(axis=0)
        counts[party] = -1
        yield tuple(int(other) for other in np.lexsort((-shared[party], -counts))[:size])
