"""Gaussian differential privacy: mu, (epsilon, delta) and back, exactly.

A mechanism is mu-GDP when telling two neighbouring inputs apart is as hard as telling N(0, 1) from N(mu, 1). For it

    delta(epsilon) = Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2)

(Balle and Wang 2018; Dong, Roth and Su 2022), both tight. The classical constant 2 ln(1.25 / delta) is offered by name, only to
reproduce figures of papers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx

from quietmean.core.errors import InputError

# Relative accuracy of the formulas below; results are moved by this much towards less privacy, and then checked.
_SAFETY = 1e-12
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def delta_of_mu(mu: float, epsilon: float) -> float:
    """The least delta with which a mu-GDP mechanism is (epsilon, delta)-DP; rounded up."""
    _check(epsilon=epsilon)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return min(1.0, math.exp(_log_delta(mu, epsilon)) * (1 + _SAFETY))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """The least epsilon >= 0 with which a mu-GDP mechanism is (epsilon, delta)-DP; rounded up."""
    _check(delta=delta)
    if math.isinf(mu):
        return math.inf
    if mu == 0.0 or delta_of_mu(mu, 0.0) <= delta:
        return 0.0
    # epsilon at which the first term alone is delta: an upper bound.
    above = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    root = brentq(lambda epsilon: _log_delta(mu, epsilon) - math.log(delta), 0.0, above, xtol=1e-300, rtol=1e-14)
    return _moved_until(float(root), 1.0, lambda epsilon: delta_of_mu(mu, epsilon) <= delta)


def mu_of_budget(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-DP; rounded down."""
    _check(epsilon=epsilon, delta=delta)

    def excess(log_mu: float) -> float:
        return _log_delta(math.exp(log_mu), epsilon) - math.log(delta)

    low, high = 0.0, 0.0
    while excess(low) > 0:
        low -= 1.0
    while excess(high) < 0:
        high += 1.0
    root = brentq(excess, low, high, xtol=1e-15, rtol=1e-14) if low < high else low
    return _moved_until(math.exp(float(root)), -1.0, lambda mu: delta_of_mu(mu, epsilon) <= delta)


def _moved_until(root: float, direction: float, safe: Callable[[float], bool]) -> float:
    """The root moved relatively, by growing steps, until it is on the safe side."""
    step = _SAFETY
    moved = root
    while not safe(moved):
        moved = root * (1 + direction * step)
        step *= 2
    return moved


def classical_mu(epsilon: float, delta: float) -> float:
    """epsilon / sqrt(2 ln(1.25 / delta)): what the papers calibrate to. Not tight; not valid for epsilon >= 1."""
    _check(epsilon=epsilon, delta=delta)
    return epsilon / math.sqrt(2 * math.log(1.25 / delta))


def _log_delta(mu: float, epsilon: float) -> float:
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


def _mills(x: float | NDArray[np.float64]) -> NDArray[np.float64]:
    ratio: NDArray[np.float64] = math.sqrt(math.pi / 2) * erfcx(np.asarray(x) / math.sqrt(2))
    return ratio


def _mills_slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """-R'(x) = 1 - x R(x): directly, and by its asymptotic series where that would cancel."""
    inverse = 1.0 / np.maximum(x, 30.0) ** 2
    series = inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse * (1 - 9 * inverse * (1 - 11 * inverse)))))
    return np.where(x > 30.0, series, 1.0 - x * _mills(np.minimum(x, 30.0)))


def _check(epsilon: float | None = None, delta: float | None = None) -> None:
    if epsilon is not None and not (np.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"epsilon is {epsilon:g}: choose a finite number >= 0")
    if delta is not None and not 0 < delta < 1:
        raise InputError(f"delta is {delta:g}: choose 0 < delta < 1")
