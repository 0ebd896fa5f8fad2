"""What honest parties release, but for a chance of 1e-12: how far noise goes, and a release that is seen alone.

Bounds, weights and the size of the noise are public, and so are releases: holding these against each other costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import all_finite
from quietmean.core.input_domain import InputDomain
from quietmean.core.party import PartyId, Release, Vector
from quietmean.graphs import Schedule
from quietmean.planning.plan import Plan
from quietmean.protocols.mechanism import is_private

Array = NDArray[np.float64]

# The chance that what honest parties released is refused, for each test.
REFUSED_IF_HONEST = 1e-12
# Weights that are added up and divided again, and vectors near their bounds, relative to these.
ROUNDING = 1e-6
# Discrete noise is a little larger than what it imitates.
NOISE_MARGIN = 1.01
# Of less than that part of one party's weight nothing is left but rounding, by which a mean could be anything.
LEAST_PART = 1e-3


def least_weight(weights: Array) -> float:
    """The least weight of a sum that is more than rounding; ``weights``: of its parties, (n,), of whom some have no records."""
    return LEAST_PART * float(weights[weights > 0].min(initial=math.inf))


def deviations_allowed(tests: int, tails: float = 1.0) -> float:
    """How many standard deviations noise in any of so many numbers goes beyond with a chance of at most 1e-12.

    ``tails``: how many of them a Gaussian has whose tails are no lighter, as those of sums of discrete Gaussians; where it is
    infinite, by Chebyshev's inequality.
    """
    if math.isfinite(tails):
        return tails * math.sqrt(2 * math.log(2 * max(tests, 1) / REFUSED_IF_HONEST))
    return math.sqrt(max(tests, 1) / REFUSED_IF_HONEST)


def within_bounds(domain: InputDomain, units: float, total: Vector, reach: float, room: float) -> bool:
    """Is each coordinate of a sum over so many ``units`` at most ``reach`` half widths and ``room`` from the domain's middle?"""
    for piece, low, high in domain.bounds_in_pieces():
        far = reach * units * (high - low) / 2 * (1 + ROUNDING) + room
        if not (np.abs(total[piece] - units * (low + high) / 2) <= far).all():
            return False
    return True


@dataclass(frozen=True, eq=False)
class PossibleReleases:
    """What each party can release of values within the bounds, where every release is seen alone.

    ``deviations``: of the noise on a coordinate of each release, (n,), with what pairs share: it is on a release by itself.
    ``weights``: as the parties stated them before the start, (n,); None where nobody did. An honest release is outside with a
    chance of 1e-12, whatever its values, so that who is left out says nothing of them; and who is, follows from what is public.
    """

    plan: Plan
    deviations: Array
    weights: Array | None = None

    @classmethod
    def of(cls, plan: Plan, schedule: Schedule, weights: Array | None = None) -> PossibleReleases | None:
        """None where no release is of one party's value, or not to be seen alone, and where any value enters."""
        seen_alone = plan.releases_are_copies and is_private(plan.protocol)
        variance = plan.protocol.traits.checks.own_release_variance(plan.protocol, schedule) if seen_alone else None
        return None if variance is None else cls(plan, np.sqrt(variance), weights)

    @property
    def stretch(self) -> float:
        """How far from the middle of the bounds a release may be before noise is added, in half widths."""
        protocol = self.plan.protocol
        return protocol.traits.checks.report_reach(protocol, self.plan.target.dimension, REFUSED_IF_HONEST)

    def reach(self, party: PartyId) -> float:
        """How far beyond the values' bounds noise and rounding take a coordinate of an honest release."""
        protocol, dimension = self.plan.protocol, self.plan.target.dimension
        step = protocol.TRAITS.checks.rounding_step(protocol)
        deviation = NOISE_MARGIN * float(self.deviations[party]) + step
        return deviations_allowed(dimension, protocol.traits.checks.tails(protocol, dimension)) * deviation + step

    def cannot_be(self, party: PartyId, release: Release) -> bool:
        """Is this release none of values within their bounds, of this party's weight, and noise of the plan's size?"""
        stated, weight = self.weights, release.weight
        if not (math.isfinite(weight) and weight >= 0 and all_finite(release.vector)):
            return True
        if stated is not None and abs(weight - stated[party]) > ROUNDING * stated[party]:
            return True
        units = weight if self.plan.target.unit.within_party else 1.0
        return not within_bounds(self.plan.input_domain, units, release.vector, self.stretch, self.reach(party))
