"""Bounds of coalitions: by branches and by flows."""

from __future__ import annotations

import inspect
import itertools
import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.core.workers import one_thread
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA, groups, hidden_shares
from quietmean.protocols.inca.groups import HandingOver, branch_and_bound, divided, groups_bound
from quietmean.protocols.inca.hidden_shares import HiddenShares, OwnWays, flow_bound
from quietmean.protocols.inca.worst_case import Stars
from quietmean.testing import example_execution
from support.effort import examples
from support.every_coalition import worst_mu
from support.random_inca import DELTA, least_over_exact, lossy_executions

# -- IncA by branch and bound: never below any coalition, exact when it ends, and wrong variants are found out.
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


@pytest.mark.parametrize(
    "histories",
    [(30, SEED), *(pytest.param(one, marks=pytest.mark.slow) for one in ((10_000, SEED + 1), (40, SEED + 2, (14, 40))))],
    ids=["a few", "ten thousand", "up to forty parties"],
)
def test_never_below_any_coalition(histories: Any) -> None:
    assert attack(*histories) >= 1 - TOLERANCE


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
    monkeypatch.setattr(groups, "divided", lambda union: itertools.islice(divided(union), 2))
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


# -- The bound of IncA by flows: for any flow never below any coalition, close where it should be; wrong variants are found
# out.
Coalition = tuple[int, ...]
# What shows a fault, and no rounding.
FOUND_OUT = 1e-3
FLOW_SEED = 20_261_128


def exact(execution: Execution, size: int) -> dict[Coalition, Array]:
    """Lambda_ii of each party against every coalition, 0 for its members."""
    found = {}
    coalitions = list(itertools.combinations(range(execution.parties), size))
    for coalition, certificate in zip(coalitions, execution.privacy(DELTA).each(coalitions), strict=True):
        found[coalition] = np.zeros(execution.parties)
        found[coalition][list(certificate.honest)] = certificate.mu**2
    return found


def best_flow(ways: OwnWays, left: NDArray[np.bool_]) -> Array:
    """The cheapest on the ways that are left; nothing on the others."""
    flow = np.zeros(len(left))
    flow[left] = np.linalg.lstsq(ways.quadratic[np.ix_(left, left)], ways.linear[left], rcond=1e-11)[0]
    return flow


def tried_flows(ways: OwnWays, size: int, draw: np.random.Generator) -> Iterator[Array]:
    """Searched, cheapest if nobody colludes or some ways are closed, and anything near these."""
    nobody = best_flow(ways, np.ones(len(ways.linear), dtype=np.bool_))
    searched = ways.least(size)[1]
    some = best_flow(ways, draw.random(len(ways.linear)) < 0.6)
    yield from (searched, nobody, some)
    yield searched * draw.normal(1.0, 0.5, len(searched))
    yield nobody * draw.normal(0.5, 1.0, len(nobody))
    yield draw.normal(0.0, 0.1, len(nobody))


def ratios(execution: Execution, size: int, draw: np.random.Generator) -> Iterator[float]:
    """Of what a flow costs against each coalition, and of the bound for all of them, over the truth.

    Also of the bound over what the flow costs against any coalition of partners.
    """
    known = exact(execution, size)
    shares = shares_of(execution)
    for party in range(execution.parties):
        true = {coalition: float(worst[party]) for coalition, worst in known.items() if party not in coalition}
        worst = max(true.values(), default=0.0)
        if not true or not shares.hiding[party]:
            continue
        ways = OwnWays.of(shares, party)
        if size >= ways.partners:
            yield over(flow_bound(shares, party, size), worst, ways)
            continue
        partners = np.array([np.isin(members_of(shares, party), coalition) for coalition in true])
        left = ~(partners @ ways.members.T)
        truth = np.array(list(true.values()))
        flows_ = [*tried_flows(ways, size, draw), *(best_flow(ways, left[one]) for one in draw.integers(len(left), size=3))]
        for flow in flows_:
            costs = costs_of(ways, flow * left)
            bound = ways.bound(flow, size)
            yield over(costs, truth, ways)
            yield over(bound, worst, ways)
            yield over(bound, costs[partners.sum(axis=1) == size], ways)


