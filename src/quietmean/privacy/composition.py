"""Composition of several studies, group privacy, and conversion to other privacy definitions, all computed from mu alone.

Neighbouring relation: the one that mu was certified for (replacement of one unit). Every function rounds towards less privacy:
mu, epsilon and delta up, error rates of the adversary and what is left of a budget down.

Gaussian differential privacy: from a budget (epsilon, delta) to mu, exactly.

A mechanism is mu-GDP if two neighbouring inputs are at least as hard to distinguish as N(0, 1) and N(mu, 1). For it

    delta(epsilon) = Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2)

(Balle and Wang 2018; Dong, Roth and Su 2022), both tight. The classical constant 2 ln(1.25 / delta) is offered by name, only to
reproduce figures of papers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable
from fractions import Fraction

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.bounds import Bound
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.party import PartyId
from quietmean.core.roots import root_between
from quietmean.core.schema import require_delta
from quietmean.privacy.conversion import check_budget, delta_of_mu, epsilon_of_mu, log_delta, moved_until
from quietmean.privacy.information.matrix import InformationMatrix


def mu_of_budget(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-DP; rounded down."""
    check_budget(epsilon=epsilon, delta=delta)

    def excess(log_mu: float) -> float:
        return log_delta(math.exp(log_mu), epsilon) - math.log(delta)

    low, high = 0.0, 0.0
    while excess(low) > 0:
        low -= 1.0
    while excess(high) < 0:
        high += 1.0
    root = root_between(excess, low, high, 1e-15, 1e-14) if low < high else low
    return moved_until(math.exp(root), -1.0, lambda mu: delta_of_mu(mu, epsilon) <= delta)


def classical_mu(epsilon: float, delta: float) -> float:
    """epsilon / sqrt(2 ln(1.25 / delta)): what IncA's paper calibrates to. Not tight; not valid for epsilon >= 1."""
    check_budget(epsilon=epsilon, delta=delta)
    return epsilon / math.sqrt(2 * math.log(1.25 / delta))


_ROUNDING = 1e-14
# Below this the square of what is left is not a normal number any more: nothing worth spending.
_NOTHING = Fraction(1, 10**280)
# All sign patterns of this many parties are tried; of more, a local search gives the lower bound.
_ALL_VERTICES = 12
# Margin for rounding in the information matrix, relative and in multiples of its own error estimate.
_MARGIN, _MARGIN_FACTOR = 1e-10, 10.0
_INVOLVED = 1e-7


# --- several studies ---------------------------------------------------------------------------------------------------------


def compose_mu(mus: Iterable[float]) -> float:
    """mu of several studies about the same unit together: sqrt(sum mu_k^2), exact for Gaussian mechanisms.

    It holds too if later studies are chosen after the results of earlier ones (Smith and Thakurta 2022). Computed in exact
    arithmetic and rounded up to the next double, so neither the order nor the number of studies matters.
    """
    listed = list(mus)
    for mu in listed:
        check_mu(mu)
    root = math.hypot(*listed)
    if math.isinf(root):
        return math.inf
    square = exact_sum(listed, 2)
    while math.isfinite(root) and Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def compose_budgets(targets: Iterable[tuple[float, float]]) -> float:
    """mu of several studies with (epsilon, delta) targets: each becomes the largest mu that meets it (tight, not classical)."""
    return compose_mu(mu_of_budget(epsilon, delta) for epsilon, delta in targets)


def fits(budget: float, mus: Iterable[float], power: int = 2) -> bool:
    """Whether studies together stay within a budget, both in mu. Exact: no rounding at the edge.

    ``power``: 1 for columns that add plainly.
    """
    listed = list(mus)
    for mu in (budget, *listed):
        check_mu(mu)
    if math.isinf(budget):
        return True
    return not any(map(math.isinf, listed)) and exact_sum(listed, power) <= Fraction(budget) ** power


def remaining_mu(budget: float, mus: Iterable[float], power: int = 2) -> float:
    """The largest mu of one more study that fits into a budget: sqrt(budget^2 - sum mu_k^2), 0 if overspent; rounded down.

    ``power``: as in :func:`fits`.
    """
    listed = list(mus)
    if not fits(budget, listed, power):
        return 0.0
    if math.isinf(budget):
        return math.inf
    left = Fraction(budget) ** power - exact_sum(listed, power)
    if left < _NOTHING:
        return 0.0
    root = float(left) if power == 1 else math.sqrt(left)
    while Fraction(root) ** power > left:
        root = math.nextafter(root, 0.0)
    return root


