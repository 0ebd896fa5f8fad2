"""From a target to parameters: everything is computed, nothing is simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import OPEN, given_value
from quietmean.protocols.packed_sharing.accounting import charge, shares_distance
from quietmean.protocols.packed_sharing.ballots import ballots_needed
from quietmean.protocols.packed_sharing.committee import described
from quietmean.protocols.packed_sharing.grid import COARSE, Settings, largest_that_holds, least_mu, on_grid, wanted_fineness
from quietmean.protocols.packed_sharing.inputs import chance_of_fewer, expected_error, least_inputs, leaving
from quietmean.protocols.packed_sharing.spec import (
    BALL,
    BOX,
    LARGE_PRIME,
    SMALL_PRIME,
    PackedSharingParameters,
    check_numbers,
    largest_sum,
)
from quietmean.protocols.target import Target

# The factor of the error that is accepted for half of the traffic.
_FOR_HALF = 1.001
_LARGEST_WEIGHT = 2.0**20
# How many times the bytes it may take to correct one wrong sum where nobody asked for it.
_MOST_FOR_A_LIE = 1.05
# The number of records of a party that there is room for, where none is stated.
_USUAL_WEIGHT = 2.0**15


def designed(requested: Settings, target: Target, largest: float | None = None) -> tuple[Settings, float, float, str]:
    """Parameters with the least expected error; that error (noise; lost values) per coordinate; and the certificate in words.

    ``largest``: what coordinates reach in size where nothing else is known of the domain, by default the sensitivity.
    A run has too few inputs with a chance of 1e-3 at most, and all its leaders are gone with one of 1e-5. Raises
    :class:`InputError` where a result, or the target, is impossible.
    """
    shape = _shaped(requested, target, target.sensitivity if largest is None else largest)
    parameters = _of_less_error(shape, target) if requested.prime is OPEN else _settled(shape, target)
    noise, lost = expected_error(target, parameters.minimum, parameters.party_variance)
    certificate = (
        f"by formula, for any coalition of {target.colluding} that does anything, and whatever happens: a sum of "
        f"{parameters.minimum} inputs or more has {parameters.minimum - target.colluding} noises that they do not know (upper "
        f"bound), if AES-256 in counter mode is a source of noise and random points; fewer inputs, and no result, with chance "
        f"{chance_of_fewer(target, parameters.minimum):.1g}"
    )
    return parameters, noise, lost, certificate


def _of_less_error(shape: Settings, target: Target) -> Settings:
    """Numbers of 2 bytes where they cost next to no error, else of 4."""
    small: Settings | None
    try:
        small = _settled(replace(shape, prime=SMALL_PRIME), target)
    except InputError:
        small = None
    large = _settled(replace(shape, prime=LARGE_PRIME), target)
    if small and shape.largest_weight is OPEN and small.largest_weight < _USUAL_WEIGHT:
        return large
    return small if small and small.party_variance <= _FOR_HALF * large.party_variance else large


def _shaped(requested: Settings, target: Target, largest: float) -> Settings:
    """Everything but grid and noise, with defaults for open numbers; ``clip`` is what there should be room for."""
    n, c = target.parties, target.colluding
    gone = given_value(requested.gone, leaving(target))
    if gone >= n:
        raise InputError(f"gone is {gone}, but there are {n} members: choose fewer than these")
    lies = given_value(requested.lies, _lies_for_next_to_nothing(target, gone) if requested.secrets is OPEN else 0)
    most_secrets = _most_secrets(target, gone, lies)
    region = given_value(requested.region, BOX)
    half = target.sensitivity / 2
    in_box = half / math.sqrt(target.dimension)
    weight = 1.0 if target.unit == PrivacyUnit.PARTY else OPEN
    shaped = replace(
        requested,
        members=n,
        colluding=c,
        colluding_members=c,
        secrets=given_value(requested.secrets, max(most_secrets, 1)),
        minimum=given_value(requested.minimum, max(least_inputs(target), c + 1)),
        lies=lies,
        gone=gone,
        ballots=given_value(requested.ballots, ballots_needed(n, gone)),
        region=region,
        centre=in_box if region == BOX else 0.0,
        clip=in_box if region == BOX else half if region == BALL else largest,
        largest_weight=given_value(requested.largest_weight, weight),
        dimension=target.dimension,
    )
    guess = replace(
        shaped,
        prime=given_value(requested.prime, LARGE_PRIME),
        largest_weight=given_value(shaped.largest_weight, 1.0),
        step=1.0,
        sigma=COARSE,
        clip=1.0,
    )
    check_numbers(guess, n)
    return shaped


def _most_secrets(target: Target, gone: int, lies: int) -> int:
    """How many numbers one polynomial may hide, with a result though ``gone`` leave and ``lies`` sums are wrong."""
    return min(target.dimension, target.parties - gone - target.colluding - 2 * lies)


def _lies_for_next_to_nothing(target: Target, gone: int) -> int:
    """One wrong sum is corrected where that takes little more bytes; the error does not depend on it."""
    secrets, fewer = _most_secrets(target, gone, 0), _most_secrets(target, gone, 1)
    if fewer < 1:
        return 0
    blocks, more = (-(-target.dimension // each) for each in (secrets, fewer))
    return int(more <= _MOST_FOR_A_LIE * blocks)


def _settled(shape: Settings, target: Target) -> Settings:
    """The finest grid of use for which there is room, and the least noise on it. Raises :class:`InputError` if there is none."""
    is_open = shape.largest_weight is OPEN
    # Whether a party is one unit decides what rounding costs; the room is for the weight that is known, or for a usual one.
    unit = replace(shape, largest_weight=2.0) if is_open else shape
    mu = least_mu(target, shares_distance(unit, target.parties))

    def made(fineness: int, weight: float) -> Settings:
        return replace(on_grid(unit, target, mu, fineness), largest_weight=weight)

    def fits(fineness: int, weight: float) -> bool:
        return largest_sum(made(fineness, weight), target.parties) <= shape.prime // 2

    coarse, fine = wanted_fineness(unit, target, mu)
    weights = (_USUAL_WEIGHT, 1.0) if is_open else (shape.largest_weight,)
    weight = next((candidate for candidate in weights if fits(coarse, candidate)), None)
    if weight is None:
        raise InputError(
            f"a sum of {target.parties} values of {target.dimension} coordinates has no room modulo {shape.prime}: "
            + (f"choose prime {LARGE_PRIME}, " if shape.prime != LARGE_PRIME else "")
            + "plan for fewer parties or coordinates, a smaller largest_weight, or a larger epsilon"
        )
    parameters = made(largest_that_holds(lambda fineness: fits(fineness, weight), coarse, fine), 1.0 if is_open else weight)
    if is_open:
        parameters = replace(parameters, largest_weight=_headroom(parameters, target.parties))
    check_numbers(parameters, target.parties)
    _check_target(parameters, target)
    return parameters


def _headroom(parameters: PackedSharingParameters, parties: int) -> float:
    """The largest weight, a whole number, for which sums still fit: parties of many records need more than one of one."""
    room, per_unit = parameters.prime // 2, parties * parameters.clip / parameters.step
    noise = largest_sum(parameters, parties) - parties * parameters.inputs_range
    return float(max(1, min(math.floor((room - noise) / per_unit), _LARGEST_WEIGHT)))


def _check_target(parameters: PackedSharingParameters, target: Target) -> None:
    """Noise for privacy: s^2 (u_min - c) is at least the variance needed. A proof by the charge itself."""
    spent = charge(parameters, target.sensitivity, target.parties, parameters.minimum - target.colluding)
    if not spent.epsilon(target.delta) <= target.epsilon:
        raise InputError(f"noise of {parameters.sigma:g} keeps no epsilon of {target.epsilon:g}: plan with a larger delta")


def chance_of_another_run(parameters: PackedSharingParameters, target: Target) -> float:
    """The chance of no result: too few inputs, or all leaders gone."""
    # A small committee has fewer leaders than ballots: all of it.
    leaders = min(parameters.ballots, parameters.members)
    leaderless = math.comb(parameters.gone, leaders) / math.comb(parameters.members, leaders)
    return min(1.0, chance_of_fewer(target, parameters.minimum) + leaderless)


def figures(parameters: PackedSharingParameters, target: Target) -> Mapping[str, Any]:
    """Further figures of a plan: thresholds, the error if half of all dropouts hit dealing, and what a committee would take."""
    noise, lost = expected_error(target, least_inputs(target, 0.5), parameters.party_variance, 0.5)
    return {
        "threshold": parameters.threshold,
        "quorum": parameters.votes_needed,
        "minimum": parameters.minimum,
        "chance_of_another_run": chance_of_another_run(parameters, target),
        "word_bytes": parameters.word_bytes,
        "mse_if_half_leave_while_dealing": noise + lost,
        "committee": described(target, parameters.word_bytes),
    }
