"""IncA behind the common interface."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.entropy import Seed
from quietmean.graphs import History, Schedule, make_schedule
from quietmean.protocols.fields import optional_field, required_field
from quietmean.protocols.inca.fixed_point import check_room, choose_grid, describe_fixed_point, grid_figures
from quietmean.protocols.inca.party import IncaParty
from quietmean.protocols.inca.population import population
from quietmean.protocols.inca.spec import IncaParameters, Injection
from quietmean.protocols.protocol import Demand, Protocol
from quietmean.transcript.numbers import REAL, Arithmetic, WholeNumbers
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows

if TYPE_CHECKING:
    from quietmean.privacy import Accounting


def default_rounds(parties: int) -> int:
    """Enough that honest parties stay connected by unseen messages, also when half of all parties collude."""
    return math.ceil(math.log2(parties)) + 6


class Inca(Protocol[IncaParameters]):
    name = "inca"
    sends_shares = True
    options = frozenset({"rounds", "schedule", "out_degree", "injection", "value_bits", "largest_value"})
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
            value_bits=optional_field(raw, "value_bits", int, 64),
            grid=optional_field(raw, "grid", float, 0.0),
            largest_value=optional_field(raw, "largest_value", float, 0.0),
            dimension=required_field(raw, "dimension", int) if "dimension" in raw else None,
        )

    def describe(self, parameters: IncaParameters) -> dict[str, Any]:
        return {
            "rounds": parameters.rounds,
            "injection": parameters.injection.describe(),
            "sigma_star": parameters.sigma_star,
            "sigma_delta": parameters.sigma_delta,
            "schedule": parameters.schedule,
            "out_degree": parameters.out_degree,
            **describe_fixed_point(parameters),
        }

    def draft(self, parties: int, options: Mapping[str, Any]) -> IncaParameters:
        return self.parse({"rounds": default_rounds(parties), "sigma_star": 1.0, "sigma_delta": 1.0, **options}, parties)

    def with_noise(self, parameters: IncaParameters, star: float, delta: float) -> IncaParameters:
        return replace(parameters, sigma_star=star, sigma_delta=delta)

    def completed(self, parameters: IncaParameters, demand: Demand) -> IncaParameters:
        return choose_grid(parameters, demand)

    def grid(self, parameters: IncaParameters) -> float:
        return parameters.grid

    def figures(self, parameters: IncaParameters, demand: Demand) -> dict[str, Any]:
        """Of a grid: its step over the smallest standard deviation of any noise, and what it adds to mu squared at most."""
        return grid_figures(parameters, self.schedule(parameters, demand.parties, Seed.public("figures")), demand)

    def rounds(self, parameters: IncaParameters) -> int:
        return parameters.rounds

    def schedule(self, parameters: IncaParameters, parties: int, seed: Seed) -> Schedule:
        return make_schedule(parameters.schedule, seed, parties, parameters.rounds, parameters.out_degree)

    def check_values(self, parameters: IncaParameters, values: Vector) -> None:
        check_room(parameters, values)

    def machine(
        self, parameters: IncaParameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> IncaParty:
        self.check_values(parameters, value)
        return IncaParty(parameters, schedule, party, value, weight, noise)

    def population(
        self,
        parameters: IncaParameters,
        schedule: Schedule,
        history: History,
        values: Rows,
        weights: NDArray[np.float64],
        noise: PopulationTerms,
        out: Reading,
    ) -> Results[Rows]:
        return population(parameters, schedule, history, values, weights, noise, out)

    def arithmetic(self, parameters: IncaParameters) -> Arithmetic:
        return WholeNumbers(parameters.grid) if parameters.grid else REAL

    def accounting(
        self, parameters: IncaParameters, schedule: Schedule, history: History, weights: NDArray[np.float64], delta: float
    ) -> Accounting:
        if not parameters.grid:
            return super().accounting(parameters, schedule, history, weights, delta)
        from quietmean.protocols.inca.accounting import GridAccounting

        return GridAccounting(parameters, schedule, history)
