"""Local DP: every party publishes its value with noise of its own. No exchange, no trusted party.

Duchi, Jordan and Wainwright 2013.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.grid import Numbers, numbers_for
from quietmean.core.party import NoiseGroup, NoiseSource, PartyId, Release, Vector
from quietmean.core.schema import parameter
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols import literature
from quietmean.protocols.discrete import ON_GRID, DiscreteNoise, least_deviation, step_of
from quietmean.protocols.mechanism import Design, Mechanism
from quietmean.protocols.publishing import ALL_PUBLISHED, PublishingParty
from quietmean.protocols.target import Target
from quietmean.protocols.traits import Checks, Traits
from quietmean.randomness import Seed
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


class LocalDpParty(PublishingParty):
    """Publishes its value (d,) with Gaussian noise of standard deviation ``sigma``, both as ``numbers``."""

    def __init__(self, sigma: float, numbers: Numbers, value: Vector, weight: float, noise: NoiseSource) -> None:
        numbers = numbers_for(value, numbers)
        noisy = numbers.value(value) + numbers.noise(noise, NoiseGroup.INDEPENDENT, 0, sigma, value.size)
        super().__init__(Release(noisy, weight))


def _own_variance(protocol: LocalDP, schedule: Schedule) -> Array:
    return np.full(schedule.parties, protocol.sigma**2)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LocalDP(DiscreteNoise, Mechanism):
    """One release of every value, whole numbers with discrete Gaussian noise; the same loss for every coalition and history."""

    name = "local-dp"
    TRAITS = Traits(
        summary="every party publishes its value with full noise: trusts nobody, least accurate",
        sources=(literature.LOCAL,),
        keeps_target=True,
        by_file=True,
        fixed_schedule=True,
        already_public=ALL_PUBLISHED,
        checks=Checks(own_release_variance=_own_variance),
        exposed=True,
        grid=step_of,
        inputs=ON_GRID,
    )
    rounds = 1

    sigma: float = parameter(
        help="standard deviation of every party's noise, per coordinate",
        at_least=0,
        remedy="choose a finite number >= 0",
    )

    @property
    def own_deviation(self) -> float:
        return self.sigma

    def with_noise(self, star: float, delta: float) -> Self:
        return replace(self, sigma=star)

    def design(self, target: Target) -> Design:
        """sigma^2 = (sensitivity / mu)^2 and 8 squared steps: the same for every coalition."""
        from quietmean.privacy import mu_of_budget

        mu = mu_of_budget(target.epsilon, target.delta)
        grid = self.on_grid(target, [least_deviation(target.sensitivity, mu)])
        sigma = least_deviation(target.sensitivity, mu, grid.get("step", 0.0))
        return Design(
            replace(self, sigma=sigma, **grid),
            sigma**2 / target.responding,
            target.dropout_bias(target.responding),
            "by formula: one Gaussian release of each value, against every coalition",
        )

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return Schedule.silent(1, parties)

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        return self.own_promise(sensitivity, self.sigma, parties, "each party's own noise")

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        return self.own_bound(schedule.parties, sensitivity, "the party's own noise")

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> LocalDpParty:
        self.TRAITS.inputs.check(self, value)
        return LocalDpParty(self.sigma, self.numbers(), value, weight, noise)

    def population(
        self, schedule: Schedule, trace: ExecutionTrace, values: Rows, weights: Array, noise: PopulationTerms, out: Reading
    ) -> Results[Rows]:
        """Every party that stays releases its noisy value."""
        noisy = out.release(values + noise.normal(NoiseGroup.INDEPENDENT, 0, self.sigma), trace.finished, 2)
        return Results(noisy, weights, trace.finished)


__all__ = ["PROTOCOL", "LocalDP"]

PROTOCOL = LocalDP
