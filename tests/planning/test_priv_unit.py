"""PrivUnitG is planned for unit vectors only, and only when named."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import rank
from quietmean.planning.influence import Checked, planned_influence
from quietmean.planning.release_bounds import PossibleReleases
from quietmean.protocols.priv_unit import PrivUnitG
from quietmean.protocols.priv_unit.spec import best_probability
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise

TARGET = Target(parties=100, epsilon=2.0, delta=1e-5, dimension=20, colluding=10, sensitivity=2.0)


def best(epsilon: float, dimension: int) -> PrivUnitG:
    return PrivUnitG(epsilon=epsilon, probability=best_probability(epsilon, dimension))


def test_the_anchor() -> None:
    assert best(2.0, 20).error(20) / 100 == pytest.approx(0.3232, abs=5e-5)
    plan = calibrate(TARGET, PrivUnitG())
    assert plan.prediction["mse_noise"] * 20 == pytest.approx(0.3232, abs=5e-5)
    assert "delta = 0" in plan.prediction["certificate"]
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))).digest == plan.digest


@pytest.mark.slow
def test_planned_only_when_named_and_only_for_unit_vectors() -> None:
    names = [candidate.plan.protocol.name for candidate in rank(Target(parties=6, epsilon=1.0, delta=1e-6, sensitivity=2.0))]
    assert "priv-unit-g" not in names
    assert "muffliato" in names
    assert rank(TARGET, ["priv-unit-g"])[0].plan.protocol.name == "priv-unit-g"
    with pytest.raises(InputError, match="unit vectors only"):
        rank(Target(parties=6, epsilon=1.0, delta=1e-6, sensitivity=1.0), ["priv-unit-g"])


@pytest.mark.parametrize("dimension", [1, 20])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_a_report_beyond_the_tails_of_the_density_cannot_be_and_no_honest_one_is(epsilon: float, dimension: int) -> None:
    """A report is seen alone: what one party can say is a few of its deviations wide, and was a million of them."""
    target = replace(TARGET, epsilon=epsilon, dimension=dimension, parties=10, colluding=1)
    plan = calibrate(target, PrivUnitG())
    execution = plan.execution(Seed.public("reports"), ExecutionTrace.everyone(1, 10), np.ones(10))
    possible = PossibleReleases.of(plan, execution.schedule, np.ones(10))
    stated = planned_influence(plan)
    assert possible is not None
    assert stated is not None
    assert stated.checked == Checked.EACH_RELEASE
    assert isinstance(plan.protocol, PrivUnitG)
    deviation = 1 / plan.protocol.mean_along
    assert deviation < stated.largest <= 2 * 16 * deviation / 10
    values = plan.protocol.project_to_domain(np.random.default_rng(3).normal(size=(10, dimension)), np.ones(10))
    for seed in range(100):
        releases = execution.run(values, InsecurePopulationNoise(seed, 10)).releases
        assert not any(possible.cannot_be(party, release) for party, release in releases.items())
    # The farthest that is taken, at both ends, is as much as is stated: and no more.
    far = possible.stretch
    for edge in (far, -far):
        vector = np.full(dimension, edge)
        assert not possible.cannot_be(2, replace(releases[2], vector=vector))
        assert possible.cannot_be(2, replace(releases[2], vector=1.001 * vector))
    assert 2 * far / 10 <= stated.largest
