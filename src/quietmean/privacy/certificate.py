"""Certificates: what one execution cost each honest party against one adversary, with all assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.assumptions import STANDING, Assumption, Key, any_coalition, assumptions_json, named_adversary, neighbours
from quietmean.core.bounds import APriori
from quietmean.core.domain import Neighbouring
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.readable import epsilon_text
from quietmean.core.schema import require_delta
from quietmean.core.tables import Tabular
from quietmean.privacy.adversary import Adversary, Eavesdropper
from quietmean.privacy.charge import Charge
from quietmean.privacy.information import InformationMatrix
from quietmean.privacy.loss import EXACT, UPPER_BOUND, LossConversion
from quietmean.privacy.mutual_information import revealed_variance

# What was promised before the start against a number of colluders, or against named ones; None where nothing was.
Promise = Callable[[int, frozenset[PartyId]], APriori | None]


def no_promise(size: int, corrupt: frozenset[PartyId]) -> None:
    """None, for a bare transcript, which has no protocol that could have promised anything."""
    return


def nats_json(nats: Array, prior_sd: float, coordinates: int | None) -> dict[str, Any]:
    """Mutual information per party and coordinate, and R^2: the share of a value's variance that a view explains."""
    known = {} if coordinates is None else {"coordinates": coordinates}
    return {"prior_sd": prior_sd, **known, "mutual_information_nats": nats, "revealed_variance": revealed_variance(nats)}


