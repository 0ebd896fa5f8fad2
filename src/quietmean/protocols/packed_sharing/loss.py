"""The certificate of an execution, and what is promised before it: one formula for every coalition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori
from quietmean.core.party import PartyId
from quietmean.core.readable import count_of
from quietmean.privacy import Adversary, LossConversion
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.discrete import conditional_norm
from quietmean.protocols.packed_sharing.packing import reduction_distance, words_for
from quietmean.protocols.packed_sharing.spec import BOX, PackedSharingParameters
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


class PackedLossConversion(LossConversion):
    """Upper bounds for the sum of the parties ``counted``, (n,): mu of the Gaussian mechanism that dominates it.

    A coalition of at most c_m parties sees that sum, of which it knows its own members' noise; of a party that is not counted it
    sees nothing. Without a known sum, others may have one of ``minimum`` inputs of which nobody knows which. A larger coalition
    may open every share: then each party's own noise protects it.
    """

    kind = UPPER_BOUND

    def __init__(self, parameters: PackedSharingParameters, counted: Mask) -> None:
        self._parameters, self._counted, self._parties = parameters, counted, len(counted)
        self._known = bool(counted.any())
        self.tv = charge(parameters, 1.0, self._parties, 1).tv
        self.notes = (
            Assumption(
                Key.NUMBERS,
                f"Whole numbers with discrete Gaussian noise of {parameters.scale:.6g} steps from each party, of which only what "
                "the adversary does not know is credited; the figures are of the Gaussian mechanism that dominates the sum, "
                "rounding included.",
            ),
            Assumption(
                Key.HISTORY,
                f"At most {count_of(parameters.colluding_members, 'member colludes', 'members collude')}; together they see one "
                f"sum, of {count_of(parameters.minimum, 'input')} or more, whichever they choose, in every history; larger "
                "coalitions are charged each party's own noise.",
            ),
            Assumption(
                Key.SAMPLER,
                f"All draws together are within {self.tv:.1g} of the model in total variation, which every delta counts.",
            ),
        )
        self.charge_notes = (f"tv {self.tv:.2g} for the sampler, for random points, and for noise as rounded Gaussian noise",)

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        corrupt = list(adversary.corrupt)
        hidden = self._hidden(int(self._counted[corrupt].sum()), len(corrupt), sensitivity)
        return np.where(self._seen(len(corrupt))[list(honest)], hidden, 0.0)

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        return np.where(self._seen(size), self._hidden(min(size, self._parties), size, sensitivity), 0.0)

    def _seen(self, corrupt: int) -> Mask:
        """The parties of whose values this many colluders see anything, (n,)."""
        all_seen = not self._known or corrupt > self._parameters.colluding_members
        return np.ones(self._parties, dtype=np.bool_) if all_seen else self._counted

    def _hidden(self, corrupt_inputs: int, corrupt: int, sensitivity: float) -> float:
        inputs = int(self._counted.sum()) if self._known else self._parameters.minimum
        corrupt_noises = corrupt_inputs if self._known else corrupt
        unknown = unknown_noises(self._parameters, inputs, corrupt_noises, corrupt)
        return charge(self._parameters, sensitivity, self._parties, unknown).mu


def promised(parameters: PackedSharingParameters, parties: int, size: int, sensitivity: float) -> APriori:
    """What a study costs at most in every history if ``size`` parties collude, and do anything."""
    unknown = unknown_noises(parameters, parameters.minimum, size, size)
    cost = charge(parameters, sensitivity, parties, unknown)
    if size <= parameters.colluding_members:
        why = f"the protocol: honest members open one sum only, of {parameters.minimum} inputs or more"
    else:
        why = f"each party's own noise: the shares hide values from {parameters.colluding_members} colluders at most"
    return APriori(cost.mu, why, cost.beta, cost.tv)
