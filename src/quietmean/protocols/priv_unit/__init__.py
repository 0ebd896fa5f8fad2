"""PrivUnitG: pure local differential privacy for unit vectors (Asi, Feldman and Talwar 2022). For comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Self

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.bounds import APriori
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Release, Vector
from quietmean.core.schema import OPEN, Configured, filled, parameter, require_complete
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import literature
from quietmean.protocols.mechanism import Design, Mechanism, Releases
from quietmean.protocols.publishing import ALL_PUBLISHED, PublishingParty
from quietmean.protocols.target import Target
from quietmean.protocols.traits import AcceptedValues, Checks, Traits
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript

_NORMAL = NormalDist()
# Unit length is checked in floating point; the value is then scaled to length 1 once more, to which the guarantee applies.
LENGTH_TOLERANCE = 1e-6
_EPSILONS = (1e-3, 100.0)
# Where the largest of a curve is looked for, and how much larger it may be between these.
_PLACES, _BETWEEN_PLACES = 4001, 1.01


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrivUnitParameters(Configured):
    """The parameters of PrivUnit.

    ``epsilon`` of the pure guarantee and ``probability`` p of the cap; 1/2 < p. The threshold gamma follows from both.
    """

    epsilon: float = parameter(
        help="epsilon of the pure guarantee",
        at_least=_EPSILONS[0],
        at_most=_EPSILONS[1],
        remedy=f"choose {_EPSILONS[0]:g} <= epsilon <= {_EPSILONS[1]:g}",
    )
    probability: float = parameter(help="probability of the cap around the value", required=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon is OPEN or self.probability is OPEN:
            return
        if not 0.5 <= self.probability < 1 or self.log_odds_below < 0 or self.outside <= 0 or self.beyond <= 0:
            raise InputError(
                f"probability is {self.probability:g}, which the cap at epsilon {self.epsilon:g} does not allow. "
                "Choose 1/2 <= probability and log(probability / (1 - probability)) <= epsilon."
            )

    @property
    def log_odds_below(self) -> float:
        """log(q / (1 - q)): what of epsilon is left for the size of the cap."""
        return self.epsilon - math.log(self.probability / (1.0 - self.probability))

    @property
    def beyond(self) -> float:
        """1 - q: the share of the reference Gaussian above the threshold."""
        return 1.0 / (1.0 + math.exp(self.log_odds_below))

    @property
    def below(self) -> float:
        """q."""
        return 1.0 / (1.0 + math.exp(-self.log_odds_below))

    @property
    def outside(self) -> float:
        """1 - p."""
        return 1.0 - self.probability

    @cached_property
    def gamma(self) -> float:
        """The threshold, in standard deviations."""
        return -_NORMAL.inv_cdf(self.beyond)

    @property
    def mean_along(self) -> float:
        """m sqrt(d): the mean along v, in standard deviations."""
        density = _NORMAL.pdf(self.gamma)
        return density * (self.probability / self.beyond - self.outside / self.below)

    @property
    def square_along(self) -> float:
        """The mean square along v, in variances."""
        density = _NORMAL.pdf(self.gamma)
        return 1.0 + self.gamma * density * (self.probability / self.beyond - self.outside / self.below)

    @cached_property
    def variance_of_tails(self) -> float:
        """The variance of a Gaussian whose moments are no smaller than those of U - E U along v, in variances of the reference.

        E exp(a U) is exp(a^2 / 2) (1 - p) / q times 1 + (e^epsilon - 1) Phi(s), s = a - gamma. So the logarithm of the moments of
        U - E U is at most a^2 / 2 (1 + sup g''), g(s) = log(1 + (e^epsilon - 1) Phi(s)): g' = w, g'' = -w (s + w).
        """
        s = np.linspace(-math.sqrt(2 * self.epsilon) - 10.0, 10.0, _PLACES)
        below = np.array([_NORMAL.cdf(place) for place in s])
        w = np.expm1(self.epsilon) * np.exp(-(s**2) / 2) / math.sqrt(2 * math.pi) / (1.0 + np.expm1(self.epsilon) * below)
        return 1.0 + _BETWEEN_PLACES * float((-w * (s + w)).max())

    def error(self, dimension: int) -> float:
        """E |report - v|^2 of one report, summed over the coordinates."""
        return (self.square_along + dimension - 1) / self.mean_along**2 - 1.0


def best_probability(epsilon: float, dimension: int) -> float:
    """The probability of the least error, by golden section search over the share of epsilon that it takes."""
    low, high = 0.0, epsilon
    golden = (math.sqrt(5.0) - 1.0) / 2.0

    def at(share: float) -> PrivUnitParameters:
        # To 12 digits: what is written to a plan and read again is the same.
        return PrivUnitParameters(epsilon=epsilon, probability=float(f"{1.0 / (1.0 + math.exp(-share)):.12g}"))

    high = min(high, 27.0)  # beyond, 1 - p is rounding
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if at(left).error(dimension) < at(right).error(dimension):
            high = right
        else:
            low = left
    return at((low + high) / 2).probability


def report(parameters: PrivUnitParameters, direction: Vector, stream: BitStream) -> Vector:
    """One unbiased private report of a unit vector (d,), from a stream of secret bits.

    The cap is chosen with 53 bits: the ratio of the two densities is off by a factor of at most 1 + 2^-52 / (1 - p). The
    truncated Gaussian comes from 53 bits by the inverse distribution function (relative accuracy about 1e-15), so that it stops
    short of a tail of probability 2^-54 on either side. As everywhere here, floating point numbers stand in for real ones.
    """
    choice, quantile = (stream.uniform(2) + 2.0**-54).tolist()
    if choice < parameters.probability:
        along = max(-_NORMAL.inv_cdf(parameters.beyond * quantile), parameters.gamma)
    else:
        along = min(_NORMAL.inv_cdf(parameters.below * quantile), parameters.gamma)
    across = stream.standard_normal(direction.size)
    across -= float(across @ direction) * direction
    reported: Vector = (along * direction + across) / parameters.mean_along
    return reported


def direction_of(value: Vector, weight: float) -> Vector:
    """The direction, shape (d,), of a party's value (d,), which is its public weight times a unit vector.

    Raises :class:`InputError` for a value of another length. The error does not contain the value.
    """
    length = float(np.linalg.norm(value))
    if not abs(length - weight) <= LENGTH_TOLERANCE * weight:
        # The value is private, so the error does not contain it.
        raise InputError(f"the value is not a unit vector times its weight {weight:g}. Scale vectors to L2 norm 1 first.")
    return value / length


class PrivUnitParty(PublishingParty):
    """Publishes the report of :func:`private_report` on its value (d,)."""

    def __init__(self, parameters: PrivUnitParameters, value: Vector, weight: float, noise: NoiseSource) -> None:
        super().__init__(private_report(parameters, value, weight, noise))


def private_report(parameters: PrivUnitParameters, value: Vector, weight: float, noise: NoiseSource) -> Release:
    """PrivUnitG of the direction of ``value`` (d,), times the public weight. Raises as :func:`direction_of`."""
    stream = BitStream(Seed(noise.secret("report", 0)))
    return Release(report(parameters, direction_of(value, weight), stream) * weight, weight)


# Replacement of a unit vector by its opposite.
_DIAMETER = 2.0
# Where a file names no probability, the best one in this many dimensions is taken: it hardly depends on their number.
_DIMENSION = 100


def _own_variance(protocol: PrivUnitParameters, schedule: Schedule) -> Array:
    """The variance of added noise: none is added to a report."""
    return np.zeros(schedule.parties)


def _tails(protocol: PrivUnitParameters, dimension: int) -> float:
    """Tails of a mean of reports: each is a sum of its value, of a number along it and of Gaussian ones across it."""
    variance = protocol.error(dimension) / dimension
    return math.sqrt(protocol.variance_of_tails / variance) / protocol.mean_along


def _report_reach(protocol: PrivUnitParameters, dimension: int, chance: float) -> float:
    """A report times m sqrt(d) is at most p / (1 - q) times as likely as a standard Gaussian, anywhere: so are its tails."""
    likelier = protocol.probability / protocol.beyond
    return math.sqrt(2 * math.log(2 * dimension * likelier / chance)) / protocol.mean_along


def _domain(protocol: PrivUnitG, target: Target) -> InputDomain:
    """The unit ball; what lies inside of it is scaled to its surface."""
    return InputDomain.ball(target.dimension, _DIAMETER / 2)


def _fitted(protocol: PrivUnitG, values: Vector, weights: Array) -> Vector:
    """Rows of values (n, d) scaled to the length of their weights (n,); zero rows along the first coordinate."""
    length = np.linalg.norm(values, axis=1)
    first = np.eye(1, values.shape[1])
    # Divided twice, so that the squares of tiny entries do not vanish.
    largest = np.abs(values).max(axis=1)
    scaled = np.where(length[:, None] > 0, values / np.where(largest > 0, largest, 1.0)[:, None], first)
    fitting: Vector = scaled / np.linalg.norm(scaled, axis=1)[:, None] * weights[:, None]
    return fitting


class PrivUnitG(PrivUnitParameters, Mechanism):
    """Not Gaussian, so no transcript describes it: the guarantee is pure and holds against all other parties together."""

    name = "priv-unit-g"
    TRAITS = Traits(
        summary="every party publishes a private report of its unit vector: pure local differential privacy",
        sources=(literature.PRIV_UNIT_G,),
        keeps_target=True,
        guarantee=(
            "epsilon-differential privacy (delta = 0) for a change of a unit vector, against any computing power. "
            "Each party protects itself (local). The figure is for exact arithmetic, but the sampler is float64"
        ),
        domain="unit vectors",
        gaussian_noise=False,
        hides_counts=False,
        linear=False,
        has_transcript=False,
        fixed_schedule=True,
        # A vector of length 0 has no direction.
        needs_records=True,
        already_public=ALL_PUBLISHED,
        checks=Checks(tails=_tails, own_release_variance=_own_variance, report_reach=_report_reach),
        inputs=AcceptedValues(_domain, fitted=_fitted),
    )
    rounds = 1

    def resolved(self, parties: int) -> Self:
        require_complete(self)
        return filled(self, probability=best_probability(self.epsilon, _DIMENSION)) if self.probability is OPEN else self

    def design(self, target: Target) -> Design:
        """Design it for the epsilon of the target; its delta is not used, since this guarantee is pure.

        Raises :class:`InputError` unless the sensitivity is 2, that of unit vectors.
        """
        if abs(target.sensitivity - _DIAMETER) > 1e-9:
            raise InputError(
                f"sensitivity is {target.sensitivity:g}: PrivUnitG takes unit vectors only, for which it is {_DIAMETER:g}. Scale "
                "the values to length 1, or choose another protocol."
            )
        parameters = replace(self, epsilon=target.epsilon, probability=best_probability(target.epsilon, target.dimension))
        responding = target.responding
        error = parameters.error(target.dimension) / (target.dimension * responding)
        lost = target.dropout_bias(responding)
        return Design(parameters, error, lost, f"pure {target.epsilon:g}-DP of each report (delta = 0), against every coalition")

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return Schedule.silent(1, parties)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PrivUnitParty:
        return PrivUnitParty(self, value, weight, noise)

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        from quietmean.privacy import Charge

        mu = Charge.of_mechanism(self.epsilon).mu
        return APriori(mu, "each party's own report", pure=self.epsilon)

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """Make no transcript. Raises :class:`InputError`: the noise is not Gaussian."""
        raise InputError(
            "PrivUnitG adds no Gaussian noise, so a transcript has nothing to certify. Use its plan: every report is "
            f"{self.epsilon:g}-DP with delta = 0 for a change of a unit vector, against every coalition."
        )

    def batch(
        self, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, noise: PopulationNoise
    ) -> Releases:
        reports = [
            private_report(self, value, float(weight), noise.party(party)).vector
            for party, (value, weight) in enumerate(zip(values, weights, strict=True))
        ]
        return Releases(np.array(reports), weights, trace.finished)


__all__ = ["PROTOCOL", "PrivUnitG"]

PROTOCOL = PrivUnitG
