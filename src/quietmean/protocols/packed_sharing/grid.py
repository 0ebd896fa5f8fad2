"""The grid of a plan, and the noise on it: as fine as there is room for, as little as the target needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from quietmean.core.errors import InputError
from quietmean.core.rounding import round_up
from quietmean.protocols.packed_sharing.accounting import rounded_sensitivity
from quietmean.protocols.packed_sharing.spec import BALL, BOX, PackedSharingParameters
from quietmean.protocols.target import Target
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

Settings = TypeVar("Settings", bound=PackedSharingParameters)

# Steps in the noise of one party: at least, so that rounding adds 1 % to the error at most; and where there is room, as many as
# one table of the sampler has.
COARSE, _FINE = 4.0, 512.0
# The largest step, coarse and fine, as a part of the sensitivity over the root of the dimension, where rounding adds to it.
_COARSE_NORM, _FINE_NORM = 0.06, 0.03
# The same where the bound is the certain one, which grows with the step itself.
_CERTAIN = 2.0**-11
_STEP_BITS = 24
_SLACK = 1e-9
_LARGEST_EXPONENT = 700.0


def least_mu(target: Target, points: float) -> float:
    """The mu that the target leaves to the sum once all draws are paid for.

    ``points``: the total variation distance of all random points from uniform ones. Each of the target's parties draws noise.
    Raises :class:`InputError` where these use up delta.
    """
    from quietmean.privacy import mu_of_budget
    from quietmean.privacy.dominating import discrete_charge

    # Of all scales in use the smallest is the farthest from its model.
    drawn = discrete_charge(COARSE**2, 1.0, target.dimension, unknown=1, drawn=target.parties, sampler=TOTAL_VARIATION).tv
    # Beyond this e^epsilon overflows float64, and delta is used up long before.
    grown = math.exp(min(target.epsilon, _LARGEST_EXPONENT))
    left = target.delta - (1 + grown) * (drawn + points) * (1 + _SLACK)
    if left <= 0:
        raise InputError(
            f"delta {target.delta:g} is below what drawing {target.dimension} coordinates costs: plan with a larger delta"
        )
    return mu_of_budget(target.epsilon, left) * (1 - _SLACK)


def on_grid(shape: Settings, target: Target, mu: float, fineness: int) -> Settings:
    """With ``fineness`` steps from the centre of the domain to its bound, and the noise that this takes."""
    from quietmean.privacy.dominating import smoothing

    step = _short(shape.clip / fineness)
    gridded = replace(shape, step=step, clip=step * fineness, sigma=step * COARSE)
    square = (rounded_sensitivity(gridded, target.sensitivity) / mu) ** 2
    variance = square
    for _ in range(8):
        variance = square + smoothing(variance)
    own = math.sqrt(variance / (shape.minimum - target.colluding)) * (1 + _SLACK)
    return replace(gridded, sigma=round_up(max(own, COARSE) * step))


def _short(step: float) -> float:
    """The step with so few digits that whole multiples of it are exact, rounded up."""
    fraction, exponent = math.frexp(step)
    return math.ldexp(math.ceil(math.ldexp(fraction, _STEP_BITS)), exponent - _STEP_BITS)


def wanted_fineness(shape: PackedSharingParameters, target: Target, mu: float) -> tuple[int, int]:
    """(least, best) steps from the centre to the bound: least for the rules on rounding, best where there is room."""
    scale, root = on_grid(shape, target, mu, 1).scale, math.sqrt(target.dimension)
    # Steps in the sensitivity where there is one from the centre to the bound.
    each = target.sensitivity / shape.clip
    if shape.region == BOX and shape.one_unit:
        norms = (1.0, 1.0)
    elif shape.region == BALL and shape.one_unit:
        norms = (root / _COARSE_NORM / each, max(root / _FINE_NORM, 1 / _CERTAIN) / each)
    else:
        norms = (root / _COARSE_NORM / each, root / _CERTAIN / each)
    # Noise grows with the number of steps, and by what rounding adds less.
    coarsest, finest = (
        math.ceil(max(1.0, steps * 1.1 / scale, norm)) for steps, norm in zip((COARSE, _FINE), norms, strict=True)
    )
    while on_grid(shape, target, mu, coarsest).scale < COARSE * (1 + _SLACK):
        coarsest += 1
    return coarsest, max(coarsest, finest)


def largest_that_holds(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number of low..high that holds, where ``low`` does, and larger ones less."""
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
