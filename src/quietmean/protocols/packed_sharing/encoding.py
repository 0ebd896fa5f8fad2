"""From a private vector to whole numbers with noise, and from their sum back to a vector."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.grid import from_units
from quietmean.core.noise import NoiseGroup
from quietmean.core.party import NoiseSource, Units, Vector
from quietmean.core.pieces import pieces
from quietmean.protocols.packed_sharing.spec import BALL, PackedSharingParameters
from quietmean.protocols.random_rounding import clip_to_ball, round_at_random, round_conditionally, round_with
from quietmean.protocols.weights import check_weight
from quietmean.randomness import BitStream, Seed, discrete_pieces


def encode(parameters: PackedSharingParameters, value: Vector, weight: float, noise: NoiseSource) -> Iterator[Units]:
    """What a party deals: its value (d,), shifted, clipped and rounded to whole steps at random, plus its noise, in pieces.

    ``weight``: its public weight. Everything, rounding included, is finished before any share exists. Raises :class:`InputError`
    for a weight beyond the plan's, and for another number of coordinates; never because of a value.
    """
    sizes = (piece.stop - piece.start for piece in pieces(parameters.dimension))
    drawn = discrete_pieces(noise, NoiseGroup.INDEPENDENT, 0, parameters.scale, sizes)
    for units in rounded_pieces(parameters, value, weight, Seed(noise.secret("rounding", 0))):
        units += next(drawn)
        yield units


def rounded(parameters: PackedSharingParameters, value: Vector, weight: float, seed: Seed) -> Units:
    """The value (d,) in whole steps from its centre, up or down at random so that the mean is right; without noise.

    ``weight``: public, how many units it is a sum of. Raises :class:`InputError` for another size, or too large a weight.
    """
    return np.concatenate(list(rounded_pieces(parameters, value, weight, seed)))


def rounded_pieces(parameters: PackedSharingParameters, value: Vector, weight: float, seed: Seed) -> Iterator[Units]:
    """Encode in pieces. Raises :class:`InputError` for another size, or too large a weight."""
    check_weight(weight, parameters.largest_weight)
    if value.size != parameters.dimension:
        raise InputError(f"the value has {value.size} coordinates but the plan is for {parameters.dimension}: make another plan")
    reach = weight * parameters.clip / parameters.step
    if parameters.region == BALL:
        # All together: how long they are decides of each.
        steps = clip_to_ball((value - weight * parameters.centre) / parameters.step, reach)
        whole = round_conditionally(steps, reach, seed) if parameters.one_unit else round_at_random(steps, seed)
        yield from (whole[piece] for piece in pieces(value.size))
        return
    # Again after rounding: the sum of a whole number and of one just below 1 may be the next whole number.
    highest, stream = math.ceil(reach), BitStream(seed)
    for piece in pieces(value.size):
        steps = (value[piece] - weight * parameters.centre) / parameters.step
        units = round_with(stream, np.clip(steps, -reach, reach, out=steps))
        yield np.clip(units, -highest, highest, out=units)


def decode_sum(parameters: PackedSharingParameters, total: Units, weight: float) -> Vector:
    """The sum of the values, shape (d,), in their units, from the opened sum (d,) and the total weight of those in it.

    It takes the memory of ``total``, which is gone.
    """
    vector = total.view(np.float64)
    for piece in pieces(total.size):
        units = from_units(total[piece], parameters.step)
        units += weight * parameters.centre
        vector[piece] = units
    return vector
