"""Muffliato behind the common interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Vector
from quietmean.entropy import BitStream, Seed
from quietmean.graphs import History, Schedule, churn
from quietmean.protocols.muffliato.mixing import mix
from quietmean.protocols.muffliato.network_dp import mean_renyi_epsilon
from quietmean.protocols.muffliato.party import MuffliatoParty
from quietmean.protocols.muffliato.spec import (
    ACCELERATED,
    MuffliatoParameters,
    default_degree,
    default_graph,
    default_rounds,
    gossip_schedule,
)
from quietmean.protocols.protocol import Demand, Design, Protocol, Releases
from quietmean.transcript import Transcript

# The predicted error averages this many executions, each probed with so many random vectors where n is larger.
_EXECUTIONS, _PROBES = 8, 256
# Influences of so many parties are followed at once.
_COLUMNS = 1024
# Certificates are rounded up by what a solver may be off: so much more noise keeps them within the target.
_MARGIN = 1.0001


class Muffliato(Protocol[MuffliatoParameters]):
    """Nothing is released: every party ends with an estimate of its own, and gossip is all the telling there is.

    Against a coalition with a neighbour this is local DP, so that is what a plan is designed for. Neither the exchanges nor
    ``momentum`` change what a neighbour learns. The pairwise network loss, a mean over single observers, is among the figures.
    """

    name = "muffliato"
    options = frozenset({"rounds", "schedule", "out_degree", "momentum"})
    summary = "every party adds full noise once, then gossips: no second phase; against colluders no better than local DP"
    guarantee = (
        "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional; against a coalition with a "
        "neighbour that of the party's own noise"
    )
    releases_are_public = False

    def parse(self, raw: Mapping[str, Any], parties: int) -> MuffliatoParameters:
        return MuffliatoParameters.parse(raw, parties)

    def describe(self, parameters: MuffliatoParameters) -> dict[str, Any]:
        return {
            "sigma": parameters.sigma,
            "rounds": parameters.rounds,
            "schedule": parameters.schedule,
            "out_degree": parameters.out_degree,
            "momentum": parameters.momentum,
        }

    def draft(self, parties: int, options: Mapping[str, Any]) -> MuffliatoParameters:
        schedule = str(options.get("schedule", default_graph(parties)))
        degree = int(options.get("out_degree", default_degree(schedule, parties)))
        rounds = default_rounds(schedule, parties, degree)
        return self.parse({"sigma": 1.0, "rounds": rounds, "momentum": ACCELERATED, **options}, parties)

    def with_noise(self, parameters: MuffliatoParameters, star: float, delta: float) -> MuffliatoParameters:
        return replace(parameters, sigma=star)

    def design(self, demand: Demand, options: Mapping[str, Any]) -> Design[MuffliatoParameters]:
        from quietmean.privacy import mu_of_budget

        sigma = demand.sensitivity / mu_of_budget(demand.epsilon, demand.delta) * _MARGIN
        parameters = replace(self.draft(demand.parties, options), sigma=sigma)
        squares, bias = self._influence(parameters, demand)
        certificate = "local DP of the noisy value, which neighbours receive: whoever colludes; nothing is published"
        return Design(parameters, sigma**2 * squares, demand.value_variance * bias, certificate)

    def figures(self, parameters: MuffliatoParameters, demand: Demand) -> dict[str, Any]:
        degree = int(self.schedule(parameters, demand.parties, Seed.public("figures")).out_degree.max())
        order_two = (2.0, parameters.rounds, degree, demand.parties, parameters.sigma, demand.sensitivity)
        return {"pairwise_network_renyi_epsilon_order_2": mean_renyi_epsilon(*order_two)}

    def _influence(self, parameters: MuffliatoParameters, demand: Demand) -> tuple[float, float]:
        """sum_j w_j^2 and sum_j (w_j - 1/n)^2 of the weights w in one party's estimate, means over executions and parties."""
        parties = demand.parties
        squares, bias = [], []
        for number in range(_EXECUTIONS if demand.dropouts else 2):
            seed = Seed.public("muffliato", parties, number)
            schedule = self.schedule(parameters, parties, seed.derive("schedule"))
            history = churn(seed.derive("churn"), schedule.rounds, parties, permanent=demand.dropouts)
            everyone = np.eye(parties)
            if parties > _PROBES:
                everyone = BitStream(seed).standard_normal((parties, _PROBES)) / np.sqrt(_PROBES)
            weights = mix(parameters.momentum, schedule, history, everyone)[history.finished]
            squares.append(float((weights**2).sum(axis=1).mean()))
            bias.append(float(((weights - everyone.mean(axis=0)) ** 2).sum(axis=1).mean()))
        return float(np.mean(squares)), float(np.mean(bias))

    def error_variance(
        self, parameters: MuffliatoParameters, schedule: Schedule, history: History, weights: NDArray[np.float64]
    ) -> float:
        """Exact, for the exchanges as they went, uneven shares included: the largest over the parties that finished."""
        parties = len(weights)
        squares, total = np.zeros(parties), np.zeros(parties)
        for first in range(0, parties, _COLUMNS):
            own = np.arange(first, min(first + _COLUMNS, parties))
            unit = np.zeros((parties, own.size))
            unit[own, own - first] = 1.0
            shares = mix(parameters.momentum, schedule, history, unit)
            squares += (shares**2).sum(axis=1)
            total += shares @ weights[own]
        finished = history.finished
        if not finished.any():
            return np.inf
        return float(parameters.sigma**2 * (squares[finished] / total[finished] ** 2).max())

    def rounds(self, parameters: MuffliatoParameters) -> int:
        return parameters.rounds

    def schedule(self, parameters: MuffliatoParameters, parties: int, seed: Seed) -> Schedule:
        return gossip_schedule(parameters, parties, seed)

    def machine(
        self,
        parameters: MuffliatoParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> MuffliatoParty:
        return MuffliatoParty(parameters, schedule, party, value, weight, noise)

    def transcript(self, parameters: MuffliatoParameters, schedule: Schedule, history: History) -> Transcript:
        from quietmean.protocols.muffliato.transcript import declared_transcript

        return declared_transcript(parameters, schedule, history)

    def batch(
        self,
        parameters: MuffliatoParameters,
        schedule: Schedule,
        history: History,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
    ) -> Releases:
        noisy = values + parameters.sigma * noise.normal("star", 0, values.shape[1])
        held = mix(parameters.momentum, schedule, history, np.column_stack([noisy, weights]))
        return Releases(held[:, :-1], held[:, -1], history.finished)
