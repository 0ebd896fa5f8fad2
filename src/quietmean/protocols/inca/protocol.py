"""IncA behind the common interface."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, PopulationNoise, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule, make_schedule
from quietmean.protocols.fields import optional_field, required_field
from quietmean.protocols.inca.batch import run_batch
from quietmean.protocols.inca.party import IncaParty
from quietmean.protocols.inca.spec import IncaParameters, Injection
from quietmean.protocols.protocol import Protocol, Releases
from quietmean.transcript import Transcript


def default_rounds(parties: int) -> int:
    """Enough that honest parties stay connected by unseen messages, also when half of all parties collude."""
    return math.ceil(math.log2(parties)) + 6


class Inca(Protocol[IncaParameters]):
    name = "inca"
    sends_shares = True
    options = frozenset({"rounds", "schedule", "out_degree", "injection"})
    summary = "peer to peer, cancels low-variance correlated noise incrementally; central accuracy without dropouts"

    def parse(self, raw: Mapping[str, Any], parties: int) -> IncaParameters:
        rounds = required_field(raw, "rounds", int)
        if rounds < 1:
            raise InputError(f"rounds is {rounds}: IncA needs at least 1 mixing round")
        return IncaParameters(
            injection=Injection.parse(raw.get("injection", "incremental"), rounds),
            sigma_star=required_field(raw, "sigma_star", float),
            sigma_delta=required_field(raw, "sigma_delta", float),
            schedule=optional_field(raw, "schedule", str, "permutation"),
            out_degree=optional_field(raw, "out_degree", int, 1),
        )

    def describe(self, parameters: IncaParameters) -> dict[str, Any]:
        return {
            "rounds": parameters.rounds,
            "injection": parameters.injection.describe(),
            "sigma_star": parameters.sigma_star,
            "sigma_delta": parameters.sigma_delta,
            "schedule": parameters.schedule,
            "out_degree": parameters.out_degree,
        }

    def draft(self, parties: int, options: Mapping[str, Any]) -> IncaParameters:
        return self.parse({"rounds": default_rounds(parties), "sigma_star": 1.0, "sigma_delta": 1.0, **options}, parties)

    def with_noise(self, parameters: IncaParameters, star: float, delta: float) -> IncaParameters:
        return replace(parameters, sigma_star=star, sigma_delta=delta)

    def rounds(self, parameters: IncaParameters) -> int:
        return parameters.rounds

    def schedule(self, parameters: IncaParameters, parties: int, seed: Seed) -> Schedule:
        return make_schedule(parameters.schedule, seed, parties, parameters.rounds, parameters.out_degree)

    def machine(
        self, parameters: IncaParameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> IncaParty:
        return IncaParty(parameters, schedule, party, value, weight, noise)

    def transcript(self, parameters: IncaParameters, schedule: Schedule, history: History) -> Transcript:
        # Running parties need no matrices: they start without this import.
        from quietmean.protocols.inca.transcript import declared_transcript

        return declared_transcript(parameters, schedule, history)

    def batch(
        self,
        parameters: IncaParameters,
        schedule: Schedule,
        history: History,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
    ) -> Releases:
        return run_batch(parameters, schedule, history, values, weights, noise)
