"""What a contribution to a committee costs, before anything happens and whatever does; and the error of its result.

Neighbouring relation: replacement at an L2 distance, as of the target. Adversary: all other contributors, and c_m members that do
anything. They see one value with the noise of at least k - c_m honest members: see docs/mathematics/committee.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori
from quietmean.core.party import PartyId
from quietmean.privacy import Adversary, LossConversion
from quietmean.privacy.charge import Charge
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.committee.layout import MOST_BITS
from quietmean.protocols.committee.parameters import NOISE_BEYOND, REPETITIONS, CommitteeParameters
from quietmean.protocols.packed_sharing.loss import rounded_sensitivity
from quietmean.protocols.packed_sharing.packing import reduction_distance, words_for
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

# A margin for float64 rounding.
_SLACK = 1e-9


def charge(parameters: CommitteeParameters, sensitivity: float) -> Charge:
    """The charge of a contribution whose value changes by at most ``sensitivity`` in L2 norm, for every choice that is made."""
    # Imported here since it takes long, and who contributes or adds up does not need it.
    from quietmean.privacy.dominating import discrete_charge

    of_noise = discrete_charge(
        parameters.scale**2,
        rounded_sensitivity(parameters.numbers, sensitivity),
        parameters.dimension,
        unknown=parameters.dealings - parameters.colluding,
        drawn=parameters.members,
        sampler=TOTAL_VARIATION,
    )
    return Charge(of_noise.mu, of_noise.beta, min(1.0, of_noise.tv + points_distance(parameters)))


def points_distance(parameters: CommitteeParameters) -> float:
    """How far the random points and masks of one contribution and of all noise are from uniform ones, in total variation.

    Where they are verified also how far noise that is moved into its range is from what it was.
    """
    return drawn_distance(
        parameters.members, parameters.colluding, parameters.secrets, parameters.dimension, parameters.prime, parameters.verified
    )


def drawn_distance(members: int, colluding: int, secrets: int, dimension: int, prime: int, verified: bool) -> float:
    """Return that distance for so many members, c_m, l and coordinates."""
    threshold = colluding + secrets
    if verified:
        # Of each number and of a relation for it at most all bits, and masks of degrees and of products.
        drawn = colluding * 2 * dimension * MOST_BITS + REPETITIONS * (3 * threshold - 2)
        moved = members * dimension * NOISE_BEYOND
    else:
        drawn, moved = colluding * -(-dimension // secrets) + REPETITIONS * threshold, 0.0
    return ((members + 1) * drawn * reduction_distance(prime, words_for(prime)) + moved) * (1 + _SLACK)


def promised(parameters: CommitteeParameters, sensitivity: float) -> APriori:
    """What a study costs a contributor at most if all other contributors and c_m members collude, and do anything."""
    cost = charge(parameters, sensitivity)
    why = (
        f"the protocol: honest members open one sum only, with the noise of {parameters.dealings} members, of whom "
        f"{parameters.dealings - parameters.colluding} are honest"
    )
    return APriori(cost.mu, why, cost.beta, cost.tv)


def sum_variance(parameters: CommitteeParameters, contributions: int) -> float:
    """The variance of a coordinate of the sum: the noise of k dealings, and the rounding of so many contributions, on average."""
    return parameters.dealings * parameters.sigma**2 + contributions * parameters.step**2 / 6


def predicted_error(parameters: CommitteeParameters, contributions: int | None = None, weight: float | None = None) -> float:
    """The mean squared error of a coordinate of the mean of so many ``contributions`` (all) of total ``weight`` (1 each)."""
    count = parameters.contributors if contributions is None else contributions
    return sum_variance(parameters, count) / (count if weight is None else weight) ** 2


def standard_error(parameters: CommitteeParameters, contributions: int, weight: float) -> float:
    """The standard deviation of the noise, rounding included, in a coordinate of the mean."""
    return math.sqrt(predicted_error(parameters, contributions, weight))


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
                "Who colludes sees one sum, of whichever contributions they choose, in every history.",
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
