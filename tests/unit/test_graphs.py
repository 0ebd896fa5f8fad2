"""Schedules, churn and mixing: golden values, static graphs, counts and refusals."""

from __future__ import annotations

import hashlib

import networkx as nx
import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.graphs import SCHEDULES, ExecutionTrace, Schedule, arrivals, churn, make_schedule, share_flow
from quietmean.randomness import Seed

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


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[[1], [1]]], "its own neighbour"),
        ([[[1], [2]]], r"outside 0\.\.1"),
        ([[[1, 1], [0]]], "same neighbour twice"),
        ([[[1]]], "lists neighbours of 1 parties, not 2"),
        ([[[1], [-2]]], r"outside 0\.\.1"),
    ],
)
def test_impossible_lists_are_refused(lists: list[list[list[int]]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Schedule.from_lists(lists, 2)


@pytest.mark.parametrize(
    ("kind", "parties", "rounds", "out_degree", "message"),
    [
        ("star", 4, 1, 1, "'star' is unknown: choose one of uniform, permutation"),
        ("uniform", 1, 1, 1, "at least 2 parties"),
        ("uniform", 4, 0, 1, "at least 1 mixing round"),
        ("uniform", 4, 1, 4, r"choose 1\.\.3"),
        ("uniform", 4, 1, 0, r"choose 1\.\.3"),
        ("never-same", 4, 2, 2, "more than the 3 other parties"),
        ("hypercube", 6, 1, 1, "power of two of parties, not 6"),
    ],
)
def test_impossible_schedules_are_refused(kind: str, parties: int, rounds: int, out_degree: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_schedule(kind, SEED, parties, rounds, out_degree)


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
    with pytest.raises(InputError, match=r"parties \[1, 3\] are offline in round 0"):
        ExecutionTrace(np.array([[True, False, True, False]]))
    with pytest.raises(InputError, match="one row per round"):
        ExecutionTrace.everyone(3, 4).delivered(schedule)
    with pytest.raises(InputError, match="they must agree"):
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
    with pytest.raises(InputError, match=r"permanent dropouts of .* are not a fraction"):
        churn(SEED, 3, 4, permanent=fraction)
    with pytest.raises(InputError, match=r"temporary dropouts of .* are not a fraction"):
        churn(SEED, 3, 4, temporary=fraction)
