"""Errors of packed sharing: simulated is what plans predict. Error rates are stated; seeds are fixed and printed by pytest."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.planning.calibrate import calibrate
from quietmean.privacy import mu_of_budget
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.target import Target
from quietmean.simulation import simulate
from support.packed_bars import BARS

SEED, EPSILON, DELTA = 20_261_122, 1.0, 1e-6


def check(parties: int, colluding: int, dropouts: float, bar: float, runs: int, dimension: int, scale: float = 1.0) -> None:
    """Simulated error within 3 % of the prediction or 3 standard errors: missed by chance with probability 0.003 at most.

    The error over the curator's is below the bar, up to the same. ``scale``: the noise is so much larger than planned.
    """
    from dataclasses import replace

    target = Target(parties, EPSILON, DELTA, dimension, 1.0, colluding, dropouts)
    plan = calibrate(target, PackedSharing())
    assert isinstance(plan.protocol, PackedSharing)
    wrong = replace(plan, protocol=replace(plan.protocol, sigma=scale * plan.protocol.sigma))
    found, predicted = simulate(wrong, runs=runs, seed=SEED), plan.prediction["mse_noise"] + plan.prediction["mse_dropout_bias"]
    central = (1 / mu_of_budget(EPSILON, DELTA) / parties) ** 2
    print(parties, colluding, dropouts, found.mse / central, predicted / central, found.mse_standard_error / central, SEED)
    allowed = max(0.03 * predicted, 3 * found.mse_standard_error)
    assert abs(found.mse - predicted) < allowed
    assert found.mse < bar * central + allowed
    assert predicted < bar * central


def test_simulated_error_is_as_predicted() -> None:
    """60 runs of 200 coordinates, a standard error of 1.4 %; 8 % more noise is noticed."""
    check(10, 1, 0.1, 1.31, 60, 200)
    with pytest.raises(AssertionError):
        check(10, 1, 0.1, 1.31, 60, 200, scale=1.08)


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "colluding", "dropouts", "bar"), [bar for bar in BARS if bar[:3] != (10, 1, 0.1)])
def test_simulated_errors_in_all_cells(parties: int, colluding: int, dropouts: float, bar: float) -> None:
    """60 runs of 500 coordinates, a standard error of about 1 %."""
    check(parties, colluding, dropouts, bar, 60, 500)


@pytest.mark.slow
def test_too_few_inputs_are_as_rare_as_planned() -> None:
    """200 runs at 20 % dropouts: each has no result with chance 6e-4, so that 4 or more occur with probability 1e-5."""
    target = Target(100, EPSILON, DELTA, 1, 1.0, 10, 0.2)
    found = simulate(calibrate(target, PackedSharing()), runs=200, seed=SEED)
    assert len(found.estimates) > 196
    assert np.isfinite(found.estimates).all()
