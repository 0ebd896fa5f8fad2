"""From a private vector to whole numbers with noise, and from their sum back to a vector."""

from __future__ import annotations

import math

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.grid import from_units
from quietmean.core.noise import NoiseGroup
from quietmean.core.party import NoiseSource, Units, Vector
from quietmean.protocols.packed_sharing.spec import BALL, PackedSharingParameters
from quietmean.protocols.random_rounding import clip_to_ball, round_at_random, round_conditionally
from quietmean.protocols.weights import check_weight
from quietmean.randomness import Seed


def encode(parameters: PackedSharingParameters, value: Vector, weight: float, noise: NoiseSource) -> Units:
    """What a party deals, shape (d,): its value (d,), shifted, clipped and rounded to whole steps at random, plus its noise.

    ``weight``: its public weight. Everything, rounding included, is finished before any share exists. Raises :class:`InputError`
    for a weight beyond the plan's, and for another number of coordinates; never because of a value.
    """
    units = rounded(parameters, value, weight, Seed(noise.secret("rounding", 0)))
    units += noise.discrete(NoiseGroup.INDEPENDENT, 0, parameters.scale, value.size)
    return units


def rounded(parameters: PackedSharingParameters, value: Vector, weight: float, seed: Seed) -> Units:
    """The value (d,) in whole steps from its centre, up or down at random so that the mean is right; without noise.

    ``weight``: public, how many units it is a sum of. Raises :class:`InputError` for another size, or too large a weight.
    """
    check_weight(weight, parameters.largest_weight)
    if value.size != parameters.dimension:
        raise InputError(f"the value has {value.size} coordinates but the plan is for {parameters.dimension}: make another plan")
    reach = weight * parameters.clip / parameters.step
    steps = (value - weight * parameters.centre) / parameters.step
    if parameters.region == BALL:
        steps = clip_to_ball(steps, reach)
        return round_conditionally(steps, reach, seed) if parameters.one_unit else round_at_random(steps, seed)
    # Again after rounding: the sum of a whole number and of one just below 1 may be the next whole number.
    highest = math.ceil(reach)
    return np.clip(round_at_random(np.clip(steps, -reach, reach), seed), -highest, highest)


def decode_sum(parameters: PackedSharingParameters, total: Units, weight: float) -> Vector:
    """The sum of the values, shape (d,), in their units, from the opened sum (d,) and the total weight of those in it."""
    vector = from_units(total, parameters.step)
    vector += weight * parameters.centre
    return vector
