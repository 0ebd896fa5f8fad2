"""Zero-concentrated differential privacy (Bun and Steinke 2016) to (epsilon, delta).

A rho-concentrated release is (epsilon, delta)-DP for each Renyi order a > 1 with

    ln delta = (a - 1) (a rho - epsilon) + a ln(1 - 1 / a) - ln(a - 1)

(Canonne, Kamath and Steinke 2020). No finite mu follows from rho alone, so this is the only way from rho to a ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from quietmean.core.errors import InputError
from quietmean.core.schema import require_delta


def epsilon_of_rho(rho: float, delta: float) -> float:
    """Upper bound on epsilon at ``delta`` of a rho-concentrated DP release: the least over Renyi orders above 1; rounded up.

    Raises :class:`InputError` for a negative rho or unless 0 < delta < 1.
    """
    if not rho >= 0:
        raise InputError(f"rho is {rho:g}: choose a number >= 0")
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
