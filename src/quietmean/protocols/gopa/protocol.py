"""GOPA: values are published under noise that pairs share, and what absent partners left is taken out again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule
from quietmean.protocols.gopa.party import GopaCollector, GopaParty
from quietmean.protocols.gopa.population import population
from quietmean.protocols.gopa.rounds import Happened
from quietmean.protocols.gopa.spec import ROUNDS, GopaParameters, default_partners, draw_pairs, list_bytes
from quietmean.protocols.protocol import Aggregated, Server
from quietmean.protocols.target import Target
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


class GOPA(GopaParameters, Aggregated):
    """Three rounds: publish to the collector; be told who did; roll back what is shared with those who did not.

    Of what a party sends only the collector and its coalition know, besides the total, which is public. Against coalitions with
    the collector this is the papers' reading, in which everything published is public; calibration tries such coalitions. The
    collector has to be there, and has to be honest about who published: like everybody here it is passive.
    """

    name = "gopa"
    summary = "values are published under noise that pairs share; who stays takes out what absent partners left"
    server = Server.COLLECTOR
    guarantee = (
        "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional, if the collector says truly "
        "who published"
    )
    trust = "a collector that stays and says truly who published; it is not trusted with values"
    rounds = ROUNDS

    def resolved(self, parties: int) -> Self:
        return super(GOPA, self.filled(partners=max(1, default_partners(parties)))).resolved(parties)

    def defaults(self, target: Target) -> dict[str, Any]:
        return {"partners": max(1, default_partners(target.parties, target.colluding))}

    def with_noise(self, star: float, delta: float) -> Self:
        return replace(self, sigma_star=star, sigma_delta=delta)

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        to, back = self.to_aggregator(parties), self.from_aggregator(parties)
        return Schedule.from_lists([to, back, to], parties, draw_pairs(parties, self.partners, seed))

    def content_limit(self, parties: int, dimension: int) -> int:
        return list_bytes(parties)

    def counted(self, schedule: Schedule, history: History) -> NDArray[np.bool_]:
        return Happened.of(self.aggregator, schedule, history).arrived

    def machine(
        self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> GopaParty | GopaCollector:
        kind = GopaCollector if party == self.aggregator else GopaParty
        return kind(self, schedule, party, value, weight, noise)

    def population(
        self,
        schedule: Schedule,
        history: History,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        return population(self, schedule, history, values, weights, noise, out)
