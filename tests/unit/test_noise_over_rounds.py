"""Noise that is correlated over the rounds of a session: what docs/mathematics/accounting.md says that it could save."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]


def relative(matrix: Array, released: Array) -> float:
    """Variance of what is made of the rounds by ``released``, at one sensitivity, over that with independent noise.

    ``matrix``: C. The sensitivity is that of contributions that are the same in all rounds, exact where no entry of C^T C is
    negative.
    """
    rounds = len(matrix)
    inverse = np.linalg.inv(matrix)
    sensitivity = (matrix.sum(axis=1) ** 2).sum()
    return float(sensitivity * ((released @ inverse) ** 2).sum() / (rounds * (released**2).sum()))


def best(rounds: int, released: Array) -> tuple[float, Array]:
    """Over lower triangular matrices with entries >= 0, from three starts: less than 1 where correlation helps."""
    places = np.tril_indices(rounds)

    def of(values: Array) -> Array:
        found = np.zeros((rounds, rounds))
        found[places] = values
        return found

    def error(values: NDArray[np.float64]) -> float:
        return relative(of(values), released)

    apart = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    starts = [np.eye(rounds), 0.5**apart, np.eye(rounds) + 0.01]
    bounds = [(1e-3 if row == column else 0.0, 10.0) for row, column in zip(*places, strict=True)]
    found = [minimize(error, start[places], bounds=bounds, method="L-BFGS-B") for start in starts]
    least = min(found, key=lambda one: float(one.fun))
    return float(least.fun), of(least.x)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("rounds", "percent"), [(5, 6.3), (10, 8.2)])
def test_what_correlation_over_rounds_could_save(rounds: int, percent: float) -> None:
    all_models = np.tril(np.ones((rounds, rounds)))
    assert best(rounds, all_models)[0] == pytest.approx(1 - percent / 100, abs=1.5e-3)
    # For the last model alone nothing is better than independent noise, and a correlation makes it worse.
    last = np.ones((1, rounds))
    assert best(rounds, last)[0] == pytest.approx(1, abs=1e-6)
    assert relative(all_models, last) > 1.4


def test_where_a_record_is_in_one_round_it_would_save_much() -> None:
    """The known strength of such mechanisms is seen with the other sensitivity: the largest norm of a column."""
    rounds = 40
    powers = np.array([1.0])
    for place in range(1, rounds):
        powers = np.append(powers, powers[-1] * (2 * place - 1) / (2 * place))
    root = np.tril(powers[np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))])
    prefixes = np.tril(np.ones((rounds, rounds)))
    once = (root**2).sum(axis=0).max() * ((prefixes @ np.linalg.inv(root)) ** 2).sum() / (prefixes**2).sum()
    assert once < 0.35
