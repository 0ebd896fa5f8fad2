"""Central DP: a curator sees every value and publishes a noisy sum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.bounds import APriori, CoalitionBound
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.rounding import round_up
from quietmean.core.schema import parameter
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.central_dp.party import CentralDpParty
from quietmean.protocols.central_dp.population import population
from quietmean.protocols.protocol import Aggregated, Design, SelfCalibrating, Server
from quietmean.protocols.target import Target
from quietmean.randomness import Seed
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CentralDP(Aggregated, SelfCalibrating):
    """One Gaussian release of the sum by the trusted party ``aggregator``, the curator."""

    name = "central-dp"
    summary = "a curator sees every value and must be trusted: most accurate, for comparison"
    server = Server.CURATOR
    guarantee = (
        "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional, against everybody but the "
        "curator, who sees every value"
    )
    trust = "the curator sees every value"
    rounds = 1

    sigma: float = parameter(
        help="standard deviation of the noise on the sum, per coordinate",
        at_least=0,
        remedy="a standard deviation is a finite number >= 0",
    )
    aggregator: PartyId = parameter(0, help="the trusted party that sees every value", option=True, key="curator", flag="curator")

    @property
    def trusted(self) -> frozenset[PartyId]:
        return frozenset({self.aggregator})

    def with_noise(self, star: float, delta: float) -> Self:
        return replace(self, sigma=star)

    def design(self, target: Target) -> Design:
        """sigma = sensitivity / mu: exact, if the curator does not collude. The error is for a curator that never drops out."""
        from quietmean.privacy import mu_of_budget

        self.check_parties(target.parties)
        sigma = round_up(target.sensitivity / mu_of_budget(target.epsilon, target.delta))
        chances = target.responding_with(indispensable=1)
        noise = sum(chance * (sigma / count) ** 2 for count, chance in chances.items())
        lost = sum(chance * target.dropout_bias(count) for count, chance in chances.items())
        certificate = "exact: one Gaussian release of the sum, any colluders but the curator"
        return Design(replace(self, sigma=sigma), noise, lost, certificate)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return Schedule.from_lists([self.to_aggregator(parties)], parties)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> NDArray[np.bool_]:
        counted: NDArray[np.bool_] = trace.delivered(schedule)[0].any(axis=1)
        counted[self.aggregator] = True
        return counted

    def a_priori(self, parties: int, size: int, sensitivity: float, delta: float) -> APriori:
        return APriori(sensitivity / self.sigma if self.sigma else np.inf, "the curator, who must be trusted and adds the noise")

    def worst_coalition(self, schedule: Schedule, trace: ExecutionTrace, sensitivity: float, size: int) -> CoalitionBound:
        return CoalitionBound(
            np.full(schedule.parties, sensitivity / self.sigma if self.sigma else np.inf), "the curator's noise"
        )

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> CentralDpParty:
        return CentralDpParty(self.sigma, self.aggregator, schedule, party, value, weight, noise)

    def population(
        self,
        schedule: Schedule,
        trace: ExecutionTrace,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        return population(self.sigma, self.aggregator, schedule, trace, values, weights, noise, out)
