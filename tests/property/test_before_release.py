"""What is known before the release, and the star of shares: bounds that no history and no coalition exceeds, by brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.graphs import ExecutionTrace
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA, Injection, shift_square
from quietmean.protocols.inca.worst_case import worst_coalition
from quietmean.protocols.mechanism import hidden_variance, with_guard
from quietmean.randomness import Seed
from quietmean.testing.strategies import executions
from support.effort import examples
from support.every_coalition import worst_mu

# Certificates and bounds are compared up to this relative error of linear algebra.
TOLERANCE = 1e-6


def inca(**fields: object) -> IncA:
    return IncA.read({"rounds": 5, "sigma_star": 0.7, "sigma_delta": 1.9} | fields).resolved(6)


def known_before_release(execution: Execution, party: int) -> float:
    """Information about a value in all messages that its owner sent, whoever they reached, with all other secrets known."""
    transcript = execution.traced_transcript()
    values, noise = transcript.eliminated()
    rows = (transcript.sender == party) & ~transcript.released
    mine = transcript.noise_known.toarray()[:, party].astype(np.bool_)
    own = noise[rows][:, mine] * transcript.noise_scale[mine]
    data = values[rows, party]
    return float(data @ np.linalg.pinv(own @ own.T, rcond=1e-11, hermitian=True) @ data) if rows.any() else 0.0


@settings(max_examples=examples(200), deadline=None)
@given(executions("inca", max_parties=5))
def test_nothing_exceeds_the_bound_before_the_release(execution: Execution) -> None:
    # Lost, late and refused shares count as seen; parties leave, miss rounds, and settle shares late.
    hidden = hidden_variance(execution.protocol)
    for party in range(execution.parties):
        assert known_before_release(execution, party) <= (1 + TOLERANCE) / hidden


@pytest.mark.parametrize("injection", ["incremental", "early"])
@pytest.mark.parametrize("guard", [0.0, 2.5])
def test_the_bound_before_the_release_is_attained(injection: str, guard: float) -> None:
    protocol = inca(injection=injection, sigma_guard=guard)
    schedule = protocol.draw_schedule(6, Seed.public("attained"))
    execution = Execution(protocol, schedule, ExecutionTrace.everyone(5, 6), 1.0, np.ones(6))
    exact = 1.0 / hidden_variance(protocol)
    assert known_before_release(execution, 2) == pytest.approx(exact, rel=1e-9)
    # A figure that takes the guard for more than it is, or forgets a round, would have been found out.
    assert known_before_release(execution, 2) > 1.0 / hidden_variance(replace(protocol, sigma_guard=guard + 0.1))
    assert known_before_release(execution, 2) > 1.0 / hidden_variance(replace(protocol, sigma_delta=2.0))


def test_closed_forms() -> None:
    for rounds in (1, 2, 7, 13):
        assert shift_square(Injection.early(rounds)) == pytest.approx(1.0)
        ramp = np.arange(1, rounds + 1) / (rounds + 1)
        assert shift_square(Injection.incremental(rounds)) == pytest.approx(float(ramp @ ramp))


def test_a_guard_fills_what_is_missing_and_no_more() -> None:
    protocol = inca()
    assert with_guard(protocol, 0.1) == protocol
    guarded = with_guard(protocol, 20.0)
    assert 20.0 <= hidden_variance(guarded) <= 20.0 * (1 + 1e-5)
    assert replace(protocol, sigma_guard=0.0) == with_guard(guarded, 0.1)


def exact_worst(execution: Execution, size: int) -> NDArray[np.float64]:
    """The largest mu of each party over all coalitions, at unit sensitivity, without what a certificate adds for rounding."""
    return worst_mu(replace(execution, sensitivity=1.0).privacy(1e-6), size)


@settings(max_examples=examples(60), deadline=None)
@given(executions("inca", max_parties=7), st.integers(0, 3))
def test_the_star_is_never_below_any_coalition(execution: Execution, size: int) -> None:
    size = min(size, execution.parties - 1)
    protocol = replace(cast("IncA", execution.protocol), grid=0.0, value_bits=64, largest_value=0.0)
    execution = replace(execution, protocol=protocol)
    bound = worst_coalition(protocol, execution.schedule, execution.trace, 1.0, size).mu
    assert (exact_worst(execution, size) <= bound * (1 + TOLERANCE)).all()


@settings(max_examples=examples(40), deadline=None)
@given(executions("inca", max_parties=7), st.integers(0, 2), st.sets(st.integers(0, 6), min_size=1, max_size=3))
def test_the_star_with_given_colluders_is_never_below_any_coalition(execution: Execution, size: int, some: set[int]) -> None:
    given_ones = frozenset(party for party in some if party < execution.parties)
    others = [party for party in range(execution.parties) if party not in given_ones]
    if len(others) < 2:
        return
    size = min(size, len(others) - 1)
    protocol = replace(cast("IncA", execution.protocol), grid=0.0, value_bits=64, largest_value=0.0)
    execution = replace(execution, protocol=protocol, sensitivity=1.0)
    bound = worst_coalition(protocol, execution.schedule, execution.trace, 1.0, size, given_ones).mu
    privacy = execution.privacy(1e-6)
    for chosen in itertools.combinations(others, size):
        certificate = privacy.against(given_ones.union(chosen))
        assert (certificate.mu_upper <= bound[list(certificate.honest)] * (1 + TOLERANCE)).all()


@pytest.mark.slow
def test_the_star_is_close_where_it_should_be() -> None:
    # Seeds 0..5; 12 parties, 2 colluders, nobody leaves: 1 % to 60 % above the worst of all coalitions.
    protocol = replace(inca(rounds=10), sigma_star=1.3, sigma_delta=3.4)
    for seed in range(6):
        schedule = protocol.draw_schedule(12, Seed.public("star", str(seed)))
        execution = Execution(protocol, schedule, ExecutionTrace.everyone(10, 12), 1.0, np.ones(12))
        ratio = worst_coalition(protocol, schedule, execution.trace, 1.0, 2).mu.max() / exact_worst(execution, 2).max()
        assert 1.0 <= ratio <= 1.6


def test_a_star_that_forgets_the_coalition_is_found_out() -> None:
    protocol = replace(inca(rounds=3), sigma_star=1.0, sigma_delta=3.0)
    schedule = protocol.draw_schedule(8, Seed.public("mutant"))
    execution = Execution(protocol, schedule, ExecutionTrace.everyone(3, 8), 1.0, np.ones(8))
    careless = worst_coalition(protocol, schedule, execution.trace, 1.0, 0).mu
    assert (exact_worst(execution, 3) > careless).any()
