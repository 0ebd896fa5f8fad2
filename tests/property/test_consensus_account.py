"""Consensus: its account, its promise, and whole numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from quietmean.graphs import NEVER, ExecutionTrace
from quietmean.privacy import Adversary, information_matrix
from quietmean.privacy.information.matrix import InformationMatrix
from quietmean.protocols.consensus import Consensus
from quietmean.protocols.consensus.error import mutual_information
from quietmean.protocols.consensus.spec import Deliveries
from quietmean.protocols.consensus.transcript import short_transcript
from quietmean.protocols.discrete import NoiseNumbers
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream, Seed
from quietmean.testing.strategies import executions
from quietmean.transcript import Transcript
from support.effort import examples


# -- The account of consensus: closed form, declared and traced transcripts agree on random graphs, histories and coalitions.
def consensus_of(execution: Execution) -> Consensus:
    """The protocol, which has the graph and the noise levels."""
    assert isinstance(execution.protocol, Consensus)
    return execution.protocol


@st.composite
def regular(draw: st.DrawFn) -> Execution:
    """Executions in which every message arrives."""
    linear: st.SearchStrategy[Execution] = executions("consensus", max_parties=7).filter(
        lambda drawn: consensus_of(drawn).local_noise in ("none", "gaussian") and consensus_of(drawn).quantisation is None
    )
    execution = draw(linear)
    return execution.with_trace(ExecutionTrace.everyone(execution.schedule.rounds, execution.parties))


def coalition(parties: int, seed: int, at_least: int = 0) -> Adversary:
    stream = BitStream(Seed.public("coalition", seed))
    size = at_least + int(stream.integers(parties - at_least, 1)[0])
    return Adversary.collusion(stream.permutation(parties)[:size].tolist())


def posterior(information: InformationMatrix, prior_sd: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Covariance of the honest values given the view: finite whatever is disclosed."""
    told = np.isfinite(information.release)
    release = np.where(told, information.release, 0.0)
    shrink = np.where(told, prior_sd**2 * release / (prior_sd**2 + release), prior_sd**2)
    return (information.basis * shrink) @ information.basis.T


def assert_same_account(first: Transcript, second: Transcript, adversary: Adversary, scale: float) -> None:
    one, other = (information_matrix(transcript, adversary, "dense") for transcript in (first, second))
    np.testing.assert_allclose(posterior(one, scale), posterior(other, scale), atol=1e-8 * scale**2, rtol=0)


def prior_scale(execution: Execution) -> float:
    """A prior of the size of the noise: both matter."""
    return float(consensus_of(execution).deviations.mean())


@settings(max_examples=examples(60), deadline=None)
@given(regular(), st.integers(0, 10_000))
def test_least_short_full_and_traced_transcripts_are_worth_the_same(execution: Execution, seed: int) -> None:
    adversary, scale = coalition(execution.parties, seed), prior_scale(execution)
    parts = consensus_of(execution), execution.schedule, execution.trace
    full = execution.full_transcript()
    assert_same_account(execution.transcript(), full, adversary, scale)
    assert_same_account(short_transcript(*parts), full, adversary, scale)
    assert_same_account(execution.traced_transcript(), full, adversary, scale)


@settings(max_examples=examples(60), deadline=None)
@given(executions("consensus", max_parties=6), st.integers(0, 10_000))
def test_lost_messages_and_dropouts_are_accounted_in_short_form_too(execution: Execution, seed: int) -> None:
    adversary, scale = coalition(execution.parties, seed), prior_scale(execution)
    parts = consensus_of(execution), execution.schedule, execution.trace
    if not consensus_of(execution).broadcast:
        assert_same_account(short_transcript(*parts), execution.full_transcript(), adversary, scale)
        return
    # Of broadcasts it is an upper bound: the posterior covariance may only be smaller.
    forms = short_transcript(*parts), execution.full_transcript()
    short, full = (information_matrix(form, adversary, "dense") for form in forms)
    difference = posterior(full, scale) - posterior(short, scale)
    assert np.linalg.eigvalsh(difference).min(initial=0.0) >= -1e-8 * scale**2


