"""What one study costs an account: three columns, which add up over studies in three ways.

A mechanism costs (mu, beta, tv) if, for every two neighbouring inputs,

- an event of probability at most beta, the same for both, aside, the model of the mechanism is mu-GDP; and
- what the program really does is within total variation distance tv of that model, on every input.

Then for every epsilon >= 0 it is (epsilon, delta)-DP with

    delta = delta(mu, epsilon) + beta + (1 + e^epsilon) tv.

Over studies, chosen adaptively, mu adds as sqrt(sum mu_k^2), beta and tv add plainly. Nothing else is ever added up: neither
epsilons nor trade-off curves (see docs/proofs/ledger.md).

Neighbouring relation: the one that the charge was made for. Every function rounds towards less privacy.

Zero-concentrated differential privacy (Bun and Steinke 2016) to (epsilon, delta).

A rho-concentrated release is (epsilon, delta)-DP for each Renyi order a > 1 with

    ln delta = (a - 1) (a rho - epsilon) + a ln(1 - 1 / a) - ln(a - 1)

(Canonne, Kamath and Steinke 2020). No finite mu follows from rho alone, so this is the only way from rho to a ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from quietmean.core.bounds import APriori
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.schema import require_delta, require_usual
from quietmean.privacy.composition import check_mu, compose_mu, exact_sum, group_mu
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu


def epsilon_of_rho(rho: float, delta: float) -> float:
    """Upper bound on epsilon at ``delta`` of a rho-concentrated DP release: the least over Renyi orders above 1; rounded up.

    Raises :class:`InputError` for a negative rho or unless 0 < delta < 1.
    """
    if not rho >= 0:
        raise InputError(f"rho is {rho:g}. Choose a number >= 0.")
    require_delta(delta)
    if rho == 0.0 or math.isinf(rho):
        return rho

    def epsilon(order: float) -> float:
        return order * rho + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)

    least = _least(lambda exponent: epsilon(1 + math.exp(exponent)), -12.0, 25.0)
    # Three terms of either sign: the margin follows their sizes.
    return max(0.0, least + 1e-12 * (abs(least) + 1))


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """The least value of a function with one valley, by ternary search: any argument gives a valid bound."""
    for _ in range(120):
        third = (high - low) / 3
        if function(low + third) <= function(high - third):
            high -= third
        else:
            low += third
    return function((low + high) / 2)


# Relative accuracy of scipy's inverse functions, with room to spare; results are moved by this much towards less privacy.
_SAFETY = 1e-12
# Beyond this e^epsilon overflows float64, and any tv > 0 of a program uses up delta.
_LARGEST_EXPONENT = 700.0
# tanh(epsilon / 2) of a larger one is too close to 1 for the inverse error function.
_SMALL_EPSILON = 1.0


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge (mu, beta, tv) of a study, or of several: see :mod:`quietmean.privacy.charge`.

    ``mu`` may be infinite: no bound is known, and no account can pay it. Raises :class:`InputError` for a negative mu, or a beta
    or tv outside 0..1.
    """

    mu: float
    beta: float = 0.0
    tv: float = 0.0

    def __post_init__(self) -> None:
        check_mu(self.mu)
        for name, chance in (("beta", self.beta), ("tv", self.tv)):
            if not 0 <= chance <= 1:
                raise InputError(f"{name} is {chance:g}. Choose a number between 0 and 1.")

    @classmethod
    def of_mechanism(cls, epsilon: float, delta: float = 0.0, *, members: int = 1) -> Self:
        """The charge of any (epsilon, delta)-DP mechanism: mu = -2 Phi^-1(1 / (1 + e^epsilon)) and beta = delta.

        Randomised response at epsilon is the worst epsilon-DP mechanism, and this is the least mu whose curve lies nowhere above
        its own; with probability delta everything is given away (Kairouz, Oh and Viswanath 2015). ``members``: for a group of so
        many units that change together, by the group privacy of (epsilon, delta). Raises :class:`InputError` for an epsilon that
        is not finite and >= 0, a delta outside 0..1, or fewer members than 1.
        """
        if not (math.isfinite(epsilon) and epsilon >= 0):
            raise InputError(f"epsilon is {epsilon:g}. Choose a finite number >= 0.")
        require_members(members)
        if not 0 <= delta <= 1:
            raise InputError(f"delta is {delta:g}. Choose a number between 0 and 1.")
        return cls(_mu_of_pure(members * epsilon), _group_delta(epsilon, delta, members))

    @classmethod
    def of_concentrated(cls, rho: float, delta: float, *, members: int = 1) -> Self:
        """The charge of a rho-zCDP mechanism, by way of (epsilon, ``delta``): of rho alone no finite mu follows.

        A group of ``members`` units has members^2 rho. Raises :class:`InputError` for a negative or infinite rho, unless
        0 < delta < 1, or for fewer members than 1.
        """
        require_members(members)
        return cls.of_mechanism(epsilon_of_rho(members**2 * rho, delta), delta)

    @classmethod
    def promised(cls, bound: APriori) -> Self:
        """What is reserved for a study before it starts."""
        return cls(bound.mu, bound.beta, bound.tv)

    @property
    def bounded(self) -> bool:
        """Whether mu is finite."""
        return math.isfinite(self.mu)

    def additive(self, epsilon: float) -> Fraction:
        """beta + (1 + e^epsilon) tv, what the two additive columns take of delta: an upper bound, at most 1."""
        return additive_delta([self], epsilon)

    def delta(self, epsilon: float) -> float:
        """The least delta at ``epsilon`` that is shown; rounded up. Raises :class:`InputError` for an impossible epsilon."""
        return min(1.0, _up(Fraction(delta_of_mu(self.mu, epsilon)) + self.additive(epsilon)))

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta`` that is shown; infinite if none is. Rounded up.

        Raises :class:`InputError` unless 0 < delta < 1.
        """
        # From below, as e^epsilon grows with epsilon; the least solution is never passed.
        epsilon = 0.0
        while True:
            remaining = Fraction(delta) - self.additive(epsilon)
            if remaining <= 0 or not self.bounded:
                return math.inf
            more = epsilon_of_mu(self.mu, down(remaining))
            if more <= epsilon * (1 + _SAFETY):
                break
            epsilon = more
        step = _SAFETY
        while self.delta(epsilon) > delta:
            if step > 1.0:
                return math.inf
            epsilon = epsilon * (1 + step) + step * _SAFETY
            step *= 2
        return epsilon

    def capped(self, promised: Charge) -> Charge:
        """This charge, or all of ``promised``, which holds as well, where that has the smaller mu."""
        return promised if self.mu > promised.mu else self

    def exceeds(self, other: Charge) -> bool:
        """Whether this is more than ``other`` in any column."""
        return self.mu > other.mu or self.beta > other.beta or self.tv > other.tv

    def larger(self, other: Charge) -> Charge:
        """The larger of the two in each column."""
        return Charge(max(self.mu, other.mu), max(self.beta, other.beta), max(self.tv, other.tv))

    def of_group(self, members: int, epsilon: float | None = None) -> Charge:
        """The charge for ``members`` units that change together, each hidden as charged here: members * mu, and the same tv.

        The event of a beta is about one change. At one ``epsilon`` of the group it takes beta (1 + e^(epsilon / members) + ...),
        as many terms as members: see docs/proofs/ledger.md. Raises :class:`InputError` for fewer members than 1, and for a
        beta > 0 without ``epsilon``.
        """
        require_members(members)
        if members == 1:
            return self
        if self.beta and epsilon is None:
            raise InputError(
                f"a rare event of probability {self.beta:g} is known for one change, not for {members} at once. Charge a study "
                "without rare events, or one whose unit is the group."
            )
        beta = 0.0 if not self.beta or epsilon is None else _group_delta(epsilon / members, self.beta, members)
        return Charge(group_mu(self.mu, members), beta, self.tv)


NOTHING: Final = Charge(0.0)


def compose(charges: Iterable[Charge]) -> Charge:
    """Several studies about the same unit together: mu by squares, beta and tv by sums. Exact arithmetic, rounded up."""
    listed = list(charges)
    beta = min(Fraction(1), exact_sum(charge.beta for charge in listed))
    tv = min(Fraction(1), exact_sum(charge.tv for charge in listed))
    return Charge(compose_mu(charge.mu for charge in listed), _up(beta), _up(tv))


def additive_delta(charges: Iterable[Charge], epsilon: float) -> Fraction:
    """sum beta + (1 + e^epsilon) sum tv: an upper bound, at most 1. Raises :class:`InputError` unless epsilon is finite, >= 0."""
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"epsilon is {epsilon:g}. Choose a finite number >= 0.")
    listed = list(charges)
    beta, tv = exact_sum(charge.beta for charge in listed), exact_sum(charge.tv for charge in listed)
    if not tv:
        return min(Fraction(1), beta)
    if epsilon > _LARGEST_EXPONENT:
        return Fraction(1)
    # The library's exponential is off by less than one unit in the last place.
    growth = Fraction(math.nextafter(math.nextafter(math.exp(epsilon), math.inf), math.inf))
    return min(Fraction(1), beta + (1 + growth) * tv)


def down(number: Fraction) -> float:
    """The largest double that is not above; for numbers >= 0."""
    near = float(number)
    return near if Fraction(near) <= number else math.nextafter(near, 0.0)


def _up(number: Fraction) -> float:
    near = float(number)
    return near if Fraction(near) >= number else math.nextafter(near, math.inf)


def _mu_of_pure(epsilon: float) -> float:
    """-2 Phi^-1(1 / (1 + e^epsilon)), rounded up."""
    if epsilon <= _SMALL_EPSILON:
        # Phi(mu / 2) - 1/2 = tanh(epsilon / 2) / 2, without the cancellation around 1/2.
        mu = 2 * math.sqrt(2) * float(special.erfinv(math.tanh(epsilon / 2)))
    else:
        mu = -2 * float(special.ndtri_exp(special.log_expit(-epsilon)))
    return mu * (1 + _SAFETY)


def _group_delta(epsilon: float, delta: float, members: int) -> float:
    """delta (1 + e^epsilon + ... + e^((members - 1) epsilon)), rounded up, at most 1."""
    if members == 1 or delta == 0.0:
        return delta
    if (members - 1) * epsilon > _LARGEST_EXPONENT:
        return 1.0
    factor = float(members) if epsilon == 0.0 else math.expm1(members * epsilon) / math.expm1(epsilon)
    return min(1.0, delta * factor * (1 + _SAFETY))


def require_members(members: int) -> None:
    """Raises :class:`InputError` unless this number of units can change together."""
    if members < 1:
        raise InputError(f"a group of {members} is too small. Choose a whole number >= 1.")
    require_usual("group", members)
