"""The certificate of a committee's opening: one figure for every contributor, whoever of the others colludes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.party import PartyId
from quietmean.privacy import Adversary, LossConversion
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.committee.accounting import charge
from quietmean.protocols.committee.parameters import CommitteeParameters


class CommitteeLossConversion(LossConversion):
    """Upper bounds that hold for every choice of contributions: mu of the Gaussian mechanism that dominates the opened sum.

    Also who is not counted is charged: members held shares of its value, and might have chosen it.
    """

    kind = UPPER_BOUND

    def __init__(self, parameters: CommitteeParameters) -> None:
        self._parameters = parameters
        self.coalition = f"all other contributors with any {parameters.colluding} of the {parameters.members} members"
        self.tv = charge(parameters, 1.0).tv
        unknown = parameters.dealings - parameters.colluding
        self.notes = (
            Assumption(
                Key.NUMBERS,
                f"Whole numbers with discrete Gaussian noise of {parameters.scale:.6g} steps from each of {parameters.dealings} "
                f"members, of which {unknown} are credited; the figures are of the Gaussian mechanism that dominates the sum, "
                "rounding included.",
            ),
            Assumption(
                Key.HISTORY,
                f"At most {parameters.colluding} of {parameters.members} members collude, with all other contributors; they see "
                "one sum, of whichever contributions they choose and whatever happens. More members open everything.",
            ),
            Assumption(
                Key.SAMPLER,
                f"All draws together are within {self.tv:.1g} of the model in total variation, which every delta counts.",
            ),
        )
        self.charge_notes = (f"tv {self.tv:.2g} for the sampler, for random points, and for noise as rounded Gaussian noise",)

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        return np.full(len(honest), charge(self._parameters, sensitivity).mu)

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        return np.full(len(view), charge(self._parameters, sensitivity).mu)
