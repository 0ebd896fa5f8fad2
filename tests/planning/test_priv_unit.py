"""PrivUnitG is planned for unit vectors only, and only when named."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import rank
from quietmean.planning.influence import Checked, planned_influence
from quietmean.planning.release_bounds import PossibleReleases
from quietmean.protocols.mechanism import fixed_schedule
from quietmean.protocols.priv_unit import PrivUnitG, best_probability
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from support.refusals import refused

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
    refused("unit vectors only", rank, Target(parties=6, epsilon=1.0, delta=1e-6, sensitivity=1.0), ["priv-unit-g"])


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
    values = plan.protocol.TRAITS.inputs.fitted(plan.protocol, np.random.default_rng(3).normal(size=(10, dimension)), np.ones(10))
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


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 40.0])
def test_moments_of_a_report_are_no_larger_than_those_of_the_gaussian_that_stands_for_it(epsilon: float) -> None:
    """By quadrature: the number along a value has two halves of Gaussians, of which the farther one is drawn more often."""
    mechanism = best(epsilon, 20)
    along = np.linspace(-40.0, 40.0, 400_001)
    density = np.exp(-(along**2) / 2) / math.sqrt(2 * math.pi) * (along[1] - along[0])
    density *= np.where(along >= mechanism.gamma, mechanism.probability / mechanism.beyond, mechanism.outside / mechanism.below)
    density /= density.sum()
    centred = along - float(density @ along)
    for place in np.linspace(-12.0, 12.0, 49):
        largest = float((place * centred).max())
        moments = largest + math.log(float(density @ np.exp(place * centred - largest)))
        assert moments <= place**2 / 2 * mechanism.variance_of_tails + 1e-4
    # Not far above the variance either.
    assert float(density @ centred**2) <= mechanism.variance_of_tails <= 1.0 + epsilon


@pytest.mark.parametrize("dimension", [1, 2, 100])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_of_thousands_a_mean_is_held_against_tails_and_no_honest_one_is_beyond(epsilon: float, dimension: int) -> None:
    """Nobody sees reports alone there: what was stated was a million deviations."""
    parties = 1000
    plan = calibrate(replace(TARGET, epsilon=epsilon, dimension=dimension, parties=parties, colluding=1), PrivUnitG())
    stated, protocol = planned_influence(plan), plan.protocol
    assert isinstance(protocol, PrivUnitG)
    assert stated is not None
    assert stated.checked == Checked.RESULT
    deviation = math.sqrt(plan.prediction["mse_noise"])
    assert stated.largest <= 2 * (1 + 12 * deviation * protocol.traits.checks.tails(protocol, dimension)) + 1e-6
    values = np.eye(1, dimension).repeat(parties, axis=0)
    everyone = ExecutionTrace.everyone(1, parties)
    reports = protocol.batch(
        fixed_schedule(protocol, parties), everyone, values, np.ones(parties), InsecurePopulationNoise(1, parties)
    )
    assert np.abs(reports.vector.mean(axis=0) - values[0]).max() <= 7.5 * deviation * protocol.traits.checks.tails(
        protocol, dimension
    )


def test_the_page_about_liars_says_how_much_one_of_a_thousand_moves() -> None:
    plan = calibrate(replace(TARGET, epsilon=1.0, delta=1e-6, dimension=2, parties=1000, colluding=1), PrivUnitG())
    stated = planned_influence(plan)
    assert stated is not None
    page = (Path(__file__).parents[2] / "docs" / "trust" / "liars.md").read_text()
    assert f"one party of 1,000 moves it by at most {stated.largest:.1f}" in page
