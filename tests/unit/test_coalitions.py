"""Coalition certificates: exhaustive, bounded, and searched."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from quietmean.core.bounds import CoalitionBound
from quietmean.core.errors import InputError
from quietmean.privacy import Adversary, PrivacyAnalysis
from quietmean.privacy.coalitions import exceed_bound
from quietmean.testing import example_execution
from quietmean.testing.privacy import certificate_of
from quietmean.transcript import Transcript


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
    with pytest.raises(AssertionError, match="a bound was computed"):
        replace(privacy, bound=never).coalitions(2, limit=5)


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
        with pytest.raises(InputError, match="colluding"):
            analysis(example, 1.0).coalitions(size)
