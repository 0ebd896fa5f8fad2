"""From a target to the parameters of a committee: everything is computed, nothing is simulated."""

from __future__ import annotations

import math
from dataclasses import replace

from quietmean.core.errors import InputError
from quietmean.protocols.committee.accounting import charge
from quietmean.protocols.committee.parameters import (
    NOISE_REACH,
    REPETITIONS,
    CommitteeParameters,
    ballots_for,
    most_secrets,
)
from quietmean.protocols.committee_size import Committee
from quietmean.protocols.packed_sharing.field import reduction_distance, words_for
from quietmean.protocols.packed_sharing.grid import COARSE, largest_that_holds, least_mu, on_grid, wanted_fineness
from quietmean.protocols.packed_sharing.spec import BALL, BOX, LARGE_PRIME, PackedSharingParameters
from quietmean.protocols.target import Target

# Rounding adds so much of the noise's variance to the error at most, where there is room.
_ROUNDING_SHARE = 0.01
_SLACK = 1e-9


def design(
    target: Target,
    committee: Committee,
    *,
    region: str = BOX,
    centre: float | None = None,
    clip: float | None = None,
    largest_weight: float = 1.0,
) -> CommitteeParameters:
    """The parameters with the least noise that keeps the target, on the finest grid of use for which there is room.

    The target's parties are the contributors that are admitted; its colluders count for nothing, since all other contributors may
    collude. ``centre`` and ``clip``: each coordinate of a value of weight 1 lies within ``clip`` of the centre, in a ball its
    norm does; by default the box from 0, or the ball around 0, of which the target's sensitivity is the diameter. Raises
    :class:`InputError` where that is impossible.
    """
    secrets = min(target.dimension, most_secrets(committee.members, committee.colluding, committee.gone, committee.size))
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
    gridded = _on_finest_grid(shape, noise, target.parties)
    parameters = _parameters(committee, target, gridded)
    if not charge(parameters, target.sensitivity).epsilon(target.delta) <= target.epsilon:
        raise InputError(f"noise of {parameters.sigma:g} keeps no epsilon of {target.epsilon:g}: plan with a larger delta")
    return parameters


def _parameters(committee: Committee, target: Target, gridded: PackedSharingParameters) -> CommitteeParameters:
    return CommitteeParameters(
        members=committee.members,
        colluding=committee.colluding,
        gone=committee.gone,
        size=committee.size,
        contributors=target.parties,
        minimum=min(3, target.parties) if committee.minimum is None else committee.minimum,
        dimension=target.dimension,
        secrets=gridded.secrets,
        ballots=gridded.ballots,
        region=gridded.region,
        centre=gridded.centre,
        clip=gridded.clip,
        step=gridded.step,
        sigma=gridded.sigma,
        largest_weight=gridded.largest_weight,
    )


def _on_finest_grid(shape: PackedSharingParameters, noise: Target, contributors: int) -> PackedSharingParameters:
    """``noise``: the target with the members as its parties."""
    points = (noise.parties + 1) * (shape.colluding * shape.blocks + REPETITIONS * shape.threshold)
    mu = least_mu(noise, points * reduction_distance(shape.prime, words_for(shape.prime)) * (1 + _SLACK))

    def fits(fineness: int) -> bool:
        made = on_grid(shape, noise, mu, fineness)
        reach = contributors * made.largest_weight * 2 * fineness + shape.minimum * NOISE_REACH * made.scale
        return reach < shape.prime // 2

    coarse, fine = wanted_fineness(shape, noise, mu)
    # The rounding of many contributions adds up, whereas the noise does not grow with them.
    for_rounding = math.sqrt(contributors / (6 * shape.minimum * _ROUNDING_SHARE))
    fine = max(fine, math.ceil(fine * for_rounding / on_grid(shape, noise, mu, fine).scale))
    if not fits(coarse):
        raise InputError(
            f"a sum of {contributors} values of {noise.dimension} coordinates has no room modulo {shape.prime}: plan for fewer "
            "contributors or coordinates, a smaller largest_weight, or a larger epsilon"
        )
    return on_grid(shape, noise, mu, largest_that_holds(fits, coarse, fine))
