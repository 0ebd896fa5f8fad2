"""What one party can do to a mean of quantised consensus: as little as without quantisers, with any number of bits.

What does not fit into the bits follows in full, so that every error of a quantiser is bounded and independent, whatever it is
given, and a result that such errors cannot make is refused.
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
from quietmean.planning.accuracy import stated_variance
from quietmean.planning.calibrate import calibrate
from quietmean.planning.influence import ImpossibleResult, ReleasedSum, influence_of, planned_influence, require_possible
from quietmean.protocols import configure
from quietmean.protocols.consensus import Consensus
from quietmean.protocols.consensus.population import run_consensus
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise

Array = NDArray[np.float64]
PAGE = Path(__file__).parents[2] / "docs" / "trust" / "liars.md"
PARTIES = 6
# Options, and how many parties.
OPTIONS: list[tuple[dict[str, Any], int]] = [
    ({"bits": 4}, 6),
    ({"bits": 4, "mode": "broadcast"}, 6),
    ({"bits": 2}, 6),
    ({"bits": 3, "theta": 0.0}, 6),
    ({"bits": 2, "mode": "broadcast"}, 6),
    ({"bits": "auto"}, 20),
    ({"bits": 4, "delta_0": 20.0}, 6),
    ({"bits": 8, "delta_min": 0.05, "iterations": 120}, 6),
    ({"bits": 3, "open_edges": "all"}, 60),
]
CASES = [pytest.param(*case, id="-".join(map(str, [*case[0].values(), case[1]]))) for case in OPTIONS]


def plan_of(options: dict[str, Any], parties: int = PARTIES, dimension: int = 1000) -> Plan:
    target = Target(epsilon=1.0, delta=1e-6, colluding=1, parties=parties, dimension=dimension)
    return calibrate(target, configure("consensus", options))


def execution_of(plan: Plan, trace: ExecutionTrace | None = None) -> Execution:
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties)
    return plan.execution(Seed.public("quantised"), trace or everyone, np.ones(plan.target.parties))


def protocol_of(plan: Plan) -> Consensus:
    assert isinstance(plan.protocol, Consensus)
    return plan.protocol


def results_of(plan: Plan, execution: Execution, seed: int) -> tuple[NDArray[np.bool_], Array, Array]:
    """Who has a result, all of these, a row for each party, and their weights; of values at both ends of their bounds."""
    low, high = plan.input_domain.coordinate_bounds
    parties = plan.target.parties
    values = np.where(np.arange(parties)[:, None] % 2 == seed % 2, low, high)
    noise = InsecurePopulationNoise(seed, parties)
    run = run_consensus(protocol_of(plan), execution.schedule, execution.trace, values, np.ones(parties), noise)
    assert not run.overloads.any()
    return run.releases.by, run.releases.vector, run.releases.weight


def require_honest_ones_possible(plan: Plan, execution: Execution, seeds: int) -> None:
    """Each of the numbers of a vector is a run of its own: thousands of honest results, none of which is refused.

    Nor are they further off than is said: their noise has the variance that is stated, or less.
    """
    stated = stated_variance(execution)
    for seed in range(seeds):
        by, vectors, weights = results_of(plan, execution, seed)
        assert by.any()
        for party in np.flatnonzero(by).tolist()[:PARTIES]:
            require_possible(plan, execution, ReleasedSum(vectors[party], float(weights[party])))
            # Within five of its errors.
            spread = float(np.var(vectors[party] / weights[party])) / stated
            assert spread < 1 + 5 * math.sqrt(2 / plan.target.dimension)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("options", "parties"), CASES)
def test_the_bound_is_that_of_values_and_noise_and_no_honest_result_is_beyond_it(options: dict[str, Any], parties: int) -> None:
    plan = plan_of(options, parties)
    protocol, execution, stated = protocol_of(plan), execution_of(plan), planned_influence(plan)
    assert protocol.quantisation is not None
    assert stated is not None
    low, high = plan.input_domain.coordinate_bounds
    assert stated.largest <= 20 * (float((high - low).max()) + math.sqrt(plan.prediction["mse_noise"]))
    assert influence_of(plan, execution).largest <= 1.1 * stated.largest
    require_honest_ones_possible(plan, execution, 2)


def losses(plan: Plan, kind: str) -> ExecutionTrace:
    """Messages that did not arrive: one early, one late, those of a party that is away for a while, or of one that leaves."""
    trace = execution_of(plan).trace
    rounds = plan.protocol.rounds
    lost = np.zeros((rounds, *execution_of(plan).schedule.neighbours.shape[1:]), dtype=np.bool_)
    online = np.array(trace.online)
    if kind == "early":
        lost[5, 0, 0] = True
    elif kind == "late":
        lost[rounds - 3, 0, 0] = True
    elif kind == "often":
        lost[:] = np.random.default_rng(1).random(lost.shape) < 0.05
        lost[0] = False
    elif kind == "away":
        online[30:60, 1] = False
    else:
        online[30:, 1] = False
    return replace(trace, lost=lost, online=online)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["early", "late", "often", "away", "gone"])
@pytest.mark.parametrize(
    "options",
    [{"bits": 4}, {"bits": 2}, {"bits": 2, "mode": "broadcast"}, {"bits": 3, "theta": 0.0}, {"bits": 2, "patience": 999}],
)
def test_nor_where_messages_were_lost_whose_differences_are_sent_later(options: dict[str, Any], kind: str) -> None:
    plan = plan_of(options)
    execution = execution_of(plan, losses(plan, kind))
    low, high = plan.input_domain.coordinate_bounds
    assert influence_of(plan, execution).largest <= 20 * (float((high - low).max()) + math.sqrt(stated_variance(execution)))
    require_honest_ones_possible(plan, execution, 2)


def test_the_page_about_liars_says_how_much_that_is() -> None:
    page = PAGE.read_text()
    plan = plan_of({"bits": 4}, parties=10)
    reports = [
        calibrate(
            Target(epsilon=epsilon, delta=1e-6, colluding=1, parties=10, dimension=2, sensitivity=2.0),
            configure("priv-unit-g"),
        )
        for epsilon in (1.0, 8.0)
    ]
    mean, first, second = (planned_influence(one) for one in (plan, *reports))
    assert mean is not None
    assert first is not None
    assert second is not None
    assert f"one party of 10 moves the mean by at most {mean.largest:.1f}" in page
    assert f"moves a mean of two numbers by at most {first.largest:.1f}, at epsilon 8 by {second.largest:.2f}." in page


@pytest.mark.parametrize("options", [{"bits": 4}, {"bits": 2}, {"bits": 3, "mode": "broadcast"}], ids=str)
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


def test_where_overloads_are_clipped_nothing_more_is_claimed() -> None:
    """As in executions of files that say so, which are the paper's: what a clipped difference leaves may be anything."""
    plan = plan_of({"bits": 2})
    clipped = replace(plan, protocol=replace(protocol_of(plan), send_overloads=False))
    stated = planned_influence(clipped)
    assert stated is not None
    assert stated.largest > 1e5
