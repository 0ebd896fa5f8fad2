"""Gaussian differential privacy: mu, (epsilon, delta) and back, exactly.

A mechanism is mu-GDP when telling two neighbouring inputs apart is as hard as telling N(0, 1) from N(mu, 1). For it

    delta(epsilon) = Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2)

(Balle and Wang 2018; Dong, Roth and Su 2022), both tight. The classical constant 2 ln(1.25 / delta) is offered by name, only to
reproduce figures of papers.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from quietmean.core.errors import InputError

# Root finding is exact to a few units in the last place; results are moved by this much towards less privacy.
_SAFETY = 1e-12


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
    if mu == 0.0 or _log_delta(mu, 0.0) <= math.log(delta):
        return 0.0
    # epsilon at which the first term alone is delta: an upper bound.
    above = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    root = brentq(lambda epsilon: _log_delta(mu, epsilon) - math.log(delta), 0.0, above, xtol=1e-14, rtol=1e-14)
    return float(root) * (1 + _SAFETY)


def mu_of_budget(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-DP; rounded down."""
    _check(epsilon=epsilon, delta=delta)
    low, high = 0.0, 1.0
    while _log_delta(high, epsilon) <= math.log(delta):
        low, high = high, 2 * high
    root = brentq(lambda mu: _log_delta(mu, epsilon) - math.log(delta), max(low, 1e-300), high, xtol=1e-300, rtol=1e-14)
    return float(root) * (1 - _SAFETY)


def classical_mu(epsilon: float, delta: float) -> float:
    """epsilon / sqrt(2 ln(1.25 / delta)): what the papers calibrate to. Not tight; not valid for epsilon >= 1."""
    _check(epsilon=epsilon, delta=delta)
    return epsilon / math.sqrt(2 * math.log(1.25 / delta))


def _log_delta(mu: float, epsilon: float) -> float:
    if mu <= 0.0:
        return -math.inf
    first = float(log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    # log(e^first - e^second), accurate also where both nearly agree.
    gap = second - first
    return first + math.log(-math.expm1(gap)) if gap < 0 else -math.inf


def _check(epsilon: float | None = None, delta: float | None = None) -> None:
    if epsilon is not None and not (np.isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"epsilon is {epsilon:g}: choose a finite number >= 0")
    if delta is not None and not 0 < delta < 1:
        raise InputError(f"delta is {delta:g}: choose 0 < delta < 1")
