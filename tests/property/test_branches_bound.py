"""IncA by branch and bound: never below any coalition, exact when it ends, and wrong variants are found out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.core.threads import one_thread
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA, branches
from quietmean.protocols.inca.branches import HandingOver, branch_and_bound, divided
from quietmean.protocols.inca.hidden_shares import HiddenShares
from quietmean.testing import example_execution
from support.effort import examples
from support.every_coalition import worst_mu
from support.random_inca import DELTA, least_over_exact

Array = NDArray[np.float64]
TOLERANCE = 1e-6
SEED = 20_261_126
UNION = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def bound(execution: Execution, size: int, effort: float) -> Array:
    """By branch and bound alone: without it own noise hides a value."""
    shares = HiddenShares(cast("IncA", execution.protocol), execution.schedule, execution.trace)
    own = HandingOver(shares).information(range(execution.parties))
    return branch_and_bound(shares, own, size, effort)


def bounds(execution: Execution, size: int) -> Iterator[Array]:
    """Given up at once, in the middle, and at the end."""
    for effort in (0.0, 2e7, 1e12):
        yield bound(execution, size, effort)


def attack(number: int, seed: int, sizes: tuple[int, int] = (6, 13)) -> float:
    return least_over_exact(bounds if sizes[1] < 14 else unfinished, number, seed, sizes)


def unfinished(execution: Execution, size: int) -> Iterator[Array]:
    """Of many parties, for whom the end is too far."""
    return (bound(execution, size, effort) for effort in (0.0, 2e7))


def test_never_below_any_coalition() -> None:
    assert attack(30, SEED) >= 1 - TOLERANCE


@pytest.mark.slow
def test_never_below_any_coalition_of_ten_thousand_executions() -> None:
    assert attack(10_000, SEED + 1) >= 1 - TOLERANCE


@pytest.mark.slow
def test_never_below_any_coalition_that_is_tried_of_up_to_forty_parties() -> None:
    assert attack(40, SEED + 2, (14, 40)) >= 1 - TOLERANCE


@pytest.mark.parametrize("schedule", ["uniform", "circulant"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_worst_coalition_when_it_ends(schedule: str, size: int) -> None:
    """Without dropouts, of which the schedule says more than happened."""
    noise: dict[str, Any] = {"sigma_star": 2.0, "sigma_delta": 9.0}
    execution = example_execution("inca", 11, 3, permanent=0.0, temporary=0.0, schedule=schedule, rounds=5, **noise)
    with one_thread():
        worst = float(worst_mu(execution.privacy(DELTA), size).max()) ** 2
        found = float(bound(execution, size, 1e12).max())
    assert worst * (1 - TOLERANCE) <= found <= worst * (1 + 1e-4)


@settings(max_examples=examples(60), deadline=None)
@given(UNION)
def test_every_choice_lies_in_a_part(sizes: list[int]) -> None:
    """Each part is smaller, has as many groups, and no choice of so many parties is lost."""
    number = itertools.count()
    union = tuple(tuple(next(number) for _ in range(size)) for size in sizes)
    parties = {party for group in union for party in group}
    if max(sizes) == 1:
        return
    parts = [{party for group in part for party in group} for part in divided(union)]
    assert all(len(part) == len(union) for part in divided(union))
    assert all(part < parties for part in parts)
    for choice in itertools.combinations(sorted(parties), len(union)):
        assert any(set(choice) <= part for part in parts)


@pytest.mark.slow
def test_coalitions_with_members_in_both_halves_are_missed_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "divided", lambda union: itertools.islice(divided(union), 2))
    assert attack(30, SEED) < 1 - 1e-3


def test_ways_that_a_member_could_see_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers that are corrupt see what their senders send."""
    made = HandingOver.__init__

    def blind(handing: HandingOver, shares: HiddenShares) -> None:
        made(handing, shares)
        handing._touched[:] = False
        handing._touched[np.arange(len(shares.members)), shares.members[:, 0]] = True

    monkeypatch.setattr(HandingOver, "__init__", blind)
    assert attack(15, SEED) < 1 - 1e-3


NOISE: dict[str, Any] = {"sigma_star": 6.0, "sigma_delta": 8.0, "schedule": "circulant", "permanent": 0.1, "temporary": 0.0}


@pytest.mark.slow
def test_close_to_the_worst_coalition() -> None:
    """20 parties, 3 colluding, in mu squared; a third of what is spent by default on each certificate."""
    execution = example_execution("inca", 20, 1, rounds=10, **NOISE)
    with one_thread():
        worst = float(worst_mu(execution.privacy(DELTA), 3).max()) ** 2
        assert float(bound(execution, 3, 2e10).max()) <= 1.1 * worst


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_close_to_the_worst_that_is_found(number: int) -> None:
    """40 parties, 4 colluding, in mu squared."""
    execution = example_execution("inca", 40, number, rounds=20, **NOISE)
    with one_thread():
        found = execution.privacy(DELTA).search(4, limit=600).max_mu
        proven = execution.protocol.worst_coalition(execution.schedule, execution.trace, execution.sensitivity, 4)
    assert proven is not None
    assert found**2 <= proven.mu.max() ** 2 <= 1.6 * found**2
