"""10 000 runs of IncA: coordinates of one execution have independent noise, so each coordinate is a run.

Every assertion fails on a correct implementation with probability 1e-6; seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from quietmean.core.party import Vector
from quietmean.graphs import churn
from quietmean.protocols.execution import Execution
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean.testing import assert_mean, assert_standard_normal, assert_variance, example_execution

RUNS = 10_000
PARTIES = 12


def make(star: float = 0.7, delta: float = 3.0, injection: str = "incremental", permanent: float = 0.0) -> Execution:
    return example_execution(
        "inca",
        PARTIES,
        5,
        permanent=permanent,
        temporary=0.2 if permanent else 0.0,
        rounds=6,
        sigma_star=star,
        sigma_delta=delta,
        injection=injection,
        out_degree=2,
    )


def values() -> Vector:
    return np.random.default_rng(8).uniform(0.0, 1.0, (PARTIES, RUNS))


def errors(execution: Execution, seed: int) -> Vector:
    """Estimate minus true mean, one for each run."""
    private = values()
    releases = execution.run_batch(private, InsecurePopulationNoise(seed, PARTIES))
    error: Vector = releases.estimate() - private.mean(axis=0)
    return error


@pytest.mark.parametrize("injection", ["incremental", "early"])
@pytest.mark.parametrize("delta", [0.1, 3.0, 50.0])
def test_without_dropouts_only_independent_noise_is_left(injection: str, delta: float) -> None:
    """Unbiased with variance sigma_star^2 / n whatever the cancelled noise (IncA, equation 5): error rate 3e-6."""
    found = errors(make(delta=delta, injection=injection), seed=1)
    expected = 0.7**2 / PARTIES
    assert_mean(found, 0.0, np.sqrt(expected))
    assert_variance(found, expected)
    assert_standard_normal(found / np.sqrt(expected))


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_noise_that_is_five_percent_off_is_rejected(factor: float) -> None:
    """Power: the runs suffice to tell a standard deviation 5 % too small or too large."""
    with pytest.raises(AssertionError, match="variance is"):
        assert_variance(errors(make(star=0.7 * factor), seed=2), 0.7**2 / PARTIES)


def test_a_bias_of_a_tenth_of_the_noise_is_rejected() -> None:
    """Power: a bias of 0.1 standard deviations."""
    sd = 0.7 / np.sqrt(PARTIES)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(errors(make(), seed=2) + 0.1 * sd, 0.0, sd)


def predicted(execution: Execution, private: Vector) -> tuple[Vector, float]:
    """Mean (one for each run) and variance of the estimate, from the released rows of the transcript and the total weight."""
    transcript = execution.transcript()
    data, noise = transcript.eliminated()
    released = transcript.released
    portions = data[released].sum(axis=0)
    return portions @ private / portions.sum(), float(((noise[released].sum(axis=0) / portions.sum()) ** 2).sum())


@pytest.mark.parametrize("permanent", [0.1, 0.3])
@pytest.mark.parametrize("injection", ["incremental", "early"])
def test_with_dropouts_mean_and_variance_are_those_of_the_transcript(injection: str, permanent: float) -> None:
    """On a fixed execution with permanent and temporary dropouts: error rate 3e-6; 5 % more noise is rejected."""
    execution = make(injection=injection, permanent=permanent)
    assert not execution.trace.finished.all()
    private = values()
    mean, variance = predicted(execution, private)
    # Uncancelled noise matters here: far more than independent noise alone.
    assert variance > 1.2 * 0.7**2 / PARTIES
    found = execution.run_batch(private, InsecurePopulationNoise(3, PARTIES)).estimate() - mean
    assert_mean(found, 0.0, np.sqrt(variance))
    assert_variance(found, variance)
    assert_standard_normal(found / np.sqrt(variance))
    with pytest.raises(AssertionError):
        assert_variance(found * 1.05, variance)


def test_machines_have_the_predicted_variance_too() -> None:
    """The party machines on separate seeds, 2000 runs, with dropouts: error rate 2e-6; 15 % more noise is rejected."""
    execution = make(permanent=0.2)
    private = values()[:, :2000]
    mean, variance = predicted(execution, private)
    releases = execution.run(private, InsecurePopulationNoise(4, PARTIES)).releases.values()
    found = sum((release.vector for release in releases), np.zeros(2000)) / sum(release.weight for release in releases) - mean
    assert_mean(found, 0.0, np.sqrt(variance))
    assert_variance(found, variance)
    with pytest.raises(AssertionError):
        assert_variance(found * 1.15, variance)


def test_random_dropouts_leave_the_estimate_unbiased() -> None:
    """Over 400 random churn traces of equal rates (IncA, section 3.2): z-test of standardised errors, error rate 1e-6."""
    private = np.random.default_rng(9).uniform(0.0, 1.0, (PARTIES, 1))
    execution = make()
    found = []
    for number in range(400):
        trace = churn(insecure_seed(number), execution.schedule.rounds, PARTIES, permanent=0.2)
        run = replace(execution, trace=trace)
        error = run.run_batch(private, InsecurePopulationNoise(number, PARTIES)).estimate() - private.mean()
        # The spread of the means over the traces is below 0.1, and adds to that of the noise.
        found.append(float(error[0]) / np.sqrt(predicted(run, private)[1] + 0.01))
    assert_mean(np.array(found), 0.0, 1.0)
    with pytest.raises(AssertionError):
        assert_mean(np.array(found) + 0.5, 0.0, 1.0)
