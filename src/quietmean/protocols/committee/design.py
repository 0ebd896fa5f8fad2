"""From a target to the parameters of a committee: everything is computed, nothing is simulated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.block_products import FEWEST_STEPS, MOST_STEPS
from quietmean.core.errors import InputError
from quietmean.core.statement import LinearRelation, StatedRecord
from quietmean.protocols.committee.accounting import charge, drawn_distance
from quietmean.protocols.committee.parameters import (
    NOISE_REACH,
    CommitteeParameters,
    ballots_for,
)
from quietmean.protocols.committee_size import Committee
from quietmean.protocols.packed_sharing.encoding import COARSE, largest_that_holds, least_mu, on_grid, wanted_fineness
from quietmean.protocols.packed_sharing.spec import BALL, BOX, LARGE_PRIME, PackedSharingParameters
from quietmean.protocols.target import Target

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
    )
    noise = replace(target, parties=committee.members, colluding=committee.colluding, committee=None)
    stated = StatedBesides(committee.verified, relations, records)
    gridded = _on_finest_grid(shape, noise, target.parties, stated)
    parameters = _parameters(committee, target, gridded)
    if not charge(parameters, target.sensitivity).epsilon(target.delta) <= target.epsilon:
        raise InputError(f"noise of {parameters.sigma:g} keeps no epsilon of {target.epsilon:g}: plan with a larger delta")
    return parameters


def _parameters(committee: Committee, target: Target, gridded: PackedSharingParameters) -> CommitteeParameters:
    of_numbers = ("dimension", "secrets", "ballots", "region", "centre", "clip", "step", "sigma", "largest_weight")
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
                "standard error; plan for fewer contributors or a smaller epsilon, or leave products out"
            )
    if not fits(coarse):
        raise InputError(
            f"a sum of {contributors} values of {noise.dimension} coordinates has no room modulo {shape.prime}: plan for fewer "
            "contributors or coordinates, a smaller largest_weight, or a larger epsilon"
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
