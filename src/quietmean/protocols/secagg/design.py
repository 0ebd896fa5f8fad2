"""From a demand to parameters: thresholds, the grid, and the least noise; everything is computed, nothing is simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.rounding import round_up
from quietmean.entropy.discrete_gaussian import LARGEST_SCALE
from quietmean.protocols.fields import optional_field
from quietmean.protocols.protocol import Demand, Design
from quietmean.protocols.secagg.accounting import calibrated_scale, spent_delta, sum_bound
from quietmean.protocols.secagg.party import ROUNDS
from quietmean.protocols.secagg.spec import CONDITIONAL, INDEPENDENT, SecAggParameters, check_parties

# The chance that a coordinate of the sum wraps, for the worst values.
WRAP_CHANCE = 2.0**-20
# Of the sensitivity, the grid's step where bits are plenty: rounding then adds some 0.1 % to it.
_FINE = 2.0**-12
_FINE_NORM = 0.06
# Steps in the noise of one party at least: below, sums of discrete Gaussians differ too much from one.
_LEAST_STEPS = 4.0
# Weights of parties beyond this need an explicit option.
_LARGEST_WEIGHT = 2.0**20


@dataclass(frozen=True)
class Shape:
    """Who shares with how many, and how many inputs there must be; ``claim``: what the thresholds were chosen for."""

    threshold: int
    minimum: int
    neighbours: int | None
    claim: str


def complete_shape(demand: Demand, options: Mapping[str, Any]) -> Shape:
    """SecAgg: by default two thirds, or what withstands split lists, but never more than the planned survivors."""
    staying = demand.responding
    wanted = max(math.ceil(2 * demand.parties / 3), (demand.parties + demand.colluding) // 2 + 1, demand.colluding + 1)
    threshold = optional_field(options, "threshold", int, max(min(wanted, staying), demand.parties // 2 + 1))
    minimum = optional_field(options, "minimum", int, max(staying, threshold))
    if threshold > staying:
        raise InputError(
            f"threshold is {threshold} but with dropouts of {demand.dropouts:g} only {staying} of {demand.parties} parties stay: "
            "plan for fewer dropouts, more than half must stay"
        )
    split = "also" if 2 * threshold > demand.parties + demand.colluding else "not"
    claim = f"threshold {threshold} of {demand.parties}; {split} against an aggregator that tells parties different survivors"
    return Shape(threshold, minimum, None, claim)


def design(demand: Demand, options: Mapping[str, Any], shape: Shape) -> Design[SecAggParameters]:
    """The least noise with which the sum keeps (epsilon, delta) against ``colluding`` parties, the aggregator perhaps among them.

    Counted on is the noise of minimum - colluding honest parties: fewer inputs give no result. Raises :class:`InputError`.
    """
    if optional_field(options, "noise", str, "discrete-gaussian") == "none":
        raise InputError("noise none protects nothing once the sum is out: it is for tests, not for plans; leave the option out")
    honest = shape.minimum - demand.colluding
    if honest < 1:
        raise InputError(
            f"of {shape.minimum} inputs {demand.colluding} may be the colluders' own: nobody's noise is left, raise minimum"
        )
    parameters = _settle(demand, options, _first_guess(demand, options, shape, honest), honest)
    counted = demand.parties - (demand.parties - demand.responding) * 5 / ROUNDS
    certificate = (
        f"zero-concentrated DP of the sum of {honest} or more honest parties' discrete Gaussian noise (upper bound), if X25519, "
        f"HKDF, AES-256 and AES-GCM hold and the aggregator follows the protocol; {shape.claim}"
    )
    return Design(parameters, parameters.party_variance / counted, demand.dropout_bias(counted), certificate)


def _first_guess(demand: Demand, options: Mapping[str, Any], shape: Shape, honest: int) -> SecAggParameters:
    domain = optional_field(options, "domain", str, "box")
    if domain not in ("box", "ball"):
        raise InputError(f"domain {domain!r} is unknown: choose box (coordinates from 0 up) or ball (around the origin)")
    sensitivity = demand.sensitivity
    middle = sensitivity / (2 * math.sqrt(demand.dimension)) if domain == "box" else 0.0
    # The analytic constant at moderate budgets; it is only where the search begins.
    sigma = sensitivity * math.sqrt(2 * math.log(1.25 / demand.delta)) / demand.epsilon / math.sqrt(honest)
    return SecAggParameters(
        threshold=shape.threshold,
        minimum=shape.minimum,
        granularity=sigma / 64,
        sigma=sigma,
        clip=optional_field(options, "clip", float, sensitivity / 2),
        bits=optional_field(options, "bits", int, 32),
        centre=optional_field(options, "centre", float, middle),
        largest_weight=optional_field(options, "largest_weight", float, 1.0),
        rotation=optional_field(options, "rotation", int, 0),
        aggregator=optional_field(options, "aggregator", int, 0),
        neighbours=shape.neighbours,
        dimension=demand.dimension,
    )


def _settle(demand: Demand, options: Mapping[str, Any], guess: SecAggParameters, honest: int) -> SecAggParameters:
    """The grid must hold the sum, whose size depends on the noise, which depends on the grid: a few turns settle it."""
    parameters = check_parties(guess, demand.parties)
    for _ in range(6):
        parameters = _with_grid(demand, options, parameters)
        trial = parameters

        def spent(scale: float, trial: SecAggParameters = trial) -> float:
            noisy = replace(trial, sigma=scale * trial.granularity)
            return spent_delta(noisy, demand.sensitivity, honest, demand.dimension, demand.epsilon, demand.delta)

        scale = calibrated_scale(spent, demand.delta, parameters.scale)
        parameters = replace(parameters, sigma=round_up(scale * parameters.granularity))
    return parameters


def _with_grid(demand: Demand, options: Mapping[str, Any], parameters: SecAggParameters) -> SecAggParameters:
    words, half = parameters.words(demand.dimension), 2.0 ** (parameters.bits - 1)
    fine = min(demand.sensitivity * min(_FINE, _FINE_NORM / math.sqrt(words)), parameters.sigma / _LEAST_STEPS)
    fine = round_up(max(fine, 2 * parameters.sigma / LARGEST_SCALE))
    given = "largest_weight" in options
    single = replace(parameters, largest_weight=parameters.largest_weight if given else 1.0)
    needed = sum_bound(single, demand.parties, words, WRAP_CHANCE) / half
    granularity = fine if needed <= fine else round_up(needed)
    if granularity > parameters.sigma:
        raise InputError(
            f"{parameters.bits} bits are too few for a sum over {demand.parties} parties of weight up to "
            f"{single.largest_weight:g}: take more bits (up to 32)"
        )
    weight = single.largest_weight if given else _headroom(single, demand.parties, words, half * granularity)
    sized = replace(single, granularity=granularity, largest_weight=weight)
    whole = demand.sensitivity >= 2 * sized.clip * sized.largest_weight
    return replace(sized, rounding=CONDITIONAL if whole else INDEPENDENT)


def _headroom(parameters: SecAggParameters, parties: int, words: int, room: float) -> float:
    """The largest weight, a whole number, for which sums still fit: parties of many records need more than one of one."""
    one, two = (sum_bound(replace(parameters, largest_weight=weight), parties, words, WRAP_CHANCE) for weight in (1.0, 2.0))
    return float(max(1, min(math.floor(1 + (room - one) / (two - one)), _LARGEST_WEIGHT)))