def over(bound: float | Array, true: float | Array, ways: OwnWays) -> float:
    """The least of their ratios; 1 where both are nothing beside what own noise leaves."""
    rounding = 1e-9 * ways.own
    return float(np.min((bound + rounding) / (true + rounding), initial=np.inf)) if rounding else 1.0


def costs_of(ways: OwnWays, carried: Array) -> Array:
    """What each row of ``carried`` costs, (coalitions, m)."""
    costs: Array = ways.own - 2 * carried @ ways.linear + ((carried @ ways.quadratic) * carried).sum(axis=1)
    return costs


def members_of(shares: HiddenShares, party: int) -> NDArray[np.int64]:
    """Who takes part in ways of ``party``, in the order of :class:`OwnWays`."""
    there = np.unique(shares.members[shares.ways[party]])
    return cast("NDArray[np.int64]", there[(there >= 0) & (there != party)])


def attack_on_flows(number: int, seed: int, sizes: tuple[int, int] = (4, 8)) -> float:
    """The least of :func:`ratios` in so many executions; the first that is clearly below 1."""
    draw, least = np.random.default_rng(seed), math.inf
    with one_thread():
        for execution, size in lossy_executions(number, seed, sizes):
            for ratio in ratios(execution, size, draw):
                if ratio < 1 - FOUND_OUT:
                    return ratio
                least = min(least, ratio)
    return least


def test_no_flow_is_below_any_coalition() -> None:
    assert attack_on_flows(40, FLOW_SEED) >= 1 - TOLERANCE


