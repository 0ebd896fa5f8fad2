"""Each epsilon that is printed, with the adversary against whom it holds: promised before the start, and of what happened.

Contracts, contributions, results and pages all take them from here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from quietmean.core.readable import Fact, epsilon_text
from quietmean.privacy.analysis import PrivacyAnalysis
from quietmean.privacy.certificate import Certificate, CertificateTerms
from quietmean.privacy.coalition_certificate import CoalitionCertificate
from quietmean.privacy.loss import UPPER_BOUND

# The keys of these facts.
A_PRIORI, HAPPENED, FOUND, EVERYBODY, WHOLE_PARTY = "a priori", "as it happened", "found", "everybody else", "whole party"


def cost_text(epsilon: float, delta: float, unit: str = "") -> str:
    """An epsilon with its delta, rounded up, for one ``unit``: "epsilon 1.4547 at delta 1e-06 for one record"."""
    return f"epsilon {epsilon_text(epsilon)} at delta {delta:g}{f' for one {unit}' if unit else ''}"


def a_priori(epsilon: float, delta: float, unit: str, against: str, enforced_by: str) -> Fact:
    """What is promised before the start. ``against``: who may collude; ``enforced_by``: what keeps it."""
    return Fact(
        A_PRIORI,
        epsilon,
        UPPER_BOUND,
        f"promised before the start, whatever happens, against {against}; enforced by {enforced_by}",
        f"a priori (whatever happens): {cost_text(epsilon, delta, unit)}, against {against}; enforced by {enforced_by}",
    )


def everybody_else(epsilon: float, delta: float, unit: str = "", when: str = "before the start: ") -> Fact:
    """What is left if all other parties collude."""
    condition = f"{when}only the noise that a party keeps for itself remains"
    if math.isinf(epsilon):
        condition, sentence = f"{when}nothing remains", "should everybody else collude, nothing bounds what they learn"
    else:
        sentence = f"{cost_text(epsilon, delta, unit)} should everybody else collude"
    return Fact(EVERYBODY, epsilon, UPPER_BOUND, condition, sentence)


def whole_party(epsilon: float, delta: float, unit: str, counted: str) -> Fact:
    """What all ``counted`` of one party are protected by together, where one ``unit`` of them is protected."""
    sentence = (
        f"one {unit} is protected; all the {counted} of one party together are not"
        if math.isinf(epsilon)
        else f"{cost_text(epsilon, delta)} for all the {counted} of one party together"
    )
    return Fact(WHOLE_PARTY, epsilon, UPPER_BOUND, f"as it happened: if all {counted} of a party change, not only one", sentence)


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
        facts.append(a_priori(terms.epsilon_promised(promised), delta, unit, against, promised.enforced_by))
    adversary = certificate.describe() if isinstance(certificate, CoalitionCertificate) else certificate.adversary.describe()
    spent = certificate.max_epsilon
    cost = f"as it happened (given who took part): {cost_text(spent, delta, unit)}, against {adversary}"
    facts.append(Fact(HAPPENED, spent, certificate.numbers, f"given who took part, against {adversary}", cost))
    if isinstance(certificate, CoalitionCertificate):
        if (found := certificate.found) is not None:
            least = f"at least epsilon {epsilon_text(found.max_epsilon)}: {found.describe()}"
            facts.append(Fact(FOUND, found.max_epsilon, found.numbers, found.describe(), least))
        facts.append(everybody_else(analysis.alone, delta, unit, "as it happened: "))
    return *facts, *(() if of_party is None else (whole_party(of_party, delta, unit or "unit", counted),))


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
    return f"any {colluding} of the {parties} parties together{without}"
