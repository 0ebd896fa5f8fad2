"""The mechanism PrivUnitG: its two parameters, its density, its error.

The report of a unit vector v is U / m. Along v, U is a Gaussian of variance 1/d, drawn with probability p from above the
threshold gamma / sqrt(d) and else from below; across v it is Gaussian of variance 1/d a coordinate. Against N(0, I/d) its density
takes two values: p / (1 - q) above and (1 - p) / q below, q = Phi(gamma). Their ratio is e^epsilon: pure epsilon-DP under
replacement of a unit vector by any other. The factor 1/m makes the report unbiased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.core.schema import OPEN, Configured, parameter
from quietmean.randomness import BitStream

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
        remedy=f"PrivUnitG is implemented for {_EPSILONS[0]:g} <= epsilon <= {_EPSILONS[1]:g}",
    )
    probability: float = parameter(help="probability of the cap around the value", required=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon is OPEN or self.probability is OPEN:
            return
        if not 0.5 <= self.probability < 1 or self.log_odds_below < 0 or self.outside <= 0 or self.beyond <= 0:
            raise InputError(
                f"probability is {self.probability:g}: the cap at epsilon {self.epsilon:g} needs 1/2 <= probability and "
                "log(probability / (1 - probability)) <= epsilon"
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
        raise InputError(
            f"the value is not a unit vector times its weight {weight:g}: PrivUnitG needs vectors of L2 norm 1, scale them first"
        )
    return value / length
