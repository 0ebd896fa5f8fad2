"""Plans of GOPA hold, and the error that they predict is the one found."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols.gopa import GOPA
from quietmean.randomness import Seed
from quietmean.simulation import simulate


@pytest.mark.slow
def test_plans_hold_on_fresh_executions_and_searched_coalitions() -> None:
    """24 executions not seen before, dropouts as planned and fewer; the search looks for coalitions worse than the plan's."""
    plan = calibrate(Target(parties=30, epsilon=1.0, delta=1e-6, colluding=3, dropouts=0.1), GOPA(aggregator=0))
    spent = []
    for number in range(24):
        online = np.ones((4, 30), dtype=np.bool_)
        for index, party in enumerate(range(3 + number, 3 + number + (0, 2, 3)[number % 3])):
            online[1 + (index + number) % 3 :, 1 + party % 29] = False
        privacy = plan.execution(Seed.public("fresh gopa", number), ExecutionTrace(online)).privacy(1e-6)
        found = privacy.search(3, limit=40)
        assert 0 in found.worst
        spent.append(found.max_epsilon)
    print("epsilon on fresh executions:", min(spent), max(spent))
    assert max(spent) <= 1.0


@pytest.mark.slow
def test_predicted_and_simulated_error_agree_without_dropouts() -> None:
    """MSE = sigma_star^2 / n: 4000 runs, within 5 standard errors of it (wrongly rejected with probability 6e-7)."""
    target = Target(parties=12, epsilon=1.0, delta=1e-6, colluding=1, dimension=2)
    plan = Plan(target, GOPA(sigma_star=0.6, sigma_delta=5.0, partners=4))
    result = simulate(plan, runs=4000, seed=5)
    assert abs(result.mse - 0.36 / 12) < 5 * result.mse_standard_error
    assert abs(result.mse - 0.36 * 1.2 / 12) > 5 * result.mse_standard_error
