"""How often the honest parties are connected by unseen messages, and that this decides the privacy limit (IncA, section 5.1)."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from quietmean.graphs import Schedule, make_schedule
from quietmean.privacy import Adversary
from quietmean.randomness.insecure import insecure_seed
from quietmean.testing import assert_rate, example_execution
from quietmean.testing.privacy import certificate_of

RUNS = 300


def connected(schedule: Schedule, corrupt: frozenset[int], observed: frozenset[tuple[int, int]]) -> bool:
    """For k = 1: are the honest parties one component of the graph of unseen messages?"""
    honest = [party for party in range(schedule.parties) if party not in corrupt]
    graph = nx.Graph()
    graph.add_nodes_from(honest)
    for t in range(schedule.rounds):
        for i in honest:
            j = int(schedule.neighbours[t, i, 0])
            if j not in corrupt and (i, t) not in observed:
                graph.add_edge(i, j)
    return bool(nx.is_connected(graph))


def star_rank(schedule: Schedule, corrupt: frozenset[int], observed: frozenset[tuple[int, int]]) -> int:
    """The rank of the vectors W_{t+1,:,i} - b_i over unseen messages (i, t), for any k."""
    stars = [np.zeros(schedule.parties)]
    for t in range(schedule.rounds):
        for i in set(range(schedule.parties)) - corrupt:
            others = schedule.recipients(t + 1, i)
            if not corrupt.intersection(others) and (i, t) not in observed:
                star = np.zeros(schedule.parties)
                star[list(others)] = 1.0
                star[i] = -len(others)
                stars.append(star)
    return int(np.linalg.matrix_rank(np.array(stars)))


def successes(rounds: int, corrupt_share: float, observed_share: float) -> int:
    count = 0
    for number in range(RUNS):
        numbers = np.random.default_rng([number, rounds])
        schedule = make_schedule("uniform", insecure_seed(number, rounds, "connectivity"), 100, rounds, 1)
        corrupt = frozenset(numbers.permutation(100)[: int(100 * corrupt_share)].tolist())
        seen = numbers.random((100, rounds)) < observed_share
        observed = frozenset((int(i), int(t)) for i, t in zip(*np.nonzero(seen), strict=True))
        count += connected(schedule, corrupt, observed)
    return count


@pytest.mark.parametrize(("rounds", "rate"), [(2, 0.16), (4, 0.95)])
def test_success_rates_with_a_third_corrupted(rounds: int, rate: float) -> None:
    """n = 100, k = 1, 30 % corrupted, 300 runs, exact binomial test against the known rate: error rate 1e-6."""
    assert_rate(successes(rounds, 0.3, 0.0), RUNS, rate)


@pytest.mark.parametrize("rounds", [6, 8])
def test_enough_rounds_always_succeed(rounds: int) -> None:
    """A rate of 0.999 would fail this by more than one run in 300 with probability 0.04; the rate is above 0.999."""
    assert successes(rounds, 0.3, 0.0) >= RUNS - 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("rounds", "rate"), [(4, 0.42), (6, 0.94), (8, 0.99)])
def test_success_rates_with_half_of_the_messages_seen(rounds: int, rate: float) -> None:
    """n = 100, k = 1, half of the messages intercepted, 300 runs, exact binomial test: error rate 1e-6."""
    assert_rate(successes(rounds, 0.0, 0.5), RUNS, rate)


@pytest.mark.parametrize("out_degree", [1, 2])
def test_rank_decides_whether_the_limit_is_reached(out_degree: int) -> None:
    """mu^2 comes within 5 % of 1 / (n_H sigma_star^2) exactly where the rank is n_H - 1.

    At sigma_delta = 10 000 sigma_star, where what is left of the approach is below 1e-3; by the dense engine, exact even there.
    """
    outcomes = []
    for number in range(60):
        numbers = np.random.default_rng(number)
        rounds = int(numbers.integers(1, 5))
        execution = example_execution(
            "inca", 10, number, sigma_star=1.0, sigma_delta=1e4, rounds=rounds, out_degree=out_degree, schedule="uniform"
        )
        corrupt = frozenset(numbers.permutation(10)[: int(numbers.integers(0, 6))].tolist())
        seen = np.argwhere(numbers.random((10, rounds)) < numbers.choice([0.0, 0.4]))
        observed = frozenset((int(i), int(t)) for i, t in seen)
        honest = 10 - len(corrupt)
        full = star_rank(execution.schedule, corrupt, observed) == honest - 1
        if out_degree == 1:
            assert full == connected(execution.schedule, corrupt, observed)
        mu = certificate_of(execution.transcript(), Adversary(corrupt, observed), 1.0, "dense").max_mu
        assert (mu**2 * honest < 1.05) == full, f"run {number}: {mu**2 * honest} times the limit, rank full: {full}"
        outcomes.append(full)
    assert 10 <= sum(outcomes) <= 50
