"""Which transcripts go in rounds, what happens to those that do not, and limits known by thought."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quietmean.core.bound import Bound
from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.privacy import Adversary, bound_mu, noise_levels
from quietmean.privacy.information import iterative as iterative_module
from quietmean.privacy.information.round_recursion import private_diagonal, recursive_information
from quietmean.privacy.information.round_structure import find_rounds
from quietmean.protocols.execution import Execution
from quietmean.testing import example_execution
from quietmean.testing.privacy import certificate_of

EXACT = 1e-9


def inca(parties: int = 8, rounds: int = 6, star: float = 0.5, delta: float = 2.0, **more: Any) -> Execution:
    return example_execution("inca", parties, rounds=rounds, sigma_star=star, sigma_delta=delta, **more)


def test_incremental_injection_goes_in_rounds_and_early_does_not() -> None:
    structure = find_rounds(inca().transcript())
    assert structure is not None
    assert len(structure.steps) == 7
    assert structure.variance == 0.5**2
    assert find_rounds(inca(injection="early").transcript()) is None


@pytest.mark.parametrize("injection", ["incremental", "early"])
def test_the_same_answer_either_way(injection: str) -> None:
    transcript = inca(parties=24, injection=injection, permanent=0.2, temporary=0.2).transcript()
    adversary = Adversary.collusion([0, 3])
    dense = certificate_of(transcript, adversary, 1.0, "dense")
    # In mu^2: a party whose messages all got lost leaks nothing but rounding.
    np.testing.assert_allclose(certificate_of(transcript, adversary, 1.0).mu ** 2, dense.mu**2, rtol=EXACT, atol=1e-12)


def test_one_round_by_hand() -> None:
    """T = 1, two parties who send to each other: see the sum and the difference of what is released."""
    information = certificate_of(inca(parties=2, rounds=1, star=1.0, delta=3.0).transcript(), Adversary(), 1.0).information
    np.testing.assert_allclose(information.mu(1.0) ** 2, 1 / (2 * 1.0) + (1 / 2) ** 2 / (2 / 4 + 2 * 9.0), rtol=EXACT)


def test_everything_seen_leaves_local_dp() -> None:
    execution = inca()
    everything = Adversary.eavesdropper((i, t) for i in range(8) for t in range(6))
    structure = find_rounds(execution.transcript())
    assert structure is not None
    information = recursive_information(structure, everything)
    assert information is not None
    np.testing.assert_allclose(information.mu(1.0), 2.0, rtol=EXACT)


def test_a_sum_without_independent_noise_is_disclosed_by_name() -> None:
    structure = find_rounds(inca(star=0.0).transcript())
    assert structure is not None
    information = recursive_information(structure, Adversary.collusion([0, 5]))
    assert information is not None
    assert information.disclosures() == ["the sum of parties 1, 2, 3, 4, 6, 7 is disclosed"]
    assert private_diagonal(structure, Adversary()) is None


def test_who_says_nothing_leaks_nothing() -> None:
    online = np.ones((7, 8), dtype=bool)
    online[1:, 3] = False
    transcript = replace(inca(), trace=ExecutionTrace(online)).transcript()
    for bounds in (bound_mu(transcript, Adversary(), 1.0), bound_mu(transcript, Adversary(), 1.0, range(8))):
        assert bounds[3].upper == pytest.approx(0.0, abs=1e-6)
        assert bounds[4].lower > 0.1


@pytest.mark.parametrize("protocol", ["local-dp", "gossip", "central-dp"])
def test_other_protocols_find_a_solver(protocol: str) -> None:
    parameters: dict[str, dict[str, Any]] = {
        "local-dp": {"sigma": 0.5},
        "gossip": {"rounds": 3},
        "central-dp": {"sigma": 0.5, "curator": 1},
    }
    transcript = example_execution(protocol, 5, **parameters[protocol]).transcript()
    for adversary in (Adversary(), Adversary.collusion([0])):
        expected = certificate_of(transcript, adversary, 1.0, "dense").mu
        np.testing.assert_allclose(certificate_of(transcript, adversary, 1.0).mu, expected, rtol=EXACT)
        bounds = bound_mu(transcript, adversary, 1.0, adversary.honest(5))
        np.testing.assert_allclose([bound.upper for bound in bounds], expected, rtol=1e-3)


def test_bounds_without_independent_noise_are_infinite() -> None:
    assert bound_mu(inca(star=0.0).transcript(), Adversary(), 1.0, [2, 4]) == [Bound.exact(math.inf)] * 2


def test_bounds_for_traced_transcripts_and_any_injection() -> None:
    execution = inca(injection="early", star=1.0)
    adversary = Adversary.collusion([1])
    exact = certificate_of(execution.transcript(), adversary, 3.0, "dense")
    for transcript in (execution.transcript(), execution.traced_transcript()):
        for bound, mu in zip(bound_mu(transcript, adversary, 3.0), exact.mu, strict=True):
            assert bound.lower <= mu <= bound.upper
            assert bound.relative_width <= 1e-3


def test_stopped_early_the_bounds_still_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterative_module, "_MOST_ITERATIONS", 2)
    monkeypatch.setattr(iterative_module, "_CHECK_EVERY", 1)
    transcript = inca(parties=12, rounds=8, delta=10.0).transcript()
    bounds = bound_mu(transcript, Adversary.collusion([0]), 1.0, range(1, 12))
    exact = certificate_of(transcript, Adversary.collusion([0]), 1.0).mu
    assert all(bound.lower < mu < bound.upper for bound, mu in zip(bounds, exact, strict=True))
    assert max(bound.relative_width for bound in bounds) > 1e-3


def test_only_honest_parties_have_bounds() -> None:
    with pytest.raises(InputError, match="party 3 is not an honest party"):
        bound_mu(inca().transcript(), Adversary.collusion([3]), 1.0, [2, 3])


def test_noise_levels_without_private_noise_disclose() -> None:
    levels = noise_levels(inca().transcript(), Adversary())
    assert np.isinf(levels.mu(0.0, 1.0, 1.0)).all()
    np.testing.assert_allclose(levels.mu(0.5, 1.0, 3.0), certificate_of(inca().transcript(), Adversary(), 3.0).mu, rtol=EXACT)
