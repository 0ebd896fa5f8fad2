"""The privacy loss of a sum of rounded values with discrete Gaussian noise of each party, in steps of the grid.

Rounded values have a larger L2 sensitivity than values. What it costs is that of the Gaussian that dominates the sum
(:mod:`quietmean.privacy.dominating`), an upper bound under replacement. That the sum is taken modulo 2**bits costs nothing: it is
a function of the sum.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from quietmean.protocols.discrete import conditional_norm, rounded_norm
from quietmean.protocols.secagg.spec import CONDITIONAL, SecAggParameters

if TYPE_CHECKING:
    from quietmean.privacy import Charge

# The part of delta for the event that independent rounding exceeds its bound. Ledgers add it up over studies. It costs mu little:
# only the root of its logarithm matters, and that beside a change of many steps.
_ROUNDING_PART = 1e-5
# A margin for float64 rounding before values are rounded to the grid.
_SLACK = 1e-9


def rounded_sensitivity(parameters: SecAggParameters, sensitivity: float, words: int, delta: float) -> tuple[float, float]:
    """L2 sensitivity of the rounded values in steps, and the chance that their change exceeds it: a small part of ``delta``.

    Conditional rounding: two rounded values are no farther apart than twice their norm bound, for certain. Independent rounding:
    given the same random bits, values at distance ``sensitivity`` stay within the norm bound of one rounded vector of that norm,
    but for that chance. That holds for any two values, also where a party's vector is larger than what one unit can change.
    """
    step = parameters.granularity
    if parameters.rounding == CONDITIONAL:
        radius = parameters.largest_weight * parameters.clip
        return 2 * conditional_norm(radius, words, step) * (1 + _SLACK) / step, 0.0
    beta = _ROUNDING_PART * delta
    return rounded_norm(sensitivity, words, step, beta) * (1 + _SLACK) / step, beta


def hidden_by(
    parameters: SecAggParameters,
    sensitivity: float,
    *,
    unknown: int,
    drawn: int,
    dimension: int,
    delta: float,
    graph: float = 0.0,
) -> Charge:
    """The charge of a party that the noise of ``unknown`` parties hides, its own included, in a sum over ``drawn`` ones.

    ``sensitivity``: L2 change of its value. ``delta``: the one asked for, of which rounding uses a fixed part. ``graph``: the
    chance that the graph of shares fails. mu is infinite without noise.
    """
    # Imported here since it takes long, and running parties do not need it.
    from quietmean.privacy import Charge
    from quietmean.privacy.dominating import discrete_charge

    if not parameters.noisy or unknown < 1:
        return Charge(math.inf)
    words = parameters.words(dimension)
    change, beta = rounded_sensitivity(parameters, sensitivity, words, delta)
    return discrete_charge(parameters.scale**2, change, words, unknown=unknown, drawn=drawn, beta=beta + graph)


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
