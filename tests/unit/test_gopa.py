"""GOPA with a collector: dropouts in each round, hostile messages, and a dense computation of its account."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.party import Message
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Target
from quietmean.privacy import Adversary
from quietmean.privacy.composition import classical_mu
from quietmean.protocols.execution import Execution
from quietmean.protocols.gopa import GOPA
from quietmean.protocols.gopa.loss import complete_graph, conservative_mu, graph_mu, laplacian, pairwise_sigma
from quietmean.protocols.gopa.party import GopaAggregator, GopaParty, draw_pairs, read_list, write_list
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilentPopulation
from quietmean.statistics import Column, Columns, Workload
from quietmean.statistics.kinds.means import Mean
from quietmean.studies.outcome.outcome import conclude
from quietmean.testing import check_batch, check_transcript, example_execution
from quietmean.testing.examples import certificate_of
from support.refusals import raised, refused, refused_rows

# (party, first round in which it is away for good)
STORIES: dict[str, dict[int, int]] = {
    "everybody stays": {},
    "in the randomisation round": {2: 1, 5: 1},
    "before the rollback": {3: 2},
    "in the rollback round": {4: 3},
    "in every round": {2: 1, 3: 2, 4: 3},
}


def story(leaving: dict[int, int], parties: int = 8, **parameters: Any) -> Execution:
    settings = {"sigma_star": 0.5, "sigma_delta": 2.0, "partners": 3, "aggregator": 0} | parameters
    execution = example_execution("gopa", parties, 4, **settings)
    online = np.ones((4, parties), dtype=np.bool_)
    for party, first in leaving.items():
        online[first:, party] = False
    return execution.with_trace(ExecutionTrace(online))


def dense_information(execution: Execution, coalition: set[int]) -> dict[int, float]:
    """mu^2 of every honest party at sensitivity 1, straight from the description of the protocol: for coalitions with party 0."""
    assert isinstance(execution.protocol, GOPA)
    star, delta = execution.protocol.sigma_star, execution.protocol.sigma_delta
    online, parties = execution.trace.online, execution.parties
    pairs = [tuple(pair) for pair in execution.schedule.pairs.tolist()]
    arrived = [party for party in range(parties) if online[1, party]]
    rows: list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]] = []
    for party in arrived:
        own, shared = np.eye(parties)[party], np.zeros(len(pairs))
        for index, (low, high) in enumerate(pairs):
            shared[index] = (party == high) - (party == low)
        rows.append((own, own, shared))
        taken_out = np.zeros(len(pairs))
        for index, pair in enumerate(pairs):
            if party in pair and sum(pair) - party not in arrived:
                taken_out[index] = -shared[index]
        if online[2, party] and online[3, party] and taken_out.any():
            rows.append((np.zeros(parties), np.zeros(parties), taken_out))
    values = np.array([row[0] for row in rows])
    unknown_star = np.array([row[1] for row in rows]) * [party not in coalition for party in range(parties)]
    unknown_pairs = np.array([row[2] for row in rows]) * [not coalition & set(pair) for pair in pairs]
    noise = np.hstack([star * unknown_star, delta * unknown_pairs])
    precision = np.linalg.pinv(noise @ noise.T, rcond=1e-11, hermitian=True)
    return {party: float(values[:, party] @ precision @ values[:, party]) for party in range(parties) if party not in coalition}


@pytest.mark.parametrize("leaving", STORIES.values(), ids=STORIES.keys())
@pytest.mark.parametrize("coalition", [{0}, {0, 1}, {0, 4, 6}])
def test_the_engine_equals_a_dense_computation(leaving: dict[int, int], coalition: set[int]) -> None:
    execution = story(leaving)
    certificate = certificate_of(execution.transcript(), Adversary(frozenset(coalition)), 1.0)
    expected = dense_information(execution, coalition)
    assert set(certificate.honest) == set(expected)
    for party, mu in zip(certificate.honest, certificate.mu, strict=True):
        assert mu**2 == pytest.approx(expected[party], rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("leaving", STORIES.values(), ids=STORIES.keys())
def test_the_papers_reading_is_never_below_the_exact_one(leaving: dict[int, int]) -> None:
    """And equals it where all who published stayed to roll back; without the collector a coalition knows the total only."""
    execution = story(leaving)
    for coalition in ({0}, {0, 6}, {0, 1, 7}):
        exact = certificate_of(execution.transcript(), Adversary(frozenset(coalition)), execution.sensitivity)
        bound = conservative_mu(execution, coalition)
        for party, mu in zip(exact.honest, exact.mu, strict=True):
            assert mu <= bound.get(party, 0.0) * (1 + 1e-9) + 1e-12
            if all(first == 1 for first in leaving.values()) and party in bound:
                assert mu == pytest.approx(bound[party], rel=1e-7)
    without = certificate_of(execution.transcript(), Adversary(frozenset({7})), execution.sensitivity)
    assert without.max_mu < max(conservative_mu(execution, {7}).values())
    if not leaving:
        assert without.max_mu == pytest.approx(1 / (0.5 * math.sqrt(7)), rel=1e-9)


@pytest.mark.parametrize("leaving", STORIES.values(), ids=STORIES.keys())
def test_what_is_in_the_total(leaving: dict[int, int]) -> None:
    """Values of all who published; noise of a pair only where one end is absent and the other could not roll back."""
    execution, values = story(leaving), np.arange(16.0).reshape(8, 2)
    noise = InsecurePopulationNoise(3, 8)
    arrived = [party for party in range(8) if leaving.get(party) != 1]
    np.testing.assert_array_equal(np.nonzero(execution.contributors())[0], arrived)
    expected = (values + 0.5 * noise.normal("star", 0, 2))[arrived].sum(axis=0)
    for low, high in execution.schedule.pairs.tolist():
        for stays, other in ((low, high), (high, low)):
            if stays in arrived and other not in arrived and stays in leaving:
                shared = 2.0 * noise.shared_normal(np.array([[low, high]]), "delta", 0, 2)[0]
                expected = expected + (shared if stays == high else -shared)
    release = execution.run(values, noise).releases[0]
    np.testing.assert_allclose(release.vector, expected, rtol=1e-12, atol=1e-12)
    assert release.weight == len(arrived)


def test_a_wrong_sign_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quietmean.protocols.gopa.party.sign", lambda party, other: 1.0)
    raised(AssertionError, "covariance of 'delta' noise", check_transcript, story({2: 1}))
    raised(AssertionError, "release of party 0", check_batch, story({2: 1}), np.ones((8, 2)))


def test_rolling_back_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GopaParty, "_rollback", lambda self, absent: None)
    check_transcript(story({}))
    raised(AssertionError, "", check_transcript, story({2: 1}))


@pytest.mark.parametrize("away", [1, 3])
def test_without_the_collector_there_is_no_result(away: int) -> None:
    online = np.ones((4, 8), dtype=np.bool_)
    online[away, 0] = False
    execution = story({}).with_trace(ExecutionTrace(online))
    assert execution.run(np.ones((8, 1)), InsecureSilentPopulation(8)).releases == {}
    assert execution.protocol.traits.indispensable == {0}


def test_the_anchor_of_the_papers_reading() -> None:
    mu = classical_mu(0.2, 1e-5)
    sigma = pairwise_sigma(complete_graph(160), math.sqrt(4.767778), mu)
    assert sigma**2 == pytest.approx(15.763466, rel=1e-6)
    assert graph_mu(complete_graph(160), math.sqrt(4.767778), sigma).max() == pytest.approx(mu, rel=1e-12)


def test_the_papers_reading_on_random_graphs() -> None:
    pairs = draw_pairs(40, 4, Seed.public("graph"))
    graph = laplacian(pairs, range(4, 40))
    assert graph.shape == (36, 36)
    assert np.abs(graph.sum(axis=1)).max() == 0.0
    star = 1.2 / math.sqrt(36)
    sigma = pairwise_sigma(graph, star, 1.0)
    direct = np.linalg.inv(star**2 * np.eye(36) + sigma**2 * graph)
    assert np.sqrt(np.diag(direct)).max() == pytest.approx(1.0, rel=1e-9)
    assert pairwise_sigma(graph, 1.1, 1.0) == 0.0
    refused("are not hidden by any shared noise", pairwise_sigma, graph, 0.9 / math.sqrt(36), 1.0)
    with pytest.raises(InputError, match="not hidden"):
        # Two parts that share nothing: each sum must be hidden by the own noise of half of the users.
        pairwise_sigma(np.kron(np.eye(2), complete_graph(18)).astype(np.float64), star, 1.0)


def test_pairs_are_the_union_of_everybodys_choices() -> None:
    pairs = draw_pairs(50, 4, Seed.public("pairs"))
    degree = np.bincount(pairs.reshape(-1), minlength=50)
    assert degree.min() >= 4
    assert 4 * 50 / 2 < len(pairs) <= 4 * 50
    np.testing.assert_array_equal(draw_pairs(5, 4, Seed.public("any")), np.column_stack(np.triu_indices(5, 1)))
    assert draw_pairs(50, 4, Seed.public("other")).tolist() != pairs.tolist()


def test_lists_of_who_arrived() -> None:
    for parties in (1, 7, 8, 9, 100):
        arrived = frozenset(range(0, parties, 3))
        assert read_list(write_list(arrived, parties), parties) == arrived
    assert read_list(b"", 8) is None
    assert read_list(b"\xff\xff", 8) is None
    assert read_list(b"\x01", 7) is None, "a party beyond the last one"


def test_messages_that_cannot_be_read_count_as_not_arrived() -> None:
    execution = story({})
    noise = InsecurePopulationNoise(1, 8)
    collector = execution.machine(0, np.ones(2), noise.party(0))
    assert isinstance(collector, GopaAggregator)
    empty = Message(3, (0,), 1, np.zeros(0), 1.0, b"nothing")
    good = Message(4, (0,), 1, np.ones(2), 1.0)
    step = collector.end_round(collector.start().state, [empty, good], frozenset())
    assert step.state.arrived == (0, 4)
    assert step.send[0].recipients == (4,)
    member = execution.machine(4, np.ones(2), noise.party(4))
    assert isinstance(member, GopaParty)
    published = replace(member.start().state, round=2, published=True)
    for content in (b"", b"\x00", b"\xff\xff", write_list([0, 1], 8)):
        told = Message(0, (4,), 2, np.zeros(0), 0.0, content)
        assert member.end_round(published, [told], frozenset()).send == (), "unreadable, or without this party"
    told = Message(0, (4,), 2, np.zeros(0), 0.0, write_list([0, 4], 8))
    assert len(member.end_round(published, [told], frozenset()).send) == 1
    assert member.end_round(published, [replace(told, sender=1)], frozenset()).send == (), "not from the collector"


@refused_rows("impossible_parameters_are_refused")
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    refused(message, story, {}, **parameters)


def test_who_drops_out_after_publishing_is_counted() -> None:
    """By the execution, the outcome's JSON and the report alike."""
    execution = story({4: 3})
    workload = Workload(Columns([Column(name="a", low=0, high=1)]), (Mean(column="a"),), PrivacyUnit.PARTY)
    outcome = conclude(workload, Target(8, 1.0, 1e-6), execution, workload.encode(np.array([[0.5]])).vector)
    assert int(execution.trace.finished.sum()) == 7
    assert outcome.parties_counted == outcome.to_json()["parties_counted"] == 8
