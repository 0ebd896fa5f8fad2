"""The curve of Gaussian differential privacy: delta of (mu, epsilon), and epsilon of (mu, delta).

These formulas hold for Gaussian noise only; for other noise mu becomes epsilon in another way. So only
:mod:`quietmean.privacy` and the ledger use them; all other code uses a privacy analysis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.lazy import special
from quietmean.core.roots import root_between

# Relative accuracy of the formulas below; results are moved by this much towards less privacy, and then checked.
_SAFETY = 1e-12
# Beyond it the second term changes epsilon by less than 1e-7 of it, and rounding hides the root.
_LARGE_MU = 1e8
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def delta_of_mu(mu: float, epsilon: float) -> float:
    """The least delta with which a mu-GDP mechanism is (epsilon, delta)-DP; rounded up."""
    check_budget(epsilon=epsilon)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return min(1.0, math.exp(log_delta(mu, epsilon)) * (1 + _SAFETY))


# A plan's is asked hundreds of times, and each time takes a root.
@lru_cache(maxsize=1024)
def epsilon_of_mu(mu: float, delta: float) -> float:
    """The least epsilon >= 0 with which a mu-GDP mechanism is (epsilon, delta)-DP; rounded up."""
    check_budget(delta=delta)
    if math.isinf(mu):
        return math.inf
    if mu == 0.0 or delta_of_mu(mu, 0.0) <= delta:
        return 0.0
    # epsilon at which the first term alone is delta: an upper bound.
    above = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    if mu > _LARGE_MU:
        return above * (1 + _SAFETY)
    root = root_between(lambda epsilon: log_delta(mu, epsilon) - math.log(delta), 0.0, above, 1e-300, 1e-14)
    return moved_until(root, 1.0, lambda epsilon: delta_of_mu(mu, epsilon) <= delta)


def moved_until(root: float, direction: float, safe: Callable[[float], bool]) -> float:
    """The root moved relatively, by growing steps, until it is on the safe side."""
    step = _SAFETY
    moved = root
    while not safe(moved):
        moved = root * (1 + direction * step)
        step *= 2
    return moved


def log_delta(mu: float, epsilon: float) -> float:
    """log delta = log phi(x) + log(R(x) - R(x + mu)) with x = epsilon / mu - mu / 2 and Mills' ratio R = (1 - Phi) / phi."""
    near = epsilon / mu - mu / 2
    if near > 1e8:
        return -math.inf
    if mu > 1.0:
        difference = float(_mills(near) - _mills(near + mu))
    else:
        # The difference of nearly equal numbers, as the integral of -R' = 1 - x R(x), which is positive.
        points = near + mu * (1 + _NODES) / 2
        difference = float(mu / 2 * (_WEIGHTS @ _mills_slope(points)))
    return -near * near / 2 - math.log(2 * math.pi) / 2 + math.log(difference) if difference > 0 else -math.inf


def _mills(x: float | Array) -> Array:
    ratio: Array = math.sqrt(math.pi / 2) * special.erfcx(np.asarray(x) / math.sqrt(2))
    return ratio


def _mills_slope(x: Array) -> Array:
    """-R'(x) = 1 - x R(x): directly, and by its asymptotic series where that would cancel."""
    inverse = 1.0 / np.maximum(x, 30.0) ** 2
    series = inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse * (1 - 9 * inverse * (1 - 11 * inverse)))))
    return np.where(x > 30.0, series, 1.0 - x * _mills(np.minimum(x, 30.0)))


def check_budget(epsilon: float | None = None, delta: float | None = None) -> None:
    """Raises :class:`InputError` unless epsilon, if given, is finite and >= 0, and delta, if given, is between 0 and 1."""
    if epsilon is not None and not (np.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"epsilon is {epsilon:g}. Choose a finite number >= 0.")
    if delta is not None and not 0 < delta < 1:
        raise InputError(f"delta is {delta:g}. Choose 0 < delta < 1.")