@settings(max_examples=examples(60), deadline=None)
@given(regular(), st.integers(0, 10_000))
def test_the_closed_form_is_what_the_engine_says(execution: Execution, seed: int) -> None:
    adversary, prior = coalition(execution.parties, seed, at_least=1), prior_scale(execution)
    alike = (consensus_of(execution).deviations[:, 0] == consensus_of(execution).deviations[:, 1]).all()
    if consensus_of(execution).broadcast and (not alike or consensus_of(execution).iterations == 1):
        return
    closed = mutual_information(consensus_of(execution), adversary.corrupt, prior)
    engine = information_matrix(execution.transcript(), adversary).mutual_information(prior)
    np.testing.assert_allclose(closed, engine, atol=1e-8, rtol=1e-8)


# -- Consensus in which all edges have to be open: no execution tells more nats than the graph promises before it begins.
Array = NDArray[np.float64]
PRIOR = 1.0
# What linear algebra may be off.
ROUNDING = 1e-7
STEP = 2.0**-12
ARRIVES, UNNOTICED, IS_LOST = range(3)


def consensus(parties: int, edges: list[list[int]], **more: Any) -> Consensus:
    fields = {"sigma_z": 2.0, "theta": 0.2, "c": 0.4, "iterations": 2, "patience": 3, "open_edges": "all", **more}
    return Consensus.read({"edges": edges, **fields}).resolved(parties)


RING = [[0, 1], [0, 3], [1, 2], [2, 3]]
TRIANGLE = [[0, 1], [0, 2], [1, 2]]


def executed(protocol: Consensus, trace: ExecutionTrace) -> Execution:
    parties = protocol.parties
    return Execution(protocol, protocol.draw_schedule(parties, Seed.public("any")), trace, 2.0, np.ones(parties))


def all_absences(protocol: Consensus) -> Iterator[ExecutionTrace]:
    """Every way in which parties may be away in some rounds, for good or not."""
    shape = (protocol.rounds, protocol.parties)
    for pattern in itertools.product((True, False), repeat=shape[0] * shape[1]):
        yield ExecutionTrace(np.vstack([np.ones((1, shape[1]), dtype=np.bool_), np.array(pattern).reshape(shape)]))


def all_openings(protocol: Consensus) -> Iterator[ExecutionTrace]:
    """Every way in which first messages arrive, arrive without their sender's knowledge, or do not; everybody stays."""
    links, schedule = protocol.links, protocol.draw_schedule(protocol.parties, Seed.public("any"))
    everyone = ExecutionTrace.everyone(protocol.rounds, protocol.parties)
    for fates in itertools.product((ARRIVES, UNNOTICED, IS_LOST), repeat=len(links)):
        lost, settled = np.zeros(schedule.neighbours.shape, dtype=np.bool_), []
        for link, fate in enumerate(fates):
            sender, slot = int(links.sender[link]), int(links.slot[link])
            lost[0, sender, slot] = fate == IS_LOST
            if fate == UNNOTICED:
                settled.append((1, sender, int(links.receiver[link]), NEVER))
        yield replace(everyone, lost=lost, settled=np.array(settled, dtype=np.int64).reshape(-1, 4))


def above_promise(execution: Execution, transcript: Transcript, size: int) -> float:
    """The most by which a coalition of ``size`` learns more of a party than it would if every message arrived, in nats."""
    protocol, most = execution.protocol, -np.inf
    assert isinstance(protocol, Consensus)
    for corrupt in itertools.combinations(range(execution.parties), size):
        found = information_matrix(transcript, Adversary.collusion(corrupt), "dense").mutual_information(PRIOR)
        promised = mutual_information(protocol, corrupt, PRIOR)
        # Of a party whose neighbours are all corrupt everything may be told.
        bounded = np.isfinite(promised)
        most = max(most, float((found[bounded] - promised[bounded]).max(initial=-np.inf)))
    return most


def excesses(protocol: Consensus, traces: Iterator[ExecutionTrace]) -> Iterator[float]:
    """Of one colluder, by what the machines send."""
    for trace in traces:
        execution = executed(protocol, trace)
        yield above_promise(execution, execution.traced_transcript(), 1)


MODES = ["unicast", pytest.param("broadcast", marks=pytest.mark.slow)]


