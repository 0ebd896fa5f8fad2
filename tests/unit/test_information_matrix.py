"""The information matrix as a value: against explicit inverses and determinants of small dense Gaussians."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.arrays import Matrix
from quietmean.privacy import Adversary, InformationMatrix, information_matrix
from quietmean.randomness.insecure import insecure_seed
from quietmean.testing import example_execution
from quietmean.testing.privacy import certificate_of
from quietmean.transcript import Transcript, TranscriptBuilder

HONEST = (0, 2, 3, 7)


def positive(number: int, size: int = 4) -> Matrix:
    factor = np.random.default_rng(number).normal(size=(size, size))
    return factor @ factor.T + 0.1 * np.eye(size)


def information(finite: Matrix, disclosed: Matrix | None = None) -> InformationMatrix:
    size = len(finite)
    return InformationMatrix.from_parts(HONEST[:size], finite, np.zeros((0, size)) if disclosed is None else disclosed)


def random_transcript(number: int, parties: int = 4, messages: int = 7) -> Transcript:
    """Messages of random linear combinations, the last three released, all noise unknown to others."""
    numbers = np.random.default_rng(number)
    builder = TranscriptBuilder(parties)
    for row in range(messages):
        noise = builder.add_noise([row % parties], float(numbers.uniform(0.5, 2.0)), "own")
        earlier = {before: float(numbers.normal()) for before in range(row)}
        data = {party: float(numbers.normal()) for party in range(parties)}
        builder.add_message(
            row % parties, row + 1, messages=earlier, values=data, noise={noise: 1.0}, released=row >= messages - 3
        )
    return builder.build()


def joint(transcript: Transcript) -> tuple[Matrix, Matrix]:
    """B_v and S_v of the released messages, from the definition."""
    inverse = np.linalg.inv(np.eye(transcript.messages) - transcript.dependence.toarray())
    seen = transcript.released
    mixing = (inverse @ transcript.noise.toarray() * transcript.noise_scale)[seen]
    return (inverse @ transcript.values.toarray())[seen], mixing @ mixing.T


@pytest.mark.parametrize("method", ["sparse", "dense"])
@pytest.mark.parametrize("number", range(10))
def test_fisher_information_of_small_gaussians(number: int, method: str) -> None:
    transcript = random_transcript(number)
    shifts, covariance = joint(transcript)
    found = information_matrix(transcript, Adversary(), method)
    np.testing.assert_allclose(found.finite, shifts.T @ np.linalg.solve(covariance, shifts), rtol=1e-8, atol=1e-9)
    assert found.disclosed.shape[0] == 0


@pytest.mark.parametrize("number", range(5))
def test_mutual_information_by_determinants(number: int) -> None:
    """I(x_i; view) = 1/2 ln(det cov(view) / det cov(view | x_i))."""
    transcript, prior = random_transcript(number), 1.7
    shifts, covariance = joint(transcript)
    total = covariance + prior**2 * shifts @ shifts.T
    found = information_matrix(transcript, Adversary(), "dense").mutual_information(prior)
    for party in range(transcript.parties):
        own = shifts[:, [party]]
        conditional = total - prior**2 * own @ own.T
        expected = 0.5 * (np.linalg.slogdet(total)[1] - np.linalg.slogdet(conditional)[1])
        assert found[party] == pytest.approx(expected, rel=1e-9)


def test_mutual_information_of_disclosed_values_is_infinite() -> None:
    alone = information(np.diag([0.0, 1.0]), np.array([[1.0, 0.0]])).mutual_information(2.0)
    assert alone[0] == math.inf
    assert alone[1] == pytest.approx(0.5 * math.log(1 + 4.0))


def test_mutual_information_of_a_disclosed_sum() -> None:
    """x_0 given x_0 + x_1: half the prior variance is left."""
    half = math.sqrt(0.5)
    found = information(np.zeros((2, 2)), np.array([[half, half]])).mutual_information(3.0)
    np.testing.assert_allclose(found, 0.5 * math.log(2.0), rtol=1e-12)


@pytest.mark.parametrize("variance", [1e-3, 1.0, 100.0])
def test_independent_noise_is_added_to_the_inverse(variance: float) -> None:
    matrix = positive(1)
    found = information(matrix).with_independent_noise(variance)
    np.testing.assert_allclose(found.finite, np.linalg.inv(variance * np.eye(4) + np.linalg.inv(matrix)), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(information(matrix).with_independent_noise(0.0).finite, matrix, rtol=1e-12, atol=1e-13)


def test_independent_noise_hides_what_was_disclosed() -> None:
    found = information(np.diag([0.0, 4.0]), np.array([[1.0, 0.0]])).with_independent_noise(0.5)
    np.testing.assert_allclose(found.finite, np.diag([2.0, 1 / 0.75]), rtol=1e-12)
    assert found.disclosed.shape == (0, 2)
    assert np.isfinite(found.mu(1.0)).all()


def test_scaling() -> None:
    matrix = positive(2)
    np.testing.assert_allclose(information(matrix).scaled(0.25).finite, 0.25 * matrix, rtol=1e-12, atol=1e-13)
    disclosing = information(np.diag([0.0, 1.0]), np.array([[1.0, 0.0]])).scaled(0.25)
    np.testing.assert_allclose(disclosing.diagonal, [math.inf, 0.25])


def test_parts_come_back() -> None:
    basis = np.linalg.qr(np.random.default_rng(6).normal(size=(4, 4)))[0]
    finite = basis[:, :2] @ np.diag([3.0, 1e-3]) @ basis[:, :2].T
    found = information(finite, basis[:, 3:].T)
    np.testing.assert_allclose(found.finite, finite, atol=1e-12)
    np.testing.assert_allclose(np.abs(found.disclosed @ basis), [[0.0, 0.0, 0.0, 1.0]], atol=1e-12)


@pytest.mark.parametrize("wanted", [0.0, 0.3])
def test_noise_is_taken_away_again(wanted: float) -> None:
    matrix, extra = positive(3), 0.7
    noisy = np.linalg.inv(extra * np.eye(4) + np.linalg.inv(matrix))
    found = InformationMatrix.of_noisy_values(HONEST, noisy, extra).with_independent_noise(wanted)
    np.testing.assert_allclose(found.finite, np.linalg.inv(wanted * np.eye(4) + np.linalg.inv(matrix)), rtol=1e-9, atol=1e-12)
    assert found.disclosed.shape[0] == 0


def test_what_only_extra_noise_hid_is_disclosed() -> None:
    basis = np.linalg.qr(np.random.default_rng(4).normal(size=(4, 4)))[0]
    extra = 0.7
    noisy = basis @ np.diag([1 / extra, 0.5, 0.2, 0.0]) @ basis.T
    found = InformationMatrix.of_noisy_values(HONEST, noisy, extra)
    np.testing.assert_allclose(np.abs(found.disclosed @ basis), [[1.0, 0.0, 0.0, 0.0]], atol=1e-12)
    expected = basis @ np.diag([0.0, 1 / (2 - extra), 1 / (5 - extra), 0.0]) @ basis.T
    np.testing.assert_allclose(found.finite, expected, rtol=1e-9, atol=1e-12)
    hidden = found.with_independent_noise(0.25)
    assert hidden.disclosed.shape[0] == 0
    np.testing.assert_allclose(np.linalg.eigvalsh(hidden.finite)[-1], 4.0, rtol=1e-9)


def test_shift_and_mu() -> None:
    matrix = positive(5)
    change = np.array([1.0, -2.0, 0.5, 0.0])
    assert information(matrix).shift(change) == pytest.approx(math.sqrt(change @ matrix @ change))
    np.testing.assert_allclose(information(matrix).mu(2.0), 2.0 * np.sqrt(np.diag(matrix)))
    half = math.sqrt(0.5)
    summed = information(np.array([[0.5, -0.5], [-0.5, 0.5]]), np.array([[half, half]]))
    assert summed.shift(np.array([1.0, 0.0])) == math.inf
    assert summed.shift(np.array([1.0, -1.0])) == pytest.approx(math.sqrt(2.0))
    assert (summed.mu(1.0) == math.inf).all()


def test_dense_shows_infinite_entries() -> None:
    matrix = positive(5)
    np.testing.assert_allclose(information(matrix).dense(), matrix, rtol=1e-12, atol=1e-13)
    half = math.sqrt(0.5)
    disclosing = information(np.diag([0.0, 0.0, 3.0]), np.array([[half, half, 0.0]]))
    np.testing.assert_allclose(disclosing.dense(), [[math.inf, math.inf, 0], [math.inf, math.inf, 0], [0, 0, 3.0]], atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0, 3, 0, 0]], ["the value of party 2 is disclosed"]),
        ([[1, 1, 0, 1]], ["the sum of parties 0, 2, 7 is disclosed"]),
        ([[1, 1, 0, 1], [1, 1, 0, 0]], ["the sum of parties 0, 2 is disclosed", "the value of party 7 is disclosed"]),
        ([[2, 0, 0, 1]], ["the combination x_0 + 0.5 x_7 is disclosed"]),
        ([[1, -1, 0, 0]], ["the combination x_0 - x_2 is disclosed"]),
        ([], []),
    ],
)
def test_disclosures_in_words(rows: list[list[float]], expected: list[str]) -> None:
    basis: NDArray[np.float64] = np.linalg.qr(np.array(rows, dtype=float).T)[0].T if rows else np.zeros((0, 4))
    assert sorted(information(np.zeros((4, 4)), basis).disclosures()) == sorted(expected)


def test_certificate_document() -> None:
    execution = example_execution("inca", 6, rounds=4, sigma_star=0.5, sigma_delta=2.0)
    certificate = certificate_of(execution.transcript(), Adversary.collusion([1]), 2.0)
    document = certificate.to_json(epsilon=1.0, prior_sd=1.0, matrix=True)
    assert document["honest"] == [0, 2, 3, 4, 5]
    assert document["corrupt"] == [1]
    assert document["max_epsilon"] == max(document["epsilon"])
    assert (document["mu_upper"] >= document["mu"]).all()
    assert document["disclosures"] == []
    np.testing.assert_allclose(2.0 * np.sqrt(np.diag(document["information_matrix"])), document["mu"])
    assert (document["mutual_information_nats"] > 0).all()
    everybody = certificate_of(execution.transcript(), Adversary.collusion(range(6)), 2.0)
    assert everybody.honest == ()
    assert everybody.max_mu == 0.0


def test_random_eavesdropper_takes_its_fraction() -> None:
    transcript = example_execution("inca", 50, rounds=6, sigma_star=1.0, sigma_delta=1.0).transcript()
    seen = Adversary.random_eavesdropper(0.4, transcript, insecure_seed(1)).observed
    assert {time for _, time in seen} == set(range(6))
    assert 0.25 < len(seen) / 300 < 0.55
    assert not Adversary.random_eavesdropper(0.0, transcript, insecure_seed(1)).observed
    assert len(Adversary.random_eavesdropper(1.0, transcript, insecure_seed(1)).observed) == 300