def epsilon_within(mu: float, delta: float) -> float:
    """The largest epsilon whose target (epsilon, delta) costs at most ``mu``; rounded down, 0 if there is none."""
    check_mu(mu)
    epsilon = epsilon_of_mu(mu, delta)
    if epsilon == 0.0 or math.isinf(epsilon):
        return epsilon
    step = 1e-12
    while step < 1.0 and mu_of_budget(epsilon, delta) > mu:
        epsilon *= 1 - step
        step *= 2
    return epsilon if step < 1.0 else 0.0


def exact_sum(numbers: Iterable[float], power: int = 1) -> Fraction:
    """The exact sum of finite numbers, each to a power: in integers over one denominator, as accounts have many entries."""
    ratios = [number.as_integer_ratio() for number in numbers]
    bits = max((below.bit_length() for _, below in ratios), default=1)
    return Fraction(sum(above**power << power * (bits - below.bit_length()) for above, below in ratios), 1 << power * (bits - 1))


# --- other definitions -------------------------------------------------------------------------------------------------------


def renyi_epsilon(mu: float, order: float) -> float:
    """Renyi divergence of an order > 1 between the views of two neighbours, in nats: order mu^2 / 2. Exact; rounded up.

    Raises :class:`InputError` for a negative mu or an order that is not a finite number > 1.
    """
    check_mu(mu)
    if not (math.isfinite(order) and order > 1):
        raise InputError(f"the order of a Renyi divergence is {order:g}. Choose a finite number > 1.")
    return order * mu * mu / 2 * (1 + _ROUNDING)


def classical_renyi_epsilon(mu: float, delta: float) -> float:
    """epsilon at delta by way of the Renyi curve (Mironov 2017): mu^2 / 2 + mu sqrt(2 ln(1 / delta)), at the best order.

    An upper bound, to compare with accountants that use only the curve; :func:`epsilon_of_mu` is tight. Raises
    :class:`InputError` for a negative mu or unless 0 < delta < 1.
    """
    check_mu(mu)
    require_delta(delta)
    return (mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))) * (1 + _ROUNDING)


def type_two_error(mu: float, type_one: float) -> float:
    """The least type II error of any test of one neighbour against the other at this type I error a: Phi(Phi^-1(1 - a) - mu).

    Rounded down: no adversary does better. The curve is its own inverse, so the same function gives the least type I error at a
    type II error. Raises :class:`InputError` for a negative mu or an error rate outside 0..1.
    """
    check_mu(mu)
    _check_error("type I error", type_one)
    if mu == 0.0:
        return 1.0 - type_one
    if math.isinf(mu) or type_one == 1.0:
        return 0.0
    if type_one == 0.0:
        return 1.0
    # Not 1 - type_one: that would lose the digits of a small one.
    threshold = -float(special.ndtri(type_one))
    point = threshold - mu
    # Rounding of the difference, carried through the slope of log Phi.
    safety = _ROUNDING * (1 + (abs(threshold) + mu) * (1 + abs(point)))
    return max(0.0, min(float(special.ndtr(point)) * (1 - safety), 1.0 - type_one))


def mu_of_errors(type_one: float, type_two: float) -> float:
    """The mu at which a test with these two error rates is the best possible; rounded up.

    So a mechanism that allows such a test has at least this mu, up to rounding. 0 if guessing does as well. Infinite if one rate
    is 0 and the other is not 1: no finite mu allows it. Raises :class:`InputError` for a rate outside 0..1.
    """
    _check_error("type I error", type_one)
    _check_error("type II error", type_two)
    if type_one + type_two >= 1.0:
        return 0.0
    if type_one == 0.0 or type_two == 0.0:
        return math.inf
    first_quantile, second_quantile = -float(special.ndtri(type_one)), -float(special.ndtri(type_two))
    # The sum of quantiles of either sign may cancel: the margin follows their sizes, not the result's.
    return max(0.0, first_quantile + second_quantile + _ROUNDING * (1 + abs(first_quantile) + abs(second_quantile)))


def _check_error(name: str, rate: float) -> None:
    if not 0 <= rate <= 1:
        raise InputError(f"{name} is {rate:g}. Choose a rate between 0 and 1.")


