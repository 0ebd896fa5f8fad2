"""Parameters of packed sharing: its conditions, its plans against the bars, and its charge against exact figures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.mixtures import Products
from quietmean.graphs import ExecutionTrace
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Adversary, Charge, mu_of_budget
from quietmean.privacy.charge import epsilon_of_rho
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.encoding import (
    PackedLossConversion,
    chance_of_fewer,
    charge,
    least_inputs,
    rounded,
    rounded_sensitivity,
    shares_distance,
)
from quietmean.protocols.packed_sharing.spec import ANY, BALL, BOX, LARGE_PRIME, SMALL_PRIME, check_numbers, conditions
from quietmean.protocols.target import Target
from quietmean.randomness import Seed
from support.packed_bars import BARS
from support.refusals import refused, refused_rows

EPSILON, DELTA = 1.0, 1e-6


def target(parties: int = 10, colluding: int = 2, dropouts: float = 0.1, dimension: int = 20, **more: Any) -> Target:
    return Target(
        parties=parties,
        epsilon=EPSILON,
        delta=DELTA,
        dimension=dimension,
        colluding=colluding,
        dropouts=dropouts,
        **more,
    )


def planned(asked: Target, **options: Any) -> PackedSharing:
    found = PackedSharing(**options).design(asked).protocol
    assert isinstance(found, PackedSharing)
    return found


def central(asked: Target) -> float:
    """The curator's error per coordinate without dropouts."""
    return (asked.sensitivity / mu_of_budget(EPSILON, DELTA) / asked.parties) ** 2


def test_an_epsilon_whose_exponential_is_no_number_is_refused_in_a_sentence() -> None:
    refused("Plan with a larger delta", PackedSharing().design, replace(target(), epsilon=1000.0))


@pytest.mark.sampled(44)
@pytest.mark.parametrize(("parties", "colluding", "dropouts", "bar"), BARS)
@pytest.mark.parametrize(("dimension", "region"), [(1, BOX), (100, BOX), (100_000, BOX), (100, BALL), (100, ANY)])
def test_error_over_the_curators(parties: int, colluding: int, dropouts: float, bar: float, dimension: int, region: str) -> None:
    asked = target(parties, colluding, dropouts, dimension)
    design = PackedSharing(region=region).design(asked)
    assert (design.mse_noise + design.mse_dropout_bias) / central(asked) <= bar


def test_the_worked_example() -> None:
    found = planned(target(100, 10, 0.1, 100_000), lies=0)
    assert (found.members, found.threshold, found.secrets, found.votes_needed, found.minimum, found.gone) == (
        100,
        90,
        80,
        56,
        94,
        10,
    )
    # Two bytes a number; without them, four.
    assert found.prime == SMALL_PRIME
    assert planned(target(100, 10, 0.1, 100_000), prime=LARGE_PRIME, lies=0).blocks * 4 == 5000


@pytest.mark.parametrize(
    ("options", "bytes_per_coordinate"), [({"prime": LARGE_PRIME}, 4 * 2.5), ({}, 4 * 1.3)], ids=["4 bytes", "2 bytes"]
)
def test_bytes_a_party_sends(options: dict[str, Any], bytes_per_coordinate: float) -> None:
    found = planned(target(100, 10, 0.1, 100_000), **options)
    traffic = found.traffic(100, 100_000)
    assert traffic.messages is not None
    assert traffic.messages * traffic.message_bytes <= bytes_per_coordinate * 100_000


# --- conditions ---

VALID = planned(target(12, 2, 0.1, 20), lies=0)


