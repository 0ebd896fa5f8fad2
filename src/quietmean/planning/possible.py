"""A result that cannot be: what no values within their bounds and no noise of the plan's size can have given.

Members send what they like. What was released is public, and so are bounds, weights and the size of the noise: holding the one
against the others is post-processing, and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Array, all_finite
from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import Vector
from quietmean.planning.accuracy import released_noise
from quietmean.planning.plan import Plan
from quietmean.planning.release_bounds import (
    NOISE_MARGIN,
    REFUSED_IF_HONEST,
    ROUNDING,
    deviations_allowed,
    least_weight,
    within_bounds,
)
from quietmean.protocols.execution import Execution

_CHANCE = f"a chance of {REFUSED_IF_HONEST:g} if all are honest"
# Where some shares count twice or are lost, no weight of a party counts as much more often.
_MOST_COPIES = 2.0


class ImpossibleResult(ProtocolFailure):
    """What the parties released cannot be of values within their bounds: somebody released something else. Exit code 3.

    ``execution``: what happened, which costs as much as if there were a result.
    """

    def __init__(self, text: str, execution: Execution) -> None:
        super().__init__(text)
        self.execution = execution


@dataclass(frozen=True, eq=False)
class ReleasedSum:
    """What was added up: ``total`` (d,) of ``weight``. ``settled``: that the execution says exactly what is in it."""

    total: Vector
    weight: float
    settled: bool = True


def require_possible(
    plan: Plan, execution: Execution, opened: ReleasedSum, never_negative: Callable[[], tuple[Array, Array]] | None = None
) -> None:
    """Raises :class:`ImpossibleResult` for a sum that honest parties release with a chance of at most 2e-12.

    Tested are its coordinates and its weight, before anything is divided; and of their mean what cannot be negative. Where nobody
    has a record nothing is: nothing is shown. ``execution``: without the parties whose releases are not in the sum.
    ``never_negative``: makes combinations of a mean without noise, rows (m, d) and offsets (m,), none of which is below 0.
    """
    if why := _impossible(plan, execution, opened, never_negative):
        raise ImpossibleResult(
            f"a result that cannot be: {why}; at least one party released something else than it should, so nothing is shown as "
            "an estimate",
            execution,
        )


def _impossible(
    plan: Plan, execution: Execution, opened: ReleasedSum, never_negative: Callable[[], tuple[Array, Array]] | None
) -> str | None:
    """Why a protocol is impossible, or None."""
    if not execution.counted_weight():
        return None
    if not all_finite(opened.total):
        return "the sum is not a number"
    used = execution.in_result
    noise = released_noise(used)
    if not _right_weight(plan, used, opened, noise.weight):
        return "the weights that were released are not those that the parties stated before the start"
    protocol, checks = plan.protocol, plan.protocol.traits.checks
    reach = checks.reach(protocol, used.schedule, used.trace, used.weights)
    variance = noise.variance if opened.settled or noise.most is None else noise.most
    if not (math.isfinite(reach) and math.isfinite(variance)):
        # Nothing is known of what is possible.
        return None
    parties, dimension, step = execution.parties, opened.total.size, checks.rounding_step(plan.protocol)
    deviation = NOISE_MARGIN * math.sqrt(variance) * opened.weight + math.sqrt(parties) * step
    tails = checks.tails(protocol, dimension)
    room = deviations_allowed(dimension, tails) * deviation + parties * step
    if not within_bounds(plan.input_domain, _units(plan, used, opened), opened.total, reach, room):
        return f"the sum is not one of values within the bounds and noise of the plan's size ({_CHANCE})"
    if never_negative is not None and reach == 1.0:
        rounding = parties * step / opened.weight
        if not _signs_hold(plan, opened, never_negative(), (deviation / opened.weight, tails), rounding):
            return f"means of squares are smaller than the values allow, by more than noise of the plan's size ({_CHANCE})"
    return None


def _right_weight(plan: Plan, used: Execution, opened: ReleasedSum, expected: float | None) -> bool:
    least, most = least_weight(used.weights), _MOST_COPIES * float(used.weights.sum())
    possible = least <= opened.weight <= most
    if expected is not None and opened.settled and plan.protocol.traits.weight_is_known:
        possible = possible and abs(opened.weight - expected) <= ROUNDING * expected
    return possible


def _units(plan: Plan, used: Execution, opened: ReleasedSum) -> float:
    """How many units' vectors are in the sum: records, or parties, which may count more than once in the mean."""
    if plan.target.unit.within_party or (used.weights == 1).all():
        return opened.weight
    return opened.weight / used.counted_weight() * float(used.parts.sum())


def _signs_hold(plan: Plan, opened: ReleasedSum, never: tuple[Array, Array], noise: tuple[float, float], rounding: float) -> bool:
    """Are the numbers of the released mean that cannot be negative at least zero, up to noise and rounding?

    ``noise``: the standard deviation and the tails of a coordinate of the mean; ``rounding``: its largest rounding error.
    """
    rows, offset = never
    if not len(rows):
        return True
    size = np.abs(rows).sum(axis=1)
    deviation, tails = noise
    allowed = deviations_allowed(len(rows), tails) * deviation
    room = allowed * np.linalg.norm(rows, axis=1) + (rounding + plan.value_step) * size
    slack = ROUNDING * (1 + size * plan.input_domain.largest)
    return bool((rows @ (opened.total / opened.weight) + offset >= -room - slack).all())
