"""The account of consensus: closed form, declared and traced transcripts agree on random graphs, histories and coalitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.graphs import ExecutionTrace
from quietmean.privacy import Adversary, information_matrix
from quietmean.privacy.information.matrix import InformationMatrix
from quietmean.protocols.consensus import Consensus
from quietmean.protocols.consensus.leakage import mutual_information
from quietmean.protocols.consensus.transcript import short_transcript
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream, Seed
from quietmean.testing.strategies import executions
from quietmean.transcript import Transcript
from support.effort import examples


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
