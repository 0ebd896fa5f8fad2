"""Central DP behind the common interface."""

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
from quietmean.protocols.central_dp.party import CentralDpParty
from quietmean.protocols.central_dp.population import population
from quietmean.protocols.fields import optional_field, required_field
from quietmean.protocols.protocol import Demand, Design, Protocol, Server
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


@dataclass(frozen=True)
class CentralDpParameters:
    """``sigma``: standard deviation of the noise on the sum, per coordinate; ``curator``: the trusted party."""

    sigma: float
    curator: int = 0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.sigma) and self.sigma >= 0):
            raise InputError(f"sigma is {self.sigma:g}: a standard deviation is a finite number >= 0")


class CentralDp(Protocol[CentralDpParameters]):
    name = "central-dp"
    options = frozenset({"curator"})
    summary = "a curator sees every value and must be trusted: most accurate, for comparison"
    server = Server.CURATOR
    trust = "the curator sees every value"
    stackable = False

    def parse(self, raw: Mapping[str, Any], parties: int) -> CentralDpParameters:
        curator = optional_field(raw, "curator", int, 0)
        if not 0 <= curator < parties:
            raise InputError(f"curator is {curator}: parties are numbered 0..{parties - 1}")
        return CentralDpParameters(required_field(raw, "sigma", float), curator)

    def describe(self, parameters: CentralDpParameters) -> dict[str, Any]:
        return {"sigma": parameters.sigma, "curator": parameters.curator}

    def draft(self, parties: int, options: Mapping[str, Any]) -> CentralDpParameters:
        return self.parse({"sigma": 1.0, **options}, parties)

    def with_noise(self, parameters: CentralDpParameters, star: float, delta: float) -> CentralDpParameters:
        return replace(parameters, sigma=star)

    def design(self, demand: Demand, options: Mapping[str, Any]) -> Design[CentralDpParameters]:
        """sigma = sensitivity / mu: exact, if the curator colludes with nobody. It stays, though it might have left."""
        from quietmean.privacy import mu_of_budget

        parameters = replace(
            self.draft(demand.parties, options),
            sigma=round_up(demand.sensitivity / mu_of_budget(demand.epsilon, demand.delta)),
        )
        chances = demand.responding_with(indispensable=1)
        noise = sum(chance * (parameters.sigma / count) ** 2 for count, chance in chances.items())
        lost = sum(chance * demand.dropout_bias(count) for count, chance in chances.items())
        return Design(parameters, noise, lost, "exact: one Gaussian release of the sum, any colluders but the curator")

    def rounds(self, parameters: CentralDpParameters) -> int:
        return 1

    def schedule(self, parameters: CentralDpParameters, parties: int, seed: Seed) -> Schedule:
        to_curator = [[] if party == parameters.curator else [parameters.curator] for party in range(parties)]
        return Schedule.from_lists([to_curator], parties)

    def releasers(self, parameters: CentralDpParameters, parties: int) -> frozenset[PartyId]:
        return frozenset({parameters.curator})

    def trusted(self, parameters: CentralDpParameters) -> frozenset[PartyId]:
        return frozenset({parameters.curator})

    def counted(self, parameters: CentralDpParameters, schedule: Schedule, history: History) -> NDArray[np.bool_]:
        counted: NDArray[np.bool_] = history.delivered(schedule)[0].any(axis=1)
        counted[parameters.curator] = True
        return counted

    def machine(
        self,
        parameters: CentralDpParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> CentralDpParty:
        return CentralDpParty(parameters.sigma, parameters.curator, schedule, party, value, weight, noise)

    def population(
        self,
        parameters: CentralDpParameters,
        schedule: Schedule,
        history: History,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        return population(parameters, schedule, history, values, weights, noise, out)
