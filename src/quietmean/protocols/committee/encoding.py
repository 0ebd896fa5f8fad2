"""From a private vector to the whole numbers that a contributor deals, and from their opened sum back to a vector."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quietmean.core.party import Units, Vector
from quietmean.protocols.committee.layout import Layout
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.packed_sharing.encoding import decode_sum, rounded
from quietmean.randomness import Seed


def encode(parameters: CommitteeParameters, value: Vector, weight: float, seed: Seed, layout: Layout | None = None) -> Units:
    """What a contributor deals, shape (d,): its value (d,) rounded to whole steps at random and shifted to start at 0.

    ``weight``: its public weight. ``seed``: its own for this study, durable: the same one rounds the same way. ``layout``: how
    it is dealt, where that is verified: of a record products are then those of what was rounded. Everything is finished before
    any share exists. Raises :class:`InputError` for a weight beyond the plan's, and for another number of coordinates; never
    because of a value.
    """
    numbers: Units = rounded(parameters.numbers, value, weight, seed.derive("rounding")) + _shift(parameters, weight)
    return numbers if layout is None else layout.of_record(value, numbers, seed.derive("rounding of a record"))


def decode(parameters: CommitteeParameters, total: Units, weights: Sequence[float]) -> Vector:
    """The sum of the values, shape (d,), in their units, from the opened sum (d,) and the weights of those in it."""
    shift = sum(_shift(parameters, weight) for weight in weights)
    return decode_sum(parameters.numbers, np.asarray(total - shift, dtype=np.int64), math.fsum(weights))


def _shift(parameters: CommitteeParameters, weight: float) -> int:
    return math.ceil(weight * parameters.clip / parameters.step)
