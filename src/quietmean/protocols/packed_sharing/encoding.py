"""From a private vector to whole numbers with noise, and from their sum back to a vector."""

from __future__ import annotations

from quietmean.core.party import NoiseSource, Units, Vector
from quietmean.protocols.packed_sharing.spec import PackedSharingParameters


def encode(parameters: PackedSharingParameters, value: Vector, weight: float, noise: NoiseSource) -> Units:
    """What a party deals, shape (d,): its value (d,), shifted, clipped and rounded to whole steps at random, plus its noise.

    ``weight``: its public weight. Everything, rounding included, is finished before any share exists. Raises :class:`InputError`
    for a weight beyond the plan's, and for another number of coordinates; never because of a value.
    """
    raise ValueError


def decode_sum(parameters: PackedSharingParameters, total: Units, weight: float) -> Vector:
    """The sum of the values, shape (d,), in their units, from the opened sum (d,) and the total weight of those in it."""
    raise ValueError
