"""Runs of PrivUnitG, which Figure 6 has beside CorDP-DME."""

from __future__ import annotations

from typing import Any

import numpy as np

from quietmean.core.party import Vector
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.execution import Execution
from quietmean.protocols.priv_unit import PrivUnitG, best_probability
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean_reproduction.cordp_dme.setting import REPLACEMENT, standard_error


def best_error(epsilon: float, dimension: int) -> float:
    """E |report - v|^2 of one report with the best probability of the cap."""
    return _best(epsilon, dimension).error(dimension)


def _best(epsilon: float, dimension: int) -> PrivUnitG:
    return PrivUnitG(epsilon=epsilon, probability=best_probability(epsilon, dimension))


def measured_priv_unit(*, seed: int, responding: int, epsilon: float, runs: int, dimension: int) -> list[dict[str, Any]]:
    """Runs of PrivUnitG on random unit vectors: the error of the mean of those who respond."""
    protocol = _best(epsilon, dimension)
    errors = []
    for run in range(runs):
        drawn: Vector = BitStream(insecure_seed(seed, "values", run)).standard_normal((responding, dimension))
        values = drawn / np.linalg.norm(drawn, axis=1)[:, None]
        schedule = protocol.draw_schedule(responding, insecure_seed(seed, "schedule"))
        trace = ExecutionTrace.everyone(protocol.rounds, responding)
        execution = Execution(protocol, schedule, trace, REPLACEMENT, np.ones(responding))
        noise = InsecurePopulationNoise(_another_seed(seed, run), responding)
        estimate = execution.estimate(execution.run_batch(values, noise))
        errors.append(float(((estimate - values.mean(axis=0)) ** 2).sum()))
    sample = np.array(errors)
    return [
        {
            "kind": "measured",
            "epsilon": epsilon,
            "responding": responding,
            "priv-unit-g": float(sample.mean()),
            "priv-unit-g_standard_error": standard_error(sample),
            "priv-unit-g_predicted": protocol.error(dimension) / responding,
            "runs": runs,
        }
    ]


def _another_seed(seed: int, run: int) -> int:
    """Another seed for every run."""
    return int.from_bytes(insecure_seed(seed, "run", run).secret[:7], "big")