@pytest.mark.parametrize("dropouts", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("dimension", [1, 2, 7, 30, 1000, 100_000])
@pytest.mark.parametrize(("parties", "colluding"), [(3, 1), (4, 1), (5, 2), (12, 2), (50, 5), (100, 10), (200, 2)])
def test_a_wrong_sum_is_corrected_where_that_costs_next_to_nothing(
    parties: int, colluding: int, dimension: int, dropouts: float
) -> None:
    """By default, if shares take at most a twentieth more bytes for it; the error is the same either way."""
    asked = target(parties, colluding, dropouts, dimension)
    try:
        without = planned(asked, lies=0)
    except InputError:
        return
    found = planned(asked)
    try:
        corrected = planned(asked, lies=1)
    except InputError:
        assert found == without
        return
    assert corrected.sigma == without.sigma
    cheap = -(-dimension // corrected.secrets) <= 1.05 * -(-dimension // without.secrets)
    assert found == (corrected if cheap else without)


@refused_rows("each_condition_is_refused_with_a_remedy")
def test_each_condition_is_refused_with_a_remedy(changes: dict[str, Any], parties: int, problem: str) -> None:
    refused(problem, check_numbers, replace(VALID, **changes), parties)


def test_a_plan_keeps_all_conditions() -> None:
    assert all(one.holds for one in conditions(VALID, 12))
    assert len({one.problem for one in conditions(VALID, 12)}) == len(list(conditions(VALID, 12)))


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (target(10, 6, 0.3), "a decision needs 9 of 10 votes"),
        (target(10, 9, 0.1), "Plan for fewer dropouts"),
        (target(10, 1, 0.0), "2 for each of 5 wrong sums"),
    ],
)
def test_impossible_targets_are_refused(asked: Target, problem: str) -> None:
    refused(problem, planned, asked, **{"lies": 5} if "wrong" in problem else {})


def test_all_lying_members_are_corrected_where_there_is_room() -> None:
    """m >= 3 c_m + l + f."""
    assert planned(target(10, 2, 0.1, 1), lies=2).secrets == 1
    assert planned(target(10, 2, 0.1, 20), lies=2).secrets == 10 - 1 - 3 * 2


@pytest.mark.parametrize(("gone", "expected"), [(0.0, 100), (0.05, 96), (0.1, 94), (0.2, 90)])
def test_least_inputs(gone: float, expected: int) -> None:
    asked = target(100, 10, gone)
    assert least_inputs(asked) == expected
    assert chance_of_fewer(asked, expected) <= 1e-3 < chance_of_fewer(asked, expected + 1) or gone == 0.0


def test_another_domain_gets_a_grid_with_room() -> None:
    asked = target(10, 1, 0.1, 2)
    plan = calibrate(asked, PackedSharing())
    products = InputDomain((Products(size=2, width=0.9, largest_coordinate=0.4, scale=1.0),))
    moved = plan.with_domain(products).protocol
    assert isinstance(moved, PackedSharing)
    assert (moved.region, moved.centre) == (ANY, 0.0)
    assert moved.clip >= products.largest
    assert isinstance(plan.protocol, PackedSharing)
    assert moved.sigma <= 1.01 * plan.protocol.sigma


def test_records_get_room_for_weights() -> None:
    from quietmean.core.domain import PrivacyUnit

    found = planned(target(10, 1, 0.1, 3, unit=PrivacyUnit.RECORD))
    assert found.prime == LARGE_PRIME
    assert found.largest_weight >= 1e4
    assert not found.one_unit
    # Rounding the sum costs at most a step in each coordinate.
    assert rounded_sensitivity(found, 1.0) == pytest.approx(1 / found.step + math.sqrt(3))


# --- what noise is worth ---


@pytest.mark.parametrize("region", [BOX, BALL, ANY])
def test_rounded_values_keep_the_sensitivity(region: str) -> None:
    """Any two values of the domain, rounded with whatever bits; and near ones, with the same bits."""
    asked = target(10, 1, 0.1, 6)
    found = planned(asked, region=region)
    domain, rng = found.TRAITS.inputs.domain(found, asked), np.random.default_rng(1)
    bound = rounded_sensitivity(found, 1.0)
    for number in range(50):
        one, other = (domain.moved(rng.normal(0.2, 3.0, 6)) for _ in range(2))
        seeds = [Seed.public("rounding", number), Seed.public("rounding", number if region == ANY else -number - 1)]
        apart = rounded(found, one, 1.0, seeds[0]) - rounded(found, other, 1.0, seeds[1])
        # The charge has room for the rounding of the bound itself.
        assert int(apart @ apart) <= bound**2 * (1 + 1e-12)
        near = one + rng.normal(0, 1, 6) * 1e-3
        apart = rounded(found, one, 1.0, seeds[0]) - rounded(found, domain.moved(near), 1.0, seeds[0])
        assert np.linalg.norm(apart) <= rounded_sensitivity(found, float(np.linalg.norm(one - near))) + 1e-9


def exact_delta(scale: float, change: int, unknown: int, epsilon: float) -> float:
    """Of a sum of discrete Gaussians that is shifted: by its probabilities."""
    reach = math.ceil(14 * scale)
    single = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * scale**2))
    pmf = single / single.sum()
    for _ in range(unknown - 1):
        pmf = np.convolve(pmf, single / single.sum())
    here, there = np.pad(pmf, (0, change)), np.pad(pmf, (change, 0))
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())


