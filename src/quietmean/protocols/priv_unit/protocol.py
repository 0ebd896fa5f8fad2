"""PrivUnitG: a private report of a unit vector."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Self

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.bounds import APriori
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Release, Vector
from quietmean.core.schema import OPEN, filled, require_complete
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import literature
from quietmean.protocols.mechanism import Design, Mechanism, Releases
from quietmean.protocols.priv_unit.spec import PrivUnitParameters, best_probability, direction_of, report
from quietmean.protocols.publishing import ALL_PUBLISHED, PublishingParty
from quietmean.protocols.target import Target
from quietmean.protocols.traits import AcceptedValues, Checks, Traits
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript


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
            "epsilon-differential privacy (delta = 0) under replacement of a unit vector, local, unconditional, in real "
            "arithmetic: the sampler is float64"
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
                f"sensitivity is {target.sensitivity:g}: PrivUnitG takes unit vectors only, for which it is {_DIAMETER:g}; scale "
                "the values to length 1, or choose another protocol"
            )
        parameters = replace(self, epsilon=target.epsilon, probability=best_probability(target.epsilon, target.dimension))
        responding = target.responding
        error = parameters.error(target.dimension) / (target.dimension * responding)
        lost = target.dropout_bias(responding)
        return Design(parameters, error, lost, f"pure {target.epsilon:g}-DP of each report (delta = 0), whoever colludes")

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return Schedule.silent(1, parties)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PrivUnitParty:
        return PrivUnitParty(self, value, weight, noise)

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        from quietmean.privacy import Charge

        mu = Charge.of_mechanism(self.epsilon).mu
        return APriori(mu, "each party's own report, whatever happens", pure=self.epsilon)

    def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
        """Make no transcript. Raises :class:`InputError`: the noise is not Gaussian."""
        raise InputError(
            "PrivUnitG adds no Gaussian noise, so there is nothing to certify from a transcript: every report is "
            f"{self.epsilon:g}-DP with delta = 0 under replacement of a unit vector, whoever colludes"
        )

    def batch(
        self, schedule: Schedule, trace: ExecutionTrace, values: Vector, weights: Array, noise: PopulationNoise
    ) -> Releases:
        reports = [
            private_report(self, value, float(weight), noise.party(party)).vector
            for party, (value, weight) in enumerate(zip(values, weights, strict=True))
        ]
        return Releases(np.array(reports), weights, trace.finished)
