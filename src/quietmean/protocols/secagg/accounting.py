"""What the sum of rounded values with distributed discrete Gaussian noise spends, and the least noise that keeps a budget.

The sum of m independent discrete Gaussians is not one; Kairouz, Liu and Steinke 2021 (Theorem 1) bound what that costs by a term
tau, negligible from a scale of some 3 steps on. With the L2 sensitivity Delta of the rounded values, scale s, both in steps,
and D coordinates, the release is (1/2) e^2-concentrated differentially private,

    e = min( sqrt(Delta^2 / (m s^2) + tau D / 2),  Delta / (sqrt(m) s) + tau sqrt(D) ),
    tau = 10 sum_{k=1}^{m-1} exp(-2 pi^2 s^2 k / (k + 1)),

converted to (epsilon, delta) by the bound of Canonne, Kamath and Steinke 2020. All are upper bounds, under replacement.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from quietmean.core.errors import InputError
from quietmean.entropy.discrete_gaussian import LARGEST_SCALE, TOTAL_VARIATION
from quietmean.protocols.secagg.encoding import conditional_norm, rounded_norm
from quietmean.protocols.secagg.spec import CONDITIONAL, SecAggParameters

# Of delta, what independent rounding may use for exceeding its bound.
_ROUNDING_PART = 0.01
# Against rounding errors of the floats before values are rounded to the grid.
_SLACK = 1e-9


def concentrated(sensitivity: float, scale: float, honest: int, words: int) -> float:
    """rho of the release, rho = e^2 / 2; ``sensitivity`` and the ``scale`` of each of the ``honest`` parties' noise in steps."""
    counts = np.arange(1, honest)
    tau = 10.0 * float(np.exp(-2 * math.pi**2 * scale**2 * counts / (counts + 1)).sum())
    plain = sensitivity / (math.sqrt(honest) * scale)
    return min(plain**2 + tau * words / 2, (plain + tau * math.sqrt(words)) ** 2) / 2


def delta_of_rho(rho: float, epsilon: float) -> float:
    """Upper bound on delta at ``epsilon`` of a rho-concentrated DP release: the least over Renyi orders above 1."""

    def log_delta(order: float) -> float:
        return (order - 1) * (order * rho - epsilon) + order * math.log1p(-1 / order) - math.log(order - 1)

    if rho <= 0:
        return 0.0
    return min(1.0, math.exp(_least(lambda exponent: log_delta(1 + math.exp(exponent)), -12.0, 25.0)))


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """The least value of a function with one valley, by ternary search: any argument gives a valid bound."""
    for _ in range(120):
        third = (high - low) / 3
        if function(low + third) <= function(high - third):
            high -= third
        else:
            low += third
    return function((low + high) / 2)


def rounded_sensitivity(parameters: SecAggParameters, sensitivity: float, words: int, delta: float) -> tuple[float, float]:
    """L2 sensitivity of the rounded values, and what of delta its bound uses.

    Conditional rounding: two rounded values are no farther apart than twice their norm bound. Independent rounding: given the
    same random bits, values at distance ``sensitivity`` stay within the norm bound of one rounded vector of that norm, except
    with probability beta. That holds for any two values, also where a party's vector is larger than what one unit can change.
    """
    if parameters.rounding == CONDITIONAL:
        radius = parameters.largest_weight * parameters.clip
        return 2 * conditional_norm(radius, words, parameters.granularity) * (1 + _SLACK), 0.0
    beta = _ROUNDING_PART * delta
    return rounded_norm(sensitivity, words, parameters.granularity, beta) * (1 + _SLACK), beta


def spent_delta(
    parameters: SecAggParameters, sensitivity: float, honest: int, dimension: int, epsilon: float, budget: float
) -> float:
    """Upper bound on delta at ``epsilon`` when the noise of ``honest`` parties stays unknown; 1 without noise.

    ``sensitivity``: L2 change of a party's value. ``budget``: the delta asked for, of which rounding uses a fixed part.
    """
    if not parameters.private or honest < 1:
        return 1.0
    words = parameters.words(dimension)
    change, beta = rounded_sensitivity(parameters, sensitivity, words, budget)
    rho = concentrated(change / parameters.granularity, parameters.scale, honest, words)
    # Both of two neighbouring releases use the sampler: its distance counts twice, e^epsilon times for one of them.
    sampler = TOTAL_VARIATION * words * honest * (1 + math.exp(min(epsilon, 30.0)))
    return min(1.0, delta_of_rho(rho, epsilon) + beta + sampler)


def calibrated_scale(spent: Callable[[float], float], delta: float, start: float) -> float:
    """The least scale in steps at which ``spent`` is at most ``delta``, rounded up to 6 digits. Raises :class:`InputError`."""
    low = high = start
    while high <= LARGEST_SCALE and spent(high) > delta:
        low, high = high, high * 1.5
    if high > LARGEST_SCALE:
        raise InputError(
            f"noise of more than {LARGEST_SCALE:g} steps would be needed for delta {delta:g}: take fewer bits or a larger epsilon"
        )
    while low >= 1e-3 and spent(low) <= delta:
        low, high = low / 1.5, low
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return high * (1 + 1e-9)


def sum_bound(parameters: SecAggParameters, parties: int, words: int, chance: float) -> float:
    """What no coordinate of the rotated sum exceeds in absolute value except with probability ``chance``.

    All parties counted, each of the largest weight and at the same corner of its ball: the worst case over values; over the
    random rotation (Hoeffding) and over noise and rounding (sub-Gaussian).
    """
    tail = 2 * math.log(4 * words / chance)
    largest = parties * parameters.largest_weight * parameters.clip
    noise = parties * (parameters.sigma**2 + parameters.granularity**2 / 4)
    return largest * min(1.0, math.sqrt(tail / words)) + math.sqrt(tail * noise)
