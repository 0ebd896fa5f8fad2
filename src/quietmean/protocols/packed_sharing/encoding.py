"""From a private vector to whole numbers with noise, and from their sum back to a vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from quietmean.core.arrays import Array, Mask, pieces
from quietmean.core.assumptions import Assumption, Key, drawn_nearly
from quietmean.core.bounds import APriori, round_up
from quietmean.core.errors import InputError
from quietmean.core.grid import from_units
from quietmean.core.noise_law import NoiseKind
from quietmean.core.party import NoiseGroup, NoiseSource, PartyId, Units, Vector
from quietmean.core.readable import count_of
from quietmean.graphs import Schedule, everybody
from quietmean.privacy import Adversary, LossConversion
from quietmean.privacy.loss import UPPER_BOUND, laplace_numbers
from quietmean.protocols.discrete import (
    clip_to_ball,
    conditional_norm,
    l1_in_steps,
    laplace_steps,
    round_at_random,
    round_conditionally,
    round_with,
    stated_l1,
)
from quietmean.protocols.packed_sharing.ballots import FIRST_PROPOSAL
from quietmean.protocols.packed_sharing.packing import reduction_distance, words_for
from quietmean.protocols.packed_sharing.spec import ANY, BALL, BOX, PackedSharingParameters
from quietmean.protocols.target import Target
from quietmean.protocols.traits import check_weight
from quietmean.randomness import BitStream, Seed, discrete_pieces
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION

if TYPE_CHECKING:
    from quietmean.privacy.charge import Charge

# A margin for float64 rounding before values are rounded to steps.
_ROUNDING_SLACK = 1e-9


def rounded_sensitivity(parameters: PackedSharingParameters, sensitivity: float) -> float:
    """L2 change in steps of a party's rounded value if the value changes by ``sensitivity``: for certain.

    With the same random bits two numbers at distance a are rounded to whole ones at distance a + 1 at most. A party's whole value
    in a box stays in it; in a ball its norm is bounded by conditional rounding. Each of several parties' values adds its own.
    """
    vectors = parameters.moved / parameters.dimension
    root, change = vectors * math.sqrt(parameters.dimension), sensitivity / parameters.step
    certain = (change + root) * (1 + _ROUNDING_SLACK)
    if not parameters.one_unit or parameters.region == ANY:
        return certain
    reach = parameters.largest_weight * parameters.clip / parameters.step
    if parameters.region == BOX:
        return min(certain, 2 * math.ceil(reach) * root)
    return min(certain, 2 * vectors * conditional_norm(reach, parameters.dimension, 1.0) * (1 + _ROUNDING_SLACK))


def rounded_l1(parameters: PackedSharingParameters, l1: float) -> int:
    """L1 change in steps of a party's rounded value if the value changes by ``l1`` in L1 norm: for certain, in a box."""
    certain = l1_in_steps(l1, parameters.step, parameters.moved)
    if parameters.one_unit and parameters.region == BOX:
        reach = parameters.largest_weight * parameters.clip / parameters.step
        return min(certain, 2 * math.ceil(reach) * parameters.moved)
    return certain


def charge(parameters: PackedSharingParameters, sensitivity: float, parties: int, unknown: int) -> Charge:
    """The charge of a study of ``parties`` in which ``unknown`` honest parties' noise hides a change by ``sensitivity``."""
    # Imported here since it takes long, and running parties do not need it.
    from quietmean.privacy.loss import discrete_charge, laplace_charge

    if parameters.shares:
        steps = rounded_l1(parameters, stated_l1(parameters.l1, sensitivity, parameters.dimension))
        of_noise = laplace_charge(
            parameters.scale, steps, parameters.dimension, shares=parameters.shares, unknown=unknown, drawn=parties
        )
    else:
        change = rounded_sensitivity(parameters, sensitivity)
        of_noise = discrete_charge(
            parameters.scale**2, change, parameters.dimension, unknown=unknown, drawn=parties, sampler=TOTAL_VARIATION
        )
    return replace(of_noise, tv=min(1.0, of_noise.tv + shares_distance(parameters, parties)))


