"""Local DP behind the common interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.rounding import round_up
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule
from quietmean.protocols.fields import required_field
from quietmean.protocols.local_dp.party import LocalDpParty
from quietmean.protocols.local_dp.population import population
from quietmean.protocols.protocol import Demand, Design, Protocol
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


@dataclass(frozen=True)
class LocalDpParameters:
    """``sigma``: standard deviation of every party's noise, per coordinate."""

    sigma: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.sigma) and self.sigma >= 0):
            raise InputError(f"sigma is {self.sigma:g}: a standard deviation is a finite number >= 0")


class LocalDp(Protocol[LocalDpParameters]):
    name = "local-dp"
    summary = "every party publishes its value with full noise: trusts nobody, least accurate"

    def parse(self, raw: Mapping[str, Any], parties: int) -> LocalDpParameters:
        return LocalDpParameters(required_field(raw, "sigma", float))

    def describe(self, parameters: LocalDpParameters) -> dict[str, Any]:
        return {"sigma": parameters.sigma}

    def draft(self, parties: int, options: Mapping[str, Any]) -> LocalDpParameters:
        return self.parse({"sigma": 1.0, **options}, parties)

    def with_noise(self, parameters: LocalDpParameters, star: float, delta: float) -> LocalDpParameters:
        return replace(parameters, sigma=star)

    def design(self, demand: Demand, options: Mapping[str, Any]) -> Design[LocalDpParameters]:
        """sigma = sensitivity / mu: exact, and the same whoever colludes."""
        from quietmean.privacy import mu_of_budget

        sigma = round_up(demand.sensitivity / mu_of_budget(demand.epsilon, demand.delta))
        responding = demand.responding
        return Design(
            LocalDpParameters(sigma),
            sigma**2 / responding,
            demand.dropout_bias(responding),
            "exact: one Gaussian release of each value, whoever colludes",
        )

    def rounds(self, parameters: LocalDpParameters) -> int:
        return 1

    def schedule(self, parameters: LocalDpParameters, parties: int, seed: Seed) -> Schedule:
        return Schedule.silent(1, parties)

    def fixed_schedule(self, parameters: LocalDpParameters, parties: int) -> Schedule:
        return Schedule.silent(1, parties)

    def machine(
        self, parameters: LocalDpParameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> LocalDpParty:
        return LocalDpParty(parameters.sigma, value, weight, noise)

    def population(
        self,
        parameters: LocalDpParameters,
        schedule: Schedule,
        history: History,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        return population(parameters, schedule, history, values, weights, noise, out)
