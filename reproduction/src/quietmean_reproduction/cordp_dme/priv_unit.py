"""Runs of PrivUnitG, which Figure 6 has beside CorDP-DME."""

from __future__ import annotations

from typing import Any

import numpy as np

from quietmean.core.party import Vector
from quietmean.entropy import BitStream
from quietmean.entropy.insecure import InsecurePopulationNoise, insecure_seed
from quietmean.graphs import History
from quietmean.protocols import get_protocol
from quietmean.protocols.execution import Execution
from quietmean.protocols.priv_unit.spec import PrivUnitParameters
from quietmean_reproduction.cordp_dme.setting import REPLACEMENT, standard_error


def measured_priv_unit(*, seed: int, responding: int, epsilon: float, runs: int, dimension: int) -> list[dict[str, Any]]:
    """Runs of PrivUnitG on random unit vectors: the error of the mean of those who respond."""
    protocol = get_protocol("priv-unit-g")
    parameters = PrivUnitParameters.best(epsilon, dimension)
    errors = []
    for run in range(runs):
        drawn: Vector = BitStream(insecure_seed(seed, "values", run)).standard_normal((responding, dimension))
        values = drawn / np.linalg.norm(drawn, axis=1)[:, None]
        schedule = protocol.schedule(parameters, responding, insecure_seed(seed, "schedule"))
        history = History.everyone(protocol.rounds(parameters), responding)
        execution = Execution(protocol, parameters, schedule, history, REPLACEMENT, np.ones(responding))
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
            "priv-unit-g_predicted": parameters.error(dimension) / responding,
            "runs": runs,
        }
    ]


def _another_seed(seed: int, run: int) -> int:
    """Another seed for every run."""
    return int.from_bytes(insecure_seed(seed, "run", run).secret[:7], "big")
