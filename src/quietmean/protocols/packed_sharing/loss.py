"""The certificate of an execution, and what is promised before it: one formula for every coalition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori
from quietmean.core.party import PartyId
from quietmean.core.readable import count_of
from quietmean.privacy import Adversary, LossConversion
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.packed_sharing.accounting import charge, unknown_noises
from quietmean.protocols.packed_sharing.spec import PackedSharingParameters


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
                f"sum, of {count_of(parameters.minimum, 'input')} or more, whichever they choose and whatever happens; larger "
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
