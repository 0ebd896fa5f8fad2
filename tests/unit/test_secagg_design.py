"""Calibration and neighbourhoods of secure aggregation."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Charge
from quietmean.protocols import configure
from quietmean.protocols.discrete import conditional_norm, rounded_norm
from quietmean.protocols.secagg import SecAgg
from quietmean.protocols.secagg.design import assess, choose_neighbourhood, hidden_by, sum_bound, upper_tail
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import insecure_seed
from quietmean.simulation import simulate
from support.refusals import refused, refused_rows


def planned(name: str = "secagg", options: dict[str, Any] | None = None, **target: Any) -> Plan:
    usual = {"parties": 12, "epsilon": 1.0, "delta": 1e-5, "dimension": 3, "colluding": 1}
    return calibrate(Target(**(usual | target)), configure(name, options or {}))


def chosen(name: str = "secagg", options: dict[str, Any] | None = None, **target: Any) -> SecAgg:
    protocol = planned(name, options, **target).protocol
    assert isinstance(protocol, SecAgg)
    return protocol


def test_the_anchor_of_the_literature() -> None:
    """n = 100, d = 20, epsilon = 2, unit ball, 16 bits: 0.037 in total by concentrated DP; 0.0318 with a curator."""
    plan = planned(options={"bits": 16}, parties=100, dimension=20, epsilon=2.0, sensitivity=2.0, colluding=0)
    assert isinstance(plan.protocol, SecAgg)
    assert plan.protocol.rounding == "conditional"
    central = 20 * (2 * 1.993812 / 100) ** 2
    assert 1 < 20 * plan.prediction["mse_noise"] / central < 1.005


def spent(given: SecAgg, unknown: int, *, parties: int, sensitivity: float = 1.0, dimension: int = 3) -> Charge:
    return hidden_by(given, sensitivity, unknown=unknown, drawn=parties, dimension=dimension, delta=1e-5)


def test_rounding_at_random_exceeds_its_norm_as_seldom_as_stated() -> None:
    words, beta = 50, 0.05
    stream_values = np.full(words, 0.5)
    steps = np.array([np.floor(stream_values + row) for row in _uniform(4000, words)])
    norms = np.linalg.norm(steps, axis=1)
    assert (norms > rounded_norm(float(np.linalg.norm(stream_values)), words, 1.0, beta)).mean() <= beta
    assert rounded_norm(1.0, 4, 0.5, 1e-300) == pytest.approx(2.0)


def _uniform(rows: int, columns: int) -> Any:
    return BitStream(insecure_seed(1)).uniform(rows * columns).reshape(rows, columns)


def test_the_design_just_keeps_its_budget() -> None:
    for options in ({}, {"bits": 16}, {"largest_weight": 9.0}, {"clip": 0.2}):
        given = chosen(options=options, parties=30, dropouts=0.1, colluding=3)
        honest = given.minimum - 3
        assert spent(given, honest, parties=30).delta(1.0) <= 1e-5
        less = replace(given, sigma=given.sigma * 0.9999)
        assert spent(less, honest, parties=30).delta(1.0) > 1e-5
        assert given.minimum == 27
        words = given.words(3)
        assert sum_bound(given, 30, words, 2.0**-20) <= 2.0 ** (given.bits - 1) * given.granularity * 1.0001


@pytest.mark.parametrize(("bits", "parties"), [(7, 3), (8, 4)])
def test_a_coarse_design_keeps_its_budget_by_convolution(bits: int, parties: int) -> None:
    """Noise of a few steps, in an independent computation: rounding as it is done, all values of one party against each other."""
    given = chosen(options={"bits": bits, "domain": "ball"}, parties=parties, colluding=1, epsilon=2.0, delta=1e-3, dimension=1)
    assert 2 <= given.scale < 30
    assert given.rounding == "conditional"
    radius, reach = given.clip / given.granularity, math.ceil(20 * given.scale)
    longest = conditional_norm(radius, 1, 1.0)
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * given.scale**2))
    total = np.array([1.0])
    for _ in range(given.minimum - 1):
        total = np.convolve(total, one / one.sum())

    def view(point: float) -> Any:
        room = math.ceil(radius) + 2
        table = np.zeros(2 * room + 1)
        for place in (math.floor(point), math.floor(point) + 1):
            if abs(place) <= longest:
                table[place + room] = 1 - abs(point - place)
        return np.convolve(total, table / table.sum())

    worst = max(
        np.maximum(view(one_end) - math.exp(2.0) * view(-one_end), 0).sum()
        for one_end in (radius, math.floor(radius), radius - 0.5)
    )
    assert 1e-6 < worst <= 1e-3


def test_noise_of_less_than_two_steps_is_refused() -> None:
    refused("Take more bits", planned, options={"bits": 5, "domain": "ball"}, parties=3, colluding=0, epsilon=8.0, dimension=1)


def test_a_delta_below_what_the_graph_costs_is_refused() -> None:
    refused(r"delta is 1e-12, but the sampler", planned, "secagg-plus", parties=60, delta=1e-12)


def test_noise_that_protects_nobody_counts_as_none() -> None:
    given = chosen()
    assert spent(given, 0, parties=12) == Charge(math.inf)
    open_sum = SecAgg(threshold=2, minimum=2, granularity=0.1, sigma=0.0, clip=1.0, noise="none")
    assert spent(open_sum, 5, parties=12) == Charge(math.inf)


def test_rounding_is_conditional_only_where_a_whole_value_is_replaced() -> None:
    assert chosen(options={"bits": 14}).rounding == "conditional"
    assert chosen(options={"bits": 14, "largest_weight": 4.0}).rounding == "independent"
    assert chosen(options={"clip": 3.0}).rounding == "independent"


def test_domains() -> None:
    assert chosen(sensitivity=2.0).centre == pytest.approx(1 / math.sqrt(3))
    ball = chosen(options={"domain": "ball"}, sensitivity=2.0)
    assert (ball.centre, ball.clip) == (0.0, 1.0)


@refused_rows("designs_that_cannot_be")
def test_designs_that_cannot_be(options: dict[str, Any], target: dict[str, Any], message: str) -> None:
    refused(message, planned, options=options, **target)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 7}, "Take an even number"),
        ({"degree": 12}, r"Choose 1\.\.11"),
        ({"degree": 4, "threshold": 2}, "more than half"),
        ({"minimum": 12}, "only 11 parties stay"),
        ({"security_bits": 400.0, "correctness_bits": 400.0}, None),
    ],
)
def test_neighbourhoods_that_cannot_be(options: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert chosen("secagg-plus", options, dropouts=0.1).neighbours is not None
        return
    refused(message, planned, "secagg-plus", options, dropouts=0.1)


def test_too_many_enemies_for_any_neighbourhood() -> None:
    refused("cannot keep failures below", choose_neighbourhood, 20, 14, 0.4)


def test_tails_are_hypergeometric() -> None:
    for population, marked, drawn, least in [(99, 10, 20, 11), (30, 12, 8, 3), (10, 2, 9, 3), (10, 9, 5, 5)]:
        expected = float(hypergeom.sf(least - 1, population, marked, drawn))
        assert upper_tail(population, marked, drawn, least) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert upper_tail(10, 2, 3, 0) == 1.0


def test_the_bounds_hold_over_all_graphs_of_a_small_ring() -> None:
    """Union bounds against the truth: all placements of 3 enemies and 2 dropouts on a ring of 9 with 4 neighbours each."""
    parties, colluding, dropped, degree, threshold = 9, 3, 2, 4, 3
    leaks = losses = trials = 0
    for places in itertools.permutations(range(parties), colluding + dropped):
        enemies, gone = set(places[:colluding]), set(places[colluding:])
        circles = [{(p + s) % parties for s in range(-(degree // 2), degree // 2 + 1)} for p in range(parties)]
        leaks += any(len((circle - {p}) & enemies) >= threshold for p, circle in enumerate(circles))
        losses += any(len(circle - gone) < threshold for p, circle in enumerate(circles) if p not in gone)
        trials += 1
    found = assess(parties, colluding, dropped, degree, threshold)
    assert leaks / trials <= 2.0**-found.security_bits
    assert losses / trials <= 2.0**-found.correctness_bits


def test_more_parties_need_few_more_neighbours() -> None:
    degrees = [choose_neighbourhood(parties, parties // 20, 0.05).neighbours for parties in (100, 1000, 10_000)]
    assert degrees == sorted(degrees)
    assert degrees[-1] < 2 * degrees[0]
    chosen = choose_neighbourhood(1000, 50, 0.05)
    assert chosen.security_bits >= 40
    assert chosen.correctness_bits >= 40


def test_the_graph_is_regular_public_and_random() -> None:
    protocol = chosen("secagg-plus", {"degree": 6, "threshold": 4}, parties=40)
    schedules = [protocol.draw_schedule(40, Seed.public(label)) for label in ("a", "a", "b")]
    assert all(len(schedules[0].partners(party)) == 6 for party in range(40))
    np.testing.assert_array_equal(schedules[0].pairs, schedules[1].pairs)
    assert not np.array_equal(schedules[0].pairs, schedules[2].pairs)
    complete = chosen("secagg-plus", {"degree": 11, "threshold": 7}).draw_schedule(12, Seed.public("a"))
    assert len(complete.pairs) == 66


def test_a_plan_survives_its_file() -> None:
    unusual: dict[str, dict[str, Any]] = {
        "secagg": {"domain": "ball"},
        "secagg-plus": {"security_bits": 60.0, "correctness_bits": 50.0},
    }
    for name, options in [*unusual.items(), *((name, dict[str, Any]()) for name in unusual)]:
        plan = planned(name, options, dropouts=0.1)
        again = Plan.from_json(plan.to_json())
        assert again.protocol == plan.protocol
        assert again.digest == plan.digest


@pytest.mark.slow
@pytest.mark.parametrize("name", ["secagg", "secagg-plus"])
def test_simulated_errors_are_as_predicted(name: str) -> None:
    plan = planned(name, parties=20, dimension=8, sensitivity=2.0)
    result = simulate(plan, runs=300, seed=5)
    assert result.failed == 0
    # Error rate below 1e-4 at 4 standard errors.
    assert abs(result.mse - result.prediction) < 4 * result.mse_standard_error
    # By the bound for the noise of all but the one colluder.
    assert isinstance(plan.protocol, SecAgg)
    expected = spent(plan.protocol, 19, parties=20, sensitivity=2.0, dimension=8).mu
    np.testing.assert_allclose(result.certificate.mu, expected, rtol=1e-6)
