"""Information matrices and certificates against coalitions, against explicit computations."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from quietmean.core.arrays import Matrix
from quietmean.core.bounds import CoalitionBound
from quietmean.core.party import NoiseGroup
from quietmean.graphs import churn
from quietmean.privacy import Adversary, InformationMatrix, PrivacyAnalysis, information_matrix
from quietmean.privacy.coalitions import exceed_bound
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.randomness.insecure import insecure_seed
from quietmean.testing import example_execution
from quietmean.testing.examples import certificate_of
from quietmean.transcript import Transcript, TranscriptBuilder
from support.refusals import raised, refused

# -- The information matrix as a value: against explicit inverses and determinants of small dense Gaussians.
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


# -- Coalition certificates: exhaustive, bounded, and searched.
def transcript(number: int = 0, parties: int = 9, permanent: float = 0.12) -> Transcript:
    return example_execution(
        "inca", parties, number, permanent=permanent, rounds=6, schedule="uniform", sigma_star=0.7, sigma_delta=2.0
    ).transcript()


def analysis(example: Transcript, sensitivity: float, trusted: frozenset[int] = frozenset()) -> PrivacyAnalysis:
    return PrivacyAnalysis.of_gaussian(example, sensitivity, 1e-6, trusted=trusted)


@pytest.mark.parametrize("parties", [9, 12])
def test_all_coalitions_against_one_by_one(parties: int) -> None:
    """A few are solved one by one, more of them together."""
    example = transcript(parties=parties)
    certificate = analysis(example, 1.5).coalitions(2)
    expected = np.zeros(parties)
    for coalition in itertools.combinations(range(parties), 2):
        one = certificate_of(example, Adversary.collusion(coalition), 1.5)
        for party, mu in zip(one.honest, one.mu, strict=True):
            expected[party] = max(expected[party], mu)
    np.testing.assert_allclose(certificate.mu, expected, rtol=1e-6)
    assert (certificate.mu >= expected).all()
    assert certificate.exhaustive
    assert certificate.tried == math.comb(parties, 2)
    assert certificate.exceed_probability == 0
    worst = certificate_of(example, Adversary.collusion(certificate.worst), 1.5)
    assert worst.max_mu == pytest.approx(expected.max(), rel=1e-6)


def test_beside_a_bound_stands_the_worst_that_was_tried() -> None:
    example = transcript()
    certificate = analysis(example, 1.0).coalitions(4, limit=50)
    assert not certificate.exhaustive
    assert certificate.exceed_probability == 0
    assert "any coalition of 4 parties (a bound" in certificate.describe()
    every = analysis(example, 1.0).coalitions(4).mu
    assert (certificate.mu >= every * (1 - 1e-9)).all()
    found = certificate.found
    assert found is not None
    assert 50 < found.tried == certificate.tried <= 100  # a search, and as many at random
    assert (found.mu <= every * (1 + 1e-9)).all()
    assert found.exceed_probability == 1.0
    assert certificate.at_least == found.max_epsilon <= certificate.max_epsilon


@pytest.mark.parametrize(("protocol", "rounds"), [("inca", 6), ("gopa", None)])
def test_no_bound_is_computed_where_every_coalition_is_tried(protocol: str, rounds: int | None) -> None:
    """IncA's takes seconds for 20 parties, and a plan asks about dozens of histories."""

    def never(size: int) -> CoalitionBound:
        raise AssertionError("a bound was computed")

    fields = {} if rounds is None else {"rounds": rounds}
    privacy = example_execution(protocol, 8, sigma_star=0.7, sigma_delta=2.0, **fields).privacy(1e-6)
    assert replace(privacy, bound=never).coalitions(2).exhaustive
    raised(AssertionError, "a bound was computed", replace(privacy, bound=never).coalitions, 2, limit=5)


def test_clopper_pearson_is_exact() -> None:
    for draws, exceeding in ((20, 0), (100, 3), (1000, 1)):
        bound = exceed_bound(draws, exceeding)
        assert binom.cdf(exceeding, draws, bound) == pytest.approx(0.05, rel=1e-9)
    assert exceed_bound(5, 5) == 1.0


def test_a_bound_for_the_best_of_many_holds_for_each() -> None:
    """20 events of probability p, the one that was seen least in 30 draws: all bounds together fail at most one time in 20."""
    generator, trials = np.random.default_rng(7), 2000
    for probability in (0.05, 0.1, 0.2):
        least = generator.binomial(30, probability, size=(trials, 20)).min(axis=1)
        naive = np.mean([exceed_bound(30, int(seen)) < probability for seen in least])
        failed = np.mean([exceed_bound(30, int(seen), choices=20) < probability for seen in least])
        print(f"p = {probability}: picked bounds fail {failed:.3f} of the time, {naive:.3f} without the correction")
        # Five standard errors above one in twenty.
        assert failed <= 0.05 + 5 * np.sqrt(0.05 * 0.95 / trials)
        # Picking is what has to be paid for.
        assert probability == 0.05 or naive > 0.2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(4))
