"""How far one party can move a result by what it sends, whatever that is: a bound from what receivers refuse.

Where each release is seen alone, two that are accepted lie at most twice the half width of the bounds apart, times the party's
weight, and twice what its noise may be; or it is left out. Where each contribution is checked without being learnt, the same
holds of it, which has no noise. Elsewhere all results that are shown lie within the bounds, and the noise of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.domain import PrivacyUnit
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.planning.accuracy import released_noise
from quietmean.planning.plan import Plan
from quietmean.planning.release_bounds import NOISE_MARGIN, ROUNDING, PossibleReleases, deviations_allowed, least_weight
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import decoded
from quietmean.randomness import Seed

# Of more parties no schedule is drawn before the start.
_MOST_PLANNED = 2000


class Checked(StrEnum):
    """What receivers hold against the bounds before a result is shown."""

    EACH_RELEASE = "each release"
    EACH_CONTRIBUTION = "each contribution"
    RESULT = "the result"
    NOTHING = "nothing"


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
