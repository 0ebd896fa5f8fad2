"""The worst of all coalitions of one size, for one execution: what is said of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption, any_coalition
from quietmean.core.bounds import APriori
from quietmean.core.party import PartyId
from quietmean.core.tables import Tabular
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.certificate import CertificateTerms
from quietmean.privacy.charge import Charge
from quietmean.privacy.loss import UPPER_BOUND


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
    the worst coalition of those that were tried: the true worst lies between the two, and to try all would take about so many
    ``seconds`` of one core (see :class:`Effort`; infinite where it is not feasible). Nothing was tried, and ``found`` is None,
    where the bound is the same for all coalitions. ``chance``: see :class:`~quietmean.core.bounds.CoalitionBound`.
    If the scope is "worst coalition found", bad ones were looked for: a lower bound
    on the worst case. ``worst`` and ``tried`` are of what was tried.
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
        """Return the epsilon at :attr:`delta` that is promised before the start, rounded up; None without such a promise."""
        return None if self.a_priori is None else self.terms.epsilon_promised(self.a_priori)

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
            return f"{self.terms.conversion.coalition} (by formula, all of them alike)"
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
