"""From a target to the parameters of a committee, to what a contribution costs in every history, and to the error of its result.

Everything is computed, nothing is simulated.

Neighbouring relation: replacement at an L2 distance, as of the target. Adversary: all other contributors, and c_m members that do
anything. They see one value with the noise of at least k - c_m honest members: see docs/proofs/committee-proofs.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.assumptions import Assumption, Key, drawn_nearly
from quietmean.core.bounds import APriori
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId, Units, Vector
from quietmean.core.statement import FEWEST_STEPS, MOST_STEPS, LinearRelation, StatedRecord
from quietmean.privacy import Adversary, LossConversion
from quietmean.privacy.charge import Charge
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols.committee.layout import MOST_BITS, Layout
from quietmean.protocols.committee.parameters import NOISE_BEYOND, NOISE_REACH, REPETITIONS, CommitteeParameters, ballots_for
from quietmean.protocols.committee_size import Committee
from quietmean.protocols.packed_sharing.encoding import (
    COARSE,
    decode_sum,
    largest_that_holds,
    least_mu,
    on_grid,
    rounded,
    rounded_sensitivity,
    wanted_fineness,
)
from quietmean.protocols.packed_sharing.packing import reduction_distance, words_for
from quietmean.protocols.packed_sharing.spec import BALL, BOX, LARGE_PRIME, PackedSharingParameters
from quietmean.protocols.target import Target
from quietmean.randomness import Seed
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

# A margin for float64 rounding.
_SLACK = 1e-9


def charge(parameters: CommitteeParameters, sensitivity: float) -> Charge:
    """The charge of a contribution whose value changes by at most ``sensitivity`` in L2 norm, for every choice that is made."""
    # Imported here since it takes long, and who contributes or adds up does not need it.
    from quietmean.privacy.loss import discrete_charge

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
        self.coalition = f"any {parameters.colluding} of the {parameters.members} members and all other contributors together"
        self.tv = charge(parameters, 1.0).tv
        unknown = parameters.dealings - parameters.colluding
        self.notes = (
            Assumption(
                Key.NUMBERS,
                f"Each of {parameters.dealings} members adds noise of standard deviation {parameters.sigma:.6g} "
                f"(discrete Gaussian). The figures count the noise of {unknown} of them, and include rounding.",
            ),
            Assumption(
                Key.HISTORY,
                "Colluding members see one sum only, however the study goes. They may choose whose contributions are in it.",
            ),
            drawn_nearly(self.tv),
        )
        self.charge_notes = (f"tv {self.tv:.2g} for the sampler, for random points, and for noise as rounded Gaussian noise",)

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        return np.full(len(honest), charge(self._parameters, sensitivity).mu)

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        return np.full(len(view), charge(self._parameters, sensitivity).mu)


# Rounding adds so much of the noise's variance to the error at most, where there is room.
_ROUNDING_SHARE = 0.01
# Where rounding a sum of records adds to its sensitivity, by 6 % on the coarsest grid, by 1 % on one so many times finer.
_FINER_SUMS = 6
# Rounding moves the sum that a relation bounds by this part of the bound at most, where there is room.
_OF_A_BOUND = 1 / 8
# The bias of a product, by the rounding of its factors, is this part of its standard error at most.
_OF_AN_ERROR = 0.1


def design(
    target: Target,
    committee: Committee,
    *,
    region: str = BOX,
    centre: float | None = None,
    clip: float | None = None,
    largest_weight: float = 1.0,
    relations: Sequence[LinearRelation] = (),
    records: Sequence[StatedRecord] = (),
) -> CommitteeParameters:
    """The parameters with the least noise that keeps the target, on the finest grid of use for which there is room.

    The target's parties are the contributors that are admitted; its colluders count for nothing, since all other contributors may
    collude. ``centre`` and ``clip``: each coordinate of a value of weight 1 lies within ``clip`` of the centre, in a ball its
    norm does; by default the box from 0, or the ball around 0, of which the target's sensitivity is the diameter.
    ``relations``: what is verified of the value of one unit besides its bounds; ``records``: of which numbers products.

    Raises :class:`InputError` where that is impossible.
    """
    secrets = min(target.dimension, committee.secrets)
    half = target.sensitivity / (2 * (1 if region == BALL else math.sqrt(target.dimension)))
    reach = half if clip is None else clip
    middle = (0.0 if region == BALL else half) if centre is None else centre
    shape = PackedSharingParameters(
        members=committee.members,
        colluding=committee.colluding,
        colluding_members=committee.colluding,
        secrets=secrets,
        minimum=committee.members - committee.gone,
        lies=0,
        gone=committee.gone,
        ballots=ballots_for(committee.members, committee.colluding, committee.gone),
        prime=LARGE_PRIME,
        region=region,
        centre=middle,
        clip=reach,
        largest_weight=largest_weight,
        dimension=target.dimension,
        step=reach,
        sigma=COARSE * reach,
        rounded=target.rounded or None,
    )
    noise = replace(target, parties=committee.members, colluding=committee.colluding, committee=None)
    stated = StatedBesides(committee.verified, relations, records)
    gridded = _on_finest_grid(shape, noise, target.parties, stated)
    parameters = _parameters(committee, target, gridded)
    if not charge(parameters, target.sensitivity).epsilon(target.delta) <= target.epsilon:
        raise InputError(f"noise of {parameters.sigma:g} keeps no epsilon of {target.epsilon:g}. Plan with a larger delta.")
    return parameters


def _parameters(committee: Committee, target: Target, gridded: PackedSharingParameters) -> CommitteeParameters:
    of_numbers = ("dimension", "secrets", "ballots", "region", "centre", "clip", "step", "sigma", "largest_weight", "rounded")
    return CommitteeParameters(
        members=committee.members,
        colluding=committee.colluding,
        gone=committee.gone,
        size=committee.size,
        contributors=target.parties,
        minimum=min(3, target.parties) if committee.minimum is None else committee.minimum,
        verified=committee.verified,
        **{name: getattr(gridded, name) for name in of_numbers},
    )


@dataclass(frozen=True)
class StatedBesides:
    """What is verified of a value besides the bounds of its numbers, if anything is."""

    verified: bool
    relations: Sequence[LinearRelation]
    records: Sequence[StatedRecord]


def _on_finest_grid(
    shape: PackedSharingParameters, noise: Target, contributors: int, stated: StatedBesides
) -> PackedSharingParameters:
    """``noise``: the target with the members as its parties."""
    verified, relations = stated.verified, stated.relations
    terms = [int(np.abs(relation.coefficients).sum()) for relation in relations]
    drawn = drawn_distance(shape.members, shape.colluding, shape.secrets, shape.dimension, shape.prime, verified)
    mu = least_mu(noise, drawn)

    def fits(fineness: int) -> bool:
        sharing = on_grid(shape, noise, mu, fineness)
        reach = contributors * sharing.largest_weight * 2 * fineness + shape.minimum * NOISE_REACH * sharing.scale
        # Of a relation the sum, its bounds and what rounding adds to them.
        related = max(terms, default=0) * (sharing.largest_weight * 2 * fineness + 2) * 2
        return reach < shape.prime // 2 and related < shape.prime

    coarse, fine = wanted_fineness(shape, noise, mu)
    if verified:
        # Each halving of the step is one more bit of each number.
        fine = coarse if shape.one_unit else coarse * _FINER_SUMS
        bounds = (max(abs(relation.low), abs(relation.high)) for relation in relations)
        parts = (count * shape.clip / bound / _OF_A_BOUND for count, bound in zip(terms, bounds, strict=True))
        fine = max(fine, math.ceil(max(parts, default=0.0)))
    # The rounding of many contributions adds up, whereas the noise does not grow with them.
    for_rounding = math.sqrt(contributors / (6 * shape.minimum * _ROUNDING_SHARE))
    if stated.records:
        coarse = max(coarse, _for_products(shape, noise, mu, contributors, stated.records))
        # What rounding a value does to its square is three times as much.
        for_rounding *= 3
        fine = max(fine, coarse)
    fine = max(fine, math.ceil(fine * for_rounding / on_grid(shape, noise, mu, fine).scale))
    if stated.records:
        fine = min(fine, math.floor(MOST_STEPS * shape.clip / max(record.halves[1] for record in stated.records)))
        if fine < coarse or not fits(coarse):
            raise InputError(
                f"products of {contributors} contributors have no room: rounding would bias squares by more than a tenth of the "
                "standard error. Plan for fewer contributors or a smaller epsilon, or leave products out."
            )
    if not fits(coarse):
        raise InputError(
            f"a sum of {contributors} values of {noise.dimension} coordinates has no room modulo {shape.prime}. Plan for fewer "
            "contributors or coordinates, a smaller largest_weight, or a larger epsilon."
        )
    return on_grid(shape, noise, mu, largest_that_holds(fits, coarse, fine))


def _for_products(
    shape: PackedSharingParameters, noise: Target, mu: float, contributors: int, records: Sequence[StatedRecord]
) -> int:
    """The fewest steps from the centre to a bound with which rounding biases no product by a tenth of the standard error.

    If all contributors' values are rounded where that is worst, by the record's bias / X steps each, for X steps of half the
    bounds.
    """
    smallest = min(record.halves[0] for record in records)
    coarse = math.ceil((FEWEST_STEPS + 1) * shape.clip / smallest)
    deviation = math.sqrt(shape.minimum) * on_grid(shape, noise, mu, coarse).sigma
    biased = [record.halves[0] / record.bias for record in records if record.bias]
    step = math.sqrt(_OF_AN_ERROR * deviation * min(biased, default=math.inf) / contributors)
    # X is up to one step less than half the bounds.
    return max(coarse, math.ceil(shape.clip / step * (1 + 1 / FEWEST_STEPS)))


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
