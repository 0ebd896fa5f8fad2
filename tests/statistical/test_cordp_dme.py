"""CorDP-DME as random noise: covariance of really expanded terms, errors as predicted, attacks; wrong builds are caught.

Seeds are fixed. Every test states how often it fails on correct code if they change.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import NoiseSource, PartyId, Units, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Adversary
from quietmean.protocols.cordp_dme import CorDPDME, LateDecoder, optimal_design
from quietmean.protocols.cordp_dme.design import biased_mse, unbiased_mse
from quietmean.protocols.execution import Execution
from quietmean.randomness import ExchangeKey, SecureNoise, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilence, insecure_seed
from quietmean.simulation import attack, simulate
from quietmean.simulation.audit import FLAG_BELOW
from quietmean.testing import example_execution
from quietmean.testing.statistics import assert_variance

ERROR_RATE = 1e-6
SEED = 20_261_122
Array = NDArray[np.float64]


def secure_noise(parties: int, unshared: tuple[PartyId, PartyId] | None = None) -> list[SecureNoise]:
    """Real X25519 keys; the pair ``unshared`` is given different seeds at its two ends."""
    keys = [ExchangeKey(insecure_seed(SEED, "key", party)) for party in range(parties)]

    def shared(party: PartyId, other: PartyId) -> Seed:
        context = "mine" if (party, other) == unshared else "test"
        return keys[party].shared_seed(keys[other].public, context)

    return [SecureNoise(insecure_seed(SEED, "own", party), partial(shared, party)) for party in range(parties)]


class WrongSign(InsecureSilence):
    """Party 0 adds what it should subtract."""

    def __init__(self, source: NoiseSource) -> None:
        self._source = source

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return self._source.normal(purpose, index, dimension)

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        return -self._source.shared_normal(other, purpose, index, dimension)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        return self._source.discrete(purpose, index, scale, dimension, shares)

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        return -self._source.shared_discrete(other, purpose, index, scale, dimension)


def published(execution: Execution, noise: list[SecureNoise] | list[NoiseSource], dimension: int) -> Array:
    """Messages of all parties for values of zero, by the party machines: shape (n, d)."""
    machines = [execution.machine(party, np.zeros(dimension), source) for party, source in enumerate(noise)]
    steps = [machine.end_round(machine.start().state, [], frozenset()) for machine in machines]
    return np.array([step.release.vector for step in steps if step.release is not None])


def covariance_statistic(messages: Array, covariance: Array) -> float:
    """p-value of messages (n, d), whose columns should be independent N(0, covariance): likelihood ratio, Wilks."""
    size, count = messages.shape
    ratio = np.linalg.solve(covariance, messages @ messages.T / count)
    sign, logdet = np.linalg.slogdet(ratio)
    assert sign > 0
    return float(stats.chi2.sf(count * (np.trace(ratio) - logdet - size), size * (size + 1) // 2))


def test_covariance_of_really_expanded_noise() -> None:
    """100 000 coordinates, 6 parties, X25519 seeds: S = v I + b (n I - 1 1'). Fails on correct code once in 10^6.

    A wrong sign at one party, a seed that one pair does not share, and levels 2 % off are all rejected.
    """
    parties, dimension = 6, 100_000
    execution = example_execution("cordp-dme", parties, sigma_own=0.8, sigma_pair=1.3)
    expected = 0.8**2 * np.eye(parties) + 1.3**2 * (parties * np.eye(parties) - np.ones((parties, parties)))
    noise = secure_noise(parties)
    assert covariance_statistic(published(execution, noise, dimension), expected) > ERROR_RATE
    wrong_sign: list[NoiseSource] = [WrongSign(noise[0]), *noise[1:]]
    assert covariance_statistic(published(execution, wrong_sign, dimension), expected) < ERROR_RATE
    unshared = secure_noise(parties, unshared=(2, 4))
    assert covariance_statistic(published(execution, unshared, dimension), expected) < ERROR_RATE
    louder = example_execution("cordp-dme", parties, sigma_own=0.8, sigma_pair=1.3 * 1.02)
    assert covariance_statistic(published(louder, noise, dimension), expected) < ERROR_RATE


def test_the_sum_keeps_own_noise_only() -> None:
    """Of the sum over all parties the variance is n v, although each message has v + (n-1) b: once in 10^6 on correct code."""
    execution = example_execution("cordp-dme", 6, sigma_own=0.8, sigma_pair=50.0)
    noise = secure_noise(6)
    assert_variance(published(execution, noise, 20_000).sum(axis=0), 6 * 0.8**2, ERROR_RATE)
    wrong_sign: list[NoiseSource] = [WrongSign(noise[0]), *noise[1:]]
    unshared: list[NoiseSource] = [*secure_noise(6, unshared=(2, 4))]
    for broken in (wrong_sign, unshared):
        with pytest.raises(AssertionError):
            assert_variance(published(execution, broken, 20_000).sum(axis=0), 6 * 0.8**2, ERROR_RATE)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("absent", [pytest.param(0, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("decoder", ["unbiased", "biased"])
def test_error_with_equal_unit_vectors(absent: int, decoder: str) -> None:
    """The decoders' worst case: all values the same unit vector. 2000 runs of the batch kernel, d = 5, n = 12.

    The mean squared L2 error is within 5 standard errors (1 in 1.7 million) of d (v + (n-u) b)/u and of x/(1+x); the prediction
    for one dropout more is not.
    """
    parties, dimension, runs = 12, 5, 2000
    design = optimal_design(parties, 9, 2, 1.0)
    raw: dict[str, Any] = {
        "sigma_own": math.sqrt(design.own),
        "sigma_pair": math.sqrt(design.pair),
        "decoder": decoder,
        "radius": 1.0,
    }
    execution = example_execution("cordp-dme", parties, **raw)
    trace = ExecutionTrace.everyone(1, parties)
    trace.online[1, :absent] = False
    execution = execution.with_trace(trace)
    direction = np.array([0.6, 0.0, 0.8, 0.0, 0.0])
    values = np.tile(direction, (parties, 1))
    errors = np.array(
        [
            ((execution.estimate(execution.run_batch(values, InsecurePopulationNoise(run, parties))) - direction) ** 2).sum()
            for run in range(runs)
        ]
    )

    def predicted(responding: int) -> float:
        unbiased = unbiased_mse(design.own, design.pair, parties, responding, dimension)
        return unbiased if decoder == "unbiased" else biased_mse(unbiased, 1.0)

    error = errors.std() / math.sqrt(runs)
    responding = parties - absent
    assert abs(errors.mean() - predicted(responding)) < 5 * error
    assert abs(errors.mean() - predicted(responding - 1)) > 5 * error


WEIGHTS = {"equal": [50.0] * 12, "unequal": [1.0, 90.0, 3.0, 40.0, 7.0, 7.0, 2.0, 25.0, 60.0, 1.0, 12.0, 5.0]}


@pytest.mark.slow
@pytest.mark.parametrize("absent", [pytest.param(0, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("weights", [pytest.param("equal", marks=pytest.mark.slow), "unequal"])
def test_public_weights_are_a_scale_for_the_biased_decoder(weights: str, absent: int) -> None:
    """Party i holds the sum of w_i vectors in the ball. 2000 runs of the machines' program, d = 5, n = 12, noise for a record.

    In the worst case, all vectors the same on the sphere, the mean squared L2 error is within 5 standard errors (1 in 1.7
    million) of r^2 x / (1 + x); no other multiple of the mean does better there; and in the middle of the ball and anywhere in
    it the error is no more than that of the plain mean. The stated standard error is no less than the root mean square error of
    any coordinate, up to 5 standard errors.
    """
    parties, dimension, runs, radius = 12, 5, 2000, 0.5
    given = np.array(WEIGHTS[weights])
    # Of the size of what is estimated, so that shrinking matters.
    deviations = (float(given.sum()) * radius * 0.1, float(given.sum()) * radius * 0.03)
    grid: dict[str, Any] = {"grid": 2.0**-12, "dimension": dimension}
    raw: dict[str, Any] = {"sigma_own": deviations[0], "sigma_pair": deviations[1], "decoder": "biased", "radius": radius}
    execution = replace(example_execution("cordp-dme", parties, **raw, **grid), weights=given)
    trace = ExecutionTrace.everyone(1, parties)
    trace.online[1, :absent] = False
    execution = execution.with_trace(trace)
    there = np.arange(parties) >= absent
    variance = deviations[0] ** 2 * there.sum() + deviations[1] ** 2 * absent * there.sum()
    unbiased = dimension * variance / given[there].sum() ** 2
    worst = biased_mse(unbiased, radius)
    numbers = np.random.default_rng(SEED)
    inside = numbers.standard_normal((parties, dimension))
    inside *= radius * numbers.random((parties, 1)) / np.linalg.norm(inside, axis=1, keepdims=True)
    corner = np.tile([radius, 0.0, 0.0, 0.0, 0.0], (parties, 1))
    for one in (corner, np.zeros((parties, dimension)), inside):
        values = one * given[:, None]
        truth = values[there].sum(axis=0) / given[there].sum()
        totals = [execution.run_batch(values, InsecurePopulationNoise(run, parties)) for run in range(runs)]
        errors = np.array([execution.estimate(total) for total in totals]) - truth
        squares = (errors**2).sum(axis=1)
        slack = 5 * squares.std() / math.sqrt(runs)
        assert squares.mean() <= min(worst, unbiased) + slack
        coordinates = errors**2
        stated = execution.error_variance()
        assert stated is not None
        assert (coordinates.mean(axis=0) <= stated + 5 * coordinates.std(axis=0) / math.sqrt(runs)).all()
        if one is corner:
            assert abs(squares.mean() - worst) < slack
            plain = np.array([total.estimate() for total in totals])
            kept = 1 / (1 + unbiased / radius**2)
            others = [((factor * plain - truth) ** 2).sum(axis=1).mean() for factor in (kept / 2, (1 + kept) / 2, 1.0)]
            assert min(others) > squares.mean()


def test_a_late_message_improves_the_error_as_predicted() -> None:
    """20 000 coordinates: with 8, 9 and all 10 of 10 messages the variance is (v + (n-u) b)/u, each tested at 1e-6."""
    execution = example_execution("cordp-dme", 10, sigma_own=0.5, sigma_pair=0.7)
    messages = execution.run(np.zeros((10, 20_000)), InsecurePopulationNoise(SEED, 10)).releases
    assert isinstance(execution.protocol, CorDPDME)
    decoder = LateDecoder(execution.protocol, 10)
    for party in (0, 1, 2, 3, 4, 6, 7, 9, 5, 8):
        decoder.add(party, messages[party])
        if decoder.responding >= 8:
            assert decoder.predicted_mse() == pytest.approx((0.25 + (10 - decoder.responding) * 0.49) / decoder.responding)
            assert_variance(decoder.estimate(), decoder.predicted_mse(), ERROR_RATE)
    with pytest.raises(AssertionError):
        assert_variance(decoder.estimate(), decoder.predicted_mse() * 1.08, ERROR_RATE)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"partners": 6}, {"aggregator": 3}], ids=["complete", "sparse", "aggregator"])
@pytest.mark.parametrize("dropouts", [pytest.param(0.0, marks=pytest.mark.slow), 0.25])
def test_plans_predict_what_simulations_find(dropouts: float, options: dict[str, int]) -> None:
    """1000 runs with uniform values; the mean squared error is within 5 standard errors (1 in 1.7 million) of the prediction.

    A prediction for other dropouts is far off; the parties that leave really miss the round.
    """
    plan = calibrate(Target(16, 1.0, 1e-6, 4, 1.0, 2, dropouts), CorDPDME.read(options))
    result = simulate(plan, runs=1000, seed=SEED)
    assert abs(result.mse - result.prediction) < 5 * result.mse_standard_error
    leaving = 0 if not dropouts else 4
    assert (~result.first.trace.online[1]).sum() in ({leaving, leaving - 1} if "aggregator" in options else {leaving})
    other = calibrate(Target(16, 1.0, 1e-6, 4, 1.0, 2, 0.25 - dropouts), CorDPDME.read(options))
    wrong = simulate(Plan(plan.target, other.protocol), runs=1000, seed=SEED)
    assert abs(wrong.mse - result.prediction) > 5 * wrong.mse_standard_error


CASES = {
    "everybody publishes": (example_execution("cordp-dme", 8, sigma_own=0.5, sigma_pair=1.0), 3, Adversary.collusion({0, 5})),
    "dropouts": (
        example_execution("cordp-dme", 10, 1, sigma_own=0.5, sigma_pair=0.6, permanent=0.3),
        4,
        Adversary.collusion({1, 9}),
    ),
    "sparse": (example_execution("cordp-dme", 12, sigma_own=0.7, sigma_pair=1.0, partners=4), 6, Adversary.collusion({0, 1, 2})),
    "aggregator colludes": (
        example_execution("cordp-dme", 8, sigma_own=0.6, sigma_pair=0.9, aggregator=2),
        5,
        Adversary.collusion({2, 7}),
    ),
    "aggregator is honest": (
        example_execution("cordp-dme", 6, sigma_own=0.6, sigma_pair=0.9, aggregator=2),
        5,
        Adversary.collusion({0, 1}),
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_attacks_reach_the_certificate_and_never_pass_it(name: str) -> None:
    """100 000 trials: at least 0.9 of mu is proven (at 95 % confidence); a correct build is flagged once in 10^6."""
    execution, target, adversary = CASES[name]
    assert execution.trace.finished[target]
    result = attack(execution, target, adversary, trials=100_000, seed=SEED)
    assert 0.9 * result.mu_certified < result.mu_lower <= result.mu_certified
    assert not result.flagged


class Quieter(WrongSign):
    """Shared noise of half the declared standard deviation."""

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        return 0.5 * self._source.shared_normal(other, purpose, index, dimension)


def test_attacks_flag_a_build_whose_shared_noise_is_too_small() -> None:
    """A build with half the shared noise leaks more than certified: seen with 100 000 trials."""
    execution, target, adversary = CASES["everybody publishes"]
    result = attack(
        execution,
        target,
        adversary,
        trials=100_000,
        seed=SEED,
        machine=lambda party, value, noise: execution.machine(party, value, Quieter(noise)),
    )
    assert result.flagged
    assert result.p_value_exceeds < FLAG_BELOW


def test_attacks_refuse_a_build_that_publishes_something_else() -> None:
    execution, target, adversary = CASES["everybody publishes"]
    with pytest.raises(ProtocolFailure, match="does not describe this build"):
        attack(
            execution,
            target,
            adversary,
            trials=1000,
            machine=lambda party, value, noise: execution.machine(party, value * 2.0, noise),
        )
