"""Committees drawn among many parties: their tail against brute force, their sizes against the worked figures, their cost."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from quietmean.protocols.packed_sharing.design import (
    REDRAWS,
    TOO_FEW_MEMBERS,
    DrawnCommittee,
    committee_for,
    cost,
    described,
    upper_tail,
)
from quietmean.protocols.target import Target

# Parties, fraction that colludes, (m, c_m, q, l) with 10 % leaving.
WORKED = [
    (1_000, 0.1, (45, 18, 32, 14)),
    (1_000_000, 0.1, (49, 20, 35, 15)),
    (1_000, 0.3, (97, 54, 76, 22)),
    (1_000_000, 0.3, (110, 61, 86, 25)),
]


def target(parties: int = 1000, colluding: float = 0.1, dimension: int = 10_000) -> Target:
    return Target(parties, 1.0, 1e-6, dimension, 1.0, round(colluding * parties), 0.1)


@pytest.mark.parametrize("population", range(1, 9))
def test_the_tail_is_that_of_all_draws(population: int) -> None:
    for marked, drawn in itertools.product(range(population + 1), repeat=2):
        draws = [sum(one < marked for one in chosen) for chosen in itertools.combinations(range(population), drawn)]
        for most in range(drawn + 1):
            assert upper_tail(population, marked, drawn, most) == Fraction(sum(hit > most for hit in draws), len(draws))


@pytest.mark.parametrize(("parties", "colluding", "expected"), WORKED)
def test_worked_sizes(parties: int, colluding: float, expected: tuple[int, ...]) -> None:
    found = committee_for(target(parties, colluding))
    assert found is not None
    assert (found.members, found.colluding, found.votes_needed, found.secrets) == expected


@pytest.mark.parametrize("parties", [1_000, 10_000, 1_000_000])
def test_half_as_many_bytes_take_twice_the_members(parties: int) -> None:
    found = committee_for(target(parties), 0.5)
    assert found is not None
    assert 98 <= found.members <= 112
    assert 2 * found.secrets >= found.members


@pytest.mark.parametrize(("parties", "colluding", "expected"), WORKED)
def test_all_conditions_hold_with_exact_tails(parties: int, colluding: float, expected: tuple[int, ...]) -> None:
    asked = target(parties, colluding)
    found = committee_for(asked)
    assert found is not None
    chance = upper_tail(parties, asked.colluding, found.members, found.colluding)
    assert chance <= Fraction(1e-8) < upper_tail(parties, asked.colluding, found.members, found.colluding - 1)
    assert (1 + REDRAWS) * chance <= Fraction(found.beta) <= (1 + REDRAWS) * chance * Fraction(1 + 1e-12)
    assert upper_tail(parties, parties // 10, found.members, found.gone) <= Fraction(TOO_FEW_MEMBERS)
    assert 2 * found.votes_needed > found.members + found.colluding
    assert found.votes_needed <= found.members - found.gone
    assert found.colluding + found.secrets <= found.members - found.gone


def test_a_smaller_delta_gets_a_rarer_failure() -> None:
    usual, strict = committee_for(target()), committee_for(replace(target(), delta=1e-9))
    assert usual is not None
    assert strict is not None
    assert strict.beta <= 11 * 0.01 * 1e-9 * (1 + 1e-12) < usual.beta
    assert strict.members > usual.members


def test_no_committee_where_none_will_do() -> None:
    assert committee_for(target(1000, 0.8)) is None
    assert described(target(1000, 0.8), 4) is None
    # So few are all members.
    assert described(target(80), 4) is None


def test_cost_by_hand() -> None:
    found = DrawnCommittee(members=10, colluding=2, gone=1, secrets=5, beta=0.0, chance_of_too_few=0.0)
    asked = target(1000, 0.1, 100)
    spent = cost(found, asked, 4)
    share, seed = 20 * 4 + 40, 32 + 40
    assert spent.dealer_sends == 8 * share + 2 * seed
    assert spent.member_receives - 1000 * spent.dealer_sends / 10 == 9 * (3 * 125 + 2 * 2 + 3 * 40) + 9 * share
    # Three that agree, and one that may be gone.
    assert spent.party_receives == 4 * (4 * 100 + 40)
    assert spent.rounds == 6
    assert spent.seconds == pytest.approx(6 * 0.05 + (1000 * spent.dealer_sends / 10 + 4491 + 1080 + 99 * 4 * 440) / 12.5e6)


def test_a_plan_of_many_says_what_a_committee_would_take() -> None:
    from quietmean.planning.calibrate import calibrate
    from quietmean.protocols.packed_sharing import PackedSharing

    plan = calibrate(target(1000), PackedSharing())
    fields = plan.protocol.TRAITS.planning.figures(plan.protocol, plan.target)["committee"]
    assert (fields["members"], fields["rounds"]) == (98, 6)
    assert 0 < fields["beta"] <= 1.1e-7
    assert 1 < fields["mse_times"] < 1.02
    assert fields["bytes_party_sends"] < fields["bytes_member_sends"]
    assert math.isfinite(fields["seconds_on_links"])
    few = calibrate(target(20, 0.1, 10), PackedSharing())
    assert few.protocol.TRAITS.planning.figures(few.protocol, few.target)["committee"] is None
