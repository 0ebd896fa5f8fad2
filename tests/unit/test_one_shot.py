"""Execution files of noise without machines: correlated and pairwise, against dense formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import quietmean as qm
from quietmean.cli.main import main
from quietmean.privacy import Adversary
from quietmean.protocols.execution import Execution, read_execution
from quietmean.protocols.execution_files import CorrelatedNoise, PairwiseNoise
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed
from quietmean.testing.examples import certificate_of
from support.command_lines import fails
from support.effort import examples
from support.refusals import refused

Matrix = NDArray[np.float64]
PAIRWISE: dict[str, Any] = {
    "protocol": "pairwise",
    "parties": 5,
    "edges": [[0, 1, 2.0], [2, 1, 1.5], [2, 3, 0.7], [3, 4, 1.0], [4, 0, 3.0]],
    "sigma_own": [0.5, 0.6, 0.7, 0.8, 0.9],
    "sensitivity": 2.0,
}


def random_matrix(rows: int, columns: int, number: int) -> Matrix:
    return BitStream(insecure_seed(number, "matrix")).standard_normal((rows, columns))


def write(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path


@settings(max_examples=examples(60))
@given(st.integers(1, 9), st.data(), st.integers(0, 2**16))
def test_correlated_noise_is_the_conditional_covariance(parties: int, data: st.DataObject, number: int) -> None:
    """Lambda = (S_HH - S_HC S_CC^-1 S_CH)^-1: who colludes knows its own value and so its own noise."""
    factor = random_matrix(parties, parties, number)
    covariance = factor @ factor.T + 0.05 * np.eye(parties)
    corrupt = data.draw(st.permutations(range(parties)))[: data.draw(st.integers(0, parties - 1))]
    honest = [party for party in range(parties) if party not in corrupt]
    across = covariance[np.ix_(honest, corrupt)]
    inside = covariance[np.ix_(honest, honest)]
    if corrupt:
        inside = inside - across @ np.linalg.solve(covariance[np.ix_(corrupt, corrupt)], across.T)
    document = {"protocol": "correlated", "parties": parties, "covariance": covariance.tolist(), "sensitivity": 0.5}
    certificate = qm.certify(read_execution(document), corrupt=corrupt)
    np.testing.assert_allclose(certificate.information.dense(), np.linalg.inv(inside), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(certificate.mu, 0.5 * np.sqrt(np.linalg.inv(inside).diagonal()), rtol=1e-6)


def test_singular_covariances_disclose_combinations() -> None:
    sums_to_zero = 3 * np.eye(3) - np.ones((3, 3))
    noise = CorrelatedNoise(sums_to_zero, 1.0)
    certificate = certificate_of(noise.transcript(), Adversary(), 1.0)
    assert np.isinf(certificate.mu).all()
    assert certificate.information.disclosures() == ["the sum of parties 0, 1, 2 is disclosed"]
    # Of two equal noises the difference of the values is disclosed; the third value is hidden by variance 4.
    twins = CorrelatedNoise(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 4.0]]), 1.0)
    certificate = certificate_of(twins.transcript(), Adversary(), 1.0)
    assert certificate.information.disclosures() == ["the combination x_0 - x_1 is disclosed"]
    assert certificate.mu[2] == pytest.approx(0.5)
    # One of them colludes: its own noise tells the other's.
    certificate = certificate_of(twins.transcript(), Adversary.collusion({0}), 1.0)
    assert np.isinf(certificate.mu[0])
    nothing = CorrelatedNoise(np.zeros((2, 2)), 1.0)
    assert np.isinf(certificate_of(nothing.transcript(), Adversary(), 1.0).mu).all()


@settings(max_examples=examples(60))
@given(st.integers(2, 9), st.data(), st.integers(0, 2**16))
def test_pairwise_noise_is_a_laplacian(parties: int, data: st.DataObject, number: int) -> None:
    """S = diag(own^2) + sum over edges that no colluder knows; of absent parties only the noise in others' messages is left."""
    stream = BitStream(insecure_seed(number, "pairwise"))
    edges = [
        [one, other, float(0.2 + 2 * stream.uniform(1)[0])]
        for one in range(parties)
        for other in range(one)
        if stream.uniform(1)[0] < 0.7
    ]
    own = 0.3 + stream.uniform(parties)
    responded = [bool(bit) for bit in data.draw(st.lists(st.booleans(), min_size=parties, max_size=parties))]
    corrupt = set(data.draw(st.permutations(range(parties)))[: data.draw(st.integers(0, parties - 1))])
    document = {
        "protocol": "pairwise",
        "parties": parties,
        "edges": edges,
        "sigma_own": own.tolist(),
        "sensitivity": 2.0,
        "responded": responded,
    }
    certificate = qm.certify(read_execution(document), corrupt=corrupt)
    covariance = np.diag(own**2)
    for one, other, sigma in edges:
        if not {one, other} & corrupt:
            sign = np.zeros(parties)
            sign[[int(one), int(other)]] = 1.0, -1.0
            covariance += sigma**2 * np.outer(sign, sign)
    seen = [party for party in range(parties) if responded[party] and party not in corrupt]
    expected = dict.fromkeys((party for party in range(parties) if party not in corrupt), 0.0)
    if seen:
        expected |= dict(zip(seen, np.linalg.inv(covariance[np.ix_(seen, seen)]).diagonal().tolist(), strict=True))
    np.testing.assert_allclose(certificate.mu**2, 4.0 * np.array(list(expected.values())), rtol=1e-6, atol=1e-13)


