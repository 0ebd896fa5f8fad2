"""From a target to parameters: everything is computed, nothing is simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.rounding import round_up
from quietmean.core.schema import OPEN, given_value
from quietmean.protocols.packed_sharing.accounting import charge, rounded_sensitivity, shares_distance
from quietmean.protocols.packed_sharing.ballots import ballots_needed
from quietmean.protocols.packed_sharing.committee import described
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
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

Settings = TypeVar("Settings", bound=PackedSharingParameters)

# Steps in the noise of one party: at least, so that rounding adds 1 % to the error at most; and where there is room, as many as
# one table of the sampler has.
_COARSE, _FINE = 4.0, 512.0
# The largest step, coarse and fine, as a part of the sensitivity over the root of the dimension, where rounding adds to it.
_COARSE_NORM, _FINE_NORM = 0.06, 0.03
# The same where the bound is the certain one, which grows with the step itself.
_CERTAIN = 2.0**-11
# The factor of the error that is accepted for half of the traffic.
_FOR_HALF = 1.001
_LARGEST_WEIGHT = 2.0**20
# The number of records of a party that there is room for, where none is stated.
_USUAL_WEIGHT = 2.0**15
_STEP_BITS = 24
_SLACK = 1e-9
_LARGEST_EXPONENT = 700.0


def designed(asked: Settings, target: Target, largest: float | None = None) -> tuple[Settings, float, float, str]:
    """Parameters with the least expected error; that error (noise; lost values) per coordinate; and the certificate in words.

    ``largest``: what coordinates reach in size where nothing else is known of the domain, by default the sensitivity.
    A run has too few inputs with a chance of 1e-3 at most, and all its leaders are gone with one of 1e-5. Raises
    :class:`InputError` where a result, or the target, is impossible.
    """
    shape = _shaped(asked, target, target.sensitivity if largest is None else largest)
    parameters = _of_less_error(shape, target) if asked.prime is OPEN else _settled(shape, target)
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


def _shaped(asked: Settings, target: Target, largest: float) -> Settings:
    """Everything but grid and noise, with defaults for open numbers; ``clip`` is what there should be room for."""
    n, c = target.parties, target.colluding
    gone, lies = given_value(asked.gone, leaving(target)), given_value(asked.lies, 0)
    most_secrets = min(target.dimension, n - gone - c - 2 * lies)
    region = given_value(asked.region, BOX)
    half = target.sensitivity / 2
    in_box = half / math.sqrt(target.dimension)
    weight = 1.0 if target.unit == PrivacyUnit.PARTY else OPEN
    shaped = replace(
        asked,
        members=n,
        colluding=c,
        colluding_members=c,
        secrets=given_value(asked.secrets, max(most_secrets, 1)),
        minimum=given_value(asked.minimum, max(least_inputs(target), c + 1)),
        lies=lies,
        gone=gone,
        ballots=given_value(asked.ballots, ballots_needed(n, gone)),
        region=region,
        centre=in_box if region == BOX else 0.0,
        clip=in_box if region == BOX else half if region == BALL else largest,
        largest_weight=given_value(asked.largest_weight, weight),
        dimension=target.dimension,
    )
    guess = replace(
        shaped,
        prime=given_value(asked.prime, LARGE_PRIME),
        largest_weight=given_value(shaped.largest_weight, 1.0),
        step=1.0,
        sigma=_COARSE,
        clip=1.0,
    )
    check_numbers(guess, n)
    return shaped


def _settled(shape: Settings, target: Target) -> Settings:
    """The finest grid of use for which there is room, and the least noise on it. Raises :class:`InputError` if there is none."""
    is_open = shape.largest_weight is OPEN
    # Whether a party is one unit decides what rounding costs; the room is for the weight that is known, or for a usual one.
    unit = replace(shape, largest_weight=2.0) if is_open else shape
    mu = _least_mu(unit, target)

    def made(fineness: int, weight: float) -> Settings:
        return replace(_on_grid(unit, target, mu, fineness), largest_weight=weight)

    def fits(fineness: int, weight: float) -> bool:
        return largest_sum(made(fineness, weight), target.parties) <= shape.prime // 2

    coarse, fine = _wanted(unit, target, mu)
    weights = (_USUAL_WEIGHT, 1.0) if is_open else (shape.largest_weight,)
    weight = next((candidate for candidate in weights if fits(coarse, candidate)), None)
    if weight is None:
        raise InputError(
            f"a sum of {target.parties} values of {target.dimension} coordinates has no room modulo {shape.prime}: "
            + (f"choose prime {LARGE_PRIME}, " if shape.prime != LARGE_PRIME else "")
            + "plan for fewer parties or coordinates, a smaller largest_weight, or a larger epsilon"
        )
    parameters = made(_largest(lambda fineness: fits(fineness, weight), coarse, fine), 1.0 if is_open else weight)
    if is_open:
        parameters = replace(parameters, largest_weight=_headroom(parameters, target.parties))
    check_numbers(parameters, target.parties)
    _check_target(parameters, target)
    return parameters


def _least_mu(shape: Settings, target: Target) -> float:
    """The mu that the target leaves to the sum once all draws are paid for."""
    from quietmean.privacy import mu_of_budget
    from quietmean.privacy.dominating import discrete_charge

    # Of all scales in use the smallest is the farthest from its model.
    drawn = discrete_charge(_COARSE**2, 1.0, target.dimension, unknown=1, drawn=target.parties, sampler=TOTAL_VARIATION).tv
    # Beyond this e^epsilon overflows float64, and delta is used up long before.
    grown = math.exp(min(target.epsilon, _LARGEST_EXPONENT))
    left = target.delta - (1 + grown) * (drawn + shares_distance(shape, target.parties)) * (1 + _SLACK)
    if left <= 0:
        raise InputError(
            f"delta {target.delta:g} is below what drawing {target.dimension} coordinates costs: plan with a larger delta"
        )
    return mu_of_budget(target.epsilon, left) * (1 - _SLACK)


def _on_grid(shape: Settings, target: Target, mu: float, fineness: int) -> Settings:
    """With ``fineness`` steps from the centre of the domain to its bound, and the noise that this takes."""
    from quietmean.privacy.dominating import smoothing

    step = _short(shape.clip / fineness)
    gridded = replace(shape, step=step, clip=step * fineness, sigma=step * _COARSE)
    square = (rounded_sensitivity(gridded, target.sensitivity) / mu) ** 2
    variance = square
    for _ in range(8):
        variance = square + smoothing(variance)
    own = math.sqrt(variance / (shape.minimum - target.colluding)) * (1 + _SLACK)
    return replace(gridded, sigma=round_up(max(own, _COARSE) * step))


def _short(step: float) -> float:
    """The step with so few digits that whole multiples of it are exact, rounded up."""
    fraction, exponent = math.frexp(step)
    return math.ldexp(math.ceil(math.ldexp(fraction, _STEP_BITS)), exponent - _STEP_BITS)


def _wanted(shape: PackedSharingParameters, target: Target, mu: float) -> tuple[int, int]:
    """(least, best) steps from the centre to the bound: least for the rules on rounding, best where there is room."""
    scale, root = _on_grid(shape, target, mu, 1).scale, math.sqrt(target.dimension)
    # Steps in the sensitivity where there is one from the centre to the bound.
    each = target.sensitivity / shape.clip
    if shape.region == BOX and shape.one_unit:
        norms = (1.0, 1.0)
    elif shape.region == BALL and shape.one_unit:
        norms = (root / _COARSE_NORM / each, max(root / _FINE_NORM, 1 / _CERTAIN) / each)
    else:
        norms = (root / _COARSE_NORM / each, root / _CERTAIN / each)
    # Noise grows with the number of steps, and by what rounding adds less.
    coarsest, finest = (
        math.ceil(max(1.0, steps * 1.1 / scale, norm)) for steps, norm in zip((_COARSE, _FINE), norms, strict=True)
    )
    while _on_grid(shape, target, mu, coarsest).scale < _COARSE * (1 + _SLACK):
        coarsest += 1
    return coarsest, max(coarsest, finest)


def _largest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number of low..high that holds, where ``low`` does, and larger ones less."""
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


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