def shares_distance(parameters: PackedSharingParameters, parties: int) -> float:
    """The total variation distance of all dealers' random points from uniform ones, at most."""
    drawn = parameters.colluding_members * parameters.blocks * parties
    return drawn * reduction_distance(parameters.prime, words_for(parameters.prime)) * (1 + _ROUNDING_SLACK)


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
    reads_view = False

    def __init__(self, parameters: PackedSharingParameters, counted: Mask) -> None:
        self._parameters, self._counted, self._parties = parameters, counted, len(counted)
        self._known = bool(counted.any())
        self._in_sum: list[bool] = counted.tolist()
        self._inputs = int(counted.sum())
        self._mu_of: dict[tuple[int, float], float] = {}
        laplace = parameters.shares
        self.tv = charge(parameters, 1.0, self._parties, 1).tv
        if laplace:
            self.stated = tuple(charge(parameters, 0.0, self._parties, unknown) for unknown in (laplace, 1))
            adds = (
                f"Each party adds a share of noise, {laplace} of which are discrete Laplace noise of scale {parameters.sigma:.6g}"
            )
            numbers = laplace_numbers(adds, self.stated[0])
            counted_in = "for the sampler and for random points"
        else:
            counted_in = "for the sampler, for random points, and for noise as rounded Gaussian noise"
            numbers = Assumption(
                Key.NUMBERS,
                f"Each party adds noise of standard deviation {parameters.sigma:.6g} (discrete Gaussian). "
                "The figures count only noise that colluding parties do not know, and include rounding.",
            )
        self.notes = (
            numbers,
            Assumption(
                Key.HISTORY,
                f"Up to {count_of(parameters.colluding_members, 'colluding party sees', 'colluding parties see')} "
                f"only one sum of at least {count_of(parameters.minimum, 'input')}. "
                "Against more parties, only a party's own noise protects it.",
            ),
            drawn_nearly(self.tv),
        )
        self.charge_notes = (f"tv {self.tv:.2g} {counted_in}",)

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        corrupt = adversary.corrupt
        hidden = self._hidden(sum(map(self._in_sum.__getitem__, corrupt)), len(corrupt), sensitivity)
        return np.where(self._seen(len(corrupt))[np.asarray(honest, dtype=np.intp)], hidden, 0.0)

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        return np.where(self._seen(size), self._hidden(min(size, self._parties), size, sensitivity), 0.0)

    def _seen(self, corrupt: int) -> Mask:
        """The parties of whose values this many colluders see anything, (n,)."""
        all_seen = not self._known or corrupt > self._parameters.colluding_members
        return np.ones(self._parties, dtype=np.bool_) if all_seen else self._counted

    def _hidden(self, corrupt_inputs: int, corrupt: int, sensitivity: float) -> float:
        inputs = self._inputs if self._known else self._parameters.minimum
        corrupt_noises = corrupt_inputs if self._known else corrupt
        unknown = unknown_noises(self._parameters, inputs, corrupt_noises, corrupt)
        # Tens of thousands of coalitions leave the same few numbers of noises.
        if (unknown, sensitivity) not in self._mu_of:
            self._mu_of[unknown, sensitivity] = charge(self._parameters, sensitivity, self._parties, unknown).mu
        return self._mu_of[unknown, sensitivity]


def promised(parameters: PackedSharingParameters, parties: int, size: int, sensitivity: float) -> APriori:
    """What a study costs at most in every history if ``size`` parties collude, and do anything."""
    unknown = unknown_noises(parameters, parameters.minimum, size, size)
    cost = charge(parameters, sensitivity, parties, unknown)
    if size <= parameters.colluding_members:
        why = f"the protocol: honest parties open one sum only, of {parameters.minimum} inputs or more"
    else:
        why = f"each party's own noise: the shares hide values from {parameters.colluding_members} colluders at most"
    return APriori(cost.mu, why, cost.beta, cost.tv, cost.pure, rho=cost.rho)


def encode(parameters: PackedSharingParameters, value: Vector, weight: float, noise: NoiseSource) -> Iterator[Units]:
    """What a party deals: its value (d,), shifted, clipped and rounded to whole steps at random, plus its noise, in pieces.

    ``weight``: its public weight. Everything, rounding included, is finished before any share exists. Raises :class:`InputError`
    for a weight beyond the plan's, and for another number of coordinates; never because of a value.
    """
    sizes = (piece.stop - piece.start for piece in pieces(parameters.dimension))
    drawn = discrete_pieces(noise, NoiseGroup.INDEPENDENT, 0, parameters.scale, sizes, parameters.shares)
    for units in rounded_pieces(parameters, value, weight, Seed(noise.secret("rounding", 0))):
        units += next(drawn)
        yield units


def rounded(parameters: PackedSharingParameters, value: Vector, weight: float, seed: Seed) -> Units:
    """The value (d,) in whole steps from its centre, up or down at random so that the mean is right; without noise.

    ``weight``: public, how many units it is a sum of. Raises :class:`InputError` for another size, or too large a weight.
    """
    return np.concatenate(list(rounded_pieces(parameters, value, weight, seed)))


