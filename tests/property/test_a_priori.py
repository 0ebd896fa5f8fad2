"""What is promised before the start holds whatever happens: no execution, however unlucky, is charged more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quietmean.privacy import Charge, mu_of_budget
from quietmean.protocols import Target, configure, get_protocol, registry
from quietmean.protocols.discrete import DiscreteNoise
from quietmean.protocols.execution import Execution
from quietmean.testing.strategies import executions
from support.certifiable import certifiable

DELTA = 1e-6
WITH_TRANSCRIPT = sorted(name for name, protocol in registry().items() if protocol.TRAITS.has_transcript)
EXAMPLES = 25


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WITH_TRANSCRIPT)
def test_no_history_costs_more_than_was_promised(name: str) -> None:
    """Random parameters, schedules, dropouts, lost and late messages, and every coalition."""

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(execution=executions(name, max_parties=6), size=st.integers(0, 4))
    def holds(execution: Execution, size: int) -> None:
        protocol: Any = execution.protocol
        if issubclass(type(protocol), DiscreteNoise):
            # In real numbers: what rounding adds to either is in the test below.
            execution = replace(execution, protocol=replace(protocol, step=0.0, dimension=None))
        elif getattr(protocol, "dimension", 1) is None:
            execution = replace(execution, protocol=replace(protocol, dimension=2))
        size = min(size, execution.parties - 1 - len(protocol.traits.trusted))
        promised = execution.a_priori(size, DELTA)
        if np.isinf(promised.mu):
            return
        if getattr(protocol, "grid", 0.0) and hasattr(protocol, "value_bits"):
            # In real numbers: what rounding adds is an upper bound, and own noise does not need it.
            exact = replace(protocol, value_bits=64, grid=0.0, largest_value=0.0)
            execution = replace(execution, protocol=exact)
        # The solver's own upper bound may be a little above.
        assert execution.privacy(DELTA).coalitions(size, limit=10**6).max_mu <= promised.mu * (1 + 1e-4)

    holds()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", WITH_TRANSCRIPT)
@pytest.mark.parametrize("limit", [10**6, 0])
def test_no_history_settles_for_more_than_was_reserved(name: str, limit: int) -> None:
    """In each of the three columns, whether all coalitions are tried or a formula bounds them: no account is ever frozen."""

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(execution=executions(name, max_parties=6), size=st.integers(0, 4))
    def holds(execution: Execution, size: int) -> None:
        execution = certifiable(execution)
        protocol: Any = execution.protocol
        size = min(size, execution.parties - 1 - len(protocol.traits.trusted))
        reserved = Charge.promised(execution.a_priori(size, DELTA))
        certificate = execution.privacy(DELTA).coalitions(size, limit=limit)
        for party in range(execution.parties):
            certified = certificate.charge(party)
            assert not certified.capped(reserved).exceeds(reserved)
            # The columns that nothing caps.
            assert certified.beta <= reserved.beta
            assert certified.tv <= reserved.tv

    holds()


@pytest.mark.parametrize(
    ("name", "options"), [("local-dp", {}), ("cordp-dme", {}), ("cordp-dme", {"partners": 8}), ("secagg", {})]
)
def test_plans_by_formula_promise_their_target(name: str, options: dict[str, Any]) -> None:
    target = Target(20, 1.0, DELTA, 1, 1.0, 2, 0.1)
    plan = configure(name, options).calibrate(target)
    assert 0.9 * mu_of_budget(1.0, DELTA) < plan.a_priori.mu <= mu_of_budget(1.0, DELTA) * (1 + 1e-6)


@pytest.mark.slow
def test_without_noise_nothing_is_promised() -> None:
    plan = configure("gossip").calibrate(Target(6, 1.0, DELTA), no_privacy=True)
    assert np.isinf(plan.a_priori.mu)
    assert "it adds no noise" in plan.a_priori.enforced_by


def test_pure_privacy_is_dominated() -> None:
    """(epsilon, 0) and the Gaussian mechanism of the promised mu agree at delta = 0: the same total variation."""
    from scipy.stats import norm

    promised = get_protocol("priv-unit-g").read({"epsilon": 1.5}).resolved(4).a_priori(4, 3, 2.0, DELTA)
    assert 2 * norm.cdf(promised.mu / 2) - 1 == pytest.approx((np.exp(1.5) - 1) / (np.exp(1.5) + 1), rel=1e-9)
