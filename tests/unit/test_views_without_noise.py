"""Of a protocol without noise every certificate is a number: 0 of whoever is not seen at all, else infinite."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.noise import NoiseGroup
from quietmean.graphs.execution_trace import churn
from quietmean.privacy import Adversary, PrivacyAnalysis, information_matrix
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.testing import example_execution
from quietmean.transcript import TranscriptBuilder


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