def rounded_pieces(parameters: PackedSharingParameters, value: Vector, weight: float, seed: Seed) -> Iterator[Units]:
    """Encode in pieces. Raises :class:`InputError` for another size, or too large a weight."""
    check_weight(weight, parameters.largest_weight)
    if value.size != parameters.dimension:
        raise InputError(f"the value has {value.size} coordinates but the plan is for {parameters.dimension}. Make another plan.")
    reach = weight * parameters.clip / parameters.step
    if parameters.region == BALL:
        # All together: how long they are decides of each.
        steps = clip_to_ball((value - weight * parameters.centre) / parameters.step, reach)
        whole = round_conditionally(steps, reach, seed) if parameters.one_unit else round_at_random(steps, seed)
        yield from (whole[piece] for piece in pieces(value.size))
        return
    # Again after rounding: the sum of a whole number and of one just below 1 may be the next whole number.
    highest, stream = math.ceil(reach), BitStream(seed)
    for piece in pieces(value.size):
        steps = (value[piece] - weight * parameters.centre) / parameters.step
        np.clip(steps, -reach, reach, out=steps)
        units = np.rint(steps).astype(np.int64) if parameters.is_whole else round_with(stream, steps)
        yield np.clip(units, -highest, highest, out=units)


def decode_sum(parameters: PackedSharingParameters, total: Units, weight: float) -> Vector:
    """The sum of the values, shape (d,), in their units, from the opened sum (d,) and the total weight of those in it.

    It takes the memory of ``total``, which is gone.
    """
    vector = total.view(np.float64)
    for piece in pieces(total.size):
        units = from_units(total[piece], parameters.step)
        units += weight * parameters.centre
        vector[piece] = units
    return vector


Settings = TypeVar("Settings", bound=PackedSharingParameters)

# Steps in the noise of one party: at least, so that rounding adds 1 % to the error at most; and where there is room, as many as
# one table of the sampler has.
COARSE, _FINE = 4.0, 512.0
# The largest step, coarse and fine, as a part of the sensitivity over the root of the dimension, where rounding adds to it.
_COARSE_NORM, _FINE_NORM = 0.06, 0.03
# The same where the bound is the certain one, which grows with the step itself.
_CERTAIN = 2.0**-11
_STEP_BITS = 24
_SLACK = 1e-9
_LARGEST_EXPONENT = 700.0


def least_mu(target: Target, points: float) -> float:
    """The mu that the target leaves to the sum once all draws are paid for.

    ``points``: the total variation distance of all random points from uniform ones. Each of the target's parties draws noise.
    Raises :class:`InputError` where these use up delta.
    """
    from quietmean.privacy import mu_of_budget
    from quietmean.privacy.loss import discrete_charge

    # Of all scales in use the smallest is the farthest from its model.
    drawn = discrete_charge(COARSE**2, 1.0, target.dimension, unknown=1, drawn=target.parties, sampler=TOTAL_VARIATION).tv
    # Beyond this e^epsilon overflows float64, and delta is used up long before.
    grown = math.exp(min(target.epsilon, _LARGEST_EXPONENT))
    left = target.delta - (1 + grown) * (drawn + points) * (1 + _SLACK)
    if left <= 0:
        raise InputError(
            f"delta {target.delta:g} is below what drawing {target.dimension} coordinates costs. Plan with a larger delta."
        )
    return mu_of_budget(target.epsilon, left) * (1 - _SLACK)


def on_grid(shape: Settings, target: Target, mu: float, fineness: int) -> Settings:
    """The encoding with ``fineness`` steps from the centre of the domain to its bound, and the noise that this takes."""
    from quietmean.privacy.loss import smoothing

    # Where every number is 0 or the clip, the step divides that, and whole steps may not be longer.
    step = _short(shape.clip / fineness, math.floor if shape.is_whole else math.ceil)
    gridded = replace(shape, step=step, clip=step * (fineness + shape.is_whole), sigma=step * COARSE)
    if shape.noise == NoiseKind.LAPLACE:
        own = rounded_l1(gridded, target.l1_change) / target.epsilon * (1 + _SLACK)
        return replace(gridded, sigma=round_up(max(own, COARSE) * step))
    square = (rounded_sensitivity(gridded, target.sensitivity) / mu) ** 2
    variance = square
    for _ in range(8):
        variance = square + smoothing(variance)
    own = math.sqrt(variance / (shape.minimum - target.colluding)) * (1 + _SLACK)
    return replace(gridded, sigma=round_up(max(own, COARSE) * step))


def _short(step: float, rounded: Callable[[float], int]) -> float:
    """The step with so few digits that whole multiples of it are exact, ``rounded`` up or down."""
    fraction, exponent = math.frexp(step)
    return math.ldexp(rounded(math.ldexp(fraction, _STEP_BITS)), exponent - _STEP_BITS)


