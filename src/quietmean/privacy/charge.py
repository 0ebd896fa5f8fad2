"""What one study costs an account: columns, each of which adds up over studies in its own way.

A mechanism costs (mu, beta, tv, rho, pure) if, for every two neighbouring inputs,

- an event of probability at most beta, the same for both, aside, the model of the mechanism is mu-GDP, rho-zCDP and pure-DP; and
- what the program really does is within total variation distance tv of that model, on every input.

Then for every epsilon >= 0 it is (epsilon, delta)-DP with

    delta = delta(mu, epsilon) + beta + (1 + e^epsilon) tv,

and with delta = beta + (1 + e^epsilon) tv from epsilon = pure on. Over studies, chosen adaptively, mu adds as
sqrt(sum mu_k^2), all others add plainly. An account adds up one of mu, rho and pure, by a rule that never changes, and trade-off
curves are never added up (see docs/proofs/ledger.md).

Neighbouring relation: the one that the charge was made for. Every function rounds towards less privacy.

Zero-concentrated differential privacy (Bun and Steinke 2016) to (epsilon, delta).

A rho-concentrated release is (epsilon, delta)-DP for each Renyi order a > 1 with

    ln delta = (a - 1) (a rho - epsilon) + a ln(1 - 1 / a) - ln(a - 1)

(Canonne, Kamath and Steinke 2020). No finite mu follows from rho alone, so this is the only way from rho to mu.

Discrete Laplace noise of scale b, P(X = k) proportional to e^(-|k| / b), hides a change of all coordinates by D steps together.
Of all changes of L1 norm D the one of a single coordinate is the worst. With a = e^(-1/b), and D + 1 = n + m, where n and m
differ by 1 at most, this costs

    pure = D / b,   mu = -Phi^-1(a^n / (1 + a)) - Phi^-1(a^m / (1 + a)),   rho = D / b - (1 - a^D) / (b sinh(1/b)),

each the least (docs/proofs/whole-numbers.md). One step, D = 1, is randomised response, the worst of all mechanisms of that pure
epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
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


def delta_of_rho(rho: float, epsilon: float) -> float:
    """Upper bound on delta at ``epsilon`` of a rho-concentrated DP release: the least over Renyi orders above 1; rounded up."""
    if rho == 0.0 or math.isinf(rho):
        return min(rho, 1.0)

    def log_delta(order: float) -> float:
        return (order - 1) * (order * rho - epsilon + math.log1p(-1 / order)) - math.log(order)

    least = _least(lambda exponent: log_delta(1 + math.exp(exponent)), -12.0, 25.0)
    return min(1.0, math.exp(min(0.0, least + 1e-12 * (abs(least) + 1))))


def rho_of_budget(epsilon: float, delta: float) -> float:
    """The largest rho of which it is shown that it is (epsilon, delta)-DP; rounded down."""
    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of_rho(middle, epsilon) <= delta else (low, middle)
    return low


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
_NEXT_TO_NOTHING = 1e-12
# A few units in the last place.
_ULPS = 2.0**-50
# Beyond this e^epsilon overflows float64, and any tv > 0 of a program uses up delta.
_LARGEST_EXPONENT = 700.0
# tanh(epsilon / 2) of a larger one is too close to 1 for the inverse error function.
_SMALL_EPSILON = 1.0


@dataclass(frozen=True, slots=True)
class Charge:
    """The charge (mu, beta, tv, rho, pure) of a study, or of several: see :mod:`quietmean.privacy.charge`.

    ``mu`` may be infinite: no bound is known, and no account can pay it. What follows of a column from another one is filled in:
    mu and rho from ``pure``, and rho from mu. Raises :class:`InputError` for a negative mu, rho or pure, or a beta or tv outside
    0..1.
    """

    mu: float
    beta: float = 0.0
    tv: float = 0.0
    rho: float = math.inf
    pure: float = math.inf

    def __post_init__(self) -> None:
        check_mu(self.mu)
        for name, chance in (("beta", self.beta), ("tv", self.tv)):
            if not 0 <= chance <= 1:
                raise InputError(f"{name} is {chance:g}. Choose a number between 0 and 1.")
        for name, column in (("rho", self.rho), ("pure epsilon", self.pure)):
            if not column >= 0:
                raise InputError(f"{name} is {column:g}. Choose a number >= 0.")
        mu, rho, pure = self.mu, self.rho, self.pure
        if 0.0 in (mu, pure):
            mu = rho = pure = 0.0
        elif math.isfinite(pure):
            mu, rho = min(mu, _mu_of_laplace(1, pure)), min(rho, _rho_of_laplace(1, pure))
        rho = min(rho, math.nextafter(mu * mu / 2, math.inf)) if mu else rho
        for name, column in (("mu", mu), ("rho", rho), ("pure", pure)):
            object.__setattr__(self, name, column)

    @classmethod
    def of_mechanism(cls, epsilon: float, delta: float = 0.0, *, members: int = 1) -> Self:
        """The charge of any (epsilon, delta)-DP mechanism: pure = epsilon, and beta = delta.

        Randomised response at epsilon is the worst epsilon-DP mechanism. Its mu = -2 Phi^-1(1 / (1 + e^epsilon)) is the least one
        whose curve lies nowhere above its own. With probability delta everything is given away (Kairouz, Oh and Viswanath 2015).
        ``members``: for a group of so many units that change together, by the group privacy of (epsilon, delta). Raises
        :class:`InputError` for an epsilon that is not finite and >= 0, a delta outside 0..1, or fewer members than 1.
        """
        if not (math.isfinite(epsilon) and epsilon >= 0):
            raise InputError(f"epsilon is {epsilon:g}. Choose a finite number >= 0.")
        require_members(members)
        if not 0 <= delta <= 1:
            raise InputError(f"delta is {delta:g}. Choose a number between 0 and 1.")
        return cls(math.inf, _group_delta(epsilon, delta, members), pure=members * epsilon)

    @classmethod
    def of_laplace(cls, steps: int, scale: float, *, tv: float = 0.0) -> Self:
        """The charge of discrete Laplace noise of this ``scale`` on whole numbers that change by L1 norm ``steps`` together.

        More noise that is independent of it changes nothing. ``tv``: of all draws. Raises :class:`InputError` for fewer steps
        than 1, or a scale that is not finite and > 0.
        """
        if steps < 1:
            raise InputError(f"steps is {steps}. Choose a whole number >= 1.")
        if not (math.isfinite(scale) and scale > 0):
            raise InputError(f"scale is {scale:g}. Choose a finite number > 0.")
        epsilon = _up(Fraction(steps) / Fraction(scale))
        return cls(_mu_of_laplace(steps, epsilon), tv=tv, rho=_rho_of_laplace(steps, epsilon), pure=epsilon)

    @classmethod
    def of_concentrated(cls, rho: float, delta: float, *, members: int = 1) -> Self:
        """The charge of a rho-zCDP mechanism, by way of (epsilon, ``delta``): of rho alone no finite mu follows.

        A group of ``members`` units has members^2 rho. Raises :class:`InputError` for a negative or infinite rho, unless
        0 < delta < 1, or for fewer members than 1.
        """
        require_members(members)
        together = members**2 * rho
        return replace(cls.of_mechanism(epsilon_of_rho(together, delta), delta), rho=together)

    @classmethod
    def promised(cls, bound: APriori) -> Self:
        """What is reserved for a study before it starts."""
        return cls(bound.mu, bound.beta, bound.tv, bound.rho, bound.pure)

    @property
    def bounded(self) -> bool:
        """Whether mu is finite."""
        return math.isfinite(self.mu)

    @property
    def delta_below(self) -> float | None:
        """What delta is below at the pure epsilon, where that is next to nothing: 1e-12. Else None; it is never said to be 0."""
        return _NEXT_TO_NOTHING if math.isfinite(self.pure) and 0 < self.delta(self.pure) < _NEXT_TO_NOTHING else None

    def additive(self, epsilon: float) -> Fraction:
        """beta + (1 + e^epsilon) tv, what the two additive columns take of delta: an upper bound, at most 1."""
        return additive_delta([self], epsilon)

    def delta(self, epsilon: float) -> float:
        """The least delta at ``epsilon`` that is shown; rounded up. Raises :class:`InputError` for an impossible epsilon."""
        curve = 0.0 if epsilon >= self.pure else delta_of_mu(self.mu, epsilon)
        return min(1.0, _up(Fraction(curve) + self.additive(epsilon)))

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta`` that is shown; infinite if none is. Rounded up.

        Raises :class:`InputError` unless 0 < delta < 1.
        """
        by_curve = self._by_curve(delta)
        return self.pure if self.pure < by_curve and self.delta(self.pure) <= delta else by_curve

    def _by_curve(self, delta: float) -> float:
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
        """This charge, or all of ``promised``, which holds as well, where that has the smaller mu, rho or pure."""
        exceeds = self.mu > promised.mu or self.rho > promised.rho or self.pure > promised.pure
        return promised if exceeds else self

    def exceeds(self, other: Charge) -> bool:
        """Whether this is more than ``other`` in any column."""
        return any(mine > others for mine, others in zip(astuple(self), astuple(other), strict=True))

    def larger(self, other: Charge) -> Charge:
        """The larger of the two in each column."""
        return Charge(*map(max, astuple(self), astuple(other)))

    def of_group(self, members: int, epsilon: float | None = None) -> Charge:
        """The charge for ``members`` units that change together, each hidden as charged here: members * mu, and the same tv.

        rho grows by the square of members, and pure as mu.

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
        rho, pure = _sum_up([self.rho], members**2), _sum_up([self.pure], members)
        return Charge(group_mu(self.mu, members), beta, self.tv, rho, pure)


NOTHING: Final = Charge(0.0)


def compose(charges: Iterable[Charge]) -> Charge:
    """Several studies about the same unit together: mu by squares, all others by sums. Exact arithmetic, rounded up."""
    listed = list(charges)
    beta, tv, rho, pure = (_sum_up([getattr(charge, name) for charge in listed]) for name in ("beta", "tv", "rho", "pure"))
    return Charge(compose_mu(charge.mu for charge in listed), min(1.0, beta), min(1.0, tv), rho, pure)


def _sum_up(numbers: Sequence[float], times: int = 1) -> float:
    return math.inf if math.inf in numbers else _up(times * exact_sum(numbers))


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


def _mu_of_laplace(steps: int, epsilon: float) -> float:
    """-Phi^-1(a^n / (1 + a)) - Phi^-1(a^m / (1 + a)), n + m = steps + 1, a = e^(-epsilon / steps), rounded up."""
    tail = epsilon / steps
    return (_laplace_quantile(tail, (steps + 1) // 2) + _laplace_quantile(tail, steps // 2 + 1)) * (1 + _SAFETY)


def _laplace_quantile(tail: float, number: int) -> float:
    """-Phi^-1(a^number / (1 + a)), a = e^-tail."""
    if number * tail <= _SMALL_EPSILON:
        # Phi of it - 1/2, without the cancellation around 1/2.
        above = (math.expm1(-tail) - 2 * math.expm1(-number * tail)) / (1 + math.exp(-tail))
        return math.sqrt(2) * float(special.erfinv(above))
    return -float(special.ndtri_exp(-number * tail - math.log1p(math.exp(-tail))))


def _rho_of_laplace(steps: int, epsilon: float) -> float:
    """The divergence of Kullback and Leibler, which is the largest of Renyi divergence / order; rounded up."""
    tail = epsilon / steps
    # Where it is 0 by rounding, epsilon^2 / 2 of any pure mechanism is above it.
    part = tail / math.sinh(tail) if 0 < tail < _LARGEST_EXPONENT else float(tail == 0)
    return min(epsilon + math.expm1(-epsilon) * part + _ULPS * epsilon, epsilon * epsilon / 2) * (1 + _SAFETY)


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
