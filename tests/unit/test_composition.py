"""Composition and conversions: against dp-accounting, closed forms, brute force, and always in the safe direction."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.privacy import InformationMatrix, mu_of_budget
from quietmean.privacy.composition import (
    classical_renyi_epsilon,
    compose_budgets,
    compose_mu,
    epsilon_within,
    fits,
    group_mu,
    mu_of_errors,
    remaining_mu,
    renyi_epsilon,
    set_mu,
    type_two_error,
)
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu
from support.refusals import refused

MU = st.floats(0, 50)
MUS = st.lists(MU, max_size=6)
RATE = st.floats(1e-12, 1 - 1e-12)


def information(matrix: NDArray[np.float64], disclosed: NDArray[np.float64] | None = None) -> InformationMatrix:
    rows = np.zeros((0, len(matrix))) if disclosed is None else disclosed
    return InformationMatrix.from_parts(tuple(range(len(matrix))), matrix, rows)


def semidefinite(seed: int, size: int, rank: int) -> NDArray[np.float64]:
    factor = np.random.default_rng(seed).standard_normal((size, rank))
    product: NDArray[np.float64] = factor @ factor.T
    return product


# --- composition -------------------------------------------------------------------------------------------------------------


def test_composition_by_hand() -> None:
    assert compose_mu([]) == 0.0
    assert compose_mu([0.7]) == 0.7
    assert compose_mu([3.0, 4.0]) == 5.0
    assert compose_mu([0.0, 2.5, 0.0]) == 2.5
    assert compose_mu([1.0, math.inf]) == math.inf
    assert compose_mu([5e-324, 1e-320]) >= 1e-320
    assert compose_mu([1.0] * 10_000) == 100.0


@given(MUS)
def test_composition_is_the_next_double_above_the_exact_root(mus: list[float]) -> None:
    total = sum((Fraction(mu) ** 2 for mu in mus), Fraction(0))
    composed = compose_mu(mus)
    assert Fraction(composed) ** 2 >= total
    below = math.nextafter(math.nextafter(composed, 0.0), 0.0)
    assert composed == 0.0 or Fraction(below) ** 2 < total


@given(MUS, MUS, MUS)
def test_composition_is_associative_commutative_and_monotone(one: list[float], other: list[float], third: list[float]) -> None:
    flat = compose_mu([*one, *other, *third])
    nested = compose_mu([compose_mu(one), compose_mu([compose_mu(other), compose_mu(third)])])
    assert flat <= nested <= flat * (1 + 1e-14)
    assert compose_mu([*third, *other, *one]) == flat
    assert compose_mu([*one, 0.0]) == compose_mu(one)
    assert compose_mu(one) <= compose_mu([*one, *other])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sigmas", [(2.0, 3.0), (1.0, 5.0, 7.0), (4.0,) * 10])
def test_composition_agrees_with_privacy_loss_distributions(sigmas: tuple[float, ...]) -> None:
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    for sigma in sigmas:
        accountant.compose(dp_accounting.GaussianDpEvent(sigma))
    epsilon = epsilon_of_mu(compose_mu(1 / sigma for sigma in sigmas), 1e-6)
    # Theirs is pessimistic by its discretisation.
    assert epsilon <= accountant.get_epsilon(1e-6) <= epsilon * (1 + 1e-6)


def test_composition_of_budgets_beats_adding_epsilons() -> None:
    ten = compose_budgets([(0.5, 1e-6)] * 10)
    assert ten == pytest.approx(math.sqrt(10) * mu_of_budget(0.5, 1e-6), rel=1e-15)
    assert epsilon_of_mu(ten, 1e-5) < 2.0
    sigma = 1 / mu_of_budget(0.5, 1e-6)
    theirs = dp_accounting.get_epsilon_gaussian(sigma / math.sqrt(10), 1e-5)
    assert epsilon_of_mu(ten, 1e-5) == pytest.approx(theirs, rel=1e-8)


@given(MU, MUS)
def test_what_is_left_fits_and_is_all_there_is(budget: float, mus: list[float]) -> None:
    left = remaining_mu(budget, mus)
    if fits(budget, mus):
        assert fits(budget, [*mus, left])
        assert not fits(budget, [*mus, left * (1 + 1e-15) + 1e-139])
    else:
        assert left == 0.0


def test_budgets_at_the_edge() -> None:
    budget = mu_of_budget(1.0, 1e-6)
    assert fits(budget, [budget])
    assert not fits(budget, [budget, 5e-324])
    assert remaining_mu(budget, [budget]) == 0.0
    assert remaining_mu(5.0, [3.0]) == 4.0
    assert remaining_mu(5.0, [math.inf]) == 0.0
    assert remaining_mu(math.inf, [3.0]) == math.inf
    assert fits(math.inf, [math.inf])


@given(st.floats(1e-4, 10), st.floats(1e-12, 0.5))
def test_the_epsilon_within_a_mu_may_be_asked_for(mu: float, delta: float) -> None:
    epsilon = epsilon_within(mu, delta)
    if epsilon > 0:
        assert mu_of_budget(epsilon, delta) <= mu
        assert mu_of_budget(epsilon * (1 + 1e-6) + 1e-9, delta) > mu * (1 - 1e-9)
    assert epsilon <= epsilon_of_mu(mu, delta)
    assert epsilon_within(0.0, delta) == 0.0
    assert epsilon_within(math.inf, delta) == math.inf


# --- other languages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.5, 2.0, 30.0])
def test_the_renyi_curve_and_its_classical_conversion(sigma: float) -> None:
    mu = 1 / sigma
    orders = np.concatenate([1 + np.geomspace(1e-3, 1e4, 400)])
    divergences = np.array([renyi_epsilon(mu, float(order)) for order in orders])
    assert divergences == pytest.approx(orders / (2 * sigma**2), rel=1e-13)
    for delta in (1e-3, 1e-6, 1e-10):
        by_grid = float((divergences + math.log(1 / delta) / (orders - 1)).min())
        classical = classical_renyi_epsilon(mu, delta)
        assert classical <= by_grid <= classical * 1.001
        accountant = dp_accounting.rdp.RdpAccountant(orders.tolist())
        accountant.compose(dp_accounting.GaussianDpEvent(sigma))
        # Their conversion (Canonne, Kamath and Steinke) lies between the classical one and the truth.
        assert epsilon_of_mu(mu, delta) <= accountant.get_epsilon(delta) <= classical * 1.001


@given(MU, st.floats(1e-12, 0.5))
def test_the_classical_conversion_is_an_upper_bound(mu: float, delta: float) -> None:
    assert classical_renyi_epsilon(mu, delta) >= epsilon_of_mu(mu, delta)


@given(st.floats(0, 6), RATE)
def test_errors_of_the_best_test(mu: float, type_one: float) -> None:
    normal = NormalDist()
    type_two = type_two_error(mu, type_one)
    assert 0.0 <= type_two <= 1 - type_one
    exact = normal.cdf(-normal.inv_cdf(type_one) - mu)
    assert type_two == pytest.approx(exact, rel=1e-6, abs=1e-12)
    if 1e-12 < type_two < 1:
        # Its own inverse, up to the rounding down of both.
        assert type_two_error(mu, type_two) == pytest.approx(type_one, rel=1e-6, abs=1e-12)
        assert mu_of_errors(type_one, type_two) >= mu - 1e-9


@given(st.floats(0.001, 6), st.floats(1e-6, 0.999), st.floats(0, 5))
def test_trade_off_and_delta_are_duals(mu: float, type_one: float, epsilon: float) -> None:
    """No test beats 1 - delta - e^epsilon a; some test reaches it."""
    delta = delta_of_mu(mu, epsilon)
    assert type_two_error(mu, type_one) >= 1 - delta - math.exp(epsilon) * type_one - 1e-12
    best = NormalDist().cdf(-(epsilon / mu + mu / 2))
    if best > 1e-300:
        assert type_two_error(mu, best) == pytest.approx(1 - delta - math.exp(epsilon) * best, rel=1e-9, abs=1e-12)


def test_errors_at_the_ends() -> None:
    assert type_two_error(0.0, 0.3) == 0.7
    assert type_two_error(2.0, 0.0) == 1.0
    assert type_two_error(2.0, 1.0) == 0.0
    assert type_two_error(math.inf, 0.0) == 0.0
    assert mu_of_errors(0.5, 0.5) == 0.0
    assert mu_of_errors(0.0, 1.0) == 0.0
    assert mu_of_errors(0.0, 0.9) == math.inf
    assert mu_of_errors(0.0, 0.0) == math.inf
    assert mu_of_errors(1e-300, 1e-300) == pytest.approx(2 * 37.0471, rel=1e-5)


@given(st.floats(0, 6), st.floats(0, 6), RATE)
def test_more_mu_means_fewer_errors(one: float, other: float, type_one: float) -> None:
    low, high = sorted((one, other))
    assert type_two_error(high, type_one) <= type_two_error(low, type_one) * (1 + 1e-9)


# --- several units -----------------------------------------------------------------------------------------------------------


def test_groups() -> None:
    assert group_mu(0.5, 0) == 0.0
    assert 1.5 <= group_mu(0.5, 3) <= 1.5 * (1 + 1e-13)
    assert group_mu(math.inf, 2) == math.inf
    assert group_mu(math.inf, 0) == 0.0


@pytest.mark.parametrize("size", [1, 2, 5, 9, 12])
def test_sets_of_scalars_are_exact(size: int) -> None:
    matrix = semidefinite(size, 12, 12)
    members = range(size)
    block = matrix[:size, :size]
    brute = max(float(np.array(v) @ block @ np.array(v)) for v in itertools.product((1.0, -1.0), repeat=size))
    bound = set_mu(information(matrix), members, 2.0)
    assert bound.estimate == pytest.approx(2 * math.sqrt(brute), rel=1e-12)
    assert bound.relative_width < 1e-8
    inside = np.random.default_rng(size).uniform(-2, 2, (500, size))
    assert np.sqrt(np.einsum("vi,ij,vj->v", inside, block, inside)).max() <= bound.upper


@given(st.integers(0, 50), st.integers(1, 16), st.integers(1, 6), st.integers(1, 4))
def test_sets_hold_every_change_of_vectors(seed: int, size: int, rank: int, dimension: int) -> None:
    matrix = semidefinite(seed, size, rank)
    bound = set_mu(information(matrix), range(size), 1.0, dimension)
    changes = np.random.default_rng(seed).standard_normal((size, dimension))
    for _ in range(100):
        changes /= np.linalg.norm(changes, axis=1, keepdims=True)
        shift = math.sqrt(float(np.einsum("id,ij,jd->", changes, matrix, changes)))
        assert shift <= bound.upper * (1 + 1e-9)
        # Climbing: each party turns into the direction in which it adds most.
        changes = matrix @ changes + 1e-9
    alone = [math.sqrt(entry) for entry in np.diag(matrix)]
    assert max(alone) <= bound.upper * (1 + 1e-9)
    assert bound.upper <= sum(alone) * (1 + 1e-8)
    corner = set_mu(information(matrix), range(size), 1.0)
    assert bound.lower == corner.lower
    assert corner.upper <= bound.upper


def test_sets_of_vectors_exceed_scalars() -> None:
    """Three directions at 120 degrees hide more than any signs can: the bound must not be the corner's."""
    root = np.array([[1.0, 0.0], [-0.5, math.sqrt(0.75)], [-0.5, -math.sqrt(0.75)]])
    matrix = root @ root.T
    bound = set_mu(information(matrix), range(3), 1.0, dimension=2)
    exact = math.sqrt(float(np.einsum("id,ij,jd->", root, matrix, root)))
    assert exact == pytest.approx(math.sqrt(4.5))
    assert bound.lower < 2.0 * (1 + 1e-12) < exact <= bound.upper <= exact * (1 + 1e-9)


