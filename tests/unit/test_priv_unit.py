"""PrivUnitG: the pure guarantee by numerical integration, the error in closed form, and what is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from quietmean.protocols.priv_unit import PrivUnitG, best_probability, direction_of, report
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean.randomness.stream import BitStream
from quietmean.testing import example_execution
from support.refusals import refused

EPSILONS = [0.01, 0.5, 1.0, 2.0, 8.0, 20.0]


def best(epsilon: float, dimension: int) -> PrivUnitG:
    return PrivUnitG(epsilon=epsilon, probability=best_probability(epsilon, dimension))


def density_along(parameters: PrivUnitG, place: float) -> float:
    """Of the report along its vector, in standard deviations: what the text of the paper says."""
    inside = place >= parameters.gamma
    level = parameters.probability / stats.norm.sf(parameters.gamma) if inside else 0.0
    level = level if inside else (1 - parameters.probability) / stats.norm.cdf(parameters.gamma)
    return float(level * stats.norm.pdf(place))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_density_is_one_and_its_two_levels_differ_by_exactly_epsilon(epsilon: float) -> None:
    """The reference Gaussian is the same for every vector, so the ratio of the densities of two of them is that of two levels."""
    parameters = best(epsilon, 20)
    gamma = parameters.gamma
    mass = [quad(lambda a: density_along(parameters, a), low, high, epsabs=1e-13)[0] for low, high in ((-40, gamma), (gamma, 40))]
    assert sum(mass) == pytest.approx(1.0, abs=1e-9)
    inside = parameters.probability / stats.norm.sf(gamma)
    outside = (1 - parameters.probability) / stats.norm.cdf(gamma)
    assert math.log(inside / outside) == pytest.approx(epsilon, rel=1e-9)
    assert parameters.beyond == pytest.approx(stats.norm.sf(gamma), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_the_worst_pair_of_vectors_by_integration_over_caps(epsilon: float) -> None:
    """Of v and -v: the chances of the three zones that they cut out differ by at most e^epsilon, and that is reached."""
    parameters = best(epsilon, 20)
    gamma = parameters.gamma
    cuts = [-40.0, -gamma, gamma, 40.0]
    chances = [quad(lambda a: density_along(parameters, a), low, high)[0] for low, high in itertools.pairwise(cuts)]
    ratios = [chance / other for chance, other in zip(chances, chances[::-1], strict=True)]
    assert max(ratios) == pytest.approx(math.exp(epsilon), rel=1e-6)
    assert max(ratios) <= math.exp(epsilon) * (1 + 1e-9)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("dimension", [1, 5, 100])
def test_moments_and_the_best_probability(epsilon: float, dimension: int) -> None:
    parameters = best(epsilon, dimension)
    cuts = ((-40.0, parameters.gamma), (parameters.gamma, 40.0))

    def moment(power: int) -> float:
        return sum(quad(lambda a: a**power * density_along(parameters, a), low, high, epsabs=1e-14)[0] for low, high in cuts)

    assert parameters.mean_along == pytest.approx(moment(1), rel=1e-7)
    assert parameters.square_along == pytest.approx(moment(2), rel=1e-7)
    least = parameters.error(dimension)
    highest = min(1 / (1 + math.exp(-epsilon)), 1 - 1e-12)
    for probability in np.linspace(0.5, highest, 400)[:-1]:
        assert PrivUnitG(epsilon=epsilon, probability=float(probability)).error(dimension) >= least * (1 - 1e-9)


def test_reports_stay_on_their_side_of_the_threshold() -> None:
    """The rarest bits there are: the report along its vector is finite and on the right side."""

    class Rare(BitStream):
        def __init__(self, choice: float, place: float) -> None:
            super().__init__(insecure_seed(1))
            self._uniform = np.array([choice, place])

        def uniform(self, count: int) -> np.ndarray:
            return self._uniform[:count]

    direction = np.eye(4)[1]
    parameters = best(2.0, 4)
    for choice, inside in ((0.0, True), (1 - 2.0**-53, False)):
        for place in (0.0, 0.5, 1 - 2.0**-53):
            along = float(report(parameters, direction, Rare(choice, place)) @ direction) * parameters.mean_along
            assert np.isfinite(along)
            assert (along >= parameters.gamma * (1 - 1e-12)) is inside or abs(along - parameters.gamma) < 1e-12


def test_values_that_are_no_unit_vectors_are_refused_without_telling_them() -> None:
    execution = example_execution("priv-unit-g", 3, epsilon=1.0)
    values = np.array([[0.6, 0.8], [0.6, 0.8], [3.25, 0.0]])
    assert "3.25" not in refused("L2 norm 1", execution.run_batch, values, InsecurePopulationNoise(1, 3))
    refused("L2 norm 1", execution.run, values, InsecurePopulationNoise(1, 3))
    np.testing.assert_allclose(direction_of(np.array([1.8, 2.4]), 3.0), [0.6, 0.8])
    refused("", direction_of, np.array([np.nan, 1.0]), 1.0)


def test_there_is_no_transcript_and_it_says_why() -> None:
    refused("delta = 0 for a change of a unit vector", example_execution("priv-unit-g", 3, epsilon=1.0).transcript)


@pytest.mark.parametrize(("epsilon", "probability"), [(0.0, 0.5), (200.0, 0.6), (1.0, 0.4), (1.0, 0.9), (1.0, 1.0)])
def test_impossible_parameters_are_refused(epsilon: float, probability: float) -> None:
    refused("", PrivUnitG, epsilon=epsilon, probability=probability)


def test_accepted_values_are_unit_vectors_times_weights() -> None:
    protocol, weights = best(1.0, 2), np.array([1.0, 2.0, 0.5])
    fitted = protocol.TRAITS.inputs.fitted(protocol, np.array([[3.0, 4.0], [0.0, 0.0], [1e-300, 1e-300]]), weights)
    np.testing.assert_allclose(np.linalg.norm(fitted, axis=1), weights, rtol=1e-12)
    np.testing.assert_allclose(fitted[0], [0.6, 0.8])


def test_one_report_does_not_depend_on_the_machine() -> None:
    """Bits in, numbers out: the same everywhere, up to the last digits of the inverse distribution function."""
    got = report(PrivUnitG(epsilon=2.0, probability=0.68), np.array([0.6, 0.8]), BitStream(Seed.public("fixed")))
    again = report(PrivUnitG(epsilon=2.0, probability=0.68), np.array([0.6, 0.8]), BitStream(Seed.public("fixed")))
    np.testing.assert_array_equal(got, again)
