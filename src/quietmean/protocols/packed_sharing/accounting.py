"""What the noise of a sum is worth: the sensitivity of rounded values, and the charge of a study; all in whole steps.

Colluders see of honest values one sum, or nothing: see docs/packed-sharing.md. The sum is charged with the Gaussian
mechanism that dominates it (:mod:`quietmean.privacy.dominating`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from quietmean.protocols.packed_sharing.field import reduction_distance, words_for
from quietmean.protocols.packed_sharing.spec import BOX, PackedSharingParameters
from quietmean.protocols.random_rounding import conditional_norm
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

if TYPE_CHECKING:
    from quietmean.privacy.charge import Charge

# A margin for float64 rounding before values are rounded to steps.
_SLACK = 1e-9


def rounded_sensitivity(parameters: PackedSharingParameters, sensitivity: float) -> float:
    """L2 change in steps of a party's rounded value if the value changes by ``sensitivity``: for certain.

    With the same random bits two numbers at distance a are rounded to whole ones at distance a + 1 at most. A party's whole value
    in a box stays in it; in a ball its norm is bounded by conditional rounding.
    """
    root, change = math.sqrt(parameters.dimension), sensitivity / parameters.step
    certain = (change + root) * (1 + _SLACK)
    if not parameters.one_unit:
        return certain
    reach = parameters.largest_weight * parameters.clip / parameters.step
    if parameters.region == BOX:
        return min(certain, 2 * math.ceil(reach) * root)
    return min(certain, 2 * conditional_norm(reach, parameters.dimension, 1.0) * (1 + _SLACK))


def charge(parameters: PackedSharingParameters, sensitivity: float, parties: int, unknown: int) -> Charge:
    """The charge of a study of ``parties`` in which ``unknown`` honest parties' noise hides a change by ``sensitivity``."""
    # Imported here since it takes long, and running parties do not need it.
    from quietmean.privacy.charge import Charge
    from quietmean.privacy.dominating import discrete_charge

    change = rounded_sensitivity(parameters, sensitivity)
    of_noise = discrete_charge(
        parameters.scale**2, change, parameters.dimension, unknown=unknown, drawn=parties, sampler=TOTAL_VARIATION
    )
    return Charge(of_noise.mu, of_noise.beta, min(1.0, of_noise.tv + shares_distance(parameters, parties)))


def shares_distance(parameters: PackedSharingParameters, parties: int) -> float:
    """The total variation distance of all dealers' random points from uniform ones, at most."""
    drawn = parameters.colluding_members * parameters.blocks * parties
    return drawn * reduction_distance(parameters.prime, words_for(parameters.prime)) * (1 + _SLACK)


def unknown_noises(parameters: PackedSharingParameters, inputs: int, corrupt_inputs: int, corrupt: int) -> int:
    """How many parties' noise hides a value from a coalition of ``corrupt`` parties, ``corrupt_inputs`` of them in the sum.

    ``inputs``: how many there are in the sum. Larger coalitions than planned may open every share, and are charged each party's
    own noise alone.
    """
    return max(inputs - corrupt_inputs, 1) if corrupt <= parameters.colluding_members else 1
