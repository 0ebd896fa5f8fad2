"""From a demand to parameters: thresholds, the grid, and the least noise; everything is computed, nothing is simulated.

The privacy loss of a sum of rounded values with discrete Gaussian noise of each party, in steps of the grid.

Rounded values have a larger L2 sensitivity than values. What it costs is that of the Gaussian that dominates the sum
(:mod:`quietmean.privacy.loss`), an upper bound under replacement. That the sum is taken modulo 2**bits costs nothing: it is
a function of the sum.

The number of neighbours and the threshold: tails of the hypergeometric distribution (Bell et al. 2020, section 3).

Neighbours are the k / 2 parties on either side on a random ring. Bounds over the random graph, summed over all parties:

* secrecy of shares: no party has ``threshold`` colluding neighbours;
* connectivity: no k / 2 consecutive parties of the ring are all colluding or dropped out, so that the honest parties that
  remain are connected by masks;
* correctness: every party keeps ``threshold`` neighbours that answer, so that its masks can be removed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from quietmean.core.bounds import round_up
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.schema import OPEN, given_value
from quietmean.protocols.discrete import conditional_norm, l1_in_steps, laplace_steps, rounded_norm, stated_l1
from quietmean.protocols.secagg.party import ROUNDS
from quietmean.protocols.secagg.spec import (
    CONDITIONAL,
    DISCRETE_GAUSSIAN,
    INDEPENDENT,
    LAPLACE,
    NO_NOISE,
    SecAggParameters,
    check_numbers,
)
from quietmean.protocols.target import Target
from quietmean.randomness import laplace_shares
from quietmean.randomness.discrete_gaussian import LARGEST_SCALE

if TYPE_CHECKING:
    from quietmean.privacy import Charge

# The part of delta for the event that independent rounding exceeds its bound. Ledgers add it up over studies. It costs mu little:
# only the root of its logarithm matters, and that beside a change of many steps.
_ROUNDING_PART = 1e-5
# A margin for float64 rounding before values are rounded to the grid.
_SLACK = 1e-9


def rounded_sensitivity(parameters: SecAggParameters, sensitivity: float, words: int, delta: float) -> tuple[float, float]:
    """L2 sensitivity of the rounded values in steps, and the chance that their change exceeds it: a small part of ``delta``.

    Conditional rounding: two rounded values are no farther apart than twice their norm bound, for certain. Independent rounding:
    given the same random bits, values at distance ``sensitivity`` stay within the norm bound of one rounded vector of that norm,
    but for that chance; also where a party's vector is larger than what one unit can change. Of several vectors: for certain.
    """
    step, vectors = parameters.granularity, parameters.vectors
    if parameters.rounding == CONDITIONAL:
        norm = conditional_norm(parameters.largest_weight * parameters.clip, words, step)
        return 2 * vectors * norm * (1 + _SLACK) / step, 0.0
    if vectors > 1:
        return (sensitivity / step + vectors * math.sqrt(words)) * (1 + _SLACK), 0.0
    beta = _ROUNDING_PART * delta
    return rounded_norm(sensitivity, words, step, beta) * (1 + _SLACK) / step, beta


def hidden_by(
    parameters: SecAggParameters,
    sensitivity: float,
    *,
    unknown: int,
    drawn: int,
    dimension: int,
    delta: float,
    graph: float = 0.0,
) -> Charge:
    """The charge of a party that the noise of ``unknown`` parties hides, its own included, in a sum over ``drawn`` ones.

    ``sensitivity``: L2 change of its value. ``delta``: the one asked for, of which rounding uses a fixed part. ``graph``: the
    chance that the graph of shares fails. mu is infinite without noise.
    """
    # Imported here since it takes long, and running parties do not need it.
    from quietmean.privacy import Charge
    from quietmean.privacy.loss import discrete_charge, laplace_charge

    if not parameters.noisy or unknown < 1:
        return Charge(math.inf)
    words, moved = parameters.words(dimension), dimension if parameters.rounded is None else parameters.rounded
    if parameters.shares is not None:
        steps = l1_in_steps(stated_l1(parameters.l1, sensitivity, dimension), parameters.granularity, moved)
        charge = laplace_charge(parameters.scale, steps, words, shares=parameters.shares, unknown=unknown, drawn=drawn)
        return replace(charge, beta=graph)
    change, beta = rounded_sensitivity(parameters, sensitivity, words, delta)
    return discrete_charge(parameters.scale**2, change, words, unknown=unknown, drawn=drawn, beta=beta + graph)


def wrap_chance(parameters: SecAggParameters, parties: int, dimension: int) -> float:
    """Upper bound on the probability that a coordinate of a sum over ``parties`` wraps around, for the worst values."""
    words, room = parameters.words(dimension), 2.0 ** (parameters.bits - 1) * parameters.granularity
    # Bisection of log2 of the chance: the bound falls as the chance rises.
    low, high = -500.0, 0.0
    if sum_bound(parameters, parties, words, 1.0) > room:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if sum_bound(parameters, parties, words, 2.0**middle) <= room else (middle, high)
    return float(2.0**high)


def sum_bound(parameters: SecAggParameters, parties: int, words: int, chance: float) -> float:
    """The bound that coordinates of the rotated sum exceed in absolute value with probability at most ``chance``.

    For the worst values: all parties are counted, each of the largest weight and at the same point of its ball. The probability
    is over the random rotation (Hoeffding) and over noise and rounding (sub-Gaussian). In the units of the values.
    """
    if parameters.shares is not None:
        noise = laplace_shares.reach(parameters.scale, parties / parameters.shares, chance / (2 * words))
        return parties * parameters.largest_weight * parameters.clip + (noise + parties) * parameters.granularity
    tail = 2 * math.log(4 * words / chance)
    largest = parties * parameters.largest_weight * parameters.clip
    noise = parties * (parameters.sigma**2 + parameters.granularity**2 / 4)
    return largest * min(1.0, math.sqrt(tail / words)) + math.sqrt(tail * noise)


# The chance that a coordinate of the sum wraps, for the worst values.
WRAP_CHANCE = 2.0**-20
# The grid's step where bits are plenty, as a part of the sensitivity: rounding then adds some 0.1 % to it.
_FINE = 2.0**-12
_FINE_NORM = 0.06
# Steps in the noise of one party where bits are plenty, and at least: below, sums of discrete Gaussians differ too much from one.
_USUAL_STEPS, _LEAST_STEPS = 4.0, 2.0
# The smallest scale that is searched: smaller ones hide nothing.
_SMALLEST_SCALE = 1e-3
# A weight above this part of the largest possible one was chosen to fill the room: noise was rounded since.
_FILLED = 0.999
# Weights of parties beyond this need an explicit option.
_LARGEST_WEIGHT = 2.0**20

Settings = TypeVar("Settings", bound=SecAggParameters)


@dataclass(frozen=True)
class Shape:
    """Neighbours that a party shares with, and the fewest inputs; ``claim``: what the thresholds were chosen for.

    ``graph_failure``: the chance that the random graph of shares fails, which is part of delta.
    """

    threshold: int
    minimum: int
    neighbours: int | None
    claim: str
    graph_failure: float = 0.0


def complete_shape(requested: SecAggParameters, target: Target) -> Shape:
    """Thresholds of SecAgg: by default two thirds of the parties, or enough to withstand inconsistent lists of survivors.

    Never more than the planned survivors. Raises :class:`InputError` for a threshold above them.
    """
    staying = target.responding
    wanted = max(math.ceil(2 * target.parties / 3), (target.parties + target.colluding) // 2 + 1, target.colluding + 1)
    threshold = given_value(requested.threshold, max(min(wanted, staying), target.parties // 2 + 1))
    minimum = given_value(requested.minimum, max(staying, threshold))
    if threshold > staying:
        raise InputError(
            f"threshold is {threshold} but with dropouts of {target.dropouts:g} only {staying} of {target.parties} parties stay. "
            "Plan for fewer dropouts, more than half must stay."
        )
    split = "also holds" if 2 * threshold > target.parties + target.colluding else "does not hold"
    claim = (
        f"The threshold is {threshold} of {target.parties}. The bound {split} against an aggregator that tells parties different "
        "survivors"
    )
    return Shape(threshold, minimum, None, claim)


def designed(requested: Settings, target: Target, shape: Shape) -> tuple[Settings, float, str]:
    """The least noise with which the sum keeps (epsilon, delta) against ``colluding`` parties, perhaps with the aggregator.

    It relies on the noise of minimum - colluding honest parties: fewer inputs give no result. Raises :class:`InputError` if
    no such noise exists.
    """
    if given_value(requested.noise, DISCRETE_GAUSSIAN) == NO_NOISE:
        raise InputError("noise none protects nothing once the sum is out: it is for tests, not for plans. Leave the option out.")
    honest = shape.minimum - target.colluding
    if honest < 1:
        raise InputError(
            f"of {shape.minimum} inputs {target.colluding} may be the colluders' own: nobody's noise is left. Raise minimum."
        )
    is_laplace = requested.noise == LAPLACE
    settle = _settle_laplace if is_laplace else _settle
    parameters = settle(requested, target, _first_guess(requested, target, shape, honest), shape)
    hides = (
        f"Laplace noise, of which {honest} or more honest parties have shares"
        if is_laplace
        else f"the Gaussian that dominates the sum with {honest} or more honest parties' discrete Gaussian noise"
    )
    certificate = (
        f"{hides} (upper bound). "
        "It is assumed that X25519, HKDF, AES-256 and AES-GCM hold, and that the aggregator follows the protocol. "
        f"{shape.claim}"
    )
    return parameters, parameters.party_variance / counted_parties(target), certificate


def around(designed_for: Settings, target: Target, domain: InputDomain, graph_failure: float) -> Settings:
    """The design on a ball around a domain, with the noise that its grid needs; itself where another ball was asked for.

    ``graph_failure``: as of :class:`Shape`.
    """
    if (designed_for.clip, designed_for.centre) not in _usual_balls(target):
        return designed_for
    ball, weight = domain.enclosing, designed_for.largest_weight
    # A largest weight that was asked for stays; one that filled the room is found anew.
    filled = weight >= _FILLED * _headroom(designed_for, target.parties, designed_for.words(target.dimension))
    requested = replace(designed_for, clip=ball.radius, centre=ball.centre, largest_weight=OPEN if filled else weight)
    shape = Shape(designed_for.threshold, designed_for.minimum, designed_for.neighbours, "", graph_failure)
    return designed(requested, target, shape)[0]


def _usual_balls(target: Target) -> list[tuple[float, float]]:
    """The (clip, centre) of plans that are asked for none: around a cube from 0 up, or around the origin."""
    half = target.sensitivity / 2
    return [(half, half / math.sqrt(target.dimension)), (half, 0.0)]


def counted_parties(target: Target) -> float:
    """The expected number of counted inputs: parties that drop out in the last two rounds are counted."""
    return target.parties - (target.parties - target.responding) * 5 / ROUNDS


def _first_guess(requested: Settings, target: Target, shape: Shape, honest: int) -> Settings:
    sensitivity = target.sensitivity
    is_laplace = requested.noise == LAPLACE
    around_cube, around_origin = _usual_balls(target)
    clip, middle = around_cube if requested.region == "box" else around_origin
    if is_laplace and target.rounded == 0:
        clip, middle = sensitivity, 0.0  # Units are whole steps from 0 on, none longer than two may be apart.
    # The analytic constant at moderate budgets; it is only where the search begins.
    sigma = sensitivity * math.sqrt(2 * math.log(1.25 / target.delta)) / target.epsilon / math.sqrt(honest)
    return replace(
        requested,
        threshold=shape.threshold,
        minimum=shape.minimum,
        granularity=sigma / 64,
        sigma=sigma,
        clip=given_value(requested.clip, clip),
        bits=given_value(requested.bits, 32),
        centre=given_value(requested.centre, middle),
        largest_weight=given_value(requested.largest_weight, 1.0),
        rotation=given_value(requested.rotation, 0),
        noise=LAPLACE if is_laplace else DISCRETE_GAUSSIAN,
        l1=target.l1_change if is_laplace else None,
        rounded=target.rounded if is_laplace else target.rounded or None,
        shares=honest if is_laplace else None,
        rounding=INDEPENDENT,
        neighbours=shape.neighbours,
        dimension=target.dimension,
        region="box",
    )


def _settle(requested: Settings, target: Target, guess: Settings, shape: Shape) -> Settings:
    """The grid must hold the sum, whose size depends on the noise, which depends on the grid: a few turns settle it."""
    check_numbers(guess, target.parties)
    parameters = guess
    for _ in range(6):
        parameters = _with_grid(requested, target, parameters)
        parameters = replace(parameters, sigma=round_up(_least_scale(target, parameters, shape) * parameters.granularity))
    if parameters.scale < _LEAST_STEPS:
        raise _too_few_bits(parameters, target)
    return parameters


def _settle_laplace(requested: Settings, target: Target, guess: Settings, shape: Shape) -> Settings:
    """The finest grid that the sampler and the bits have, and the scale L1 change in steps / epsilon on it.

    Raises :class:`InputError` where there is none, or where delta does not pay for what is drawn and for the random graph.
    """
    check_numbers(guess, target.parties)
    chosen = requested.largest_weight is not OPEN
    single = replace(guess, largest_weight=guess.largest_weight if chosen else 1.0)
    rounded, half = target.dimension if single.rounded is None else single.rounded, 2.0 ** (single.bits - 1)
    # Whole multiples of a power of two are exact.
    upwards = (lambda least: 2.0 ** math.ceil(math.log2(least))) if single.is_whole else round_up
    granularity = upwards(target.l1_change / laplace_steps(target, rounded))
    for _ in range(6):
        scale = l1_in_steps(target.l1_change, granularity, rounded) / target.epsilon * (1 + _SLACK)
        single = replace(single, granularity=granularity, sigma=round_up(scale * granularity))
        needed = sum_bound(single, target.parties, target.dimension, WRAP_CHANCE) / half
        if needed <= granularity:
            break
        granularity = upwards(needed)
    if needed > granularity or single.scale < _LEAST_STEPS:
        raise _too_few_bits(single, target)
    parameters = single if chosen else replace(single, largest_weight=_headroom(single, target.parties, target.dimension))
    if not _spent(parameters, target, shape).epsilon(target.delta) <= target.epsilon:
        raise InputError(f"delta {target.delta:g} is below what sampler and random graph may cost. Choose a larger delta.")
    return parameters


def _spent(parameters: SecAggParameters, target: Target, shape: Shape) -> Charge:
    return hidden_by(
        parameters,
        target.sensitivity,
        unknown=shape.minimum - target.colluding,
        drawn=target.parties,
        dimension=target.dimension,
        delta=target.delta,
        graph=shape.graph_failure,
    )


def _least_scale(target: Target, parameters: SecAggParameters, shape: Shape) -> float:
    """The least noise of one party in steps with which a plan keeps its budget, all that is drawn and rounded counted."""

    def spent(scale: float) -> Charge:
        return _spent(replace(parameters, sigma=scale * parameters.granularity), target, shape)

    besides = float(spent(LARGEST_SCALE / 2).additive(target.epsilon))
    if besides >= target.delta:
        raise InputError(
            f"delta is {target.delta:g}, but the sampler, rounding and the random graph alone may cost {besides:.2g}. Choose a "
            "larger delta, fewer dimensions, or a protocol without a random graph."
        )
    scale = _least(lambda scale: spent(scale).delta(target.epsilon) <= target.delta, parameters.scale)
    if scale is None:
        raise InputError(
            f"noise of more than {LARGEST_SCALE:g} steps would be needed for delta {target.delta:g}. Take fewer bits or a larger "
            "epsilon."
        )
    return scale


def _least(enough: Callable[[float], bool], start: float) -> float | None:
    """The least scale in steps that is enough, rounded up; None if none up to the largest of the sampler is."""
    low = high = start
    while high <= LARGEST_SCALE and not enough(high):
        low, high = high, high * 1.5
    if high > LARGEST_SCALE:
        return None
    while low >= _SMALLEST_SCALE and enough(low):
        low, high = low / 1.5, low
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high * (1 + 1e-9)


def _with_grid(requested: Settings, target: Target, parameters: Settings) -> Settings:
    words, half = parameters.words(target.dimension), 2.0 ** (parameters.bits - 1)
    fine = min(target.sensitivity * min(_FINE, _FINE_NORM / math.sqrt(words)), parameters.sigma / _USUAL_STEPS)
    fine = round_up(max(fine, 2 * parameters.sigma / LARGEST_SCALE))
    chosen = requested.largest_weight is not OPEN
    single = replace(parameters, largest_weight=parameters.largest_weight if chosen else 1.0)
    needed = sum_bound(single, target.parties, words, WRAP_CHANCE) / half
    granularity = fine if needed <= fine else round_up(needed)
    if granularity > parameters.sigma:
        raise _too_few_bits(single, target)
    gridded = replace(single, granularity=granularity)
    weight = single.largest_weight if chosen else _headroom(gridded, target.parties, words)
    sized = replace(gridded, largest_weight=weight)
    widest = 2 * sized.vectors * sized.clip * sized.largest_weight
    return replace(sized, rounding=CONDITIONAL if target.sensitivity >= widest else INDEPENDENT)


def _too_few_bits(parameters: SecAggParameters, target: Target) -> InputError:
    return InputError(
        f"{parameters.bits} bits are too few for a sum over {target.parties} parties of weight up to "
        f"{parameters.largest_weight:g}. Take more bits (up to 32)."
    )


def _headroom(parameters: SecAggParameters, parties: int, words: int) -> float:
    """The largest weight, a whole number, for which sums still fit: parties of many records need more than one of one."""
    room = 2.0 ** (parameters.bits - 1) * parameters.granularity
    single_bound, double_bound = (
        sum_bound(replace(parameters, largest_weight=weight), parties, words, WRAP_CHANCE) for weight in (1.0, 2.0)
    )
    if double_bound <= single_bound:
        return float(_LARGEST_WEIGHT)
    return float(max(1, min(math.floor(1 + (room - single_bound) / (double_bound - single_bound)), _LARGEST_WEIGHT)))


@dataclass(frozen=True)
class Neighbourhood:
    """The neighbours of each client, and the bounds that hold for them.

    ``security_bits`` and ``correctness_bits``: minus log2 of the bounds on the chance that secrecy or the run fails.
    """

    neighbours: int
    threshold: int
    security_bits: float
    correctness_bits: float


def assess(parties: int, colluding: int, dropped: int, neighbours: int, threshold: int) -> Neighbourhood:
    """The bounds for given numbers: ``colluding`` parties against secrecy, ``dropped`` parties absent at the end."""
    leak = parties * upper_tail(parties - 1, colluding, neighbours, threshold)
    missing = min(parties - 1, colluding + dropped)
    away = math.comb(missing, neighbours // 2) / math.comb(parties, neighbours // 2)  # all of half the neighbours
    apart = 0.0 if neighbours == parties - 1 else parties * away
    # An online party gives its own share, too: with ``threshold`` of k + 1 shares, k + 1 - threshold neighbours may be absent.
    lost = parties * upper_tail(parties - 1, dropped, neighbours, neighbours + 2 - threshold)
    return Neighbourhood(neighbours, threshold, _bits(leak + apart), _bits(lost))


def choose_neighbourhood(
    parties: int, colluding: int, dropouts: float, security_bits: float = 40.0, correctness_bits: float = 40.0
) -> Neighbourhood:
    """The fewest neighbours, and for them the threshold of most correctness, that keep both bounds.

    All other parties if no smaller number suffices. Raises :class:`InputError` if even they do not.
    """
    dropped = math.floor(dropouts * parties + 1e-9)
    for neighbours in [*range(2, parties - 1, 2), parties - 1]:
        for threshold in range((neighbours + 1) // 2 + 1, neighbours + 2):
            neighbourhood = assess(parties, colluding, dropped, neighbours, threshold)
            if neighbourhood.security_bits >= security_bits and neighbourhood.correctness_bits >= correctness_bits:
                return neighbourhood
            if neighbourhood.correctness_bits < correctness_bits:
                break
    raise InputError(
        f"{parties} parties, {colluding} colluding and {dropped} dropped out, cannot keep failures below 2^-{security_bits:g} "
        f"(security) and 2^-{correctness_bits:g} (correctness). Lower colluding or dropouts, or give degree and threshold."
    )


def upper_tail(population: int, marked: int, drawn: int, at_least: int) -> float:
    """P(X >= at_least) for the number X of marked ones of ``drawn`` of a ``population``, without replacement."""
    if at_least <= 0:
        return 1.0
    total = math.comb(population, drawn)
    ways = sum(
        math.comb(marked, count) * math.comb(population - marked, drawn - count)
        for count in range(at_least, min(marked, drawn) + 1)
        if drawn - count <= population - marked
    )
    return ways / total if ways else 0.0


def _bits(chance: float) -> float:
    return math.inf if chance == 0 else max(0.0, -math.log2(chance))
