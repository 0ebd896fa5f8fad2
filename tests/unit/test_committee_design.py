"""The parameters of a committee, its noise and its error."""

from __future__ import annotations

import math
from typing import Any

import pytest

from quietmean.privacy import mu_of_budget
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee, Size
from quietmean.protocols.committee.design import charge, design, predicted_error, promised
from quietmean.protocols.committee.parameters import CommitteeParameters
from quietmean.protocols.packed_sharing.encoding import rounded_sensitivity
from support.refusals import refused


def target(contributors: int = 100, dimension: int = 10, **changes: Any) -> Target:
    fields = {"epsilon": 1.0, "delta": 1e-6, "sensitivity": math.sqrt(dimension)} | changes
    return Target(parties=contributors, dimension=dimension, **fields)


@pytest.mark.parametrize(
    ("members", "colluding", "gone", "secrets", "factor"),
    [(5, 1, 1, 2, 4 / 3), (9, 2, 2, 3, 7 / 5), (15, 3, 3, 6, 4 / 3), (31, 6, 6, 10, 25 / 19), (4, 1, 1, 1, 3 / 2)],
)
def test_the_error_is_the_curators_times_k_over_k_less_the_colluders(
    members: int, colluding: int, gone: int, secrets: int, factor: float
) -> None:
    designed = design(target(), Committee(members, colluding, gone))
    assert designed.secrets == secrets
    assert designed.dealings == members - gone
    curator = 10 / (mu_of_budget(1.0, 1e-6) * 100) ** 2
    # Rounding adds up to 1 %.
    assert 1 <= predicted_error(designed) / (curator * factor) < 1.011


@pytest.mark.parametrize(("members", "colluding", "secrets"), [(5, 1, 1), (9, 2, 1), (15, 3, 3), (31, 6, 7)])
def test_a_committee_that_corrects_lies_has_fewer_numbers_a_polynomial(members: int, colluding: int, secrets: int) -> None:
    designed = design(target(), Committee(members, colluding, colluding, Size.LYING))
    assert designed.secrets == secrets
    assert designed.lists_needed == designed.threshold + 2 * colluding <= members - colluding


@pytest.mark.parametrize("contributors", [3, 10_000, 1_000_000])
@pytest.mark.parametrize("dimension", [1, 20])
def test_a_design_keeps_the_target_and_has_room_for_all_who_are_admitted(contributors: int, dimension: int) -> None:
    designed = design(target(contributors, dimension), Committee(15, 3, 3))
    assert charge(designed, math.sqrt(dimension)).epsilon(1e-6) <= 1.0
    assert designed.largest_sum < designed.prime // 2
    assert designed.contributors == contributors


def test_the_charge_credits_the_noise_that_neither_colluders_nor_missing_members_deal() -> None:
    designed = design(target(), Committee(9, 2, 2))
    unknown = (designed.dealings - designed.colluding) * designed.scale**2
    mu = rounded_sensitivity(designed.numbers, math.sqrt(10)) / math.sqrt(unknown - 8)
    assert charge(designed, math.sqrt(10)).mu == pytest.approx(mu, rel=1e-4)
    assert promised(designed, math.sqrt(10)).mu == charge(designed, math.sqrt(10)).mu


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 0, 1), "each member knows its own noise"),
        ((3, 1, 1), "Take 4 members or more"),
        ((5, 2, 1), "may stay away"),
        ((5, 1, 3), "Take 6 members or more"),
        ((4, 1, 1, Size.LYING), "Take 5 members or more"),
    ],
)
def test_a_committee_without_a_result_is_refused(arguments: Any, message: str) -> None:
    refused(message, Committee, *arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 2.0**-30, "sigma": 2.0**-20, "clip": 0.5}, "there is room"),
        ({"step": 0.3}, "not a multiple of the step"),
        ({"largest_weight": 1e6}, "there is room"),
        ({"contributors": 2**31}, "there is room"),
        ({"secrets": 3}, "Choose 1 to 2"),
        ({"minimum": 101}, "Choose 1 to 100"),
        ({"region": "any"}, "Choose box or ball"),
        ({"sigma": math.nan}, "finite"),
        ({"colluding": 0}, "its own noise"),
        ({"prime": 7}, "unknown: prime"),
        ({"members": "5"}, "parameters are not valid"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str) -> None:
    plain = design(target(), Committee(5)).to_json()
    assert CommitteeParameters.from_json(plain).to_json() == plain
    refused(message, CommitteeParameters.from_json, plain | changes)