def test_the_two_kinds_agree_where_nobody_colludes() -> None:
    pairwise = PairwiseNoise.parse(PAIRWISE)
    _, noise = pairwise.transcript().eliminated()
    correlated = CorrelatedNoise(noise @ noise.T, 2.0)
    both = [certificate_of(kind.transcript(), Adversary(), 2.0).mu for kind in (pairwise, correlated)]
    np.testing.assert_allclose(both[0], both[1], rtol=1e-7)
    # A colluder knows the pairwise terms, which a covariance cannot say.
    known = [certificate_of(kind.transcript(), Adversary.collusion({1}), 2.0).max_mu for kind in (pairwise, correlated)]
    assert known[0] > known[1]
    assert pairwise.privacy(1e-6).trusted == frozenset()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"protocol": "correlated", "parties": 2}, "'covariance' is missing"),
        ({"protocol": "correlated", "parties": 0, "covariance": []}, "at least 1 party"),
        ({"protocol": "correlated", "parties": 2, "covariance": [[1.0, 0.0]]}, "2 rows of 2 numbers"),
        ({"protocol": "correlated", "parties": 1, "covariance": [["x"]]}, "not as it should be"),
        ({"protocol": "correlated", "parties": 2, "covariance": [[1.0, 2.0], [0.0, 1.0]]}, "not symmetric"),
        ({"protocol": "correlated", "parties": 2, "covariance": [[1.0, 2.0], [2.0, 1.0]]}, "covariance has eigenvalue -1:"),
        ({"protocol": "correlated", "parties": 1, "covariance": [[1.0]], "sensitivity": 0}, "sensitivity is 0"),
        (PAIRWISE | {"edges": [[0, 9, 1.0]]}, r"edge \[0, 9, 1\] does not join"),
        (PAIRWISE | {"edges": [[0, 0, 1.0]]}, "does not join two"),
        (PAIRWISE | {"edges": [[0, 1, -1.0]]}, "no standard deviation"),
        (PAIRWISE | {"edges": [[0, 1]]}, "'edges' is not as it should be"),
        (PAIRWISE | {"sigma_own": [1.0]}, "sigma_own has 1 entries with 5 parties"),
        (PAIRWISE | {"sigma_own": [1.0, 1.0, 1.0, 1.0, -1.0]}, "sigma_own of -1 is not a standard deviation"),
        (PAIRWISE | {"responded": [True]}, "responded has 1 entries"),
        ({"protocol": "nothing", "parties": 2}, "'nothing' is unknown"),
        ({"parties": 2}, "'protocol' is missing"),
    ],
)
def test_wrong_files_are_refused_in_one_sentence(document: dict[str, Any], message: str) -> None:
    refused(message, read_execution, document)


def test_files_are_loaded_and_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "pairwise.json", PAIRWISE)
    loaded = qm.Execution.load(path)
    assert isinstance(loaded, PairwiseNoise)
    expected = qm.certify(loaded, corrupt={1})
    main(["verify", "receipt", str(path), "--corrupt", "1", "--delta", "1e-5", "--matrix", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["honest"] == [0, 2, 3, 4]
    np.testing.assert_allclose(document["mu"], expected.mu)
    assert "diagnostics" not in document
    main(["verify", "receipt", str(path), "--colluding", "2", "--json"])
    assert json.loads(capsys.readouterr().out)["certificates"]["coalitions"]["coalitions"] == 10
    fails(
        ["verify", "receipt", str(path), "--corrupt", "1", "--report", str(tmp_path / "page.html")], capsys, "Leave --report out"
    )


def test_protocols_are_still_read() -> None:
    execution = read_execution({"protocol": "local-dp", "parties": 2, "sigma": 1.0})
    assert isinstance(execution, Execution)
    assert execution.privacy(1e-6).trusted == frozenset()
    central = read_execution({"protocol": "central-dp", "parties": 2, "sigma": 1.0, "neighbours": [[[], [0]]]})
    assert central.privacy(1e-6).trusted == {0}
