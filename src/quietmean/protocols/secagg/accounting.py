"""The privacy loss of a sum of rounded values with distributed discrete Gaussian noise, and the least noise for a budget.

The sum of m independent discrete Gaussians is not one; Kairouz, Liu and Steinke 2021 (Theorem 1) bound the difference by a term
tau, negligible from a scale of some 3 steps on. With the L2 sensitivity Delta of the rounded values, scale s, both in steps,
and D coordinates, the release is (1/2) e^2-concentrated differentially private,

    e = min( sqrt(Delta^2 / (m s^2) + tau D / 2),  Delta / (sqrt(m) s) + tau sqrt(D) ),
    tau = 10 sum_{k=1}^{m-1} exp(-2 pi^2 s^2 k / (k + 1)),        s >= 1/2 if m > 1,

converted to (epsilon, delta) by the bound of Canonne, Kamath and Steinke 2020. All are upper bounds, under replacement. That the
sum is taken modulo 2**bits costs nothing: it is a function of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from quietmean.core.errors import InputError
from quietmean.protocols.random_rounding import conditional_norm, rounded_norm
from quietmean.protocols.secagg.spec import CONDITIONAL, SecAggParameters
from quietmean.randomness.discrete_gaussian import LARGEST_SCALE, TOTAL_VARIATION

# The part of delta for the event that independent rounding exceeds its bound.
_ROUNDING_PART = 0.01
# Against rounding errors of the floats before values are rounded to the grid.
_SLACK = 1e-9
# From this scale in steps on, the theorem about sums holds.
_LEAST_SCALE = 0.5
# Variance, in squared steps, of the rounding that makes integers of continuous noise; its error is some exp(-2 pi^2 times that).
_ROUNDING_VARIANCE = 2.0
# Larger epsilons are meaningless and not searched.
_LARGEST_EPSILON = 500.0


def concentrated(sensitivity: float, scale: float, honest: int, words: int) -> float:
    """rho of the release, rho = e^2 / 2; ``sensitivity`` and the ``scale`` of each of the ``honest`` parties' noise in steps."""
    # One party's noise alone is enough for its own bound, and the theorem about sums needs a little width.
    alone = (sensitivity / scale) ** 2 / 2
    if honest == 1 or scale < _LEAST_SCALE:
        return alone
    tau = _sum_error(scale, honest)
    plain = sensitivity / (math.sqrt(honest) * scale)
    return min(alone, (plain**2 + tau * words / 2) / 2, (plain + tau * math.sqrt(words)) ** 2 / 2)


def _sum_error(scale: float, honest: int) -> float:
    """tau: the log of probabilities of the sum is that of one discrete Gaussian of the same variance up to this."""
    counts = np.arange(1, honest)
    return 10.0 * float(np.exp(-2 * math.pi**2 * scale**2 * counts / (counts + 1)).sum())


def dominating_gaussian(sensitivity: float, scale: float, honest: int, words: int) -> tuple[float, float]:
    """(mu, eta): up to factors e^eta of probabilities the release can be computed from a mu-GDP one.

    A discrete Gaussian of variance v around an integer is a continuous one of variance v - r^2 around it, rounded at random with
    probabilities as exp(-distance^2 / (2 r^2)), up to a factor (1 + x)^2, x = 2 sum_{j>=1} exp(-2 pi^2 r^2 j^2) (Poisson
    summation); the sum of m discrete Gaussians is one of m times the variance up to e^tau per coordinate. Unlike a pair (epsilon,
    delta) this adds up with other studies.
    """
    counted = honest if scale >= _LEAST_SCALE else 1
    variance = counted * scale**2
    rounding = min(_ROUNDING_VARIANCE, variance / 2)
    terms = np.exp(-2 * math.pi**2 * rounding * np.arange(1.0, 6.0) ** 2)
    excess = 2.0 * float(terms.sum()) * (1 + _SLACK)
    if excess >= 0.5:
        return math.inf, math.inf
    eta = words * (_sum_error(scale, counted) - 2 * math.log1p(-excess))
    return sensitivity / math.sqrt(variance - rounding), eta


