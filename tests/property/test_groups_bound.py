"""The bound of IncA by disjoint groups: never below any coalition, close where it should be, and wrong variants are found out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA, groups
from quietmean.protocols.inca.groups import groups_bound
from quietmean.protocols.inca.hidden_shares import HiddenShares
from quietmean.protocols.inca.worst_case import Stars
from quietmean.testing import example_execution
from support.random_inca import least_over_exact

Array = NDArray[np.float64]
TOLERANCE = 1e-6
SEED = 20_261_125


def bounds(execution: Execution, size: int) -> Iterator[Array]:
    """Also with so few groups that each has several parties."""
    shares = HiddenShares(cast("IncA", execution.protocol), execution.schedule, execution.trace)
    for effort in (1e3, 1e6):
        yield np.array([groups_bound(shares, party, size, effort) for party in range(execution.parties)])


def attack(number: int, seed: int, sizes: tuple[int, int] = (6, 13)) -> float:
    return least_over_exact(bounds, number, seed, sizes)


@pytest.mark.slow
def test_never_below_any_coalition() -> None:
    assert attack(40, SEED) >= 1 - TOLERANCE


@pytest.mark.slow
def test_never_below_any_coalition_of_ten_thousand_executions() -> None:
    assert attack(10_000, SEED + 1) >= 1 - TOLERANCE


@pytest.mark.slow
def test_never_below_any_coalition_that_is_tried_of_up_to_forty_parties() -> None:
    assert attack(40, SEED + 2, (14, 40)) >= 1 - TOLERANCE


def test_groups_that_share_a_party_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that hides twice as much as it can: its noise is counted in two groups."""

    def overlapping(shares: HiddenShares, party: int, others: list[int], count: int, number: int = 0) -> list[list[int]]:
        return [[one, others[(place + 1) % len(others)]] for place, one in enumerate(others)][: max(count, 1)]

    monkeypatch.setattr(groups, "divide", overlapping)
    # Ways of one party alone are then in the last group that has it: its costs are not, so two groups pay with one noise.
    monkeypatch.setattr(groups, "_groups_of_ways", _of_any)
    assert attack(15, SEED) < 1 - 1e-3


def _of_any(shares: HiddenShares, party: int, divided: list[list[int]]) -> NDArray[np.int64]:
    """The first group that holds all members of a way, whoever else does."""
    chosen = np.full(len(shares.members), -1, dtype=np.int64)
    for way, row in enumerate(shares.members.tolist()):
        members = {one for one in row if one >= 0 and one != party}
        chosen[way] = next((number for number, group in enumerate(divided) if members and members <= set(group)), -1)
    return chosen


def test_a_coalition_that_takes_one_group_less_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    worst = groups.GroupProducts.worst
    monkeypatch.setattr(groups.GroupProducts, "worst", lambda columns, size: worst(columns, size - 1))
    assert attack(15, SEED) < 1 - 1e-3


def test_shares_that_cost_their_receivers_nothing_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = HiddenShares.__init__

    def free(shares: HiddenShares, *given: object) -> None:
        made(shares, *given)  # type: ignore[arg-type]
        shares.costs = [np.zeros_like(cost) for cost in shares.costs]

    monkeypatch.setattr(HiddenShares, "__init__", free)
    assert attack(15, SEED) < 1 - 1e-3


@pytest.mark.parametrize(("parties", "colluding", "times"), [(40, 4, 3.5), (60, 6, 2.5), (100, 5, 5.0)])
def test_closer_than_the_stars(parties: int, colluding: int, times: float) -> None:
    """In mu squared; the worst of three parties that finish, seed 1."""
    noise: dict[str, Any] = {"sigma_star": 6.0, "sigma_delta": 8.0, "schedule": "circulant"}
    execution = example_execution("inca", parties, 1, permanent=0.1, rounds=parties // 2, **noise)
    protocol = cast("IncA", execution.protocol)
    shares, stars = (kind(protocol, execution.schedule, execution.trace) for kind in (HiddenShares, Stars))
    chosen = np.nonzero(execution.trace.finished)[0][:3].tolist()
    by_groups = max(groups_bound(cast("HiddenShares", shares), party, colluding, 1e6) for party in chosen)
    by_stars = max(cast("Stars", stars).of(party).worst_information(colluding, parties) for party in chosen)
    assert by_groups * times < by_stars