def wanted_fineness(shape: PackedSharingParameters, target: Target, mu: float) -> tuple[int, int]:
    """The (least, best) steps from the centre to the bound: least for the rules on rounding, best where there is room."""
    if shape.noise == NoiseKind.LAPLACE:
        return _laplace_fineness(shape, target)
    scale, root = on_grid(shape, target, mu, 1).scale, math.sqrt(target.dimension)
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
        math.ceil(max(1.0, steps * 1.1 / scale, norm)) for steps, norm in zip((COARSE, _FINE), norms, strict=True)
    )
    while on_grid(shape, target, mu, coarsest).scale < COARSE * (1 + _SLACK):
        coarsest += 1
    return coarsest, max(coarsest, finest)


def _laplace_fineness(shape: PackedSharingParameters, target: Target) -> tuple[int, int]:
    """As :func:`wanted_fineness`: what rounding adds to the L1 change gets less with finer steps, up to the sampler's scale."""
    # Steps of the change where there is one from the centre to the bound.
    each = target.l1_change / shape.clip
    finest = math.floor(laplace_steps(target, shape.moved, each) / each)
    return min(math.ceil(max(1.0, COARSE * target.epsilon / each)), finest), finest


def largest_that_holds(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number of low..high that holds, where ``low`` does, and larger ones less."""
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


# The chance of too few inputs that a plan accepts: then the study has to be run again.
FEWER_INPUTS = 1e-3
# Rounds if the first leader stays: dealing, status, proposal, votes, sums; and the part of leavers that leave before dealing.
USUAL_ROUNDS = 5
DEALING_SHARE = 1 / USUAL_ROUNDS


def leaving(target: Target) -> int:
    """How many parties leave during a run."""
    return target.parties - target.responding


def input_chances(target: Target, share: float = DEALING_SHARE) -> Mapping[int, float]:
    """The chance of each number of inputs if every party that leaves misses dealing with chance ``share``."""
    return _chances_of(target.parties, leaving(target), share)


@lru_cache(4)
def _chances_of(parties: int, leavers: int, share: float) -> Mapping[int, float]:
    missed, dealt = math.log(share), math.log1p(-share)
    ways = math.lgamma(leavers + 1)
    # By logarithms, as with many parties the number of ways is not a double.
    chances = {
        parties - missing: math.exp(
            ways - math.lgamma(missing + 1) - math.lgamma(leavers - missing + 1) + missing * missed + (leavers - missing) * dealt
        )
        for missing in range(leavers + 1)
    }
    return MappingProxyType(chances)


def chance_of_fewer(target: Target, minimum: int, share: float = DEALING_SHARE) -> float:
    """The chance of fewer than ``minimum`` inputs."""
    return math.fsum(chance for count, chance in input_chances(target, share).items() if count < minimum)


def least_inputs(target: Target, share: float = DEALING_SHARE) -> int:
    """u_min: the largest number of inputs that is missed with a chance of 1e-3 at most."""
    fewer, inputs = 0.0, target.parties
    for count, chance in sorted(input_chances(target, share).items()):
        if fewer > FEWER_INPUTS:
            break
        inputs, fewer = count, fewer + chance
    return inputs


def expected_error(target: Target, minimum: int, party_variance: float, share: float = DEALING_SHARE) -> tuple[float, float]:
    """Mean squared error per coordinate of the mean in runs with a result: of noise, and of values that are missing.

    ``party_variance``: what each input adds to the variance of the sum.
    """
    kept = {count: chance for count, chance in input_chances(target, share).items() if count >= minimum}
    total = math.fsum(kept.values())
    noise = math.fsum(chance * party_variance / count for count, chance in kept.items()) / total
    lost = math.fsum(chance * target.dropout_bias(count) for count, chance in kept.items()) / total
    return noise, lost


def draw_schedule(parties: int, rounds: int, seed: Seed) -> Schedule:
    """Everybody may send to all others in every round but the third, in which the first leader proposes.

    It lists the others in the order in which they lead.
    """
    return _led_by(BitStream(seed.derive("packed sharing leaders", parties)).permutation(parties).tolist(), rounds)


def _led_by(order: Sequence[PartyId], rounds: int) -> Schedule:
    parties = len(order)
    table = np.empty((rounds, parties, parties - 1), dtype=np.int32)
    table[:] = everybody(parties)
    table[FIRST_PROPOSAL - 1] = -1
    table[FIRST_PROPOSAL - 1, order[0]] = order[1:]
    return Schedule(table)


def is_drawn(schedule: Schedule) -> bool:
    """Whether :func:`draw_schedule` makes such a one."""
    led = np.count_nonzero(schedule.out_degree[FIRST_PROPOSAL - 1])
    return led == 1 and np.array_equal(_led_by(leaders_of(schedule), schedule.rounds).neighbours, schedule.neighbours)


def leaders_of(schedule: Schedule) -> tuple[PartyId, ...]:
    """All parties, in the order in which they lead a ballot."""
    first = int(np.nonzero(schedule.out_degree[FIRST_PROPOSAL - 1])[0][0])
    return (first, *schedule.recipients(FIRST_PROPOSAL, first))