@pytest.mark.slow
def test_no_flow_is_below_any_coalition_of_ten_thousand_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for flows is cut short: any flow is valid."""
    monkeypatch.setattr(hidden_shares, "_STEPS", 8)
    assert attack_on_flows(10_000, FLOW_SEED + 1) >= 1 - TOLERANCE


def changed(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, old: str, new: str) -> None:
    """The method with ``new`` where its text has ``old``, once."""
    text = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    assert text.count(old) == 1
    module = inspect.getmodule(owner)
    space: dict[str, Any] = {"replace": replace} | vars(module)
    exec(compile("from __future__ import annotations\n" + text.replace(old, new), name, "exec"), space)  # noqa: S102
    monkeypatch.setattr(owner, name, space[name])


WRONG_WAYS = {
    "a receiver left out": (
        "[sender, *schedule.recipients(round_, sender)]",
        "[sender, *schedule.recipients(round_, sender)[1:]]",
    ),
    "k parts for k + 1": ("schedule.out_degree[round_index, sender]) + 1", "schedule.out_degree[round_index, sender])"),
    "a late share used in time": ("(round_, sender) in settled or", ""),
    "a lost share used": (
        "trace.delivered(schedule), forgotten(trace)",
        "replace(trace, lost=None, settled=trace.settled[:0]).delivered(schedule), forgotten(trace)",
    ),
    "an injection of who left": (
        "trace.delivered(schedule), forgotten(trace)",
        "replace(trace, online=trace.online | True, settled=trace.settled[:0]).delivered(schedule), forgotten(trace)",
    ),
}


@pytest.mark.parametrize("fault", WRONG_WAYS)
def test_wrong_ways_are_found_out(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    changed(monkeypatch, HiddenShares, "_all_ways", *WRONG_WAYS[fault])
    assert attack_on_flows(40, FLOW_SEED) < 1 - FOUND_OUT


def test_a_receiver_that_used_nothing_sees_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, OwnWays, "of", "(there == other).any(axis=1)", "np.isin(np.arange(len(ways)), rows[shared])")
    assert attack_on_flows(40, FLOW_SEED) < 1 - FOUND_OUT


WRONG_ROWS = {
    "one row too few": ("bound", "_largest(rows, size)", "_largest(rows, size - 1)"),
    "one entry too few": ("bound", "size - 1)[0]", "size - 2)[0]"),
    "ways that several take away count for each": ("of", "np.maximum(members.sum(axis=1), 1.0)", "np.ones(len(members))"),
    "a gain for a loss": ("of", "2.0 * flow * (linear - carried)", "2.0 * flow * (carried - linear)"),
    "only rows that add": ("bound", "float(_largest(rows, size)[0])", "min(0.0, float(_largest(rows, size)[0]))"),
}


@pytest.mark.parametrize("fault", WRONG_ROWS)
def test_wrong_rows_are_found_out(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    name, old, new = WRONG_ROWS[fault]
    changed(monkeypatch, hidden_shares._Rows, name, old, new)
    assert attack_on_flows(40, FLOW_SEED) < 1 - FOUND_OUT


FLOW_NOISE: dict[str, Any] = {"sigma_star": 6.0, "sigma_delta": 8.0, "schedule": "circulant"}


def shares_of(execution: Execution, gone: frozenset[int] = frozenset()) -> HiddenShares:
    return HiddenShares(cast("IncA", execution.protocol), execution.schedule, execution.trace, gone)


@pytest.mark.slow
def test_all_of_two_hundred_parties() -> None:
    """20 collude, 100 rounds, nobody leaves: Lambda_ii by flows of every party, own noise alone being 0.0278."""
    shares = shares_of(example_execution("inca", 200, 1, rounds=100, **FLOW_NOISE))
    with one_thread():
        assert max(flow_bound(shares, party, 20) for party in range(200)) <= 0.0058


def test_closer_than_the_stars_and_groups_where_many_collude() -> None:
    """200 parties, 20 collude, 40 rounds, ratio 4; a tenth leaves, and those count as corrupt, too."""
    execution = example_execution("inca", 200, 1, permanent=0.1, rounds=40, **{**FLOW_NOISE, "sigma_delta": 24.0})
    gone = frozenset(np.nonzero(~execution.trace.finished)[0].tolist())
    shares = shares_of(execution, gone)
    stars = Stars(cast("IncA", execution.protocol), execution.schedule, execution.trace)
    staying = [party for party in range(200) if party not in gone][:2]
    with one_thread():
        by_flows = max(flow_bound(shares, party, 19) for party in staying)
        by_groups = min(groups_bound(shares, party, 19, 5e5) for party in staying)
    by_stars = min(stars.of(party).without(gone).worst_information(19, 200) for party in staying)
    assert by_flows * 2.5 < min(by_groups, by_stars)


@pytest.mark.parametrize("out_degree", [1, 2])
@pytest.mark.parametrize("leaving", [0.0, 0.1])
def test_above_the_worst_coalition_that_a_search_finds(out_degree: int, leaving: float) -> None:
    """200 parties, 20 collude: members are exchanged while that makes what the best flow for them costs larger."""
    execution = example_execution("inca", 200, 2, permanent=leaving, rounds=40 // out_degree, out_degree=out_degree, **FLOW_NOISE)
    gone = frozenset(np.nonzero(~execution.trace.finished)[0].tolist())
    shares = shares_of(execution, gone)
    party = next(party for party in range(200) if party not in gone)
    ways = OwnWays.of(shares, party)
    with one_thread():
        bound, flow = ways.least(20)
        fixed = climbed(ways, 20, lambda corrupt: flow * left_by(ways, corrupt))
        adapted = climbed(ways, 20, lambda corrupt: best_flow(ways, left_by(ways, corrupt)), 2)
    assert adapted <= bound
    assert fixed <= bound <= 2.5 * fixed


def left_by(ways: OwnWays, corrupt: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return cast("NDArray[np.bool_]", ~ways.members[:, corrupt].any(axis=1))


def climbed(ways: OwnWays, size: int, answer: Callable[[NDArray[np.bool_]], Array], most: int = 200) -> float:
    """What the worst of the others cost that are found by adding who costs most, then by exchanging, ``most`` times at most."""
    corrupt = np.zeros(ways.partners, dtype=np.bool_)

    def with_change(*parties: int) -> float:
        changed_ = corrupt.copy()
        changed_[list(parties)] ^= True
        return float(costs_of(ways, answer(changed_)[None])[0])

    while corrupt.sum() < size:
        corrupt[max(np.nonzero(~corrupt)[0].tolist(), key=with_change)] = True
    for _ in range(most):
        before = with_change()
        out = max(np.nonzero(corrupt)[0].tolist(), key=with_change)
        into = max(np.nonzero(~corrupt)[0].tolist(), key=lambda party: with_change(out, party))
        if with_change(out, into) <= before:
            break
        corrupt[[out, into]] ^= True
    return with_change()
