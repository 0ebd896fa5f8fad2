"""What one party can do to a mean of quantised consensus: as little as without quantisers, if none of them overloads.

Errors of quantisers that do not overload are bounded and independent, so that a result that they cannot make is refused.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.influence import influence_of, planned_influence
from quietmean.planning.possible import ImpossibleResult, ReleasedSum, require_possible
from quietmean.protocols import configure
from quietmean.protocols.consensus import overload
from quietmean.protocols.consensus.protocol import Consensus
from quietmean.protocols.consensus.quantiser import Quantisers
from quietmean.protocols.consensus.run import run_consensus
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise

Array = NDArray[np.float64]
PAGE = Path(__file__).parents[2] / "docs" / "liars.md"
PARTIES = 6
SHOWN: list[dict[str, Any]] = [
    {"bits": 4},
    {"bits": "auto"},
    {"bits": 4, "mode": "broadcast"},
    {"bits": 4, "theta": 0.0},
    {"bits": 8, "delta_min": 0.05, "iterations": 120},
]
NOT_SHOWN: list[dict[str, Any]] = [{"bits": 2}, {"bits": 4, "delta_0": 20.0}]


def plan_of(options: dict[str, Any], parties: int = PARTIES, dimension: int = 1000) -> Plan:
    target = Target(epsilon=1.0, delta=1e-6, colluding=1, parties=parties, dimension=dimension)
    return calibrate(target, configure("consensus", options))


def execution_of(plan: Plan, trace: ExecutionTrace | None = None) -> Execution:
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties)
    return plan.execution(Seed.public("quantised"), trace or everyone, np.ones(plan.target.parties))


def protocol_of(plan: Plan) -> Consensus:
    assert isinstance(plan.protocol, Consensus)
    return plan.protocol


@pytest.mark.parametrize("options", SHOWN, ids=str)
def test_the_bound_is_that_of_values_and_noise_and_no_honest_result_is_beyond_it(options: dict[str, Any]) -> None:
    """Each of the numbers of a vector is a run of its own: 2,000 of them, of values at both ends of their bounds."""
    plan = plan_of(options)
    protocol, execution, stated = protocol_of(plan), execution_of(plan), planned_influence(plan)
    assert protocol.quantisation is not None
    assert stated is not None
    low, high = plan.input_domain.coordinate_bounds
    assert stated.largest <= 20 * (float((high - low).max()) + math.sqrt(plan.prediction["mse_noise"]))
    assert influence_of(plan, execution).largest <= 1.1 * stated.largest
    for seed in range(2):
        values = np.where(np.arange(PARTIES)[:, None] % 2 == seed, low, high)
        run = run_consensus(
            protocol, execution.schedule, execution.trace, values, np.ones(PARTIES), InsecurePopulationNoise(seed, PARTIES)
        )
        assert not run.overloads.any()
        for party in range(PARTIES):
            require_possible(plan, execution, ReleasedSum(run.releases.vector[party], float(run.releases.weight[party])))


def test_the_page_about_liars_says_how_much_that_is() -> None:
    page = PAGE.read_text()
    plan = plan_of({"bits": 4}, parties=10)
    reports = [
        calibrate(
            Target(epsilon=epsilon, delta=1e-6, colluding=1, parties=10, dimension=2, sensitivity=2.0),
            configure("priv-unit-g", {}),
        )
        for epsilon in (1.0, 8.0)
    ]
    mean, first, second = (planned_influence(one) for one in (plan, *reports))
    assert mean is not None
    assert first is not None
    assert second is not None
    assert f"one party of 10 moves the mean by at most {mean.largest:.1f}" in page
    assert f"moves a mean of two numbers by at most {first.largest:.1f}, at epsilon 8 by {second.largest:.2f}." in page


@pytest.mark.parametrize("options", SHOWN[:3], ids=str)
def test_a_lie_that_was_within_the_bound_is_refused(options: dict[str, Any]) -> None:
    """A party enters 1,000 times what the bounds allow: everybody's mean moved by more than a hundred, and was shown."""
    plan = plan_of(options, dimension=3)
    execution = execution_of(plan)
    values = np.full((PARTIES, 3), 0.1)
    values[2] = 1000.0
    releases = execution.run(values, InsecurePopulationNoise(1, PARTIES)).releases
    for party in set(range(PARTIES)) - {2}:
        release = releases[party]
        assert np.abs(release.vector / release.weight).max() > 100
        with pytest.raises(ImpossibleResult, match="cannot be"):
            require_possible(plan, execution, ReleasedSum(release.vector, release.weight))


@pytest.mark.parametrize("options", NOT_SHOWN, ids=str)
def test_where_quantisers_may_overload_nothing_more_is_claimed(options: dict[str, Any]) -> None:
    stated = planned_influence(plan_of(options))
    assert stated is not None
    assert stated.largest > 1e5


def test_nor_where_messages_were_lost_whose_differences_are_sent_later() -> None:
    plan = plan_of(SHOWN[0])
    trace = execution_of(plan).trace
    lost = np.zeros((plan.protocol.rounds, *execution_of(plan).schedule.neighbours.shape[1:]), dtype=np.bool_)
    lost[5, 0, 0] = True
    assert influence_of(plan, execution_of(plan, replace(trace, lost=lost))).largest > 1e5


@pytest.mark.parametrize("records", [1.0, 1e6])
def test_vectors_of_many_records_may_be_too_large_for_the_first_cell(records: float) -> None:
    protocol = protocol_of(plan_of(SHOWN[0]))
    execution = execution_of(plan_of(SHOWN[0]))
    shown = protocol.has_gaussian_tails(execution.schedule, execution.trace, np.full(PARTIES, records), 0.5, 1000)
    assert shown is (records == 1.0)


@pytest.mark.parametrize("options", [{"bits": 4}, {"bits": 4, "mode": "broadcast"}, {"bits": 4, "theta": 0.0}], ids=str)
def test_inputs_vary_as_what_is_shown_says(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The variance of all inputs, over 4,000 numbers, in cells: of noise, then of errors; within five of its own errors."""
    protocol = protocol_of(plan_of(options))
    execution, numbers = execution_of(plan_of(options)), 4000
    drawn: list[float] = []
    honest = Quantisers.sent

    def sent(self: Quantisers, iteration: int, target: Array, *given: Any) -> Array:
        drawn.append(float(((target / self._settings.width(iteration)) ** 2).mean(axis=1).max()))
        return honest(self, iteration, target, *given)

    monkeypatch.setattr(Quantisers, "sent", sent)
    noise = InsecurePopulationNoise(1, PARTIES)
    values, weights = np.zeros((PARTIES, numbers)), np.ones(PARTIES)
    run_consensus(protocol, execution.schedule, execution.trace, values, weights, noise)
    inputs, small, said = overload._Inputs(protocol, np.zeros(PARTIES), 1), 0.01, []
    inputs._tried, inputs._uniform, inputs._least = np.array([small]), np.zeros((len(protocol.links), 1)), math.inf
    count = inputs._count

    def counted(iteration: int, target: Array) -> None:
        inputs._highest = -math.inf
        count(iteration, target)
        # The logarithm of the moments at a small place is half of the variance, times the square of the place.
        said.append(2 * (inputs._highest + small * inputs._settings.largest_input) / small**2)

    monkeypatch.setattr(inputs, "_count", counted)
    assert inputs.overload() is False
    ratios = np.array(drawn) / np.array(said)
    assert len(ratios) == protocol.iterations
    assert np.abs(ratios - 1).max() < 5 * math.sqrt(2 / numbers)
