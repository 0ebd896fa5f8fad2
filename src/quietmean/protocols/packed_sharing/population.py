"""Packed sharing for all parties at once: the sum itself, without any share."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.noise import NoiseGroup
from quietmean.core.party import PopulationNoise, Units, Vector
from quietmean.protocols.packed_sharing.encoding import decode_sum, rounded
from quietmean.protocols.packed_sharing.spec import PackedSharingParameters
from quietmean.randomness import Seed


def opened_sum(
    parameters: PackedSharingParameters, inputs: Mask, values: Vector, weights: Array, noise: PopulationNoise
) -> tuple[Vector, float]:
    """The decoded sum of the ``inputs``, (n,), shape (d,), and their total weight: what T members' sums open, exactly.

    ``values`` have shape (n, d), ``weights`` (n,).
    """
    drawn = noise.discrete(NoiseGroup.INDEPENDENT, 0, parameters.scale, values.shape[1])
    total = drawn[inputs].sum(axis=0)
    for party in np.nonzero(inputs)[0].tolist():
        seed = Seed(noise.party(party).secret("rounding", 0))
        total += rounded(parameters, values[party], float(weights[party]), seed)
    # Added one by one, as the machines do.
    weight = float(sum(weights[inputs].tolist()))
    return decode_sum(parameters, _modulo(parameters, total), weight), weight


def _modulo(parameters: PackedSharingParameters, total: Units) -> Units:
    """The sum as it comes out of arithmetic modulo p, between -p/2 and p/2."""
    half = parameters.prime // 2
    return (total + half) % parameters.prime - half
