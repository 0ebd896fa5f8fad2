"""Central DP behind the common interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Vector
from quietmean.core.rounding import round_up
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule
from quietmean.protocols.central_dp.party import CentralDpParty
from quietmean.protocols.fields import optional_field, required_field
from quietmean.protocols.protocol import Demand, Design, Protocol, Releases, Server
from quietmean.transcript import Transcript, TranscriptBuilder


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
    guarantee = (
        "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional, against everybody but the "
        "curator, who sees every value"
    )
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

    def transcript(self, parameters: CentralDpParameters, schedule: Schedule, history: History) -> Transcript:
        builder = TranscriptBuilder(schedule.parties)
        arrived = history.delivered(schedule)[0].any(axis=1)
        handed = {}
        for party in np.nonzero(history.online[1])[0].tolist():
            if party != parameters.curator:
                receivers = [parameters.curator] if arrived[party] else []
                handed[party] = builder.add_message(party, 1, receivers, values={party: 1.0})
        if history.online[1, parameters.curator]:
            noise = builder.add_noise([parameters.curator], parameters.sigma, "star")
            counted = {row: 1.0 for party, row in handed.items() if arrived[party]}
            own = {parameters.curator: 1.0}
            builder.add_message(parameters.curator, 2, messages=counted, values=own, noise={noise: 1.0}, released=True)
        return builder.build()

    def batch(
        self,
        parameters: CentralDpParameters,
        schedule: Schedule,
        history: History,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
    ) -> Releases:
        counted = self.counted(parameters, schedule, history)
        vector, weight = np.zeros_like(values), np.zeros(len(values))
        star = noise.normal("star", 0, values.shape[1])[parameters.curator]
        vector[parameters.curator] = values[counted].sum(axis=0) + parameters.sigma * star
        weight[parameters.curator] = weights[counted].sum()
        releases = history.finished & (np.arange(len(values)) == parameters.curator)
        return Releases(vector, weight, releases)