@pytest.mark.parametrize("mode", MODES)
def test_whoever_is_away_when_tells_no_more_than_promised(mode: str) -> None:
    assert max(excesses(consensus(3, TRIANGLE, mode=mode), all_absences(consensus(3, TRIANGLE)))) <= ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_whichever_first_messages_arrive_they_tell_no_more_than_promised(mode: str) -> None:
    """Also where one end of an edge takes it for open and the other does not."""
    assert max(excesses(consensus(3, TRIANGLE, mode=mode), all_openings(consensus(3, TRIANGLE)))) <= ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("traces", [all_absences, all_openings])
def test_the_same_of_a_ring_of_four(traces: Any) -> None:
    assert max(excesses(consensus(4, RING), traces(consensus(4, RING)))) <= ROUNDING


@st.composite
def held(draw: st.DrawFn) -> Execution:
    """Any linear execution of up to six parties in which all edges have to be open."""
    execution = draw(executions("consensus", max_parties=6))
    protocol = execution.protocol
    assert isinstance(protocol, Consensus)
    changed: dict[str, Any] = {"open_edges": "all", "patience": 99, "local_noise": "none", "sigma_local": 0.0}
    return replace(execution, protocol=replace(protocol.quantised(None), **changed))


@settings(max_examples=examples(80), deadline=None)
@given(held(), st.integers(1, 3))
def test_no_execution_tells_more_than_its_graph_promises(execution: Execution, size: int) -> None:
    if size >= execution.parties:
        return
    for transcript in (execution.transcript(), execution.traced_transcript()):
        assert above_promise(execution, transcript, size) <= ROUNDING


@settings(max_examples=examples(60), deadline=None)
@given(held(), st.integers(0, 3))
def test_the_figure_as_happened_is_at_most_the_one_a_priori(execution: Execution, size: int) -> None:
    """In whole numbers, as answers and receipts state it, of single coalitions and of all; of epsilon, too."""
    if size >= execution.parties:
        return
    protocol = execution.protocol
    assert isinstance(protocol, Consensus)
    fields: dict[str, Any] = {"step": STEP, "dimension": 1, "noise": NoiseNumbers.DISCRETE}
    silent = replace(execution, protocol=replace(protocol, **fields))
    promised = silent.a_priori(size, 1e-6).nats
    conversion = silent.terms(1e-6).conversion
    most = conversion.nats_against_any(size, silent.sensitivity / 2)
    assert most is not None
    assert most <= promised * (1 + 1e-9)
    for corrupt in itertools.islice(itertools.combinations(range(execution.parties), size), 4):
        told = silent.privacy(1e-6).against(corrupt).nats(silent.sensitivity / 2)
        assert told.max(initial=0.0) <= promised * (1 + 1e-6)
    noisy = replace(silent, protocol=replace(protocol, **fields, local_noise="gaussian", sigma_local=1.5))
    assert noisy.privacy(1e-6).coalitions(size).mu.max(initial=0.0) <= noisy.a_priori(size, 1e-6).mu * (1 + 1e-6)


def test_a_party_that_tells_before_its_edges_are_open_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine itself: without the edges that did not open it tells of its value with less noise."""
    monkeypatch.setattr("quietmean.protocols.consensus.party.holds_back", lambda parameters, edges: False)
    assert any(more > 0.1 for more in excesses(consensus(3, TRIANGLE), all_openings(consensus(3, TRIANGLE))))
    assert any(more > 0.1 for more in excesses(consensus(3, TRIANGLE), all_absences(consensus(3, TRIANGLE))))


def test_edges_that_are_given_up_later_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consensus, "keeps_edges", True)
    protocol = consensus(3, TRIANGLE, patience=1)
    assert any(more > 0.1 for more in excesses(protocol, all_absences(protocol)))


def test_who_holds_back_has_no_result_and_does_not_count() -> None:
    """Party 1 does not get the first message of party 0: it sends nothing more, and what 0 and 2 share with it stays."""
    protocol = consensus(4, RING, iterations=60, patience=61)
    schedule = protocol.draw_schedule(4, Seed.public("any"))
    lost = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
    lost[0, 0, 0] = True
    execution = executed(protocol, replace(ExecutionTrace.everyone(protocol.rounds, 4), lost=lost))
    # Party 0 does not know either that its message arrived: of four only 2 and 3 tell anything.
    assert Deliveries.of(protocol, schedule, execution.trace).tells().tolist() == [False, False, True, True]
    assert execution.contributors().tolist() == [False, False, True, True]
