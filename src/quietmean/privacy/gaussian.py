"""Gaussian differential privacy: from a budget (epsilon, delta) to mu, exactly.

A mechanism is mu-GDP if two neighbouring inputs are at least as hard to distinguish as N(0, 1) and N(mu, 1). For it

    delta(epsilon) = Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2)

(Balle and Wang 2018; Dong, Roth and Su 2022), both tight. The classical constant 2 ln(1.25 / delta) is offered by name, only to
reproduce figures of papers.
"""

from __future__ import annotations

import math

from quietmean.core.lazy_modules import optimize
from quietmean.privacy.conversion import check_budget, delta_of_mu, log_delta, moved_until


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
    root = optimize.brentq(excess, low, high, xtol=1e-15, rtol=1e-14) if low < high else low
    return moved_until(math.exp(float(root)), -1.0, lambda mu: delta_of_mu(mu, epsilon) <= delta)


def classical_mu(epsilon: float, delta: float) -> float:
    """epsilon / sqrt(2 ln(1.25 / delta)): what IncA's paper calibrates to. Not tight; not valid for epsilon >= 1."""
    check_budget(epsilon=epsilon, delta=delta)
    return epsilon / math.sqrt(2 * math.log(1.25 / delta))
