"""Push-sum gossip is the mixing of IncA with the whole value injected at once and no noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule, make_schedule
from quietmean.protocols.fields import optional_field, required_field
from quietmean.protocols.inca.fixed_point import check_room, choose_grid, describe_fixed_point
from quietmean.protocols.inca.party import IncaParty
from quietmean.protocols.inca.population import population
from quietmean.protocols.inca.spec import IncaParameters, Injection, check_fixed_point
from quietmean.protocols.protocol import Demand, Protocol
from quietmean.transcript.numbers import REAL, Arithmetic, WholeNumbers
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


@dataclass(frozen=True)
class GossipParameters:
    rounds: int
    schedule: str = "uniform"
    out_degree: int = 1
    value_bits: int = 64
    grid: float = 0.0
    largest_value: float = 0.0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds is {self.rounds}: gossip needs at least 1 round")
        check_fixed_point(self.value_bits, self.grid, self.largest_value)

    def as_inca(self) -> IncaParameters:
        values = self.value_bits, self.grid, self.largest_value
        return IncaParameters(Injection.plain(self.rounds), 0.0, 0.0, self.schedule, self.out_degree, *values)


class Gossip(Protocol[GossipParameters]):
    name = "gossip"
    private = False
    sends_shares = True
    options = frozenset({"rounds", "schedule", "out_degree", "value_bits", "largest_value"})
    summary = "push-sum averaging in the clear: NO PRIVACY, for comparison"

    def parse(self, raw: Mapping[str, Any], parties: int) -> GossipParameters:
        return GossipParameters(
            required_field(raw, "rounds", int),
            optional_field(raw, "schedule", str, "uniform"),
            optional_field(raw, "out_degree", int, 1),
            optional_field(raw, "value_bits", int, 64),
            optional_field(raw, "grid", float, 0.0),
            optional_field(raw, "largest_value", float, 0.0),
        )

    def describe(self, parameters: GossipParameters) -> dict[str, Any]:
        mixing = {"rounds": parameters.rounds, "schedule": parameters.schedule, "out_degree": parameters.out_degree}
        return mixing | describe_fixed_point(parameters.as_inca())

    def draft(self, parties: int, options: Mapping[str, Any]) -> GossipParameters:
        return self.parse({"rounds": 4 * math.ceil(math.log2(parties)) + 10, **options}, parties)

    def with_noise(self, parameters: GossipParameters, star: float, delta: float) -> GossipParameters:
        return parameters

    def completed(self, parameters: GossipParameters, demand: Demand) -> GossipParameters:
        chosen = choose_grid(parameters.as_inca(), demand)
        return replace(parameters, grid=chosen.grid, largest_value=chosen.largest_value)

    def grid(self, parameters: GossipParameters) -> float:
        return parameters.grid

    def rounds(self, parameters: GossipParameters) -> int:
        return parameters.rounds

    def schedule(self, parameters: GossipParameters, parties: int, seed: Seed) -> Schedule:
        return make_schedule(parameters.schedule, seed, parties, parameters.rounds, parameters.out_degree)

    def check_values(self, parameters: GossipParameters, values: Vector) -> None:
        check_room(parameters.as_inca(), values)

    def machine(
        self, parameters: GossipParameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> IncaParty:
        self.check_values(parameters, value)
        return IncaParty(parameters.as_inca(), schedule, party, value, weight, noise)

    def population(
        self,
        parameters: GossipParameters,
        schedule: Schedule,
        history: History,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        return population(parameters.as_inca(), schedule, history, values, weights, noise, out)

    def arithmetic(self, parameters: GossipParameters) -> Arithmetic:
        return WholeNumbers(parameters.grid) if parameters.grid else REAL
