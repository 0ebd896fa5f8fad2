"""IncA's Figure 3b setting: what three ways of accounting ask for on the very same executions, and what that costs in accuracy.

n = 200, epsilon = 0.2, delta = 1e-5, 10 % colluding at random, k = 1, T = 20; worst of 200 executions per point, as in the paper.
The table gives sigma_delta^2 and the noise MSE per coordinate (sensitivity 1) at equal (epsilon, delta) and equal messages.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from quietmean.planning import Target
from quietmean.planning.accuracy import Scenario, draw_scenario
from quietmean.planning.choices import CalibrationMethod
from quietmean.planning.levels import choose_levels, draw_fewer_gone
from quietmean.protocols.inca import IncA
from quietmean.protocols.mechanism import template_of
from quietmean.randomness import Seed

EXECUTIONS = 200
PARTIES = 200


def make_target(dropouts: float) -> Target:
    return Target(parties=PARTIES, epsilon=0.2, delta=1e-5, colluding=PARTIES // 10, dropouts=dropouts)


def draw(dropouts: float, schedule: str, guards: int = 0) -> list[Scenario]:
    seeds = (Seed.public("figure 3b", schedule, str(dropouts), number) for number in range(EXECUTIONS))
    target = make_target(dropouts)
    template = template_of(IncA(rounds=20, schedule=schedule), target)
    guard_seed = Seed.public("figure 3b", schedule, str(dropouts))
    planned = [draw_scenario(target, template, seed, 1) for seed in seeds]
    return planned + draw_fewer_gone(target, template, guard_seed, 1, guards)


def evaluate(scenarios: list[Scenario], dropouts: float, calibration: CalibrationMethod) -> tuple[float, float, float]:
    """(sigma_star^2, sigma_delta^2, mean noise MSE over the executions)."""
    star, delta = choose_levels(make_target(dropouts), scenarios, calibration)
    planned = [scenario.estimate for scenario in scenarios if scenario.dropouts == dropouts]
    return star**2, delta**2, float(np.mean([estimate.noise_variance(star, delta) for estimate in planned]))


def calibrated(dropouts: float) -> dict[str, tuple[float, float, float]]:
    """By calibration and schedule, what :func:`evaluate` gives.

    Ours must also hold if fewer drop out than planned; the papers' calibrations see the planned executions only.
    """
    guarded, permutation = draw(dropouts, "uniform", guards=20), draw(dropouts, "permutation", guards=20)
    uniform = guarded[:EXECUTIONS]
    return {
        "paper, uniform": evaluate(uniform, dropouts, CalibrationMethod.PAPER),
        "exact-view, uniform": evaluate(uniform, dropouts, CalibrationMethod.EXACT_VIEW),
        "exact, uniform": evaluate(guarded, dropouts, CalibrationMethod.EXACT),
        "exact, permutation": evaluate(permutation, dropouts, CalibrationMethod.EXACT),
    }


# The others, which docs/measurements/calibrations.md has as well, take a minute each.
@pytest.mark.slow
@pytest.mark.parametrize("dropouts", [0.1, *(pytest.param(dropouts, marks=pytest.mark.long) for dropouts in (0.0, 0.05, 0.2))])
def test_figure_3b_table(dropouts: float, table: Callable[[str], None]) -> None:
    rows = calibrated(dropouts)
    table(f"dropouts {dropouts:g}{'':22s} sigma_star^2 sigma_delta^2          MSE  paper/this")
    for name, (star, delta, mse) in rows.items():
        table(f"{name:34s} {star:12.4f} {delta:13.4f} {mse:12.5f} {rows['paper, uniform'][2] / mse:10.2f}")
    assert rows["exact-view, uniform"][1] <= rows["paper, uniform"][1]
    if dropouts == 0.1:
        assert rows["exact-view, uniform"][1] <= 0.45 * rows["paper, uniform"][1]
        assert rows["exact, permutation"][2] <= rows["paper, uniform"][2] / 5