@pytest.mark.parametrize("unknown", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0])
def test_the_charge_bounds_the_exact_loss(unknown: int, epsilon: float) -> None:
    parameters = replace(VALID, dimension=1, step=1.0, sigma=6.0, clip=4.0)
    assert rounded_sensitivity(parameters, 8.0) == 8.0
    found, exact = charge(parameters, 8.0, 12, unknown).delta(epsilon), exact_delta(6.0, 8, unknown, epsilon)
    assert exact <= found <= 1.6 * exact


def test_less_noise_than_by_concentrated_privacy() -> None:
    """The bound of the conversion by way of zCDP, for one discrete Gaussian of the whole variance."""
    found = planned(target(100, 10, 0.1, 1))
    unknown = found.minimum - 10
    change = rounded_sensitivity(found, 1.0)
    concentrated = epsilon_of_rho((change / found.scale) ** 2 / (2 * unknown), DELTA)
    assert charge(found, 1.0, 100, unknown).epsilon(DELTA) <= EPSILON < 0.96 * concentrated


def test_draws_are_paid_for() -> None:
    found = planned(target(100, 10, 0.1, 1000), prime=LARGE_PRIME)
    assert shares_distance(found, 100) == pytest.approx(10 * found.blocks * 100 * 2.0**-62, rel=1e-6)
    assert charge(found, 1.0, 100, 84).tv >= shares_distance(found, 100)
    # Words of 31 or 32 bits would leave nothing of delta.
    assert 10 * found.blocks * 100 * 2.0**-32 > DELTA


def test_a_plan_keeps_its_target_whatever_happens() -> None:
    plan = calibrate(target(10, 2, 0.2), PackedSharing())
    bound = Charge.promised(plan.protocol.a_priori(10, 2, 1.0, DELTA))
    assert 0.99 * EPSILON <= bound.epsilon(DELTA) <= EPSILON
    # A larger coalition opens shares, and meets each party's own noise.
    assert isinstance(plan.protocol, PackedSharing)
    larger = plan.protocol.a_priori(10, 3, 1.0, DELTA)
    assert larger.mu == pytest.approx(bound.mu * math.sqrt(plan.protocol.minimum - 2), rel=1e-3)


def test_certificates_never_exceed_what_was_promised() -> None:
    plan = calibrate(target(10, 2, 0.2), PackedSharing())
    schedule = plan.schedule(Seed.public("packed certificate"))
    promised = plan.protocol.a_priori(10, 2, 1.0, DELTA).mu
    for gone in range(4):
        trace = ExecutionTrace.everyone(plan.protocol.rounds, 10)
        trace.online[1:, :gone] = False
        conversion = plan.protocol.loss_conversion(schedule, trace, np.ones(10), DELTA)
        assert isinstance(conversion, PackedLossConversion)
        counted = plan.protocol.contributors(schedule, trace)
        found = conversion.mu_against_any(2, np.zeros(10), 1.0)
        assert found.max() <= promised
        # Who never dealt is hidden from so few; without a sum everybody counts as in one that others may have.
        assert (found[~counted] == 0).all() or not counted.any()
        honest = [party for party in range(10) if party not in (4, 5)]
        assert (conversion.mu(Adversary.collusion((4, 5)), honest, np.zeros(8), 1.0) == found[honest]).all()


@pytest.mark.sampled(27)
@pytest.mark.parametrize("parties", [3, 4, 20, 100])
@pytest.mark.parametrize("epsilon", [0.2, 2.0, 8.0, 11.0])
@pytest.mark.parametrize("dimension", [1, 30, 1000])
def test_a_party_of_ten_thousand_records_has_room(parties: int, epsilon: float, dimension: int) -> None:
    """How many records a party has is not known when noise is planned: coarse grids and small numbers left room for one."""
    asked = Target(parties, epsilon, DELTA, dimension, colluding=1, unit=PrivacyUnit.RECORD)
    found = calibrate(asked, PackedSharing()).protocol
    assert isinstance(found, PackedSharing)
    assert found.largest_weight >= 10_000
    # What is stated is kept.
    stated = calibrate(asked, PackedSharing(largest_weight=7.0)).protocol
    assert isinstance(stated, PackedSharing)
    assert stated.largest_weight == 7.0
