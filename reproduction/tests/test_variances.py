"""Optimal variances per noise term (Corollary 4.2), against the exact certificate and a plain search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from quietmean.core.errors import InputError
from quietmean.planning import Target
from quietmean.planning.accuracy import draw_execution, draw_scenario, noise_variance
from quietmean.planning.choices import CalibrationMethod
from quietmean.planning.levels import MARGIN, choose_levels
from quietmean.privacy import Adversary, mu_of_budget
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.mechanism import template_of
from quietmean.randomness import Seed
from quietmean.testing import example_execution
from quietmean.testing.examples import certificate_of
from quietmean_reproduction.inca.variances import optimal_variances

COALITIONS = [frozenset({0}), frozenset({3})]
MU = 0.3


def executions() -> list[Execution]:
    return [
        example_execution("inca", 6, number, permanent=0.2, rounds=4, schedule="permutation", sigma_star=1.0, sigma_delta=1.0)
        for number in range(2)
    ]


def worst_mu(examples: list[Execution]) -> float:
    return max(certificate_of(e.transcript(), Adversary(c), e.sensitivity).max_mu for e in examples for c in COALITIONS)


def mean_variance(examples: list[Execution]) -> float:
    return float(np.mean([noise_variance(e.transcript(), e.weights) for e in examples]))


def test_the_target_is_kept_and_the_prediction_true() -> None:
    best = optimal_variances(executions(), COALITIONS, MU)
    chosen = [replace(example, protocol=best.protocol) for example in executions()]
    assert worst_mu(chosen) <= MU * (1 + 1e-9)
    assert worst_mu(chosen) >= MU * 0.999
    assert mean_variance(chosen) == pytest.approx(best.variance, rel=1e-3)
    assert best.gain >= 1.0


@pytest.mark.slow
def test_equal_variances_agree_with_a_plain_search() -> None:
    """For each ratio the least sigma_star by root finding on exact certificates; the best of a fine grid of ratios."""
    best = optimal_variances(executions(), COALITIONS, MU)

    def variance(ratio: float) -> float:
        def chosen(star: float) -> list[Execution]:
            return [replace(e, protocol=e.protocol.with_noise(star, star * ratio)) for e in executions()]

        star = brentq(lambda log_star: worst_mu(chosen(np.exp(log_star))) - MU, -5, 5, xtol=1e-6)
        return mean_variance(chosen(float(np.exp(star))))

    searched = min(variance(float(ratio)) for ratio in np.geomspace(0.3, 30, 25))
    assert best.equal_variance <= searched * 1.001
    assert best.equal_variance >= searched * 0.97


def test_it_is_for_inca_only() -> None:
    with pytest.raises(InputError, match="no noise per round"):
        optimal_variances([example_execution("local-dp", 4, sigma=1.0)], COALITIONS, MU)


@pytest.mark.parametrize("dropouts", [0.0, 0.2])
def test_the_planners_ratio_of_noises_is_the_optimum_of_equal_variances(dropouts: float) -> None:
    """Of two levels the corollary has none better than the planner's search over their ratio, on the same executions."""
    target = Target(parties=6, epsilon=1.0, delta=1e-6, colluding=1, dropouts=dropouts)
    template = template_of(IncA(rounds=5), target)
    seeds = [Seed.public("equal", number) for number in range(2)]
    scenarios = [draw_scenario(target, template, seed, 20) for seed in seeds]
    star, delta = choose_levels(target, scenarios, CalibrationMethod.EXACT)
    errors = [scenario.estimate.noise_variance(star, delta) for scenario in scenarios]
    found = sum(errors) / len(errors) / (1 + MARGIN) ** 2
    executions = [draw_execution(target, template, seed, dropouts) for seed in seeds]
    corrupt = [frozenset({party}) for party in range(target.parties)]
    optimal = optimal_variances(executions, corrupt, mu_of_budget(target.epsilon, target.delta))
    # The grid of ratios has steps of ten percent, and among equally good ones the smallest is taken.
    assert found == pytest.approx(optimal.equal_variance, rel=0.02)
