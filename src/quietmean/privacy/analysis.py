"""The privacy analysis of one execution: the only module that computes epsilons from a transcript.

Each epsilon that is printed, with the adversary against whom it holds: promised before the start, and of what happened.

Contracts, contributions, results and pages all take them from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.domain import GAUSSIAN_GUARANTEE, half_range
from quietmean.core.party import PartyId
from quietmean.core.readable import Fact, epsilon_text
from quietmean.core.workers import one_thread
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.certificate import Certificate, CertificateTerms, CoalitionCertificate, Scope
from quietmean.privacy.charge import Charge
from quietmean.privacy.coalitions import Effort, ProvenMu, every_coalition, require_honest, search_coalitions
from quietmean.privacy.information import CoalitionSolver
from quietmean.privacy.loss import GAUSSIAN, UPPER_BOUND
from quietmean.privacy.mutual_information import summary
from quietmean.randomness import Seed
from quietmean.transcript import Transcript


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


# The keys of these facts.
A_PRIORI, HAPPENED, FOUND, EVERYBODY, WHOLE_PARTY = "a priori", "as it happened", "found", "everybody else", "whole party"


def cost_text(epsilon: float, delta: float, unit: str = "", below: float | None = None) -> str:
    """An epsilon with its delta, rounded up, for one ``unit``: "epsilon 1.4547 at delta 1e-06 for one record".

    ``below``: what delta is below, where epsilon is pure.
    """
    at = f"delta {delta:g}" if below is None else f"a delta below {below:g}"
    return f"epsilon {epsilon_text(epsilon)} at {at}{f' for one {unit}' if unit else ''}"


def a_priori(epsilon: float, delta: float, unit: str, against: str, promised: APriori) -> Fact:
    """What is ``promised`` before the start. ``against``: who may collude."""
    enforced_by, below = promised.enforced_by, Charge.promised(promised).delta_below
    return Fact(
        A_PRIORI,
        epsilon,
        UPPER_BOUND,
        f"guaranteed before the start, against {against}; enforced by {enforced_by}",
        f"guaranteed before the start: {cost_text(epsilon, delta, unit, below)}, against {against}; enforced by {enforced_by}",
    )


# What is left where only a share of Laplace noise is.
WORTHLESS = "nothing worth the name"


def is_worthless(alone: float, promised: APriori | None) -> bool:
    """Is what is left if all others collude only a share of the noise by which epsilon is pure?"""
    return promised is not None and promised.pure < alone < math.inf


def everybody_else(
    epsilon: float, delta: float, unit: str = "", when: str = "before the start: ", promised: APriori | None = None
) -> Fact:
    """What is left if all other parties collude; ``promised``: against those that were planned for."""
    condition = f"{when}only the noise that a party keeps for itself remains"
    if math.isinf(epsilon):
        condition, sentence = f"{when}nothing remains", ("if all others collude, nothing bounds what they learn")
    else:
        named = f": {WORTHLESS}" if is_worthless(epsilon, promised) else ""
        sentence = f"{cost_text(epsilon, delta, unit)} if all others collude{named}"
    return Fact(EVERYBODY, epsilon, UPPER_BOUND, condition, sentence)


def whole_party(epsilon: float, delta: float, unit: str, counted: str, of_unit: float) -> Fact:
    """What all ``counted`` of one party are protected by together. ``of_unit``: epsilon for one ``unit`` of them."""
    if math.isinf(of_unit):
        sentence = f"nothing protects one {unit}, nor all the {counted} of one party together"
    elif math.isinf(epsilon):
        sentence = f"one {unit} is protected; all the {counted} of one party together are not"
    else:
        sentence = f"{cost_text(epsilon, delta)} for all the {counted} of one party together"
    return Fact(WHOLE_PARTY, epsilon, UPPER_BOUND, f"realised: if all {counted} of a party change, not only one", sentence)


def privacy_facts(
    analysis: PrivacyAnalysis,
    certificate: Certificate | CoalitionCertificate,
    unit: str = "",
    of_party: float | None = None,
    counted: str = "records",
) -> tuple[Fact, ...]:
    """Return the facts of an execution, in the order in which people read them.

    ``of_party``: epsilon for all the ``counted`` of one party together, where the unit is one of them.
    """
    terms, delta, promised = analysis.terms, analysis.delta, certificate.a_priori
    facts = []
    if promised is not None:
        against = _colluders(terms, certificate, analysis.transcript.parties)
        facts.append(a_priori(terms.epsilon_promised(promised), delta, unit, against, promised))
    adversary = certificate.describe() if isinstance(certificate, CoalitionCertificate) else certificate.adversary.describe()
    spent, below = certificate.max_epsilon, terms.charge(certificate.max_mu).delta_below
    cost = f"realised (given who took part): {cost_text(spent, delta, unit, below)}, against {adversary}"
    facts.append(Fact(HAPPENED, spent, certificate.numbers, f"given who took part, against {adversary}", cost))
    if isinstance(certificate, CoalitionCertificate):
        if (found := certificate.found) is not None:
            least = f"at least epsilon {epsilon_text(found.max_epsilon)}: {found.describe()}"
            facts.append(Fact(FOUND, found.max_epsilon, found.numbers, found.describe(), least))
        facts.append(everybody_else(analysis.alone, delta, unit, "realised: ", promised))
    if of_party is not None:
        of_unit = spent if promised is None else min(spent, terms.epsilon_promised(promised))
        facts.append(whole_party(of_party, delta, unit or "unit", counted, of_unit))
    return tuple(facts)


def _colluders(terms: CertificateTerms, certificate: Certificate | CoalitionCertificate, parties: int) -> str:
    """Against whom a promise of an execution holds."""
    if not isinstance(certificate, CoalitionCertificate):
        return any_of(len(certificate.adversary.corrupt), parties)
    if terms.conversion.coalition is not None:
        return terms.conversion.coalition
    return any_of(certificate.size, parties, [f"party {party}" for party in sorted(certificate.trusted)])


def any_of(colluding: int, parties: int, trusted: Sequence[str] = ()) -> str:
    """Who may collude, in words: so many of all parties, but for those that are ``trusted``."""
    if not colluding:
        return "an outsider who sees what is published"
    without = f", without {' and '.join(trusted)}, trusted never to collude" if trusted else ""
    together = " together" if colluding > 1 else ""
    return f"any {colluding} of the {parties} parties{together}{without}"
