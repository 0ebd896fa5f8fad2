"""Consensus of a whole population in this process, and all that it went through."""

from __future__ import annotations

from typing import Any

import numpy as np

from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.consensus import Consensus
from quietmean.protocols.consensus.population import ConsensusRun, run_consensus
from quietmean.protocols.mechanism import fixed_schedule
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed


def make(parties: int, **raw: Any) -> Consensus:
    return Consensus.read({"sigma_z": 1.0, "theta": 0.2, "c": 1.0, "iterations": 100, **raw}).resolved(parties)


def run(parameters: Consensus, values: Vector, seed: int = 0) -> tuple[ConsensusRun, list[Vector]]:
    schedule = fixed_schedule(parameters, parameters.parties)
    seen: list[Vector] = []
    noise = InsecurePopulationNoise(seed, parameters.parties)
    trace, weights = ExecutionTrace.everyone(parameters.rounds, parameters.parties), np.ones(parameters.parties)
    done = run_consensus(parameters, schedule, trace, values, weights, noise, lambda t, x: seen.append(x.copy()))
    return done, seen


def normal_values(parties: int, dimension: int, seed: int = 0) -> Vector:
    return BitStream(insecure_seed(seed, "values")).standard_normal((parties, dimension))
