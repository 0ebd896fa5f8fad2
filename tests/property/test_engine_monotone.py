"""Whoever learns more, or hears it through less noise, never knows less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.privacy import Adversary, Certificate, information_matrix
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.testing.privacy import certificate_of
from quietmean.testing.strategies import executions, values
from quietmean.transcript import Transcript
from support.effort import examples

# Rounding, relative; on top of it, what is less than this is nothing next to a mu of local DP.
SLACK = 1e-7
EXECUTIONS = executions("inca")


def levels_of(execution: Execution) -> IncA:
    """The protocol, which has the noise levels."""
    assert isinstance(execution.protocol, IncA)
    return execution.protocol


def observable(transcript: Transcript) -> list[tuple[int, int]]:
    """All (party, round) with a message that is sent."""
    sent = np.nonzero((transcript.message_round > 0) & ~transcript.released)[0]
    pairs = zip(transcript.sender[sent].tolist(), (transcript.message_round[sent] - 1).tolist(), strict=True)
    return sorted(pairs)


@st.composite
def adversaries(draw: st.DrawFn, transcript: Transcript) -> Adversary:
    parties = st.integers(0, transcript.parties - 1)
    corrupt = draw(st.frozensets(parties, max_size=transcript.parties - 1))
    return Adversary(corrupt, draw(st.frozensets(st.sampled_from(observable(transcript)), max_size=6)))


def assert_no_less(more: Certificate, less: Certificate, floor: float) -> None:
    mine = dict(zip(more.honest, more.mu, strict=True))
    for party, mu in zip(less.honest, less.mu, strict=True):
        if party in mine:
            assert mine[party] >= mu * (1 - SLACK) - floor, f"party {party}: {mine[party]} after {mu}"


def floor_of(execution: Execution) -> float:
    return 1e-6 / levels_of(execution).sigma_star


def scales(execution: Execution, star: float = 1.0, cancelled: float = 1.0) -> dict[str, float]:
    """Times as much of the noise that stays, and of all that is cancelled."""
    levels = levels_of(execution)
    guard = float(getattr(levels, "sigma_guard", 0.0))
    return {"star": star * levels.sigma_star, "delta": cancelled * levels.sigma_delta, "guard": cancelled * guard}


@given(st.data())
def test_one_more_message_never_lowers_mu(data: st.DataObject) -> None:
    execution = data.draw(EXECUTIONS)
    transcript = execution.transcript()
    adversary = data.draw(adversaries(transcript))
    message = data.draw(st.sampled_from(observable(transcript)))
    more = replace(adversary, observed=adversary.observed | {message})
    assert_no_less(certificate_of(transcript, more, 1.0), certificate_of(transcript, adversary, 1.0), floor_of(execution))


@given(st.data())
def test_one_more_colluder_never_lowers_mu(data: st.DataObject) -> None:
    execution = data.draw(EXECUTIONS)
    transcript = execution.transcript()
    adversary = data.draw(adversaries(transcript))
    traitor = data.draw(st.sampled_from(adversary.honest(execution.parties)))
    more = replace(adversary, corrupt=adversary.corrupt | {traitor})
    assert_no_less(certificate_of(transcript, more, 1.0), certificate_of(transcript, adversary, 1.0), floor_of(execution))


@given(st.data(), st.floats(0.2, 1.0), st.floats(0.2, 1.0))
def test_less_noise_never_lowers_mu(data: st.DataObject, star: float, delta: float) -> None:
    execution = data.draw(EXECUTIONS)
    transcript = execution.transcript()
    adversary = data.draw(adversaries(transcript))
    quieter = transcript.with_noise_scales(scales(execution, star, delta))
    assert_no_less(certificate_of(quieter, adversary, 1.0), certificate_of(transcript, adversary, 1.0), floor_of(execution))


@given(st.data(), st.floats(0.1, 10.0))
def test_noise_and_values_in_other_units_change_nothing(data: st.DataObject, unit: float) -> None:
    execution = data.draw(EXECUTIONS)
    transcript, levels = execution.transcript(), levels_of(execution)
    adversary = data.draw(adversaries(transcript))
    scaled = transcript.with_noise_scales(scales(execution, unit, unit))
    one, other = certificate_of(transcript, adversary, 1.0), certificate_of(scaled, adversary, unit)
    np.testing.assert_allclose(one.mu, other.mu, rtol=1e-7, atol=floor_of(execution))
    np.testing.assert_allclose(
        information_matrix(scaled, adversary).scaled(unit**2).finite,
        one.information.finite,
        rtol=1e-6,
        atol=1e-6 / levels.sigma_star**2,
    )


@settings(max_examples=examples(150))
@given(st.data(), st.booleans())
def test_sparse_and_dense_agree(data: st.DataObject, noiseless: bool) -> None:
    execution = data.draw(EXECUTIONS)
    transcript = execution.transcript()
    if noiseless:
        transcript = transcript.with_noise_scales(scales(execution, star=0.0))
    adversary = data.draw(adversaries(transcript))
    sparse, dense = (certificate_of(transcript, adversary, 1.0, method) for method in ("sparse", "dense"))
    assert sparse.information.disclosed.shape == dense.information.disclosed.shape
    np.testing.assert_allclose(sparse.mu, dense.mu, rtol=1e-6, atol=floor_of(execution))
    assert (sparse.mu_upper >= dense.mu * (1 - 1e-10) - floor_of(execution)).all()


@given(st.data())
def test_a_change_of_all_honest_values_shifts_a_release_as_the_matrix_says(data: st.DataObject) -> None:
    """v' Lambda v of an outsider, from the released rows alone, by least squares."""
    execution = data.draw(executions("inca", max_parties=5))
    transcript = execution.transcript()
    information = information_matrix(transcript, Adversary())
    change = data.draw(values(execution.parties, max_dimension=1))[:, 0]
    shifts, noise = (matrix[transcript.released] for matrix in transcript.eliminated())
    expected = float(np.linalg.norm(np.linalg.lstsq(noise, shifts @ change, rcond=1e-11)[0])) if len(noise) else 0.0
    np.testing.assert_allclose(information.shift(change), expected, rtol=1e-6, atol=100 * floor_of(execution))