def rounded_sensitivity(
    parameters: SecAggParameters, sensitivity: float, words: int, delta: float, part: float = _ROUNDING_PART
) -> tuple[float, float]:
    """L2 sensitivity of the rounded values, and what of delta its bound uses: at most ``part``.

    Conditional rounding: two rounded values are no farther apart than twice their norm bound. Independent rounding: given the
    same random bits, values at distance ``sensitivity`` stay within the norm bound of one rounded vector of that norm, except
    with probability beta. That holds for any two values, also where a party's vector is larger than what one unit can change.
    """
    if parameters.rounding == CONDITIONAL:
        radius = parameters.largest_weight * parameters.clip
        return 2 * conditional_norm(radius, words, parameters.granularity) * (1 + _SLACK), 0.0
    beta = part * delta
    return rounded_norm(sensitivity, words, parameters.granularity, beta) * (1 + _SLACK), beta


def spent_delta(
    parameters: SecAggParameters, sensitivity: float, honest: int, dimension: int, epsilon: float, budget: float
) -> float:
    """Upper bound on delta at ``epsilon`` when the noise of ``honest`` parties stays unknown; 1 without noise.

    ``sensitivity``: L2 change of a party's value. ``budget``: the delta asked for, of which rounding uses a fixed part.
    """
    # Imported here since it takes long, and running parties do not need it.
    from quietmean.privacy.concentrated import delta_of_rho

    if not parameters.noisy or honest < 1:
        return 1.0
    words = parameters.words(dimension)
    change, beta = rounded_sensitivity(parameters, sensitivity, words, budget)
    rho = concentrated(change / parameters.granularity, parameters.scale, honest, words)
    return min(1.0, delta_of_rho(rho, epsilon) + beta + sampler_delta(words, honest, epsilon))


def sampler_distance(words: int, honest: int) -> float:
    """The total variation distance of all draws of the ``honest`` parties from the exact distribution, at most."""
    return TOTAL_VARIATION * words * honest


def sampler_delta(words: int, honest: int, epsilon: float) -> float:
    """What the sampler's distance from the exact distribution adds to delta: in two neighbouring releases, e^epsilon in one."""
    return sampler_distance(words, honest) * (1 + math.exp(min(epsilon, _LARGEST_EPSILON)))


def spent_epsilon(parameters: SecAggParameters, sensitivity: float, honest: int, dimension: int, delta: float) -> float:
    """Upper bound on epsilon at ``delta`` when the noise of ``honest`` parties stays unknown: the inverse of :func:`spent_delta`.

    Infinite without noise, and where the sampler's own error exceeds ``delta`` before the noise hides enough.
    """

    return least_epsilon(lambda epsilon: spent_delta(parameters, sensitivity, honest, dimension, epsilon, delta) <= delta)


def least_epsilon(enough: Callable[[float], bool]) -> float:
    """The least epsilon that is enough, rounded up; infinite if none up to 500 is."""
    if enough(0.0):
        return 0.0
    low, high = 0.0, 1e-3
    while not enough(high):
        low, high = high, high * 1.2
        if high > _LARGEST_EPSILON:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


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


def wrap_chance(parameters: SecAggParameters, parties: int, dimension: int) -> float:
    """Upper bound on the probability that a coordinate of a sum over ``parties`` wraps around, for the worst values."""
    words, room = parameters.words(dimension), 2.0 ** (parameters.bits - 1) * parameters.granularity
    # Bisection of log2 of the chance: the bound falls as the chance rises.
    low, high = -500.0, 0.0
    if sum_bound(parameters, parties, words, 1.0) > room:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if sum_bound(parameters, parties, words, 2.0**middle) <= room else (middle, high)
    return float(2.0**high)


def sum_bound(parameters: SecAggParameters, parties: int, words: int, chance: float) -> float:
    """The bound that coordinates of the rotated sum exceed in absolute value with probability at most ``chance``.

    For the worst values: all parties are counted, each of the largest weight and at the same point of its ball. The probability
    is over the random rotation (Hoeffding) and over noise and rounding (sub-Gaussian). In the units of the values.
    """
    tail = 2 * math.log(4 * words / chance)
    largest = parties * parameters.largest_weight * parameters.clip
    noise = parties * (parameters.sigma**2 + parameters.granularity**2 / 4)
    return largest * min(1.0, math.sqrt(tail / words)) + math.sqrt(tail * noise)
