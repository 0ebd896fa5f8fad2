"""GOPA behind the common interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule
from quietmean.protocols.fields import optional_field, required_field
from quietmean.protocols.gopa.party import GopaCollector, GopaParty
from quietmean.protocols.gopa.rounds import Happened
from quietmean.protocols.gopa.spec import ROUNDS, GopaParameters, default_partners, draw_pairs, list_bytes
from quietmean.protocols.protocol import Demand, Protocol, Releases, Server
from quietmean.transcript import Transcript


class Gopa(Protocol[GopaParameters]):
    """Three rounds: publish to the collector; be told who did; roll back what is shared with those who did not.

    Of what a party sends only the collector and its coalition know, besides the total, which is public. Against coalitions with
    the collector this is the papers' reading, in which everything published is public; calibration tries such coalitions. The
    collector has to be there, and has to be honest about who published: like everybody here it is passive.
    """

    name = "gopa"
    options = frozenset({"partners", "aggregator"})
    summary = "values are published under noise that pairs share; who stays takes out what absent partners left"
    server = Server.COLLECTOR
    guarantee = (
        "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional, if the collector says truly "
        "who published"
    )
    trust = "a collector that stays and says truly who published; it is not trusted with values"
    stackable = False

    def parse(self, raw: Mapping[str, Any], parties: int) -> GopaParameters:
        aggregator = optional_field(raw, "aggregator", int, 0)
        if not 0 <= aggregator < parties:
            raise InputError(f"aggregator is {aggregator}: parties are numbered 0..{parties - 1}")
        return GopaParameters(
            required_field(raw, "sigma_star", float),
            required_field(raw, "sigma_delta", float),
            optional_field(raw, "partners", int, max(1, default_partners(parties))),
            aggregator,
        )

    def describe(self, parameters: GopaParameters) -> dict[str, Any]:
        return {
            "sigma_star": parameters.sigma_star,
            "sigma_delta": parameters.sigma_delta,
            "partners": parameters.partners,
            "aggregator": parameters.aggregator,
        }

    def draft(self, parties: int, options: Mapping[str, Any]) -> GopaParameters:
        return self.parse({"sigma_star": 1.0, "sigma_delta": 1.0, **options}, parties)

    def defaults(self, demand: Demand) -> dict[str, Any]:
        return {"partners": max(1, default_partners(demand.parties, demand.colluding))}

    def with_noise(self, parameters: GopaParameters, star: float, delta: float) -> GopaParameters:
        return replace(parameters, sigma_star=star, sigma_delta=delta)

    def rounds(self, parameters: GopaParameters) -> int:
        return ROUNDS

    def schedule(self, parameters: GopaParameters, parties: int, seed: Seed) -> Schedule:
        collector = parameters.aggregator
        others = [party for party in range(parties) if party != collector]
        to_collector = [[] if party == collector else [collector] for party in range(parties)]
        from_collector = [others if party == collector else [] for party in range(parties)]
        pairs = draw_pairs(parties, parameters.partners, seed)
        return Schedule.from_lists([to_collector, from_collector, to_collector], parties, pairs)

    def releasers(self, parameters: GopaParameters, parties: int) -> frozenset[PartyId]:
        return frozenset({parameters.aggregator})

    def indispensable(self, parameters: GopaParameters) -> frozenset[PartyId]:
        return frozenset({parameters.aggregator})

    def content_limit(self, parameters: GopaParameters, parties: int, dimension: int) -> int:
        return list_bytes(parties)

    def counted(self, parameters: GopaParameters, schedule: Schedule, history: History) -> NDArray[np.bool_]:
        return Happened.of(parameters.aggregator, schedule, history).arrived

    def machine(
        self, parameters: GopaParameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> GopaParty | GopaCollector:
        kind = GopaCollector if party == parameters.aggregator else GopaParty
        return kind(parameters, schedule, party, value, weight, noise)

    def transcript(self, parameters: GopaParameters, schedule: Schedule, history: History) -> Transcript:
        from quietmean.protocols.gopa.transcript import declared_transcript

        return declared_transcript(parameters, schedule, history)

    def batch(
        self,
        parameters: GopaParameters,
        schedule: Schedule,
        history: History,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
    ) -> Releases:
        happened, dimension = Happened.of(parameters.aggregator, schedule, history), values.shape[1]
        noisy = values + parameters.sigma_star * noise.normal("star", 0, dimension)
        total = noisy[happened.arrived].sum(axis=0)
        left_over = happened.left_over(schedule.pairs)
        uncancelled = left_over != 0
        if uncancelled.any():
            shared = noise.shared_normal(schedule.pairs[uncancelled], "delta", 0, dimension)
            total = total + parameters.sigma_delta * (left_over[uncancelled] @ shared)
        vector, weight = np.zeros_like(values), np.zeros(len(values))
        vector[parameters.aggregator], weight[parameters.aggregator] = total, weights[happened.arrived].sum()
        return Releases(vector, weight, (np.arange(len(values)) == parameters.aggregator) & happened.released)
