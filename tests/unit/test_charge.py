"""What is charged: every conversion against 60-digit arithmetic, always in the safe direction, and close."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import dp_accounting
import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import norm

from quietmean.privacy import (
    Adversary,
    Charge,
    GridLossConversion,
    LocalNoiseLossConversion,
    LossConversion,
    compose,
    mu_of_budget,
)
from quietmean.privacy.charge import additive_delta, epsilon_of_rho
from quietmean.privacy.conversion import delta_of_mu, epsilon_of_mu
from quietmean.randomness.layered_gaussian import TOTAL_VARIATION
from support.refusals import refused

# -- What is charged: every conversion against 60-digit arithmetic, always in the safe direction, and close.
DIGITS = 60
EPSILON = st.floats(1e-6, 60.0)
DELTA = st.floats(-12.0, -2.0).map(lambda exponent: 10.0**exponent)
MU = st.floats(1e-3, 5.0)
CHANCE = st.floats(-30.0, -8.0).map(lambda exponent: 10.0**exponent)


def normal(x: mpmath.mpf) -> mpmath.mpf:
    """Phi, of tails as well."""
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def true_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """delta(mu, epsilon) with 60 digits left after the cancellation."""
    with mpmath.workdps(DIGITS + 40):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return normal(-e / m + m / 2) - mpmath.exp(e) * normal(-e / m - m / 2)


def true_total(charges: list[Charge], epsilon: float) -> mpmath.mpf:
    """The delta of studies together, from nothing but their columns."""
    with mpmath.workdps(DIGITS + 40):
        mu = mpmath.sqrt(sum((mpmath.mpf(one.mu) ** 2 for one in charges), mpmath.mpf(0)))
        beta = sum((mpmath.mpf(one.beta) for one in charges), mpmath.mpf(0))
        tv = sum((mpmath.mpf(one.tv) for one in charges), mpmath.mpf(0))
        gaussian = true_delta(mu, epsilon) if mu else mpmath.mpf(0)
        return gaussian + beta + (1 + mpmath.exp(epsilon)) * tv


# --- the curve ---------------------------------------------------------------------------------------------------------------


@given(MU, st.floats(0.0, 20.0), CHANCE, CHANCE)
def test_delta_is_the_sum_of_three_parts(mu: float, epsilon: float, beta: float, tv: float) -> None:
    charge = Charge(mu, beta, tv)
    truth, shown = true_total([charge], epsilon), charge.delta(epsilon)
    assert shown >= min(truth, 1)
    assert shown <= truth * (1 + mpmath.mpf("1e-10"))


@given(MU, DELTA)
@example(0.2367, 1e-12)
def test_epsilon_is_the_least_one(mu: float, delta: float) -> None:
    charge = Charge(mu, delta / 300, delta / 1e5)
    epsilon = charge.epsilon(delta)
    if math.isinf(epsilon):
        # No epsilon will do: where the Gaussian part has become small enough, e^epsilon tv has not.
        assert all(true_total([charge], e / 2) > delta for e in range(60))
        return
    assert true_total([charge], epsilon) <= delta
    if epsilon > 1e-6:
        assert true_total([charge], epsilon * (1 - 1e-8)) > delta


def test_without_the_additive_columns_it_is_the_gaussian_curve() -> None:
    for mu in (0.01, 0.25, 1.0, 4.0):
        assert Charge(mu).delta(1.0) == delta_of_mu(mu, 1.0)
        assert Charge(mu).epsilon(1e-6) == pytest.approx(epsilon_of_mu(mu, 1e-6), rel=1e-11)
    assert Charge(0.0).epsilon(1e-6) == 0.0
    assert Charge(0.0, beta=2e-6).epsilon(1e-6) == math.inf
    assert Charge(math.inf).epsilon(1e-6) == math.inf
    assert Charge(math.inf).delta(1.0) == 1.0
    assert not Charge(math.inf).bounded


@given(st.floats(0.01, 10.0), DELTA)
@example(1.0, 1e-12)
@example(8.0, 1e-12)
def test_the_largest_mu_of_a_budget_keeps_it_with_60_digits(epsilon: float, delta: float) -> None:
    mu = mu_of_budget(epsilon, delta)
    assert true_delta(mu, epsilon) <= delta
    assert true_delta(mu * (1 + 1e-9), epsilon) > delta


# --- other mechanisms --------------------------------------------------------------------------------------------------------


@given(st.one_of(EPSILON, st.floats(0.0, 700.0), st.just(1.0)))
@example(1.0000001)
@example(1e-12)
def test_a_pure_mechanism_is_dominated_and_hardly_more(epsilon: float) -> None:
    mu = Charge.of_mechanism(epsilon).mu
    with mpmath.workdps(DIGITS + int(epsilon / 2)):
        # At the corner of randomised response: both errors are 1 / (1 + e^epsilon).
        error = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        assert normal(-mpmath.mpf(mu) / 2) <= error
        if epsilon > 1e-30:
            assert normal(-mpmath.mpf(mu) * (1 - mpmath.mpf("1e-10")) / 2) > error


@given(EPSILON.filter(lambda epsilon: epsilon < 20), st.floats(0.0, 25.0))
def test_domination_holds_at_every_epsilon_of_the_curve(epsilon: float, at: float) -> None:
    """Randomised response has delta (e^epsilon - e^at) / (1 + e^epsilon) at ``at`` <= epsilon, and 0 beyond."""
    with mpmath.workdps(DIGITS):
        response = (mpmath.exp(epsilon) - mpmath.exp(at)) / (1 + mpmath.exp(epsilon))
        assert Charge.of_mechanism(epsilon).delta(at) >= response


def test_an_approximate_mechanism_and_its_groups() -> None:
    charge = Charge.of_mechanism(0.5, 1e-7)
    assert (charge.mu, charge.beta, charge.tv) == (Charge.of_mechanism(0.5).mu, 1e-7, 0.0)
    group = Charge.of_mechanism(0.5, 1e-7, members=3)
    assert group.mu == Charge.of_mechanism(1.5).mu
    with mpmath.workdps(DIGITS):
        exact = mpmath.mpf(1e-7) * (1 + mpmath.exp(mpmath.mpf("0.5")) + mpmath.exp(1))
        assert exact <= group.beta <= exact * (1 + mpmath.mpf("1e-11"))
    assert Charge.of_mechanism(0.0, 1e-7, members=3).beta == pytest.approx(3e-7)
    assert Charge.of_mechanism(0.0, 0.4, members=3).beta == 1.0
    assert Charge.of_mechanism(5.0, 1e-7, members=1000).beta == 1.0


@given(st.floats(1e-4, 4.0), DELTA)
def test_a_concentrated_mechanism_goes_by_epsilon_and_delta(rho: float, delta: float) -> None:
    epsilon = epsilon_of_rho(rho, delta)
    # Never below what the Gaussian mechanism of this rho really needs.
    assert epsilon >= epsilon_of_mu(math.sqrt(2 * rho), delta)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    charge = Charge.of_concentrated(rho, delta)
    assert charge == replace(Charge.of_mechanism(epsilon, delta), rho=rho)
    assert Charge.of_concentrated(rho, delta, members=2) == Charge.of_concentrated(4 * rho, delta)


@pytest.mark.parametrize(("rho", "delta"), [(0.01, 1e-6), (0.1, 1e-12), (0.5, 1e-5), (2.0, 1e-9)])
def test_concentrated_to_approximate_against_dp_accounting(rho: float, delta: float) -> None:
    orders = [1 + 2.0 ** (k / 8) for k in range(-40, 100)]
    theirs, _ = dp_accounting.rdp.compute_epsilon(orders, [rho * order for order in orders], delta)
    ours = epsilon_of_rho(rho, delta)
    # They minimise the same bound over a grid of orders.
    assert ours <= theirs * (1 + 1e-9)
    assert ours >= theirs * (1 - 1e-2)


def test_concentrated_at_the_ends() -> None:
    assert epsilon_of_rho(0.0, 1e-6) == 0.0
    assert epsilon_of_rho(math.inf, 1e-6) == math.inf
    for rho, delta in ((-1.0, 1e-6), (math.nan, 1e-6), (1.0, 0.0), (1.0, 1.0)):
        refused(r"\. Choose ", epsilon_of_rho, rho, delta)


# --- discrete Laplace noise --------------------------------------------------------------------------------------------------


def losses(steps: int, scale: float) -> tuple[list[Fraction], list[mpmath.mpf]]:
    """What an outcome says for a change of one coordinate, in steps over the scale, and how likely it is: from the definition."""
    a = mpmath.exp(-1 / mpmath.mpf(scale))
    middle = [(1 - a) / (1 + a) * a**k for k in range(1, steps)]
    return [Fraction(steps - 2 * k) for k in range(steps + 1)], [1 / (1 + a), *middle, a**steps / (1 + a)]


def together(changes: tuple[int, ...], scale: float) -> dict[Fraction, mpmath.mpf]:
    """The same for a vector, by convolution."""
    total = {Fraction(0): mpmath.mpf(1)}
    for change in changes:
        spread: dict[Fraction, mpmath.mpf] = {}
        for loss, chance in zip(*losses(change, scale), strict=True):
            for before, mass in total.items():
                spread[before + loss] = spread.get(before + loss, mpmath.mpf(0)) + mass * chance
        total = spread
    return total


def delta_at(epsilon: mpmath.mpf, loss: dict[Fraction, mpmath.mpf], scale: float) -> mpmath.mpf:
    each = ((mpmath.mpf(steps.numerator) / mpmath.mpf(scale), chance) for steps, chance in loss.items())
    return sum((chance * (1 - mpmath.exp(epsilon - value)) for value, chance in each if value > epsilon), mpmath.mpf(0))


VECTORS = [(1,), (2,), (7,), (8,), (1, 1), (3, 4), (2, 1, 2, 2), (1,) * 8]
SCALES = [0.4, 1.0, 6.5, 900.0]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("changes", VECTORS)
def test_laplace_noise_is_charged_what_hides_any_vector_of_a_norm(changes: tuple[int, ...], scale: float) -> None:
    """All columns are bounds, and for one coordinate nothing less is one."""
    charge = Charge.of_laplace(sum(changes), scale)
    with mpmath.workdps(DIGITS):
        loss = together(changes, scale)
        assert mpmath.mpf(charge.pure) >= max(loss) / mpmath.mpf(scale) * (1 - mpmath.mpf(10) ** (5 - DIGITS))
        # The true curve is linear in e^epsilon between these, where the Gaussian's bends down.
        kinks = [mpmath.mpf(steps.numerator) / mpmath.mpf(scale) for steps in sorted(loss) if steps >= 0]
        between = [(one + other) / 2 for one, other in pairwise(kinks)]
        places = [float(place) for place in (mpmath.mpf(0), *kinks, *between)]
        excess = [delta_at(mpmath.mpf(place), loss, scale) - true_delta(charge.mu, place) for place in places]
        assert max(excess) <= 0
        for order in (1.0001, 1.5, 2.0, 5.0, 40.0):
            moment = sum(
                (mass * mpmath.exp((order - 1) * value / mpmath.mpf(scale)) for value, mass in loss.items()), mpmath.mpf(0)
            )
            renyi = mpmath.log(moment) / (order - 1)
            assert renyi <= mpmath.mpf(charge.rho) * order
            if len(changes) == 1 and order < 1.01:
                assert renyi >= mpmath.mpf(charge.rho) * order * (1 - mpmath.mpf("2e-4") * (1 + mpmath.mpf(charge.pure)))
        if len(changes) == 1:
            # Errors of the best test between the two middle outcomes: no smaller mu allows them.
            steps, a = changes[0], mpmath.exp(-1 / mpmath.mpf(scale))
            one, other = (a ** ((steps + half) // 2) / (1 + a) for half in (1, 2))
            least = mpmath.sqrt(2) * (mpmath.erfinv(1 - 2 * one) + mpmath.erfinv(1 - 2 * other))
            assert least <= charge.mu <= least * (1 + mpmath.mpf("1e-10"))


@pytest.mark.parametrize(
    ("epsilon", "mu", "rho", "any_mu"),
    [
        (0.25, 0.296, 0.0288, 0.313),
        (0.5, 0.562, 0.1065, 0.624),
        (1, 1.030, 0.3679, 1.232),
        (2, 1.801, 1.135, 2.358),
        (4, 2.987, 3.018, 4.194),
    ],
)
def test_fine_steps_cost_less_than_any_pure_mechanism(epsilon: float, mu: float, rho: float, any_mu: float) -> None:
    fine, anything = Charge.of_laplace(2**20, 2**20 / epsilon), Charge.of_mechanism(epsilon)
    assert fine.mu == pytest.approx(mu, abs=6e-4)
    assert fine.rho == pytest.approx(rho, rel=3e-4)
    assert anything.mu == pytest.approx(any_mu, abs=6e-4)
    assert fine.pure == anything.pure == epsilon
    # One step is randomised response, the worst of all.
    assert Charge.of_laplace(1, 1 / epsilon) == anything


@pytest.mark.parametrize(("steps", "scale"), [(1, 1.0), (5, 2.5), (64, 64.0)])
def test_laplace_noise_against_dp_accounting(steps: int, scale: float) -> None:
    theirs = dp_accounting.pld.privacy_loss_distribution.from_discrete_laplace_mechanism(
        1 / scale, steps, value_discretization_interval=1e-4
    )
    with mpmath.workdps(DIGITS):
        loss = together((steps,), scale)
        for epsilon in (0.0, 0.3, 0.9):
            ours = float(delta_at(mpmath.mpf(epsilon), loss, scale))
            assert ours <= theirs.get_delta_for_epsilon(epsilon) <= ours * 1.001 + 1e-4
            assert Charge.of_laplace(steps, scale).delta(epsilon) >= ours


def test_a_promise_is_kept_where_a_certificate_knows_no_pure_epsilon() -> None:
    """Else a study with a pure epsilon would cost more than was reserved, and its account would be frozen."""
    promised = Charge.of_laplace(64, 64.0, tv=1e-20)
    for certified in (Charge(promised.mu), Charge(promised.mu / 2), Charge(2 * promised.mu)):
        assert certified.capped(promised) == promised
    assert Charge(0.1).capped(Charge(0.2, 1e-9)) == Charge(0.1)
    assert Charge(0.3).capped(Charge(0.2, 1e-9)) == Charge(0.2, 1e-9)


def test_what_follows_of_a_column_is_filled_in() -> None:
    assert Charge(math.inf, pure=1.0) == Charge.of_mechanism(1.0)
    assert Charge(0.5) == Charge(0.5, rho=1.0)
    assert Charge(0.5).rho == pytest.approx(0.125)
    assert Charge(0.0).rho == 0.0
    assert Charge(math.inf).rho == math.inf
    group = Charge.of_laplace(64, 512.0).of_group(3)
    assert group.rho == pytest.approx(9 * Charge.of_laplace(64, 512.0).rho)
    assert group.pure == 0.375
    both = compose([Charge.of_laplace(64, 64.0), Charge(0.5)])
    assert both.rho == pytest.approx(0.125 + Charge.of_laplace(64, 64.0).rho)
    assert both.pure == math.inf
    assert compose([Charge.of_laplace(64, 64.0)] * 3).pure == 3.0
    assert Charge(0.5, pure=1.0).exceeds(Charge(0.5, pure=0.9))
    refused("Choose a whole number >= 1", Charge.of_laplace, 0, 1.0)
    refused("Choose a finite number > 0", Charge.of_laplace, 1, 0.0)


# --- adding up ---------------------------------------------------------------------------------------------------------------


@given(st.lists(st.builds(Charge, MU, CHANCE, CHANCE), min_size=1, max_size=30), st.floats(0.0, 8.0))
def test_composition_is_never_below_the_truth(charges: list[Charge], epsilon: float) -> None:
    total = compose(charges)
    assert Fraction(total.mu) ** 2 >= sum(Fraction(one.mu) ** 2 for one in charges)
    assert Fraction(total.beta) >= sum(Fraction(one.beta) for one in charges)
    assert Fraction(total.tv) >= sum(Fraction(one.tv) for one in charges)
    truth = true_total(charges, epsilon)
    assert min(truth, 1) <= total.delta(epsilon) <= truth * (1 + mpmath.mpf("1e-10"))
    with mpmath.workdps(DIGITS):
        part = sum((mpmath.mpf(one.beta) for one in charges), mpmath.mpf(0))
        part += (1 + mpmath.exp(epsilon)) * sum((mpmath.mpf(one.tv) for one in charges), mpmath.mpf(0))
        ours = additive_delta(charges, epsilon)
        assert mpmath.mpf(ours.numerator) / ours.denominator >= min(part, 1)


def test_composition_at_the_ends() -> None:
    assert compose([]) == Charge(0.0)
    assert compose([Charge(3.0, 0.7, 0.9), Charge(4.0, 0.7, 0.9)]) == Charge(5.0, 1.0, 1.0)
    assert compose([Charge(math.inf), Charge(1.0, 1e-9)]) == Charge(math.inf, 1e-9)
    assert additive_delta([Charge(1.0, 0.0, 1e-300)], 1e4) == 1
    assert additive_delta([Charge(1.0, 1e-9)], 1e4) == Fraction(1e-9)


def test_columns_are_compared_one_by_one() -> None:
    small, large = Charge(0.1, 1e-9, 1e-12), Charge(0.2, 1e-10, 1e-12)
    assert large.exceeds(small)
    assert small.exceeds(large)
    assert not small.exceeds(small)
    assert small.larger(large) == Charge(0.2, 1e-9, 1e-12)


def test_groups() -> None:
    assert Charge(0.1, 0.2, 0.3).of_group(1) == Charge(0.1, 0.2, 0.3)
    group = Charge(0.1, 0.0, 1e-12).of_group(4)
    assert group.mu >= Fraction(4) * Fraction(0.1)
    assert group.mu == pytest.approx(0.4, rel=1e-12)
    assert group.tv == 1e-12
    refused("known for one change, not for 4 at once", Charge(0.1, 1e-9).of_group, 4)


def test_impossible_charges() -> None:
    for arguments in ((-0.1,), (math.nan,), (1.0, -1e-9), (1.0, 1.5), (1.0, 0.0, -1e-9), (1.0, 0.0, math.nan)):
        refused("Choose a number", Charge, *arguments)
    for epsilon, delta in ((-1.0, 0.0), (math.inf, 0.0), (1.0, -0.1), (1.0, 1.1)):
        refused("Choose a", Charge.of_mechanism, epsilon, delta)
    refused("a group of 0", Charge(1.0).of_group, 0)
    refused("Choose a finite number", Charge.of_concentrated, math.inf, 1e-6)
    refused("Choose a finite number", additive_delta, [], math.inf)


@pytest.mark.parametrize("members", [2, 3, 5])
@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_events_of_a_group_take_what_they_may_at_its_epsilon(members: int, mu: float, epsilon: float) -> None:
    """The worst that single changes one after the other allow, by going through their curves; and nearly no more is charged."""
    beta = 1e-7
    group = Charge(mu, beta).of_group(members, epsilon)
    assert group.mu == pytest.approx(members * mu)
    # What one neighbour gives probability p, the last of the chain: the one before gives at most Phi(Phi^-1(p) + mu) + beta.
    chances = np.logspace(-14, -0.0001, 200_001)
    reached = chances
    for _ in range(members):
        reached = np.minimum(1.0, norm.cdf(norm.ppf(reached) + mu) + beta)
    worst = float((reached - math.exp(epsilon) * chances).max())
    assert worst <= group.delta(epsilon) * (1 + 1e-9)
    assert group.beta <= beta * math.expm1(epsilon) / math.expm1(epsilon / members) * (1 + 1e-9)
    # A wrong charge, of one change alone, is found out where the noise hides the group nearly as it should.
    if members * mu <= 0.25:
        assert worst > Charge(group.mu, beta).delta(epsilon)


# -- The conversion for whole numbers: what it adds to mu, and the sampler's distance in epsilon and delta.
NOBODY = Adversary.collusion(())


class Sampled(LossConversion):
    def __init__(self, tv: float) -> None:
        self.tv = tv


@pytest.mark.parametrize("mu", [0.05, 0.25, 1.0, 3.0])
@pytest.mark.parametrize("sampled", [0.0, 1e-30, 1e-12, 1e-8])
def test_epsilon_is_the_least_whose_delta_with_the_sampler_fits(mu: float, sampled: float) -> None:
    conversion, delta = Sampled(sampled), 1e-6
    epsilon = conversion.epsilon(mu, delta)
    if math.isinf(epsilon):
        # Then the sampler alone takes all of delta where mu would leave room.
        assert all(conversion.delta(mu, number) > delta for number in np.linspace(0.0, 60.0, 200))
        return
    assert conversion.delta(mu, epsilon) <= delta
    assert epsilon >= epsilon_of_mu(mu, delta)
    assert epsilon == 0.0 or conversion.delta(mu, epsilon * (1 - 1e-6)) > delta


def test_delta_counts_the_sampler_on_both_sides() -> None:
    assert Sampled(1e-9).delta(0.5, 2.0) == pytest.approx(delta_of_mu(0.5, 2.0) + (1 + math.exp(2.0)) * 1e-9, rel=1e-12)
    assert Sampled(1e-9).delta(0.5, 600.0) == 1.0
    assert math.isinf(Sampled(1e-3).epsilon(0.5, 1e-6))


def test_mu_of_a_grid_is_as_in_the_theorem() -> None:
    conversion = GridLossConversion(step=0.5, dimension=10, deviations=[2.0, 0.0, 8.0], draws=7, rounding=lambda _, honest: 0.01)
    found = conversion.mu(NOBODY, [0, 1], np.array([0.5, 0.0]), 1.0)
    # 2.0 is four steps: v = 16, v / (v - 8) = 2. What is not seen costs nothing.
    np.testing.assert_allclose(found, [math.sqrt((0.25 + 10 * 0.01) * 2), 0.0])
    assert conversion.tv == 70 * TOTAL_VARIATION
    more = conversion.inflation(0.5, 2)
    assert more >= found[0] / 0.5


def test_too_few_steps_are_no_protection() -> None:
    conversion = GridLossConversion(step=1.0, dimension=1, deviations=[2.8], draws=1)
    assert math.isinf(conversion.mu(NOBODY, [0], np.array([0.1]), 1.0)[0])
    assert math.isinf(LocalNoiseLossConversion(0.0, step=1.0, dimension=1, draws=1).mu(NOBODY, [0], np.array([0.1]), 1.0)[0])


def test_local_noise_does_not_depend_on_what_is_seen() -> None:
    conversion = LocalNoiseLossConversion(4.0, step=1.0, dimension=1, draws=1)
    for view in (0.0, 0.1, math.inf):
        np.testing.assert_allclose(conversion.mu(NOBODY, [0], np.array([view]), 3.0), 3.0 / math.sqrt(8.0))