def test_sets_with_a_disclosed_combination() -> None:
    matrix = np.diag([1.0, 1.0, 0.0, 0.0])
    disclosed = np.array([[0.0, 0.0, 1.0, 1.0]]) / math.sqrt(2)
    about = information(matrix, disclosed)
    assert set_mu(about, [2], 1.0).lower == math.inf
    assert set_mu(about, [0, 1], 1.0).estimate == pytest.approx(math.sqrt(2), rel=1e-9)
    assert set_mu(about, [], 1.0).upper == 0.0


# --- refusals ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [-0.1, math.nan, -math.inf])
def test_what_is_no_mu_is_refused(mu: float) -> None:
    about = information(np.eye(2))
    for call in (
        lambda: compose_mu([1.0, mu]),
        lambda: remaining_mu(1.0, [mu]),
        lambda: fits(mu, []),
        lambda: renyi_epsilon(mu, 2.0),
        lambda: classical_renyi_epsilon(mu, 0.1),
        lambda: type_two_error(mu, 0.1),
        lambda: group_mu(mu, 2),
        lambda: epsilon_within(mu, 0.1),
        lambda: set_mu(about, [0], mu),
    ):
        refused("Choose a", call)


def test_other_refusals() -> None:
    about = information(np.eye(2))
    refused("Choose a finite number > 1", renyi_epsilon, 1.0, 1.0)
    refused("Choose 0 < delta < 1", classical_renyi_epsilon, 1.0, 0.0)
    refused("between 0 and 1", type_two_error, 1.0, 1.1)
    refused("between 0 and 1", mu_of_errors, 0.1, math.nan)
    refused("a group of -1", group_mu, 1.0, -1)
    refused("party 7 is not honest", set_mu, about, [0, 7], 1.0)
    refused("dimension is 0. Choose 1 or more", set_mu, about, [0], 1.0, dimension=0)
