"""Schedules and churn are as random as they say. Each assertion fails on a correct implementation with probability 1e-6."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.graphs import churn, make_schedule
from quietmean.randomness.insecure import insecure_seed
from quietmean.testing import assert_rate, assert_uniform_counts

PARTIES = 7


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["uniform", "permutation"])
@pytest.mark.parametrize("out_degree", [1, 3])
def test_neighbours_are_uniform(kind: str, out_degree: int) -> None:
    """Chi-square over the others of each party, for each slot, 10 000 rounds: error rate 2.1e-5."""
    schedule = make_schedule(kind, insecure_seed(1), PARTIES, 10_000, out_degree)
    for party in range(PARTIES):
        for slot in range(out_degree):
            counts = np.bincount(schedule.neighbours[:, party, slot], minlength=PARTIES)
            assert_uniform_counts(np.delete(counts, party))


def test_neighbour_sets_are_uniform() -> None:
    """Chi-square over the 15 pairs of others, 10 000 rounds: error rate 1e-6; a biased choice of pairs is rejected."""
    table = np.sort(make_schedule("uniform", insecure_seed(2), PARTIES, 10_000, 2).neighbours[:, 0, :], axis=1)
    counts = np.unique(table, axis=0, return_counts=True)[1]
    assert counts.size == 15
    assert_uniform_counts(counts)
    biased = table[(table[:, 0] != 1) | (np.arange(len(table)) % 4 > 0)]
    with pytest.raises(AssertionError):
        assert_uniform_counts(np.unique(biased, axis=0, return_counts=True)[1])


@pytest.mark.parametrize("kind", ["circulant", "never-same"])
def test_first_neighbours_over_seeds_are_uniform(kind: str) -> None:
    """Chi-square over the others of party 2, 3000 seeds, first and last round: error rate 2e-6."""
    drawn = [make_schedule(kind, insecure_seed(number), PARTIES, 3, 1).neighbours[[0, 2], 2, 0] for number in range(3000)]
    for column in np.array(drawn).T:
        assert_uniform_counts(np.delete(np.bincount(column, minlength=PARTIES), 2))


def test_churn_rates() -> None:
    """Binomial test of temporary absence, chi-square of the round of leaving: error rate 2e-6; a rate 5 % off is rejected."""
    rounds, parties = 11, 10_000
    away = int((~churn(insecure_seed(3), rounds, parties, temporary=0.3).online[1:-1]).sum())
    assert_rate(away, (rounds - 1) * parties, 0.3)
    with pytest.raises(AssertionError):
        assert_rate(away, (rounds - 1) * parties, 0.3 * 0.95)
    gone = churn(insecure_seed(4), rounds, parties, permanent=0.5).online
    last = gone.sum(axis=0)[~gone[-1]]
    assert_uniform_counts(np.bincount(last, minlength=rounds + 1)[1:])
