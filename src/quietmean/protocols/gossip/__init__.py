"""Gossip averaging (push-sum): no noise, no privacy; for comparison and for spreading what is public already.

Boyd, Ghosh, Prabhakar and Shah 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from quietmean.core.arrays import Array, Mask
from quietmean.core.grid import Numbers
from quietmean.core.input_domain import Box
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.core.schema import parameter
from quietmean.graphs import ExecutionTrace, Schedule, make_schedule
from quietmean.protocols import literature
from quietmean.protocols.mechanism import Mechanism
from quietmean.protocols.push_sum import PushSumParty, contributing, parts_released, population
from quietmean.protocols.push_sum.fixed_point import check_room, choose_grid, region_of
from quietmean.protocols.push_sum.parameters import (
    GRID,
    LARGEST_VALUE,
    OUT_DEGREE,
    ROUNDS,
    SCHEDULE,
    VALUE_BITS,
    Injection,
    PushSumParameters,
    check_fixed_point,
)
from quietmean.protocols.target import Target
from quietmean.protocols.traits import AcceptedValues, Planning, Traits
from quietmean.randomness import Seed
from quietmean.transcript.population import PopulationTerms, Reading, Results, Rows


def _finalised(protocol: Gossip, target: Target) -> Gossip:
    if protocol.value_bits == 64:
        return protocol
    grid, largest = choose_grid(protocol.mixing, target)
    return replace(protocol, grid=grid, largest_value=largest)


def _region(protocol: Gossip, target: Target, weight: float) -> Box | None:
    return region_of(protocol.mixing, target.dimension)


def _check(protocol: Gossip, values: Vector) -> None:
    check_room(protocol.mixing, values)


def _parts(protocol: Gossip, schedule: Schedule, trace: ExecutionTrace) -> Array:
    return parts_released(protocol.mixing, schedule, trace)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Gossip(Mechanism):
    """Push-sum averaging without any protection, for comparison. Fields as those of IncA."""

    name = "gossip"
    TRAITS = Traits(
        summary="push-sum averaging in the clear: NO PRIVACY, for comparison",
        sources=(literature.GOSSIP,),
        guarantee="none: values are averaged in the clear, without noise, and anyone who sees messages learns them",
        private=False,
        unpromised_if_read="it has no privacy",
        reveals="every party's value to its recipients",
        transfers_mass=True,
        grid=lambda protocol: protocol.grid,
        inputs=AcceptedValues(region=_region, check=_check),
        planning=Planning(finalised=_finalised),
        parts=_parts,
    )

    rounds: int = parameter(**ROUNDS)
    schedule: str = parameter("uniform", **SCHEDULE)
    out_degree: int = parameter(1, **OUT_DEGREE)
    value_bits: int = parameter(64, **VALUE_BITS)
    grid: float = parameter(0.0, **GRID)
    largest_value: float = parameter(0.0, **LARGEST_VALUE)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fixed_point(self.value_bits, self.grid, self.largest_value)

    @cached_property
    def mixing(self) -> PushSumParameters:
        """Parameters of IncA without noise."""
        return PushSumParameters(
            rounds=self.rounds,
            injection=Injection.plain(self.rounds),
            sigma_star=0.0,
            sigma_delta=0.0,
            schedule=self.schedule,
            out_degree=self.out_degree,
            value_bits=self.value_bits,
            grid=self.grid,
            largest_value=self.largest_value,
        )

    def numbers(self) -> Numbers:
        return self.mixing.numbers()

    def defaults(self, target: Target) -> dict[str, Any]:
        return {"rounds": 4 * math.ceil(math.log2(target.parties)) + 10}

    def draw_schedule(self, parties: int, seed: Seed) -> Schedule:
        return make_schedule(self.schedule, seed, parties, self.rounds, self.out_degree)

    def contributors(self, schedule: Schedule, trace: ExecutionTrace) -> Mask:
        return contributing(self.mixing, schedule, trace)

    def machine(self, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PushSumParty:
        self.TRAITS.inputs.check(self, value)
        return PushSumParty(self.mixing, schedule, party, value, weight, noise)

    def population(
        self, schedule: Schedule, trace: ExecutionTrace, values: Rows, weights: Array, noise: PopulationTerms, out: Reading
    ) -> Results[Rows]:
        return population(self.mixing, schedule, trace, values, weights, noise, out)


__all__ = ["PROTOCOL", "Gossip"]

PROTOCOL = Gossip
