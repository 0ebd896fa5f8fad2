"""Push-sum gossip is the mixing of IncA with the whole value injected at once and no noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class GossipParameters:
    rounds: int
    schedule: str = "uniform"
    out_degree: int = 1

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds is {self.rounds}: gossip needs at least 1 round")

    def as_inca(self) -> IncaParameters:
        return IncaParameters(Injection.plain(self.rounds), 0.0, 0.0, self.schedule, self.out_degree)


class Gossip(Protocol[GossipParameters]):
    name = "gossip"
    private = False
    sends_shares = True
    options = frozenset({"rounds", "schedule", "out_degree"})
    summary = "push-sum averaging in the clear: NO PRIVACY, for comparison"

    def parse(self, raw: Mapping[str, Any], parties: int) -> GossipParameters:
        return GossipParameters(
            required_field(raw, "rounds", int),
            optional_field(raw, "schedule", str, "uniform"),
            optional_field(raw, "out_degree", int, 1),
        )

    def describe(self, parameters: GossipParameters) -> dict[str, Any]:
        return {"rounds": parameters.rounds, "schedule": parameters.schedule, "out_degree": parameters.out_degree}

    def draft(self, parties: int, options: Mapping[str, Any]) -> GossipParameters:
        return self.parse({"rounds": 4 * math.ceil(math.log2(parties)) + 10, **options}, parties)

    def with_noise(self, parameters: GossipParameters, star: float, delta: float) -> GossipParameters:
        return parameters

    def rounds(self, parameters: GossipParameters) -> int:
        return parameters.rounds

    def schedule(self, parameters: GossipParameters, parties: int, seed: Seed) -> Schedule:
        return make_schedule(parameters.schedule, seed, parties, parameters.rounds, parameters.out_degree)

    def machine(
        self, parameters: GossipParameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> IncaParty:
        return IncaParty(parameters.as_inca(), schedule, party, value, weight, noise)

    def transcript(self, parameters: GossipParameters, schedule: Schedule, history: History) -> Transcript:
        from quietmean.protocols.inca.transcript import declared_transcript

        return declared_transcript(parameters.as_inca(), schedule, history)

    def batch(
        self,
        parameters: GossipParameters,
        schedule: Schedule,
        history: History,
        values: Vector,
        weights: NDArray[np.float64],
        noise: PopulationNoise,
    ) -> Releases:
        return run_batch(parameters.as_inca(), schedule, history, values, weights, noise)
