"""Consensus between real processes: quantised messages are as small on the wire as they say, and the mean is right."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.input_domain import InputDomain
from quietmean.core.party import Vector
from quietmean.node.local import Kill
from quietmean.node.net import AnswerFrame, Transfer
from quietmean.node.net.wire import encode_frame
from quietmean.node.session.logs import PartyLog, encode_log
from quietmean.planning import Plan, Target
from quietmean.protocols.consensus import HELD_BACK, Consensus
from quietmean.protocols.consensus.analysis import Dynamics
from quietmean.protocols.consensus.error import mutual_information
from quietmean.protocols.consensus.quantiser import packed_size
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from support.processes import run_processes

# Beyond it no normal value lies.
_LARGEST = 8.0


def make_plan(parties: int, dimension: int, **raw: Any) -> Plan:
    sensitivity = 2 * _LARGEST * np.sqrt(dimension)
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=dimension, sensitivity=sensitivity)
    protocol = Consensus.read({"sigma_z": 1.0, "theta": 0.2, "c": "auto", **raw}).resolved(parties)
    return Plan(target, protocol, domain=InputDomain.box(dimension, -_LARGEST, _LARGEST))


def make_values(parties: int, dimension: int) -> Vector:
    return BitStream(insecure_seed(5, "values")).standard_normal((parties, dimension))


run = partial(run_processes, round_timeout=10.0)


def consensus_of(plan: Plan) -> Consensus:
    assert isinstance(plan.protocol, Consensus)
    return plan.protocol


def content_bytes(plan: Plan) -> int:
    """What the messages say: z^(0), then packed indices and the float64 of the weights."""
    protocol, dimension = consensus_of(plan), plan.target.dimension
    links = len(protocol.links)
    assert protocol.quantisation is not None
    each = packed_size(protocol.quantisation, dimension) + 8
    return int(links * (8 * dimension + protocol.iterations * each))


@pytest.mark.sampled(1)
def test_a_few_processes_find_the_mean_with_two_bits_a_number(tmp_path: Path) -> None:
    plan = make_plan(4, 50, graph="ring", bits=2, iterations=60)
    values = make_values(4, 50)
    outcome = run(plan, values, tmp_path)
    assert outcome.failures == {}
    # What is left of the differences after this many iterations: cells have shrunk to this.
    settings = consensus_of(plan).quantisation
    assert settings is not None
    width = settings.width(60)
    for result in outcome.results.values():
        assert np.abs(result.mean - values.mean(axis=0)).max() < 10 * width
        assert result.execution.contributors().all()
    assert not np.array_equal(outcome.results[0].mean, values.mean(axis=0))


@pytest.mark.slow
def test_who_leaves_is_left_out_by_the_others(tmp_path: Path) -> None:
    plan = make_plan(5, 3, graph="complete", iterations=60, silence_timeout=2)
    values = make_values(5, 3)
    outcome = run(plan, values, tmp_path, [Kill(2, 6)])
    assert outcome.failures == {}
    remaining = [0, 1, 3, 4]
    assert sorted(outcome.results) == remaining
    for result in outcome.results.values():
        np.testing.assert_array_equal(np.nonzero(result.execution.contributors())[0], remaining)
        np.testing.assert_allclose(result.mean, values[remaining].mean(axis=0), atol=1e-6)


@pytest.mark.slow
def test_whose_edges_do_not_open_tells_nothing_and_nobody_waits_for_it(tmp_path: Path) -> None:
    """Party 2 of a ring is away at the start: its neighbours have no result, the others' error is what they share with them."""
    plan = make_plan(5, 3, graph="ring", iterations=40, sigma_z=50.0, open_edges="all", silence_timeout=2)
    outcome = run(plan, make_values(5, 3), tmp_path, [Kill(2, 1)])
    assert sorted(outcome.failures) == [1, 3]
    assert all(HELD_BACK in failure for failure in outcome.failures.values())
    for result in outcome.results.values():
        execution = result.execution
        assert np.nonzero(execution.contributors())[0].tolist() == [0, 4]
        # Each of two parties has z^(0) of one edge to nobody: half of 2 sigma_z^2.
        assert execution.error_variance() == pytest.approx(2 * 50.0**2 / 2**2)
        worst = execution.privacy(1e-6).against([0]).nats(1.0)
        assert worst.max() <= mutual_information(consensus_of(plan), [0], 1.0).max()


@pytest.mark.slow
def test_twenty_processes_send_little_more_than_the_information(tmp_path: Path) -> None:
    parties, dimension, cells = 20, 1000, 1e-3
    plan = make_plan(parties, dimension, graph="geometric", graph_seed=1, bits=2, iterations=120, delta_min=cells)
    values = make_values(parties, dimension)
    outcome = run(plan, values, tmp_path)
    assert outcome.failures == {}
    errors = np.array([result.mean - values.mean(axis=0) for result in outcome.results.values()])
    predicted = Dynamics.of(consensus_of(plan)).steady_state_mse(cells)
    # 20 x 1000 errors, correlated between parties: the relative standard error is some 3 %.
    assert (errors**2).mean() == pytest.approx(predicted, rel=0.15)
    print(f"{outcome.bytes_sent} bytes sent, {outcome.bytes_sent / content_bytes(plan):.3f} times what the messages say")
    assert outcome.bytes_sent <= 1.2 * content_bytes(plan)
    assert outcome.bytes_sent == pytest.approx(content_bytes(plan) + framing_bytes(plan), rel=0.02)


def framing_bytes(plan: Plan) -> int:
    """Headers and answers, and what everybody tells everybody at the end: for 250 bytes of indices as much again."""
    protocol, parties = consensus_of(plan), plan.target.parties
    links = protocol.links
    # The float64 of the weight is content.
    transfer = len(encode_frame(Transfer(1000, 1, 60, 1.0, 30_000, bytes(8), 0), 250)) - 8
    answer = len(encode_frame(AnswerFrame(1000, "ok", 1, 60)))
    rounds = range(1, protocol.rounds + 1)
    logs = 0
    for party in range(parties):
        neighbours = links.receiver[links.sender == party].tolist()
        pairs = tuple((round_, other) for round_ in rounds for other in neighbours)
        logs += (parties - 1) * len(encode_log(PartyLog(tuple(rounds), pairs, pairs, (party,))))
    return int(len(links) * protocol.rounds * (transfer + answer) + logs)
