"""CorDP-DME behind the common interface."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.rounding import round_up
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule
from quietmean.protocols.cordp_dme.decoder import decode_total
from quietmean.protocols.cordp_dme.design import (
    ball_sensitivity,
    biased_mse,
    gaussian_variance,
    least_error,
    optimal_design,
)
from quietmean.protocols.cordp_dme.pairs import all_pairs, sparse_pairs
from quietmean.protocols.cordp_dme.party import CordpDmeParty
from quietmean.protocols.cordp_dme.population import population
from quietmean.protocols.cordp_dme.sparse import sparse_design
from quietmean.protocols.cordp_dme.spec import CordpDmeParameters, Decoder, parse_parameters
from quietmean.protocols.protocol import Demand, Design, Protocol
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


class CordpDme(Protocol[CordpDmeParameters]):
    """One round: before it every pair expands its shared noise, in it each party publishes (or hands in) one message.

    A party that misses the round published nothing: it dropped out after the noise was agreed.
    """

    name = "cordp-dme"
    options = frozenset({"aggregator", "partners", "decoder", "radius"})
    summary = "one message a party; noise shared in pairs cancels unless parties drop out: between local and central accuracy"
    stackable = False

    def parse(self, raw: Mapping[str, Any], parties: int) -> CordpDmeParameters:
        return parse_parameters(raw, parties)

    def describe(self, parameters: CordpDmeParameters) -> dict[str, Any]:
        described: dict[str, Any] = {
            "sigma_own": parameters.sigma_own,
            "sigma_pair": parameters.sigma_pair,
            "decoder": str(parameters.decoder),
        }
        optional = {name: getattr(parameters, name) for name in ("aggregator", "partners", "radius")}
        return described | {name: value for name, value in optional.items() if value is not None}

    def draft(self, parties: int, options: Mapping[str, Any]) -> CordpDmeParameters:
        return self.parse({"sigma_own": 1.0, "sigma_pair": 1.0, **options}, parties)

    def with_noise(self, parameters: CordpDmeParameters, star: float, delta: float) -> CordpDmeParameters:
        return replace(parameters, sigma_own=star, sigma_pair=delta)

    def design(self, demand: Demand, options: Mapping[str, Any]) -> Design[CordpDmeParameters]:
        """The optimum by formula; on a sparse graph, by exact accounting of random coalitions."""
        draft = self.draft(demand.parties, options)
        responding = demand.responding
        unit = gaussian_variance(demand.epsilon, demand.delta, demand.sensitivity)
        if draft.partners is None:
            design = optimal_design(demand.parties, responding, demand.colluding, unit)
            own, pair = design.own, design.pair
            certificate = f"any coalition of {demand.colluding}, by formula, as if all {demand.parties} messages arrived"
            if design.excess:
                certificate += f"; within {design.excess:.2g} of the least error that unlimited shared noise would reach"
        else:
            sparse = sparse_design(demand.parties, responding, demand.colluding, unit, draft.partners)
            own, pair = sparse.own, sparse.pair
            who = "any coalition" if sparse.exhaustive else f"worst of {sparse.coalitions} random coalitions"
            certificate = (
                f"{who} of {demand.colluding}, exact; error {sparse.cost:.3g} times the least with noise shared in all pairs; if "
                f"the partners of one party collude, its mu is {math.sqrt(sparse.surrounded):.3g} times the target"
            )
        parameters = replace(draft, sigma_own=round_up(math.sqrt(own)), sigma_pair=round_up(math.sqrt(pair)))
        noise, lost = _predicted(parameters, demand)
        return Design(parameters, noise, lost, certificate)

    def figures(self, parameters: CordpDmeParameters, demand: Demand) -> dict[str, Any]:
        """In the paper's terms: errors are squared L2 errors, total over coordinates, for the planned responders."""
        degree = parameters.degree(demand.parties)
        sigma2 = parameters.sigma_own**2 + degree * parameters.sigma_pair**2
        responding = demand.responding
        unbiased = _error(replace(parameters, decoder=Decoder.UNBIASED), demand, responding)
        figures = {
            "responding": responding,
            "sigma2": sigma2,
            "rho": -(parameters.sigma_pair**2) / sigma2 if sigma2 else 0.0,
            "mse_unbiased": unbiased,
        }
        if parameters.radius is not None:
            figures["mse_biased"] = biased_mse(unbiased, parameters.radius)
            figures["epsilon_on_ball"] = _epsilon_on_ball(demand, parameters.radius)
        unit = gaussian_variance(demand.epsilon, demand.delta, demand.sensitivity)
        least = least_error(demand.parties, responding, demand.colluding, unit)
        figures["mse_unbiased_least"] = demand.dimension * least / responding
        return figures

    def decode(self, parameters: CordpDmeParameters, parties: int, vector: Vector, weight: float) -> Vector:
        return decode_total(parameters, parties, vector, weight)

    def rounds(self, parameters: CordpDmeParameters) -> int:
        return 1

    def schedule(self, parameters: CordpDmeParameters, parties: int, seed: Seed) -> Schedule:
        partners = parameters.partners
        pairs = all_pairs(parties) if partners is None else sparse_pairs(parties, partners, seed)
        to = parameters.aggregator
        lists = [[[] if to is None or party == to else [to] for party in range(parties)]]
        return Schedule.from_lists(lists, parties, pairs)

    def releasers(self, parameters: CordpDmeParameters, parties: int) -> frozenset[PartyId]:
        return frozenset(range(parties)) if parameters.aggregator is None else frozenset({parameters.aggregator})

    def indispensable(self, parameters: CordpDmeParameters) -> frozenset[PartyId]:
        return frozenset() if parameters.aggregator is None else frozenset({parameters.aggregator})

    def counted(self, parameters: CordpDmeParameters, schedule: Schedule, history: History) -> NDArray[np.bool_]:
        publishes = history.online[1] & (schedule.out_degree[0] == 0)
        arrived = history.delivered(schedule)[0] & publishes[schedule.neighbours[0]]
        counted: NDArray[np.bool_] = publishes | arrived.any(axis=1)
        return counted

    def machine(
        self,
        parameters: CordpDmeParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> CordpDmeParty:
        if parameters.decoder == Decoder.BIASED and weight != 1.0:
            raise InputError(f"party {party} has weight {weight:g}: the biased decoder needs weight 1 for every party")
        return CordpDmeParty(parameters, schedule, party, value, weight, noise)

    def population(
        self,
        parameters: CordpDmeParameters,
        schedule: Schedule,
        history: History,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        return population(parameters, schedule, history, values, weights, noise, out)


def _predicted(parameters: CordpDmeParameters, demand: Demand) -> tuple[float, float]:
    """Per coordinate: noise, and lost values that are uniform over the domain."""
    # An aggregator that would have left stays: then one more responds.
    chances = demand.responding_with(indispensable=0 if parameters.aggregator is None else 1)
    noise = sum(chance * _error(parameters, demand, count) / demand.dimension for count, chance in chances.items())
    lost = sum(chance * demand.dropout_bias(count) for count, chance in chances.items())
    return noise, lost


def _error(parameters: CordpDmeParameters, demand: Demand, responding: int) -> float:
    """Squared L2 error for ``responding`` parties; of the biased decoder, in the worst case."""
    unbiased = demand.dimension * parameters.noise_in_sum(demand.parties, responding) / responding**2
    if parameters.decoder == Decoder.BIASED and parameters.radius is not None:
        return biased_mse(unbiased, parameters.radius)
    return unbiased


def _epsilon_on_ball(demand: Demand, radius: float) -> float:
    """What the noise is worth, at the same delta, if a value may become any other in the ball."""
    from quietmean.privacy import epsilon_of_mu, mu_of_budget

    mu = mu_of_budget(demand.epsilon, demand.delta) * ball_sensitivity(radius) / demand.sensitivity
    return epsilon_of_mu(mu, demand.delta)
