"""What one party can do to a result by what it sends: how far it can move it, and which results cannot be.

Where each release is seen alone, two that are accepted lie at most twice the half width of the bounds apart, times the party's
weight, and twice what its noise may be; or it is left out. Where each contribution is checked without being learnt, the same
holds of it, which has no noise. Elsewhere all results that are shown lie within the bounds, and the noise of all.

Members send what they like. What was released is public, and so are bounds, weights and the size of the noise: holding the one
against the others is post-processing, and costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from quietmean.core.arrays import Array, Mask, all_finite
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.planning.accuracy import released_noise
from quietmean.planning.plan import Plan
from quietmean.planning.release_bounds import (
    NOISE_MARGIN,
    REFUSED_IF_HONEST,
    ROUNDING,
    PossibleReleases,
    deviations_allowed,
    least_weight,
    within_bounds,
)
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import decoded
from quietmean.randomness import Seed

# Of more parties no schedule is drawn before the start.
_MOST_PLANNED = 2000


class Checked(StrEnum):
    """What receivers check against the bounds before a result is shown."""

    EACH_RELEASE = "each release"
    EACH_CONTRIBUTION = "each contribution"
    RESULT = "the result"
    NOTHING = "nothing"

    @property
    def sentence(self) -> str:
        """What is noticed of false values."""
        return _NOTICED[self]


_NOTICED = {
    Checked.EACH_RELEASE: "only numbers of a party that no values within the bounds give are noticed",
    Checked.EACH_CONTRIBUTION: "each contribution is checked against the bounds, though nobody learns it",
    Checked.RESULT: "a lie is noticed only if no values within the bounds give the result, as far as its noise tells",
    Checked.NOTHING: "nothing bounds what is possible",
}


@dataclass(frozen=True, eq=False)
class Influence:
    """How far one party moves each coordinate of the ``mean`` of vectors, (d,), or of their ``total``, (d,), at most.

    Among the parties that count, with their weights: ``share`` is the largest party's part of all weight, ``weight`` its weight
    where it may be left out, which takes it away, else 0. ``records``: all weight; ``noise``: the largest standard deviation that
    a coordinate of the mean may have by noise, with that party or without it. ``unnoticed``: what nobody sees of a lie, in
    sentences. Infinite where nothing bounds it. Bounds hold but for a chance of some 1e-12 that honest noise is larger than was
    ever to be expected. Who sends nothing is a dropout, whose error is stated.
    """

    mean: Array
    total: Array
    checked: Checked
    share: float
    weight: float = 0.0
    records: float = 1.0
    noise: float = 0.0
    unnoticed: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        return bool(np.isfinite(self.mean).all())

    @property
    def largest(self) -> float:
        """The largest influence on a coordinate of the mean."""
        return float(self.mean.max())


def influence_of(plan: Plan, execution: Execution, *, settled: bool = True) -> Influence:
    """The influence of one party on the result of an execution.

    ``settled``: that the execution says exactly what is in the sum.
    """
    used, total = execution.in_result, execution.counted_weight()
    variance = reach = math.inf
    if total:
        noise = released_noise(used)
        variance = noise.variance if settled or noise.most is None else noise.most
        reach = plan.protocol.traits.checks.reach(plan.protocol, used.schedule, used.trace, used.weights)
    means = _Means(used.schedule, used.trace, execution.weights, execution.contributors(), total, variance, reach)
    influence = _influence(plan, means, exact=settled and plan.protocol.traits.weight_is_known)
    return replace(influence, unnoticed=execution.protocol.traits.checks.unnoticed)


def planned_influence(plan: Plan, records: float | None = None, share: float | None = None) -> Influence | None:
    """The influence of one party, with at most ``share`` of the records, on the result of a study that everybody finishes.

    ``records``: of all together, by default one for each party; ``share``: by default all have as many. None for
    too many parties.
    """
    target, protocol = plan.target, plan.protocol
    if target.parties > _MOST_PLANNED:
        return None
    total = float(target.parties) if records is None or target.unit == PrivacyUnit.PARTY else max(records, target.parties)
    weights = np.full(target.parties, total / target.parties)
    if share is not None and target.unit.within_party:
        weights = np.full(target.parties, total * max(1.0 - share, 0.0) / max(target.parties - 1, 1))
        weights[0] = max(share, 1 / target.parties) * total
    schedule, everyone = plan.schedule(Seed.public("influence")), ExecutionTrace.everyone(protocol.rounds, target.parties)
    stated = protocol.TRAITS.planning.noise_variance(protocol, target)
    of_mean = float(plan.prediction.get("mse_noise", math.inf)) if stated is None else stated
    reach = protocol.traits.checks.reach(protocol, schedule, everyone, np.ones(target.parties))
    # Predictions are of parties with one record each.
    variance = of_mean * (target.parties / total) ** 2
    means = _Means(schedule, everyone, weights, np.ones(target.parties, dtype=np.bool_), total, variance, reach)
    return replace(_influence(plan, means, exact=protocol.traits.weight_is_known), unnoticed=protocol.traits.checks.unnoticed)


@dataclass(frozen=True, eq=False)
class _Means:
    """Parties of a mean: ``total``, the weight in it; ``variance`` of the noise on a coordinate; ``reach`` of :class:`Checks`."""

    schedule: Schedule
    trace: ExecutionTrace
    weights: Array
    counted: Mask
    total: float
    variance: float
    reach: float


def _influence(plan: Plan, means: _Means, *, exact: bool) -> Influence:
    """``exact``: that the weight of what is added up is known."""
    weights, counted, total, variance, reach = means.weights, means.counted, means.total, means.variance, means.reach
    parties, dimension = int(counted.sum()), plan.target.dimension
    by_record = plan.target.unit.within_party
    share = float(weights[counted].max(initial=0.0)) / total if total else 1.0
    nothing = Influence(np.full(dimension, math.inf), np.full(dimension, math.inf), Checked.NOTHING, share)
    if not total or not (math.isfinite(variance) and math.isfinite(reach)) or not (by_record or (weights == 1).all()):
        return nothing
    protocol = plan.protocol
    step = protocol.TRAITS.checks.rounding_step(protocol)
    low, high = plan.input_domain.coordinate_bounds
    half = (high - low) / 2 * (1 + ROUNDING)
    largest = np.maximum(np.abs(low), np.abs(high)) * (1 + ROUNDING)
    allowed = deviations_allowed(dimension, protocol.traits.checks.tails(protocol, dimension))
    possible, stretch = PossibleReleases.of(plan, means.schedule), _stretch(plan, parties)
    # Is the result the sum over the weight?
    is_plain = abs(stretch - 1.0) < ROUNDING
    unseen = protocol.traits.checks.contributions
    if not is_plain or (possible is None and not unseen):
        least = total if exact else least_weight(weights[counted])
        rounding = (allowed * math.sqrt(len(weights)) + len(weights)) * step / least
        room = allowed * NOISE_MARGIN * math.sqrt(variance) + rounding
        # A decoder that draws results towards zero takes no two further apart than their sizes.
        widths = half if is_plain else largest
        mean = 2 * (reach * widths + room) * max(stretch, 1.0)
        return Influence(mean, total * mean, Checked.RESULT, share, records=total, noise=math.sqrt(variance))
    # The party that moves most, by its weight and by its noise, whichever party has which.
    units, weight = share * total if by_record else 1.0, share * total
    # What is not seen has no noise of its party, and is rounded outwards.
    reaches = [step] if possible is None else [possible.reach(party) for party in np.flatnonzero(counted).tolist()]
    own = 0.0 if possible is None else float(possible.deviations[counted].max())
    stretched = 1.0 if possible is None else possible.stretch
    half, largest = half * stretched, largest * stretched
    room = max(reaches)
    sent = 2 * (units * half + room)
    # Left out it leaves the noise that it shares with others in their sum. Reports have no more than their own bounds.
    noise = math.sqrt(variance * total**2 + own**2)
    rest = allowed * (NOISE_MARGIN * noise * (stretched == 1.0) + math.sqrt(parties) * step) + parties * step
    without = total - weight
    left = (units * half + room + weight * (half + rest / without)) if without > 0 else np.full(dimension, math.inf)
    return Influence(
        np.maximum(sent, left) / total,
        np.maximum(sent, units * largest + room),
        Checked.EACH_CONTRIBUTION if possible is None else Checked.EACH_RELEASE,
        share,
        weight,
        total,
        math.sqrt(variance) if without <= 0 else max(math.sqrt(variance), noise / without),
    )


def _stretch(plan: Plan, parties: int) -> float:
    """What a decoder makes of a mean of 1."""
    mean = decoded(plan.protocol, plan.target.parties, np.ones(plan.target.dimension), 1.0, parties)
    return float(np.abs(mean).max())


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
            f"a result that cannot be: {why}. At least one party released something else than it should, so nothing "
            "is shown as an estimate.",
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
