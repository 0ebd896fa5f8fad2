"""What all others together can know of a party's value before it releases anything: a bound for every history.

Until its release, whatever a party sends is a function of what it received and of its injections in the rounds before the last:
of the first T at most, u_r = c_r (x~ + G) + sum_k Z_rk Delta_k, r < T, where x~ = x + eta and G is the guard. So is all that the
others can learn from shares that were late, lost, refused or used twice, from rounds that a party missed, and from a party that
left; and it does not matter how the others choose, from what they have seen, who is online and what arrives. All of u_0..u_(T-1)
is as good as x~ + G + Q with independent Gaussian Q of variance sigma_Delta^2 / |w|^2, where w is the shortest vector with
Z w = c in these rows. So the view is mu-GDP with mu = D / sqrt(sigma_star^2 + sigma_guard^2 + sigma_Delta^2 / |w|^2): |w|^2 is 1
for ``early`` and sum_s (s / (T + 1))^2, s = 1..T, for ``incremental``. The proof is in ``docs/mathematics/inca.md``.

With discrete noise the u are whole, and multiplied by the whole inverse of Z they are Delta + (q + H) w, q and H in steps of the
grid of the values, w whole. That is a discrete Gaussian with the covariance of the real one, up to factors below 1 + 1e-50: so
sigma_Delta^2 becomes sigma_Delta^2 - 8 g^2, g the step, and nothing else changes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from quietmean.core.rounding import round_up
from quietmean.protocols.push_sum.parameters import Injection, PushSumParameters

# Rows (c, Z) whose parts outside the range of Z are larger give c away without noise.
_TOLERANCE = 1e-9

Parameters = TypeVar("Parameters", bound=PushSumParameters)


def shift_square(injection: Injection) -> float:
    """|w|^2: the least change of the unit noise terms that makes up for a unit change of x~ before the last round.

    Infinite if there is none: then x~ itself can be known.
    """
    portion, noise = injection.portion[:-1], injection.noise[:-1]
    change = np.linalg.lstsq(noise, portion)[0] if noise.size else np.zeros(0)
    left = portion - noise @ change if noise.size else portion
    return float(change @ change) if np.abs(left).max(initial=0.0) <= _TOLERANCE else math.inf


def hidden_variance(parameters: PushSumParameters) -> float:
    """The variance of the noise that hides a value from all others before its release, per coordinate."""
    square, delta = shift_square(parameters.injections), parameters.sigma_delta
    if not parameters.injections.portion[:-1].any():
        return math.inf
    cancelled = delta**2 / square if square > 0 else math.inf
    variance = parameters.sigma_star**2 + parameters.sigma_guard**2 + cancelled
    return _of_whole_numbers(parameters, square) if parameters.whole else variance


def _of_whole_numbers(parameters: PushSumParameters, square: float) -> float:
    """The variance with discrete noise; where there is too little for the sum to be smooth, by the noise that stays alone."""
    # Running parties certify nothing: they start without this import.
    from quietmean.privacy.dominating import SMOOTHING

    unit, coarse = parameters.grid**2, (parameters.grid * parameters.portions) ** 2
    star, guard, delta = parameters.sigma_star**2, parameters.sigma_guard**2, parameters.sigma_delta**2
    alone = max(0.0, star - SMOOTHING * coarse)
    if not (star and delta and 0.0 < square < math.inf):
        return alone
    # What is left to chance of one of two terms once their sum is known: of eta_star and the guard, of both and Delta.
    left = [1.0 / (1.0 / (star + guard) + square / delta), *([1.0 / (1.0 / star + 1.0 / guard)] if guard else [])]
    if min(left) < SMOOTHING * coarse or delta <= SMOOTHING * unit:
        return alone
    return max(alone, star + guard + (delta - SMOOTHING * unit) / square)


def guarded(parameters: Parameters, variance: float) -> Parameters:
    """The parameters with the least guard for :func:`hidden_variance` to be at least ``variance``; rounded up."""
    # A little more, so that rounding cannot leave it short.
    missing = variance * (1 + 1e-9) - hidden_variance(replace(parameters, sigma_guard=0.0))
    return replace(parameters, sigma_guard=round_up(math.sqrt(missing)) if missing > 0 else 0.0)
