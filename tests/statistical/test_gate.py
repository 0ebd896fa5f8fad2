"""Fresh executions of planned studies at the gate: none beyond the a-priori figure, and no more refusals than stated.

If a plan's chance of no result were at its stated bound p, more than the 99.9 % quantile of binomial(300, p) refusals would have
a chance of 0.1 %. Seeds are fixed and printed.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.threads import one_thread
from quietmean.graphs import ExecutionTrace, churn
from quietmean.planning.calibrate import calibrate
from quietmean.planning.gate import a_priori_mu, as_recorded, decide, mu_before_release
from quietmean.planning.plan import Plan
from quietmean.privacy import mu_of_budget
from quietmean.protocols import Target
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.local_dp import LocalDP
from quietmean.randomness import Seed

FRESH = 300


def fresh(plan: Plan, number: int, dropouts: float | None = None) -> Execution:
    target, seed = plan.target, Seed.public("gate fresh", str(number))
    lost = target.dropouts if dropouts is None else dropouts
    trace = churn(seed.derive("churn"), plan.protocol.rounds, target.parties, permanent=lost)
    return plan.execution(seed.derive("schedule"), trace)


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "colluding"), [(20, 2), (40, 4), (100, 5), (60, 12)])
def test_fresh_executions_keep_the_a_priori_figure(parties: int, colluding: int) -> None:
    print("seeds: gate fresh 0 ..", FRESH - 1)
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, colluding=colluding, dropouts=0.1)
    plan = calibrate(target, IncA.from_options({"rounds": max(11, parties // 2), "schedule": "circulant"}), trials=59)
    figure = a_priori_mu(plan.target, plan.protocol)
    assert figure <= mu_of_budget(1.0, 1e-6) * (1 + 1e-9)
    refused = 0
    with one_thread():
        for number in range(FRESH):
            execution = fresh(plan, number)
            decision = decide(plan.target, execution)
            refused += not decision.passes
            # What is released was certified against all; the worst coalitions that a search finds are within it too.
            if decision.passes and number < 5:
                assert execution.privacy(1e-6).search(colluding, limit=30).max_mu <= figure
            assert not decision.passes or decision.mu < figure * (1 + 1e-6)
    stated = plan.prediction["no_result_probability"]
    print(parties, colluding, "refused", refused, "of", FRESH, "stated", stated)
    assert refused <= binom.ppf(0.999, FRESH, stated)


@cache
def small_plan() -> Plan:
    target = Target(parties=8, epsilon=1.0, delta=1e-6, colluding=2, dropouts=0.0)
    return calibrate(target, IncA.from_options({"rounds": 6}), trials=20)


@pytest.mark.slow
def test_lost_shares_are_refused_and_would_have_exceeded_the_target() -> None:
    # Nearly all shares are lost: without the gate the releases show single values, and the figure would not hold.
    plan = small_plan()
    schedule = plan.schedule(Seed.public("lost"))
    lost = np.ones(schedule.neighbours.shape, dtype=np.bool_)
    execution = plan.execution(Seed.public("lost"), ExecutionTrace(np.ones((7, 8), dtype=np.bool_), lost))
    decision = decide(plan.target, execution)
    assert decision.exhaustive
    assert not decision.passes
    without_gate = execution.privacy(1e-6).coalitions(2).max_mu
    assert without_gate > 1.5 * a_priori_mu(plan.target, plan.protocol)
    assert mu_before_release(plan.protocol, 1.0) <= decision.limit * (1 + 1e-9)


def test_who_left_may_have_told_one_another_anything() -> None:
    """Against a coalition with one who left, all who left count: by brute force, and never less than by the record alone."""
    plan = small_plan()
    execution = fresh(plan, 3, dropouts=0.4)
    left = np.nonzero(~execution.trace.finished)[0].tolist()
    assert len(left) == 3
    recorded = execution.with_trace(as_recorded(execution.schedule, execution.trace))
    privacy = recorded.privacy(1e-6)
    staying = [party for party in range(8) if party not in left]
    together = max(privacy.against([*left, party]).mu_upper.max() for party in staying)
    alone = privacy.coalitions(2).max_mu
    decision = decide(plan.target, execution)
    assert decision.mu == pytest.approx(max(together, alone), rel=1e-6)
    assert together > 1.05 * alone
    # With complete logs of all there is nothing to be assumed.
    assert decide(plan.target, recorded, ()).mu == pytest.approx(alone, rel=1e-9)


def test_the_record_of_a_simulated_history_says_no_less() -> None:
    plan = small_plan()
    for number in range(4):
        execution = fresh(plan, number, dropouts=0.3)
        recorded = execution.with_trace(as_recorded(execution.schedule, execution.trace))
        really, stated = (one.privacy(1e-6).coalitions(2).mu for one in (execution, recorded))
        staying = execution.trace.finished
        assert (stated[staying] >= really[staying] * (1 - 1e-6)).all()


def test_equal_figures_are_refused() -> None:
    plan = small_plan()
    decision = decide(plan.target, fresh(plan, 1))
    assert decision.passes
    assert not type(decision)(decision.limit * (1 - 1e-9), decision.limit, True).passes


def test_simulated_runs_count_what_the_gate_refuses() -> None:
    plan = small_plan()
    result = plan.simulate(runs=20, rng=3, gate=True)
    assert result.refused is not None
    assert result.failed == result.refused
    # Two of eight leave, of which the plan knows nothing.
    with pytest.raises(ProtocolFailure, match="the gate refused the release"):
        plan.simulate(runs=20, rng=3, dropouts=0.35, gate=True)
    with pytest.raises(InputError, match="no gate"):
        calibrate(plan.target, LocalDP()).simulate(runs=2, gate=True)