def test_the_search_finds_nearly_the_worst(number: int) -> None:
    example = transcript(number, 12)
    every = float(analysis(example, 1.0).coalitions(3).mu.max())
    found = analysis(example, 1.0).search(3, limit=120)
    assert found.tried <= 120
    assert 0.97 * every <= float(found.mu.max()) <= every * (1 + 1e-9)
    assert found.exceed_probability == 1.0
    assert "a worse one may exist" in found.describe()
    assert found.kind == "worst coalition found"


def test_trusted_parties_never_collude() -> None:
    example = example_execution("central-dp", 6, sigma=1.0).transcript()
    trusted = frozenset({0})
    certificate = analysis(example, 1.0, trusted).coalitions(2)
    assert np.isfinite(certificate.mu).all()
    assert "party 0 trusted never to collude" in certificate.describe()
    assert np.isinf(analysis(example, 1.0).coalitions(2).mu).any()
    found = analysis(example, 1.0, trusted).search(2)
    assert not found.worst & trusted


def test_everybody_else_leaves_the_own_noise() -> None:
    np.testing.assert_allclose(analysis(transcript(permanent=0.0), 1.0).single_honest(), 1 / 0.7, rtol=1e-6)
    # A party that left early took part of its value along.
    left = analysis(transcript(), 1.0).single_honest()
    assert (left <= 1 / 0.7 * (1 + 1e-6)).all()
    assert left.min() < 0.5


def test_impossible_sizes() -> None:
    example = transcript()
    for size in (-1, 9):
        refused("colluding", analysis(example, 1.0).coalitions, size)


# -- Of a protocol without noise every certificate is a number: 0 of whoever is not seen at all, else infinite.
def gossip(parties: int, seed: int) -> Execution:
    execution = example_execution("gossip", parties, seed, rounds=14)
    return execution.with_trace(churn(Seed.public("leaving", seed), 14, parties, permanent=0.2 * (seed % 2)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(30))
def test_everybody_who_is_seen_pays_everything(seed: int) -> None:
    parties = 5 + seed % 8
    execution = gossip(parties, seed)
    privacy = execution.privacy(1e-6)
    weights, _ = execution.transcript().eliminated()
    for size in range(3):
        found = privacy.coalitions(size, limit=20 if seed % 3 else 1)
        assert set(np.unique(found.mu)) <= {0.0, np.inf}
        assert np.isinf(found.max_mu)
    # Who left before its first message is seen by nobody.
    assert set(np.unique(privacy.single_honest())) <= {0.0, np.inf}
    for corrupt in ((), (0,), (1, 3)):
        adversary = Adversary.collusion(corrupt)
        one = privacy.against(corrupt)
        seen = weights[np.ix_(adversary.view(execution.transcript()).messages, np.array(one.honest))]
        np.testing.assert_array_equal(np.isinf(one.mu_upper), (seen != 0).any(axis=0))
        disclosed = one.information.disclosed
        # The same combinations, by orthogonal projection of each.
        np.testing.assert_allclose(seen @ disclosed.T @ disclosed, seen, atol=1e-8)
        assert len(disclosed) <= np.linalg.matrix_rank(seen)
        assert len(one.information.disclosures()) == len(disclosed)


def test_a_small_weight_is_enough() -> None:
    builder = TranscriptBuilder(3)
    builder.add_message(0, 1, values={0: 1.0, 1: 1e-9}, released=True)
    privacy = PrivacyAnalysis.of_gaussian(builder.build(), 1.0, 1e-6)
    found = privacy.against(())
    assert found.mu_upper.tolist() == [np.inf, np.inf, 0.0]
    # Which combination of the two it is cannot be told apart from rounding.
    assert found.numbers == "upper bound"


def test_the_limit_of_little_noise() -> None:
    """With noise of 1e-4 on every value, and without any: the same combinations, disclosed or nearly."""
    builder = TranscriptBuilder(4)
    noise = [builder.add_noise([party], 1e-4, NoiseGroup.INDEPENDENT) for party in range(4)]
    one = builder.add_message(0, 1, (1,), values={0: 1.0}, noise={noise[0]: 1.0})
    builder.add_message(1, 2, (2,), messages={one: 0.5}, values={1: 1.0}, noise={noise[1]: 1.0}, released=True)
    loud = builder.build()
    silent = loud.with_noise_scales({NoiseGroup.INDEPENDENT: 0.0})
    for corrupt in ((), (1,), (2, 3)):
        adversary = Adversary.collusion(corrupt)
        expected, found = information_matrix(loud, adversary), information_matrix(silent, adversary)
        np.testing.assert_array_equal(expected.mu(1.0) > 1e3, np.isinf(found.mu(1.0)))
        # No combination orthogonal to what is disclosed is in what is told with little noise.
        apart = np.eye(len(found.honest)) - found.disclosed.T @ found.disclosed
        np.testing.assert_allclose(apart @ expected.finite @ apart, 0.0, atol=1e-6)