def check_mu(mu: float) -> None:
    """Raises :class:`InputError` unless mu >= 0; infinity is allowed."""
    if not mu >= 0:
        raise InputError(f"mu is {mu:g}. Choose a number >= 0.")


# --- several units -----------------------------------------------------------------------------------------------------------


def group_mu(mu: float, members: int) -> float:
    """mu if ``members`` units change together and only the mu of each is known: members * mu; rounded up.

    Raises :class:`InputError` if mu or the number of members is negative.
    """
    check_mu(mu)
    if members < 0:
        raise InputError(f"a group of {members} is too small. Choose a whole number >= 0.")
    return 0.0 if members == 0 else members * mu * (1 + _ROUNDING)


def set_mu(information: InformationMatrix, members: Collection[PartyId], sensitivity: float, dimension: int = 1) -> Bound:
    """mu if the honest parties of a set S change together, each by at most ``sensitivity`` D in L2 norm, in R^dimension.

    ``mu_S^2 = max of sum_ij Lambda_ij <v_i, v_j> over |v_i| <= D``. For scalars that is a convex function on a box, so its
    maximum is at a corner v_i = +-D: exact (up to rounding) for up to 12 members. In general the interval is from the best corner
    found, which vectors of any dimension can copy along one axis, to the least of

    - ``D^2 |S| lambda_max``: the sum is one quadratic form per coordinate, each at most lambda_max times its squared norm;
    - ``D^2 sum |Lambda_ij|``, by Cauchy and Schwarz; never above (sum of the members' mu)^2;
    - pi / 2 times the exact best corner (Nesterov 1998, as Lambda is positive semidefinite).

    Raises :class:`InputError` for a member that is not honest, a sensitivity that is not a finite number > 0, or a dimension
    below 1.
    """
    block, disclosed = _block(information, members)
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise InputError(f"sensitivity is {sensitivity:g}. Choose a finite number > 0.")
    if dimension < 1:
        raise InputError(f"dimension is {dimension}. Choose 1 or more.")
    if not len(block):
        return Bound.exact(0.0)
    if disclosed:
        return Bound.exact(math.inf)
    all_corners = len(block) <= _ALL_VERTICES
    corner = _best_corner(block) if all_corners else _good_corner(block)
    above = min(len(block) * float(np.linalg.eigvalsh(block)[-1]), float(np.abs(block).sum()))
    if all_corners:
        above = min(above, corner if dimension == 1 else math.pi / 2 * corner)
    margin = _MARGIN + _MARGIN_FACTOR * information.relative_error
    best = sensitivity * math.sqrt(corner)
    return Bound(max(0.0, best * (1 - margin)), best, max(best, sensitivity * math.sqrt(max(above, 0.0))) * (1 + margin))


def _block(information: InformationMatrix, members: Collection[PartyId]) -> tuple[Array, bool]:
    """Lambda of the members, and whether a disclosed combination involves one of them."""
    chosen = sorted(set(members))
    corrupt = sorted(set(chosen) - set(information.honest))
    if corrupt:
        raise InputError(f"party {corrupt[0]} is not honest here. Choose members of {list(information.honest)}.")
    places = [information.honest.index(party) for party in chosen]
    disclosed = bool((np.abs(information.disclosed[:, places]) > _INVOLVED).any())
    return information.finite[np.ix_(places, places)], disclosed


def _best_corner(block: Array) -> float:
    """The largest v' Lambda v over v_i = +-1; the first sign is fixed, as v and -v are worth the same."""
    signs = np.array([(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=len(block) - 1)])
    return max(0.0, float(np.einsum("vi,ij,vj->v", signs, block, signs, optimize=True).max()))


def _good_corner(block: Array) -> float:
    """A large v' Lambda v over v_i = +-1: from two starts, signs are flipped while that helps."""
    starts = (np.ones(len(block)), np.where(np.linalg.eigh(block)[1][:, -1] < 0, -1.0, 1.0))
    return max(_climbed(block, start) for start in starts)


def _climbed(block: Array, signs: Array) -> float:
    signs = signs.copy()
    diagonal = np.diag(block)
    tiny = _ROUNDING * float(np.abs(block).sum())
    while True:
        gains = 4 * (diagonal - signs * (block @ signs))
        best = int(np.argmax(gains))
        if gains[best] <= tiny:
            return max(0.0, float(signs @ block @ signs))
        signs[best] = -signs[best]
