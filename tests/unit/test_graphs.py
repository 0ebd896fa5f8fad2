"""Schedules, churn and mixing, messages in files, and who counts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.core.errors import InputError
from quietmean.graphs import SCHEDULES, ExecutionTrace, Schedule, arrivals, churn, make_schedule, share_flow
from quietmean.node.session import NodeResult
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import configure, registry
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.testing import example_execution
from support.effort import examples
from support.refusals import refused, refused_rows

# -- Schedules, churn and mixing: golden values, static graphs, counts and refusals.
SEED = Seed.public("golden")
GOLDEN = {
    "uniform": "fb4fd34a5cc730a414ff8ddc3f50c7f0",
    "permutation": "603cf73d44688209e5cea366772f16bd",
    "circulant": "44aacdebe56e1fd75c6277ca0fcd40c6",
    "never-same": "d23897e37185e16aaf4b64a958b36e9d",
    "ring": "039e2f50815c66f2ef94b1c74bfac0c5",
    "complete": "ccbe460f805d66352c2f87591c2d4901",
    "hypercube": "8a9a648e455a94481da720a9e42373f5",
    "random-static": "dd91f7fcfb8a29352c111468f9ac0acd",
}


def graph(schedule: Schedule, round_: int = 1) -> nx.DiGraph:
    edges = [(i, j) for i in range(schedule.parties) for j in schedule.recipients(round_, i)]
    return nx.DiGraph(edges)


def test_every_kind_has_a_golden_digest() -> None:
    assert set(GOLDEN) == set(SCHEDULES)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_schedules_are_pinned(kind: str) -> None:
    schedule = make_schedule(kind, SEED, parties=8, rounds=3, out_degree=2)
    assert hashlib.sha256(schedule.neighbours.astype("<i4").tobytes()).hexdigest()[:32] == GOLDEN[kind]


def test_churn_is_pinned() -> None:
    online = churn(SEED, 6, 10, 0.3, 0.2).online
    assert hashlib.sha256(np.packbits(online).tobytes()).hexdigest()[:32] == "90f79671291fa61f1f4e5342815454c3"


@pytest.mark.parametrize(
    ("kind", "parties", "out_degree", "expected"),
    [
        ("ring", 7, 1, nx.cycle_graph(7)),
        ("ring", 9, 3, nx.circulant_graph(9, [1, 2, 3])),
        ("random-static", 9, 2, nx.circulant_graph(9, [1, 2])),
        ("complete", 6, 1, nx.complete_graph(6)),
        ("hypercube", 16, 1, nx.hypercube_graph(4)),
    ],
)
def test_static_graphs_are_those_of_networkx(kind: str, parties: int, out_degree: int, expected: nx.Graph) -> None:
    schedule = make_schedule(kind, SEED, parties, 3, out_degree)
    for round_ in (1, 2, 3):
        found = graph(schedule, round_)
        assert nx.is_isomorphic(found.to_undirected(), expected)
        assert len({degree for _, degree in found.in_degree()}) == 1


def test_static_graphs_as_they_are_labelled() -> None:
    assert set(graph(make_schedule("ring", SEED, 7, 1)).edges) == set(nx.cycle_graph(7, create_using=nx.DiGraph).edges)
    assert set(graph(make_schedule("hypercube", SEED, 8, 1)).edges) == {
        (i, j) for i in range(8) for j in range(8) if (i ^ j).bit_count() == 1
    }
    random = make_schedule("random-static", SEED, 9, 4)
    assert (random.neighbours == random.neighbours[0]).all()
    assert random.to_lists() != make_schedule("ring", SEED, 9, 4).to_lists()


def test_lists_and_back() -> None:
    lists = [[[1, 2], [], [0]], [[2], [0], []]]
    schedule = Schedule.from_lists(lists, 3)
    assert schedule.to_lists() == lists
    assert schedule.out_degree.tolist() == [[2, 0, 1], [1, 1, 0]]
    assert schedule.senders(1, 2) == {0}
    assert schedule.senders(2, 1) == frozenset()
    assert schedule.recipients(1, 0) == (1, 2)


@refused_rows("impossible_lists_are_refused")
def test_impossible_lists_are_refused(lists: list[list[list[int]]], message: str) -> None:
    refused(message, Schedule.from_lists, lists, 2)


@refused_rows("impossible_schedules_are_refused")
def test_impossible_schedules_are_refused(kind: str, parties: int, rounds: int, out_degree: int, message: str) -> None:
    refused(message, make_schedule, kind, SEED, parties, rounds, out_degree)


def test_deliveries_by_hand() -> None:
    schedule = Schedule.from_lists([[[1, 2], [2], [0]], [[1], [0, 2], [1]]], 3)
    online = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    lost = np.zeros((2, 3, 2), dtype=bool)
    lost[1, 1, 0] = True
    delivered = ExecutionTrace(online, lost).delivered(schedule)
    # Round 1: party 1 is away. Round 2: the message from 1 to 0 is lost.
    assert delivered.tolist() == [[[False, True], [False, False], [True, False]], [[True, False], [False, True], [True, False]]]
    mixing = []
    for round_ in (1, 2):
        shares = share_flow(schedule, arrivals(schedule, delivered, round_), delivered, round_)
        mixing.append(shares.matrix.toarray() / (schedule.out_degree[round_ - 1] + 1))
    first = np.array([[2 / 3, 0, 1 / 2], [0, 1, 0], [1 / 3, 0, 1 / 2]])
    second = np.array([[1 / 2, 0, 0], [1 / 2, 2 / 3, 1 / 2], [0, 1 / 3, 1 / 2]])
    np.testing.assert_allclose(mixing[0], first, rtol=1e-15)
    np.testing.assert_allclose(mixing[1], second, rtol=1e-15)


def test_history_refuses_what_does_not_fit() -> None:
    schedule = make_schedule("ring", SEED, 4, 2)
    refused(r"parties \[1, 3\] are offline in round 0", ExecutionTrace, np.array([[True, False, True, False]]))
    refused("one row per round", ExecutionTrace.everyone(3, 4).delivered, schedule)
    with pytest.raises(InputError, match="Give both the same shape"):
        ExecutionTrace(ExecutionTrace.everyone(2, 4).online, np.zeros((2, 4, 2), dtype=bool)).delivered(schedule)


def test_nothing_is_delivered_without_rounds() -> None:
    delivered = ExecutionTrace.everyone(0, 3).delivered(Schedule.silent(0, 3))
    assert delivered.shape == (0, 3, 0)


@pytest.mark.parametrize(("parties", "fraction", "leaving"), [(10, 0.3, 3), (10, 0.39, 3), (100, 0.29, 29), (7, 0.0, 0)])
def test_churn_takes_the_stated_number_of_parties(parties: int, fraction: float, leaving: int) -> None:
    trace = churn(SEED, 5, parties, permanent=fraction)
    assert int((~trace.finished).sum()) == leaving
    # Who left stays away, and everybody was there at first.
    assert (np.diff(trace.online.astype(int), axis=0) <= 0).all()
    assert trace.online[0].all()


def test_temporary_churn_is_over_at_the_end() -> None:
    trace = churn(SEED, 6, 200, temporary=0.5)
    assert trace.finished.all()
    assert trace.online[0].all()
    assert not trace.online[1:-1].all()
    assert churn(SEED, 1, 5, temporary=0.9).online.all()


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_churn_refuses_what_is_no_fraction(fraction: float) -> None:
    refused(r"permanent dropouts of .* are not a fraction", churn, SEED, 3, 4, permanent=fraction)
    refused(r"temporary dropouts of .* are not a fraction", churn, SEED, 3, 4, temporary=fraction)


# -- Messages in files where everybody sends to everybody: what they have in common is named, and nothing is lost.
def packed(parties: int, ballots: int = 3, **more: Any) -> Execution:
    return example_execution(
        "packed-sharing",
        parties,
        members=parties,
        colluding=1,
        colluding_members=1,
        secrets=1,
        minimum=2,
        gone=0,
        ballots=ballots,
        step=2.0**-6,
        sigma=1.0,
        clip=1.0,
        dimension=1,
        **more,
    )


def listed_one_by_one(execution: Execution) -> dict[str, Any]:
    """As files of before have it."""
    schedule, trace = execution.schedule, execution.trace
    document = execution.to_json() | {"neighbours": schedule.to_lists()}
    if trace.lost is not None:
        places = np.argwhere(trace.lost).tolist()
        document["lost"] = [[t + 1, i, int(schedule.neighbours[t, i, slot])] for t, i, slot in places]
    if unused := trace.unused(schedule):
        document["seen"] = [list(message) for message in unused]
    return document


def assert_same(one: Execution, other: Execution) -> None:
    """The same messages arrived and were seen, and the certificates are the same numbers."""
    np.testing.assert_array_equal(one.schedule.neighbours, other.schedule.neighbours)
    np.testing.assert_array_equal(one.trace.delivered(one.schedule), other.trace.delivered(other.schedule))
    assert one.trace.unused(one.schedule) == other.trace.unused(other.schedule)
    assert one.to_json() == other.to_json()
    assert one.privacy(1e-6).coalitions(1).mu.tolist() == other.privacy(1e-6).coalitions(1).mu.tolist()


@st.composite
def histories(draw: st.DrawFn) -> Execution:
    """Some messages of a few rounds are lost: single ones, all of a sender or to a receiver, or all; some of them were seen."""
    execution = packed(draw(st.integers(2, 6)), ballots=1, permanent=draw(st.sampled_from([0.0, 0.4])))
    shape = execution.schedule.neighbours.shape
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    masks = []
    for _ in range(2):
        mask = chance.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.9]))
        mask |= chance.random((shape[0], 1, 1)) < 0.3
        mask |= chance.random((shape[0], shape[1], 1)) < 0.2
        mask |= np.isin(execution.schedule.neighbours, chance.integers(0, shape[1], 1)) & (chance.random((shape[0], 1, 1)) < 0.4)
        masks.append(mask & (execution.schedule.neighbours >= 0))
    return execution.with_trace(ExecutionTrace(execution.trace.online, masks[0], seen=masks[1]))


@given(histories())
@settings(max_examples=examples(60), deadline=None)
def test_nothing_is_lost_and_lists_of_before_are_read_alike(execution: Execution) -> None:
    again = Execution.from_json(json.loads(json.dumps(execution.to_json())))
    assert_same(again, execution)
    assert_same(Execution.from_json(listed_one_by_one(execution)), execution)


def test_what_messages_have_in_common_is_named() -> None:
    """Round 5 is lost to party 2, 6 all of party 0, 7 altogether, and two messages more."""
    execution = packed(4)
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    neighbours = execution.schedule.neighbours
    lost[4] = neighbours[4] == 2
    lost[5, 0] = True
    lost[6] = True
    lost[7, 1] = neighbours[7, 1] == 3
    lost[8, 2] = neighbours[8, 2] == 0
    document = execution.with_trace(ExecutionTrace(execution.trace.online, lost)).to_json()
    assert [entry for entry in document["neighbours"] if entry != "all"] == [execution.schedule.to_lists()[2]]
    assert document["lost"] == [[5, None, 2], [6, 0, None], [7, None, None], [8, 1, 3], [9, 2, 0]]


@pytest.mark.slow
def test_a_usual_run_of_many_parties_has_a_small_file() -> None:
    """120 parties of which ten left; nothing is sent after round 5 but to one that was away: 0.3 % of the listed size."""
    execution = packed(120, ballots=5)
    online = execution.trace.online.copy()
    online[4:, :10] = False
    online[5, 20] = False
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[5:] = execution.schedule.neighbours[5:] >= 0
    lost[5] &= execution.schedule.neighbours[5] != 20
    trace = ExecutionTrace(online, lost)
    real = execution.with_trace(trace.all_handed(execution.schedule))
    document = real.to_json()
    assert_same(Execution.from_json(document), real)
    # Who was online is listed as ever.
    small, large = (len(json.dumps({**one, "online": []})) for one in (document, listed_one_by_one(real)))
    assert small < 10_000
    assert small < 0.003 * large


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lost": [[11, None, None]]}, r"lost message \[11, null, null\] is not in the schedule"),
        ({"lost": [[0, None, None]]}, "not in the schedule"),
        ({"lost": [[1, None, 4]]}, r"\[1, null, 4\]"),
        ({"seen": [[1, 4, None]]}, r"seen message \[1, 4, null\]"),
        ({"seen": [[1, -1, None]]}, "not in the schedule"),
        ({"lost": [[None, 1, 2]]}, "'lost' is not as it should be"),
        ({"lost": [[1, 2]]}, "'lost' is not as it should be"),
        ({"neighbours": ["every"] * 10}, "'neighbours' is not as it should be"),
        ({"neighbours": ["all"] * 9}, "neighbours has 9 rounds"),
    ],
)
def test_wrong_lists_are_refused(change: dict[str, Any], words: str) -> None:
    refused(words, Execution.from_json, packed(4).to_json() | change)


def test_other_protocols_list_their_messages_as_before() -> None:
    execution = example_execution("inca", 3, rounds=2, sigma_star=1.0, sigma_delta=1.0, schedule="complete", out_degree=2)
    lost = np.ones(execution.schedule.neighbours.shape, dtype=np.bool_)
    document = execution.with_trace(replace(execution.trace, lost=lost)).to_json()
    assert document["neighbours"] == execution.schedule.to_lists()
    assert len(document["lost"]) == 12
    # They are read in either form, but for the order of neighbours.
    short = document | {"neighbours": ["all", "all"], "lost": [[1, None, None], [2, None, None]]}
    again = Execution.from_json(short).to_json()
    assert sorted(again["lost"]) == sorted(document["lost"])
    assert again["neighbours"] == [[[1, 2], [0, 2], [0, 1]]] * 2


# -- Whose value is in a result: of who passed its value on, a part may be, whatever became of its release.
PARTIES, LIAR = 5, 2
ZERO: dict[str, Any] = dict.fromkeys(("transfers", "bytes_sent", "bytes_received", "seconds"), 0)
NOTHING: dict[str, Any] = dict.fromkeys(("late", "refusals", "remarks", "silent", "unresolved", "known_until"), ())


@pytest.mark.parametrize(("taken", "counted"), [(False, PARTIES - 1), (True, PARTIES)])
def test_who_passed_on_nothing_that_anybody_took_is_not_counted(taken: bool, counted: int) -> None:
    plan = calibrate(Target(PARTIES, 1.0, 1e-6), configure("gossip", {"rounds": 4}))
    execution = plan.execution(Seed.public("taken"), ExecutionTrace.everyone(plan.protocol.rounds, PARTIES))
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    # All of its messages, or all but the first.
    lost[1 if taken else 0 :, LIAR] = True
    execution = replace(execution, trace=replace(execution.trace, lost=lost))
    heard = tuple(party for party in range(PARTIES) if party != LIAR)
    result = NodeResult(np.zeros(1), 4.0, heard, execution, public_seed="", **ZERO, **NOTHING)
    missing, as_it_went = result.arrived(plan)
    assert missing == {LIAR}
    assert as_it_went.contributors().sum() == counted
    assert as_it_went.contributors()[LIAR] == taken
    # What the study cost has nothing to do with that.
    assert (as_it_went.trace.online == execution.trace.online).all()


# -- Of an execution that nobody finishes nobody counts, under every protocol: there is no result.
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in sorted(registry().keys() - {"packed-sharing"})),
    *(("consensus", {"open_edges": which}) for which in ("each", "all")),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_nobody_counts(name: str, options: dict[str, Any]) -> None:
    target = Target(parties=4, epsilon=1.0, delta=1e-6, dimension=2, sensitivity=2.0)
    protocol = calibrate(target, configure(name, options), trials=0, executions=4).protocol
    schedule = protocol.draw_schedule(4, Seed.public("nobody finishes"))
    execution = Execution(protocol, schedule, ExecutionTrace.everyone(protocol.rounds, 4), 2.0, np.ones(4))
    assert execution.contributors().all()
    for last in range(1, len(execution.trace.online)):
        online = np.ones_like(execution.trace.online)
        online[last:] = False
        left = replace(execution, trace=replace(execution.trace, online=online))
        assert not left.trace.finished.any()
        assert not left.contributors().any(), last
        assert not left.parts.any(), last
        assert left.counted_weight() == 0, last
