"""Corrupt parties that cut honest ones off learn each group's sum, and no single value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quietmean.graphs import ExecutionTrace
from quietmean.privacy import Adversary
from quietmean.protocols.consensus import Consensus
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import fixed_schedule
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecureStackedNoise, insecure_seed
from quietmean.testing.examples import certificate_of
from support.reconstruction import component_sums, record

# Parties 2 and 5 cut the graph into {0, 1}, {3, 4} and {6, 7, 8}.
EDGES = [[0, 1], [0, 2], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7], [7, 8], [6, 8], [2, 5]]
CORRUPT = frozenset({2, 5})


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        {"theta": 0.0},
        {"theta": 0.5},
        {"theta": 0.2, "mode": "broadcast"},
        {"theta": 0.2, "bits": 3},
        {"theta": 0.0, "bits": 3},
        {"theta": 0.5, "bits": 3, "mode": "broadcast", "iterations": 500},
    ],
)
def test_sums_are_recovered_and_values_are_not(options: dict[str, Any]) -> None:
    raw = {"edges": EDGES, "c": 0.4, "sigma_z": 20.0, "iterations": 250, **options}
    parameters = Consensus.read(raw).resolved(9)
    trace = ExecutionTrace.everyone(parameters.rounds, 9)
    execution = Execution(parameters, fixed_schedule(parameters, 9), trace, 1.0, np.ones(9))
    values = BitStream(insecure_seed(1, "secret values")).standard_normal((9, 3))
    recording = record(execution, values, InsecureStackedNoise(7, 9), CORRUPT)
    sums = component_sums(parameters, CORRUPT, recording)
    assert sorted(sums) == [(0, 1), (3, 4), (6, 7, 8)]
    for group, total in sums.items():
        np.testing.assert_allclose(total, values[list(group)].sum(axis=0), atol=1e-3)
    information = certificate_of(execution.transcript(), Adversary.collusion(CORRUPT), 1.0).information
    assert information.disclosures() == [
        "the sum of parties 0, 1 is disclosed",
        "the sum of parties 3, 4 is disclosed",
        "the sum of parties 6, 7, 8 is disclosed",
    ]
    # No more of any one value than its group's sum shows, within the noise on the edges.
    nats = information.mutual_information(1.0)
    np.testing.assert_allclose(nats, [0.5 * np.log(2)] * 4 + [0.5 * np.log(1.5)] * 3, atol=0.01)