@dataclass(frozen=True, eq=False)
class CertificateTerms:
    """What the numbers of a certificate mean.

    Neighbouring ``relation``: replacement of one unit, or one record more or less; either way one party's value becomes another
    at L2 distance <= ``sensitivity``. Epsilons are at ``delta``. ``guarantee``: what the protocol promises, one sentence.
    ``protocol``: what it takes for granted.
    ``promise``: what was promised before the start, whatever would happen.
    ``eavesdropper``: who reads messages besides, whichever coalition a figure is about, if the target said so.
    """

    sensitivity: float
    delta: float
    conversion: LossConversion
    guarantee: str
    protocol: tuple[Assumption, ...] = STANDING
    promise: Promise = no_promise
    relation: Neighbouring = Neighbouring.REPLACEMENT
    eavesdropper: Eavesdropper = field(default_factory=Eavesdropper)

    def __post_init__(self) -> None:
        require_delta(self.delta)

    def assumptions(self, colluding: Assumption) -> tuple[Assumption, ...]:
        """All that a certificate takes for granted if who colludes is as stated: the one list that is shown anywhere."""
        # A protocol in which parties have different roles says itself who may collude.
        own = tuple(assumption for assumption in self.protocol if assumption.key == Key.COLLUDING)
        others = tuple(assumption for assumption in self.protocol if assumption.key != Key.COLLUDING)
        return *(own or (colluding,)), *others, neighbours(self.sensitivity, self.relation), *self.conversion.notes

    @property
    def definition(self) -> str:
        """The definition of privacy that the epsilons are of."""
        return self.relation.claim(self.conversion.definition)

    def a_priori_json(self, promised: APriori | None) -> dict[str, Any]:
        """What stands before the figure of what happened: ``epsilon_a_priori``, and what keeps it; empty without a promise."""
        if promised is None:
            return {}
        return {"epsilon_a_priori": self.epsilon_promised(promised), "enforced_by": promised.enforced_by}

    def figures(self, promised: APriori | None, as_happened: float) -> str:
        """Both figures at :attr:`delta` in one clause, the guaranteed one first."""
        first = "" if promised is None else f"guaranteed epsilon {epsilon_text(self.epsilon_promised(promised))}, "
        return f"{first}realised epsilon {epsilon_text(as_happened)} at delta {self.delta:g}"

    def charge(self, mu: float) -> Charge:
        """What a ledger is charged for a party of this ``mu``, one that adds up with other studies."""
        return self.conversion.charge(mu)

    def epsilon(self, mu: float) -> float:
        """The least epsilon that is shown at ``delta``; rounded up."""
        return self.conversion.epsilon(mu, self.delta)

    def epsilon_promised(self, promised: APriori) -> float:
        """Epsilon of what was promised before the start, at ``delta``; rounded up."""
        return min(self.epsilon(promised.mu), promised.pure)

    def epsilons(self, mu: Array) -> Array:
        """:meth:`epsilon` of each entry of mu, (n,)."""
        # Of many parties most have the same.
        values, places = np.unique(mu, return_inverse=True)
        return np.array([self.epsilon(value) for value in values.tolist()], dtype=np.float64)[places]

    def deltas(self, mu: Array, epsilon: float) -> Array:
        """The least delta that is shown at ``epsilon`` for each entry of mu, (n,); rounded up."""
        return np.array([self.conversion.delta(value, epsilon) for value in mu.tolist()])


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Tabular):
    """mu-GDP per honest party, exact up to rounding: ``mu`` is the estimate, ``mu_upper`` the bound that counts.

    Where :attr:`numbers` says "upper bound", both are upper bounds: the noise is not Gaussian, or no solver
    reached the accuracy of an exact answer. Arrays have shape (n_H,), in the order of :attr:`honest`.
    """

    adversary: Adversary
    terms: CertificateTerms
    information: InformationMatrix = field(repr=False)

    def __repr__(self) -> str:
        cost = self.terms.figures(self.a_priori, self.max_epsilon)
        return f"Certificate({self.adversary.describe()}: {cost} ({self.numbers}))"

    def rows(self) -> list[dict[str, Any]]:
        """One row for each honest party."""
        numbers = zip(self.honest, self.mu.tolist(), self.mu_upper.tolist(), self.epsilon.tolist(), strict=True)
        return [{"party": party, "mu": mu, "mu_upper": upper, "epsilon": epsilon} for party, mu, upper, epsilon in numbers]

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """All that its figures take for granted."""
        return self.terms.assumptions(named_adversary(self.adversary.describe()))

    @property
    def a_priori(self) -> APriori | None:
        """What was promised before the start against any coalition of that size; None if messages were intercepted besides.

        The promise covers those that the target expected to be read.
        """
        if self.adversary.observed - self.terms.eavesdropper.observed or not self.honest:
            return None
        return self.terms.promise(len(self.adversary.corrupt), self.adversary.corrupt)

    @property
    def epsilon_a_priori(self) -> float | None:
        """Return the epsilon at :attr:`delta` that is promised before the start, rounded up; None without such a promise."""
        return None if self.a_priori is None else self.terms.epsilon_promised(self.a_priori)

    @property
    def honest(self) -> tuple[PartyId, ...]:
        return self.information.honest

    @property
    def sensitivity(self) -> float:
        return self.terms.sensitivity

    @property
    def delta(self) -> float:
        """The delta at which :attr:`epsilon` holds."""
        return self.terms.delta

    @property
    def numbers(self) -> str:
        """What the numbers are: "exact" or "upper bound"."""
        return self.terms.conversion.kind if self.information.exact else UPPER_BOUND

    @property
    def mu(self) -> Array:
        return self._counting(self.information.mu(self.sensitivity))

    @property
    def mu_upper(self) -> Array:
        return self._counting(self.information.mu_upper(self.sensitivity))

    def _counting(self, view: Array) -> Array:
        return self.terms.conversion.mu(self.adversary, self.honest, view, self.sensitivity)

    @property
    def max_mu(self) -> float:
        return float(self.mu_upper.max(initial=0.0))

    @property
    def epsilon(self) -> Array:
        """Epsilon per honest party, rounded up: shape (n_H,)."""
        return self.terms.epsilons(self.mu_upper)

    @property
    def max_epsilon(self) -> float:
        """Epsilon of the worst-off party; 0 if nobody is honest."""
        return self.terms.epsilon(self.max_mu)

    def epsilon_of(self, party: PartyId) -> float:
        """Epsilon of one honest party. Raises :class:`InputError` if it is corrupt."""
        if party not in self.honest:
            raise InputError(f"party {party} is not an honest party of this certificate. Choose an honest one.")
        return self.terms.epsilon(float(self.mu_upper[self.honest.index(party)]))

    def delta_at(self, epsilon: float) -> Array:
        """The least delta at ``epsilon`` per honest party, rounded up: shape (n_H,)."""
        return self.terms.deltas(self.mu_upper, epsilon)

    def nats(self, prior_sd: float) -> Array:
        """What the view reveals about each honest party's value, in nats per coordinate, (n_H,): mutual information, at most.

        For independent normal values of standard deviation ``prior_sd``: an average over values and no differential privacy.
        Raises :class:`InputError` where no bound is known.
        """
        if not self.information.exact:
            raise InputError(
                "mutual information is known where the view is solved exactly, and this certificate's is bounded only. Leave "
                "prior-sd out."
            )
        return self.terms.conversion.nats(self.adversary, self.honest, self.information, prior_sd)

    def to_json(self, *, epsilon: float | None = None, prior_sd: float | None = None, matrix: bool = False) -> dict[str, Any]:
        """What ``quietmean verify receipt`` says of an adversary. Raises :class:`InputError` for what an upper bound lacks."""
        if self.numbers != EXACT and matrix:
            raise InputError(
                "the information matrix is that of Gaussian noise in an exact certificate, and this one is an upper bound. Leave "
                "matrix out."
            )
        document: dict[str, Any] = {
            **self.terms.a_priori_json(self.a_priori),
            "adversary": self.adversary.describe(),
            "corrupt": sorted(self.adversary.corrupt),
            "sensitivity": self.sensitivity,
            "honest": list(self.honest),
            "mu": self.mu,
            "mu_upper": self.mu_upper,
            "disclosures": self.information.disclosures(),
            "numbers": self.numbers,
            "definition": self.terms.definition,
            "guarantee": self.terms.guarantee,
            "assumptions": assumptions_json(self.assumptions),
            "at_delta": self.delta,
            "epsilon": self.epsilon,
            "max_epsilon": self.max_epsilon,
        }
        if epsilon is not None:
            document |= {"at_epsilon": epsilon, "delta": self.delta_at(epsilon)}
        if prior_sd is not None:
            document |= nats_json(self.nats(prior_sd), prior_sd, self.terms.conversion.coordinates)
        if matrix:
            document["information_matrix"] = self.information.dense()
        return document


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

    def in_short(self) -> str:
        """The adversary in a few words: "any 2 of 20 parties together (all 190 pairs tried)"."""
        if self.size == 0 or self.terms.conversion.coalition is not None:
            return self.describe()
        how = f"all {self.tried:,} {'pairs ' if self.size == 2 else ''}tried"
        if self.scope == Scope.FOUND:
            how = f"the worst found of {self.tried:,} tried"
        elif not self.exhaustive:
            how = "a bound for all of them"
        trusted = f", party {min(self.trusted)} trusted never to collude" if self.trusted else ""
        who = f"any {self.size} of {len(self.mu)} parties{' together' if self.size > 1 else ''}"
        return f"{who} ({how}){trusted}{self.terms.eavesdropper.describe()}"

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
