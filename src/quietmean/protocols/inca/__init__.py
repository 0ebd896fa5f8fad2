"""IncA: incremental averaging with correlated noise that each party cancels itself (Sabater, Ben Mokhtar and Ramon 2026)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori, CoalitionBound, round_up
from quietmean.core.errors import InputError
from quietmean.core.input_domain import Box
from quietmean.core.lazy import special
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.schema import OPEN, filled
from quietmean.graphs import ExecutionTrace, Schedule, make_schedule
from quietmean.privacy import REAL_ARITHMETIC, Adversary, GridLossConversion, LossConversion
from quietmean.privacy.loss import UPPER_BOUND
from quietmean.protocols import literature
from quietmean.protocols.discrete import NoiseNumbers
from quietmean.protocols.mechanism import Mechanism, is_private
from quietmean.protocols.push_sum import PushSumParty, contributing, parts_released, population
from quietmean.protocols.push_sum.fixed_point import (
    check_room,
    choose_grid,
    grid_figures,
    region_of,
    rounding_information,
    share_bytes,
    whole_grid,
    whole_shift,
    widened,
)
from quietmean.protocols.push_sum.parameters import Injection, PushSumParameters
from quietmean.protocols.target import Eavesdropping, Target
from quietmean.protocols.traits import AcceptedValues, Planning, PlanningCost, ReleaseGate, Traits
from quietmean.randomness import Seed

# Rows (c, Z) whose parts outside the range of Z are larger give c away without noise.
_TOLERANCE = 1e-9

Parameters = TypeVar("Parameters", bound=PushSumParameters)


def shift_square(injection: Injection) -> float:
    """|w|^2: the least change of the unit noise terms that makes up for a unit change of x~ before the last round.

    Infinite if there is none: then x~ itself can be known.
    """
    portion, noise = injection.portion[:-1], injection.noise[:-1]
    change = np.linalg.lstsq(noise, portion)[0] if noise.size else np.zeros(0)
    left = portion - noise @ change if noise.size else portion
    return float(change @ change) if np.abs(left).max(initial=0.0) <= _TOLERANCE else math.inf


def hidden_variance(parameters: PushSumParameters) -> float:
    """The variance of the noise that hides a value from all others before its release, per coordinate."""
    square, delta = shift_square(parameters.injections), parameters.sigma_delta
    if not parameters.injections.portion[:-1].any():
        return math.inf
    cancelled = delta**2 / square if square > 0 else math.inf
    variance = parameters.sigma_star**2 + parameters.sigma_guard**2 + cancelled
    return _of_whole_numbers(parameters, square) if parameters.whole else variance


def _of_whole_numbers(parameters: PushSumParameters, square: float) -> float:
    """The variance with discrete noise; where there is too little for the sum to be smooth, by the noise that stays alone."""
    # Running parties certify nothing: they start without this import.
    from quietmean.privacy.loss import SMOOTHING

    unit, coarse = parameters.grid**2, (parameters.grid * parameters.portions) ** 2
    star, guard, delta = parameters.sigma_star**2, parameters.sigma_guard**2, parameters.sigma_delta**2
    alone = max(0.0, star - SMOOTHING * coarse)
    if not (star and delta and 0.0 < square < math.inf):
        return alone
    # What is left to chance of one of two terms once their sum is known: of eta_star and the guard, of both and Delta.
    left = [1.0 / (1.0 / (star + guard) + square / delta), *([1.0 / (1.0 / star + 1.0 / guard)] if guard else [])]
    if min(left) < SMOOTHING * coarse or delta <= SMOOTHING * unit:
        return alone
    return max(alone, star + guard + (delta - SMOOTHING * unit) / square)


def guarded(parameters: Parameters, variance: float) -> Parameters:
    """The parameters with the least guard for :func:`hidden_variance` to be at least ``variance``; rounded up."""
    # A little more, so that rounding cannot leave it short.
    missing = variance * (1 + 1e-9) - hidden_variance(replace(parameters, sigma_guard=0.0))
    return replace(parameters, sigma_guard=round_up(math.sqrt(missing)) if missing > 0 else 0.0)


# What is left to chance.
FAILURE = 1e-9


def disconnected_bound(parties: int, corrupt: int, rounds: int, schedule: str) -> float:
    """The chance at most that the honest parties are not connected, with one receiver a round; 1 for other schedules."""
    honest = parties - corrupt
    if honest < 2:
        return 0.0
    if schedule not in ("permutation", "uniform"):
        return 1.0
    apart = _apart_in_a_cycle if schedule == "permutation" else _apart_in_draws
    terms = [_log_choose(honest, some) + rounds * apart(parties, corrupt, some) for some in range(1, honest // 2 + 1)]
    return min(1.0, float(np.exp(terms).sum()))


def rounds_that_connect(parties: int, corrupt: int, schedule: str, most: int) -> int:
    """The least number of rounds, up to ``most``, with which that chance is at most 1e-9."""
    return next((rounds for rounds in range(1, most) if disconnected_bound(parties, corrupt, rounds, schedule) <= FAILURE), most)


def _apart_in_a_cycle(parties: int, corrupt: int, some: int) -> float:
    """The logarithm of p_s of a permutation."""
    others, gaps = parties - corrupt - some, np.arange(1, min(some, corrupt - 1) + 1)
    if not gaps.size:
        return -math.inf
    ways = (
        _log_choose(corrupt, gaps)
        + _log_choose(some - 1, gaps - 1)
        + _log_choose(others + corrupt - gaps - 1, others)
        + special.gammaln(some + 1)
        + special.gammaln(others + 1)
    )
    return float(special.logsumexp(ways) + special.gammaln(corrupt) - special.gammaln(parties))


def _apart_in_draws(parties: int, corrupt: int, some: int) -> float:
    """The logarithm of p_s of a uniform schedule."""
    others = parties - corrupt - some
    sides = [(side, side + corrupt - 1) for side in (some, others)]
    return sum(side * math.log(inside / (parties - 1)) if inside else -math.inf for side, inside in sides)


def _log_choose(of: int | Ints, chosen: int | Ints) -> Any:
    return special.gammaln(of + 1) - special.gammaln(chosen + 1) - special.gammaln(of - chosen + 1)


# Certificates of more parties take far longer with noise that is all injected at once: its terms last over all rounds.
MOST_EARLY = 60


# From how many rounds to how many the best number is searched, and in which steps.
_FEWEST_ROUNDS, _MOST_ROUNDS, _STEP = 8, 128, 1.5
# Of few parties more rounds than half their number are tried as long as executions have no more messages.
_QUICK_MESSAGES = 2400

# Where most messages are read, more rounds than this many times the usual number do not pay.
_MOST_TIMES = 4


def default_rounds(parties: int, eavesdropping: Eavesdropping | None = None) -> int:
    """Enough rounds that unseen messages connect the honest parties, also when half of all parties collude.

    As many more as an eavesdropper reads, if it is chance which messages; no number of rounds helps where all are, or all later
    ones.
    """
    usual = math.ceil(math.log2(parties)) + 6
    if not isinstance(eavesdropping, float | int) or eavesdropping >= 1:
        return usual
    return math.ceil(usual * min(1 / (1 - eavesdropping), _MOST_TIMES))


def _worst_coalition(parameters: PushSumParameters, schedule: Schedule, *of: Any) -> CoalitionBound:
    # Running parties need no proofs: they start without this import.
    from quietmean.protocols.inca.worst_case import worst_coalition

    return worst_coalition(parameters, schedule, *of)


def _alternatives(protocol: IncA, target: Target) -> list[IncA]:
    if protocol.rounds is OPEN and not isinstance(protocol.injection, Injection):
        return [filled(protocol, rounds=rounds) for rounds in protocol._rounds_to_try(target)]
    if protocol.injection is OPEN and protocol.noise != NoiseNumbers.INSECURE_FLOAT64 and target.parties <= MOST_EARLY:
        return [filled(protocol, injection=injection) for injection in ("early", "incremental")]
    return []


def _finalised(protocol: IncA, target: Target) -> IncA:
    """The parameters on a grid, with as much more noise as whole numbers need."""
    if protocol.noise == NoiseNumbers.INSECURE_FLOAT64:
        if protocol.value_bits == 64:
            return protocol
        grid, largest = choose_grid(protocol, target)
        return replace(protocol, grid=grid, largest_value=largest, dimension=target.dimension)
    if not is_private(protocol):
        return protocol
    from quietmean.privacy import mu_of_budget

    gridded = replace(protocol, **whole_grid(protocol, target))
    loss: GridLossConversion
    if not gridded.sigma_delta:
        loss = own_noise_loss(gridded, target.parties)
    else:
        loss = planned_loss(gridded, gridded.draw_schedule(target.parties, Seed.public("figures")), target.dropouts)
    more = loss.inflation(mu_of_budget(target.epsilon, target.delta), target.parties)
    levels: dict[str, Any] = {
        name: round_up(getattr(protocol, name) * more) for name in ("sigma_star", "sigma_delta", "sigma_guard")
    }
    return replace(gridded, **levels)


def _figures(protocol: IncA, target: Target) -> dict[str, Any]:
    """With a grid: its step over the smallest standard deviation of any noise, and what it adds to mu squared at most."""
    return grid_figures(protocol, protocol.draw_schedule(target.parties, Seed.public("figures")), target)


def _least_mse(protocol: IncA, target: Target) -> float | None:
    """While nobody leaves, releases add up to all values with each party's own noise alone, of which colluders know their own.

    A plan counts on nobody who leaves, and no weights of n such terms have less than 1/n of their variance.
    """
    if target.nats is not None:
        return None
    from quietmean.privacy import mu_of_budget

    needed = (target.sensitivity / mu_of_budget(target.epsilon, target.delta)) ** 2
    return needed / (target.parties - target.colluding) / target.parties


def _region(protocol: IncA, target: Target, weight: float) -> Box | None:
    return region_of(protocol, target.dimension)


class IncA(PushSumParameters, Mechanism):
    """Parties mix shares of what they hold for some rounds; the noise that hides them is cancelled meanwhile (PETS 2026)."""

    name = "inca"
    TRAITS = Traits(
        summary="peer to peer, cancels low-variance correlated noise incrementally; a curator's error without dropouts",
        sources=(literature.INCA,),
        keeps_target=True,
        transfers_mass=True,
        coordinate_bytes=share_bytes,
        planning_cost=PlanningCost(seconds_a_party=1.2e-2, seconds_of_any=2.0),
        gate=ReleaseGate(hidden_variance, guarded, _worst_coalition),
        counts_intercepted=True,
        grid=lambda protocol: protocol.grid,
        inputs=AcceptedValues(region=_region, check=check_room),
        planning=Planning(_alternatives, _finalised, figures=_figures, least_mse=_least_mse),
        parts=parts_released,
    )

    def defaults(self, target: Target) -> dict[str, Any]:
        given, discrete = self.injection, self.noise != NoiseNumbers.INSECURE_FLOAT64
        if isinstance(given, Injection) and discrete and not given.portions:
            replace(self, rounds=given.rounds).require_whole()
        # In whole numbers values that are injected at once need no finer steps than the noise.
        # But a party that leaves then takes more uncancelled noise along; and of few honest parties some cannot pass it all on.
        early = discrete and target.parties <= MOST_EARLY and not target.dropouts and 2 * target.colluding < target.parties
        usual = "early" if early else "incremental"
        own = default_rounds(target.parties, target.eavesdropping)
        return {"rounds": given.rounds if isinstance(given, Injection) else own, "injection": usual}

    def _rounds_to_try(self, target: Target) -> list[int]:
        """From as many as connect the honest parties to half the number of parties; more help against what leavers leave."""
        usual = default_rounds(target.parties, target.eavesdropping)
        if target.eavesdropping is not None:
            return [usual]
        quick = min(_MOST_TIMES * usual, _QUICK_MESSAGES // target.parties)
        most = max(usual, min(max(target.parties // 2, quick), _MOST_ROUNDS))
        gone = target.colluding + target.parties - target.responding
        least = _FEWEST_ROUNDS
        if self.out_degree == 1:
            least = max(least, rounds_that_connect(target.parties, min(gone, target.parties), self.schedule, most))
        elif least < usual:
            least = usual
        steps = max(1, math.ceil(math.log(most / least) / math.log(_STEP)))
        return sorted({round(least * (most / least) ** (step / steps)) for step in range(steps + 1)})

    def resolved(self, parties: int) -> Self:
        return super(IncA, filled(self, injection="incremental")).resolved(parties)

    @cached_property
    def traits(self) -> Traits:
        # Without noise that is cancelled there is only that of each party's own, which is calibrated for itself. What rounding
        # adds is proven for attendance that is not chosen from what was seen.
        gate = self.TRAITS.gate if self.sigma_delta else None
        return replace(self.TRAITS, gate=gate, refunds=not self.grid)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return make_schedule(self.schedule, seed, parties, self.rounds, self.out_degree)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        return contributing(self, schedule, trace)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PushSumParty:
        self.TRAITS.inputs.check(self, value)
        return PushSumParty(self, schedule, party, value, weight, noise)

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        mu = sensitivity / self.sigma_star if self.sigma_star else np.inf
        why = "each party's own noise: where shares are lost, no other noise may be left"
        if not self.whole:
            return APriori(mu, why)

        return own_noise_loss(self, parties).promise(mu, why)

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        return _worst_coalition(self, schedule, trace, sensitivity, size)

    population = population

    def loss_conversion(self, schedule: Schedule, trace: ExecutionTrace, weights: Array, delta: float) -> LossConversion:
        if not self.grid:
            return super().loss_conversion(schedule, trace, weights, delta)

        return whole_loss(self, schedule, trace) if self.whole else RoundedLossConversion(self, schedule, trace)


__all__ = ["PROTOCOL", "IncA", "Injection", "PushSumParameters"]

PROTOCOL = IncA


class IncaLossConversion(GridLossConversion):
    """Bounds for discrete noise: the best real shift, rounded along whole changes of noise; or the own noise of a party alone.

    The latter needs no rounding: in every history, everything is a function of x + eta_star, and a change of x is made up for by
    that of eta_star.
    """

    def __init__(self, parameters: PushSumParameters, parties: int, information: float) -> None:
        """``information``: b^2, see :func:`~quietmean.protocols.push_sum.fixed_point.rounding_information`.

        Raises :class:`InputError` if the parameters do not state the number of coordinates.
        """
        star, portions = parameters.sigma_star, parameters.portions
        noise = [star / portions, parameters.sigma_delta, parameters.sigma_guard / portions]
        terms = 1 + parameters.injections.noise_terms + bool(parameters.sigma_guard)
        super().__init__(
            step=parameters.grid,
            dimension=_dimension(parameters),
            deviations=noise,
            draws=parties * terms,
            rounding=lambda adversary, honest: information,
            most_rounding=information,
        )
        self._sigma = star
        self._local = own_noise_loss(parameters, parties).correction

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        return np.minimum(super().mu(adversary, honest, view, sensitivity), self._own_noise(sensitivity))

    def mu_against_any(self, size: int, view: Array, sensitivity: float) -> Array:
        return np.minimum(super().mu_against_any(size, view, sensitivity), self._own_noise(sensitivity))

    def _own_noise(self, sensitivity: float) -> float:
        return sensitivity / self._sigma * math.sqrt(self._local) if self._sigma else math.inf


def whole_loss(parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace) -> IncaLossConversion:
    """The loss of an execution with discrete noise."""
    return IncaLossConversion(parameters, schedule.parties, rounding_information(parameters, schedule, trace))


def planned_loss(parameters: PushSumParameters, schedule: Schedule, dropouts: float) -> IncaLossConversion:
    """The loss of an execution in which nobody leaves; with ``dropouts``, plus the rounding that leavers cost."""
    everyone = ExecutionTrace.everyone(parameters.rounds, schedule.parties)
    information = rounding_information(parameters, schedule, everyone)
    if dropouts:
        left = whole_shift(parameters, parameters.rounds, finishes=False).kernel
        information += schedule.parties * left * parameters.grid**2 / 4.0
    return IncaLossConversion(parameters, schedule.parties, information)


def own_noise_loss(parameters: PushSumParameters, parties: int) -> GridLossConversion:
    """The loss of executions that are charged for the parties' own noise alone, in every history: its shift is whole."""
    return GridLossConversion(
        step=parameters.grid,
        dimension=_dimension(parameters),
        deviations=[parameters.sigma_star / parameters.portions],
        draws=parties * (1 + parameters.injections.noise_terms + bool(parameters.sigma_guard)),
    )


def _dimension(parameters: PushSumParameters) -> int:
    if parameters.dimension is None:
        raise InputError("dimension is missing: what rounding to a grid costs depends on it. Add the number of coordinates.")
    return parameters.dimension


class RoundedLossConversion(LossConversion):
    """The loss of float64 noise on a grid: mu of the protocol in real numbers, widened by what rounding adds at most.

    See :mod:`quietmean.protocols.push_sum.fixed_point`.
    """

    kind = UPPER_BOUND

    def __init__(self, parameters: PushSumParameters, schedule: Schedule, trace: ExecutionTrace) -> None:
        """Raises :class:`InputError` if the parameters do not state the number of coordinates."""
        self._dimension = _dimension(parameters)
        self._information = rounding_information(parameters, schedule, trace)
        self.notes = (
            *REAL_ARITHMETIC.notes,
            Assumption(
                Key.ROUNDING,
                f"Shares are rounded to multiples of {parameters.grid:g}, which the figures include; none is cut off at 32 bits.",
            ),
        )

    def mu(self, adversary: Adversary, honest: Sequence[PartyId], view: Array, sensitivity: float) -> Array:
        return widened(view, self._information, self._dimension)
