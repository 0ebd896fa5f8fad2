"""Certificates against all coalitions of c parties: every coalition is tried where that is feasible, else random ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.tables import Tabular
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.certificate import Certificate, Terms
from quietmean.privacy.charge import Charge
from quietmean.privacy.information import CoalitionSolver, one_thread
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript

Array = NDArray[np.float64]

CONFIDENCE = 0.95
# Coalitions that differ by a smaller factor are equally bad.
_EQUAL = 1.0 + 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class CoalitionCertificate(Tabular):
    """The worst of many coalitions of one size, for one execution.

    ``mu`` is, for each party, the largest over the tried coalitions without it: shape (n,); upper bounds. If ``exhaustive``, this
    is a guarantee against every coalition of this size. Otherwise it is about random coalitions: the chance that a fresh one is
    worse than all ``tried`` is below ``exceed_probability`` with 95 % confidence (Clopper-Pearson), and no more is claimed. If
    ``searched``, bad ones were looked for: a lower bound on the worst case, and no probability is claimed. ``charged_mu``: the
    same of the mu that a ledger adds up.
    """

    size: int
    terms: Terms
    mu: Array
    charged_mu: Array
    worst: frozenset[PartyId]
    tried: int
    exhaustive: bool
    trusted: frozenset[PartyId]
    searched: bool
    exact: bool

    def __repr__(self) -> str:
        cost = f"epsilon {self.max_epsilon:.5g} at delta {self.delta:g} ({self.numbers})"
        return f"CoalitionCertificate({self.describe()}: {cost})"

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
        return self.terms.charge(float(self.charged_mu[party]))

    @property
    def exceed_probability(self) -> float:
        if self.searched:
            return 1.0
        return 0.0 if self.exhaustive else exceed_bound(self.tried, 0)

    @property
    def kind(self) -> str:
        if self.searched:
            return "worst coalition found"
        return "every coalition" if self.exhaustive else "random coalitions"

    def describe(self) -> str:
        """The adversary in words."""
        return self._coalition() + (f", party {min(self.trusted)} trusted never to collude" if self.trusted else "")

    def _coalition(self) -> str:
        who = "1 party" if self.size == 1 else f"{self.size} parties"
        if self.size == 0:
            return "an outsider who sees what is published"
        if self.searched:
            return f"the worst coalition of {who} that a search found ({self.tried} tried; a worse one may exist)"
        if self.exhaustive:
            return f"any coalition of {who} (all {self.tried} checked)"
        return (
            f"a random coalition of {who} (worst of {self.tried} drawn; a fresh draw is worse with probability below "
            f"{self.exceed_probability:.2g} at {CONFIDENCE:.0%} confidence)"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "numbers": self.numbers,
            "definition": self.terms.conversion.definition,
            "adversary": self.describe(),
            "size": self.size,
            "coalitions": self.tried,
            "exceed_probability": self.exceed_probability,
            "worst_coalition": sorted(self.worst),
            "max_mu": self.max_mu,
            "max_epsilon": self.max_epsilon,
        }


def exceed_bound(draws: int, exceeding: int, confidence: float = CONFIDENCE, choices: int = 1) -> float:
    """Clopper-Pearson upper bound on the probability of an event seen ``exceeding`` times in ``draws`` independent draws.

    ``choices``: among how many events the one was picked after a look at the draws; the bound holds for all at once (Bonferroni).
    """
    if exceeding >= draws:
        return 1.0
    return float(beta.ppf(1 - (1 - confidence) / choices, exceeding + 1, draws - exceeding))


def try_coalitions(
    solver: CoalitionSolver, terms: Terms, trusted: frozenset[PartyId], size: int, limit: int, seed: Seed
) -> CoalitionCertificate:
    """Try every coalition of ``size`` parties if there are at most ``limit`` of them, else random ones.

    As many random ones as ``limit``, or fewer beyond 200 parties, where each costs more; the certificate says how many.
    ``trusted`` parties are assumed never to collude, and the certificate says so. Raises :class:`InputError` for a size that
    leaves nobody honest.
    """
    parties = solver.transcript.parties
    able = [party for party in range(parties) if party not in trusted]
    if not 0 <= size < parties or size > len(able):
        raise InputError(f"{size} of {parties} parties colluding leaves nobody honest: choose 0..{min(parties - 1, len(able))}")
    exhaustive = math.comb(len(able), size) <= limit
    draws = max(20, int(limit * min(1.0, (200 / parties) ** 2)))
    drawn = itertools.combinations(able, size) if exhaustive else random_coalitions(able, size, draws, seed)
    tally = _Tally(solver, terms, trusted, size)
    with one_thread():
        for coalition in drawn:
            tally.add(coalition)
    return tally.certificate(exhaustive=exhaustive)


def search_coalitions(
    solver: CoalitionSolver, terms: Terms, trusted: frozenset[PartyId], size: int, limit: int
) -> CoalitionCertificate:
    """Look for a bad coalition with at most ``limit`` tries: those who got most of one party's messages, then exchange moves.

    The result is a lower bound on the worst case of this execution.
    """
    able = [party for party in range(solver.transcript.parties) if party not in trusted]
    tally = _Tally(solver, terms, trusted, size)
    with one_thread():
        for coalition in neighbour_coalitions(solver.transcript, size):
            if tally.tried < limit // 2 and not trusted & set(coalition):
                tally.add(coalition)
        improved = size > 0
        while improved and tally.tried < limit:
            improved = any(tally.add(moved) for moved in _exchanges(tally.worst, able) if tally.tried < limit)
    return tally.certificate(searched=True)


def _exchanges(coalition: frozenset[PartyId], able: Sequence[PartyId]) -> Iterator[tuple[PartyId, ...]]:
    """The coalition with one member replaced by an outsider."""
    for outsider in able:
        if outsider not in coalition:
            for member in sorted(coalition):
                yield tuple(sorted(coalition - {member} | {outsider}))


class _Tally:
    """The worst so far, over coalitions that are added one by one; each counts once."""

    def __init__(self, solver: CoalitionSolver, terms: Terms, trusted: frozenset[PartyId], size: int) -> None:
        self._solver = solver
        self._terms = terms
        self._trusted = trusted
        self._size = size
        self._mu = np.zeros(solver.transcript.parties)
        self._charged = np.zeros(solver.transcript.parties)
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
        certificate = Certificate(Adversary(members), self._terms, self._solver.information(coalition))
        self._exact &= certificate.information.exact
        mu = certificate.mu_upper
        # Among equals, rounding would otherwise lead the search.
        worse = float(mu.max(initial=0.0)) > float(self._mu.max(initial=0.0)) * _EQUAL
        if worse:
            self.worst = members
        honest = list(certificate.honest)
        self._mu[honest] = np.maximum(self._mu[honest], mu)
        self._charged[honest] = np.maximum(self._charged[honest], certificate.charged_mu)
        return worse

    def certificate(self, *, exhaustive: bool = False, searched: bool = False) -> CoalitionCertificate:
        return CoalitionCertificate(
            size=self._size,
            terms=self._terms,
            mu=self._mu,
            charged_mu=self._charged,
            worst=self.worst,
            tried=self.tried,
            exhaustive=exhaustive,
            trusted=self._trusted,
            searched=searched,
            exact=self._exact,
        )


def random_coalitions(able: Sequence[PartyId], size: int, count: int, seed: Seed) -> Iterator[tuple[PartyId, ...]]:
    """Uniform random coalitions of one size among the parties that may collude."""
    stream = BitStream(seed)
    for _ in range(count):
        yield tuple(able[place] for place in stream.permutation(len(able))[:size])


def neighbour_coalitions(transcript: Transcript, size: int) -> Iterator[tuple[PartyId, ...]]:
    """For each party the coalition of those who got most of its messages, then of those who share most noise with it."""
    received = transcript.message_known.toarray().astype(np.int64)
    knowing = transcript.noise_known.astype(np.int64)
    shared = (knowing.T @ knowing).toarray()
    for party in range(transcript.parties):
        counts = received[(transcript.sender == party) & ~transcript.released].sum(axis=0)
        counts[party] = -1
        yield tuple(int(other) for other in np.lexsort((-shared[party], -counts))[:size])
