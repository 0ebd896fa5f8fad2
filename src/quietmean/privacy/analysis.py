"""The privacy analysis of one execution: the only module that computes epsilons from a transcript."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.bounds import CoalitionBound
from quietmean.core.domain import half_range
from quietmean.core.party import PartyId
from quietmean.core.workers import one_thread
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.certificate import Certificate, CertificateTerms
from quietmean.privacy.coalition_certificate import CoalitionCertificate, Scope
from quietmean.privacy.coalitions import (
    Effort,
    ProvenMu,
    every_coalition,
    require_honest,
    search_coalitions,
)
from quietmean.privacy.information import CoalitionSolver
from quietmean.privacy.loss import GAUSSIAN
from quietmean.privacy.mutual_information import summary
from quietmean.randomness import Seed
from quietmean.transcript import Transcript

GAUSSIAN_GUARANTEE = "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional"


def _no_formula(size: int) -> None:
    return None


@dataclass(frozen=True, eq=False)
class PrivacyAnalysis:
    """One transcript with all that turns a view of it into epsilons; what was computed once is kept.

    ``terms``: sensitivity, delta, the loss conversion and the guarantee. ``trusted`` parties are assumed never to collude where
    many coalitions are tried. ``method``: the solver, see :class:`~quietmean.privacy.information.solver.ViewSolver`. ``bound``:
    what the protocol proves for every coalition of a size, if anything.
    """

    transcript: Transcript
    terms: CertificateTerms
    trusted: frozenset[PartyId]
    method: str = "auto"
    bound: Callable[[int], CoalitionBound | None] = _no_formula

    @classmethod
    def of_gaussian(
        cls,
        transcript: Transcript,
        sensitivity: float,
        delta: float,
        *,
        trusted: frozenset[PartyId] = frozenset(),
        method: str = "auto",
    ) -> PrivacyAnalysis:
        """The analysis of a bare transcript whose noise is exactly Gaussian. An execution has :meth:`privacy` instead."""
        return cls(transcript, CertificateTerms(sensitivity, delta, GAUSSIAN, GAUSSIAN_GUARANTEE), trusted, method)

    @property
    def sensitivity(self) -> float:
        return self.terms.sensitivity

    @property
    def delta(self) -> float:
        return self.terms.delta

    @property
    def guarantee(self) -> str:
        """What the protocol promises, one sentence."""
        return self.terms.guarantee

    @cached_property
    def solver(self) -> CoalitionSolver:
        """The solver that serves all questions about this execution."""
        return CoalitionSolver(self.transcript, self.method, self.terms.eavesdropper)

    @cached_property
    def _tried(self) -> dict[tuple[int, int | None, Seed], tuple[CoalitionCertificate, float]]:
        return {}

    def against(self, corrupt: Iterable[PartyId] = (), observed: Iterable[tuple[PartyId, int]] | None = None) -> Certificate:
        """What colluding parties and intercepted messages (party, round) reveal about each honest party.

        By default those are intercepted that the target of the execution says are read, if it does.

        Raises :class:`InputError` for parties or messages that do not exist, :class:`NumericalError` where no bound can be shown.
        """
        read = self.terms.eavesdropper.observed if observed is None else frozenset(observed)
        adversary = Adversary(frozenset(corrupt), read)
        return Certificate(adversary, self.terms, self.solver.against(adversary))

    def each(self, coalitions: Iterable[Collection[PartyId]]) -> Iterator[Certificate]:
        """Analyse many coalitions as :meth:`against` does one, by what they have in common: faster, equal up to the
        solver's error."""
        for coalition in coalitions:
            adversary = self.terms.eavesdropper.with_corrupt(coalition)
            yield Certificate(adversary, self.terms, self.solver.information(coalition))

    def coalitions(
        self, size: int, *, limit: int | None = None, seed: Seed | None = None, effort: Effort | None = None
    ) -> CoalitionCertificate:
        """Against every coalition of ``size`` parties: each is tried if there are at most ``limit``, else a bound for all.

        Who reads messages besides is with each of them.

        By default all are tried where that takes seconds: up to 500 always, and some thousands of 30 parties. The bound is the
        protocol's own, or that everybody else who is not trusted colludes, for each party the better of the two. ``effort``: more
        may be spent on trying all, as IncA allows, whose every pair of 200 parties takes seconds; who asks later without it
        gets that answer, too. ``seed``,
        public, is of the random coalitions of those that are tried beside a bound: by default a fixed one, so that everybody
        who certifies the same execution gets the same answer. Raises :class:`InputError` for a size that leaves nobody honest.
        """
        if (any_of_them := self._by_formula(size)) is not None:
            return any_of_them
        key = size, limit, seed or Seed.public("coalitions")
        allowed = effort or Effort()
        known, spent = self._tried.get(key, (None, 0.0))
        if known is None or (not known.exhaustive and math.isfinite(known.seconds) and spent < allowed.seconds):
            known = every_coalition(self.solver, self.terms, self.trusted, *key, lambda: self._proven(size), allowed)
            self._tried[key] = known, allowed.seconds
        return known

    def _by_formula(self, size: int) -> CoalitionCertificate | None:
        """Certify where the protocol's bound is the same for coalitions of any size: nothing is to be tried."""
        # Asked first: the bound of other protocols takes seconds, and is not needed where every coalition is tried.
        if self.terms.conversion.coalition is None or (worst := self.bound(size)) is None:
            return None
        parties = require_honest(size, self.transcript.parties, self.trusted)
        return CoalitionCertificate(
            size,
            self.terms,
            worst.mu,
            frozenset(parties[:size]),
            0,
            Scope.BOUNDED,
            self.trusted,
            exact=False,
            proof=worst.proof,
            chance=worst.chance,
        )

    def _proven(self, size: int) -> ProvenMu:
        """The bound for coalitions of ``size`` without trying one."""
        worst, trusted, conversion = self.bound(size), self.trusted, self.terms.conversion
        alone = self._everybody_else(trusted) if trusted else self._single_honest
        if worst is None:
            return ProvenMu(alone, "everybody else together")
        formula = conversion.mu_against_any(size, worst.mu, self.sensitivity)
        # Where it may fail, the better of two bounds fails as often.
        return ProvenMu(np.minimum(formula, alone), worst.proof, worst.chance)

    def nats_of_target(self, size: int, target: float) -> dict[str, Any]:
        """What is said of a ``target`` in nats against every coalition of ``size``; infinite where no bound is known."""
        prior_sd = half_range(self.sensitivity)
        upper = self.terms.conversion.nats_against_any(size, prior_sd)
        promised = self.terms.promise(size, frozenset())
        a_priori = math.inf if promised is None else promised.nats
        return summary(target, math.inf if upper is None else upper, prior_sd, self.terms.conversion.coordinates, a_priori)

    def search(self, size: int, *, limit: int = 300) -> CoalitionCertificate:
        """The worst coalition that ``limit`` tries find: a lower bound on the worst case of this execution."""
        return search_coalitions(self.solver, self.terms, self.trusted, size, limit)

    def single_honest(self) -> Array:
        """mu of each party if all the others collude: shape (n,), upper bounds. What remains is its own noise."""
        return self._single_honest.copy()

    @property
    def alone(self) -> float:
        """Epsilon of the worst-off party if all the others collude; rounded up."""
        return self.epsilon(float(self._single_honest.max()))

    @cached_property
    def _single_honest(self) -> Array:
        return self._everybody_else(frozenset())

    def _everybody_else(self, but: frozenset[PartyId]) -> Array:
        """mu of each party if all others collude ``but`` those named: shape (n,), upper bounds."""
        parties = range(self.transcript.parties)
        if self.terms.conversion.coalition is not None:
            return np.full(len(parties), math.inf)
        with one_thread():
            others = ([party for party in parties if party != alone and party not in but] for alone in parties)
            return np.array([self._mu_of(alone, members) for alone, members in zip(parties, others, strict=True)])

    def _mu_of(self, party: PartyId, coalition: Collection[PartyId]) -> float:
        certificate = self.against(coalition)
        return float(certificate.mu_upper[certificate.honest.index(party)])

    def epsilon(self, mu: float) -> float:
        """The least epsilon that is shown at :attr:`delta`; rounded up."""
        return self.terms.epsilon(mu)

    def group_epsilon(self, mu: float, times: float) -> float:
        """What is shown if the value may change ``times`` as much, at least once; rounded up."""
        return self.terms.conversion.group_epsilon(mu, times, self.delta)
