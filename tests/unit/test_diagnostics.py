"""The conditions of IncA's theorems, against the exact information in the limit of much cancelled noise."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.privacy import Adversary
from quietmean.privacy.diagnostics import diagnose
from quietmean.protocols.execution import Execution
from quietmean.testing import example_execution
from quietmean.testing.privacy import certificate_of
from quietmean.transcript import TranscriptBuilder


def example(number: int, rounds: int, schedule: str = "uniform", out_degree: int = 1, sigma_delta: float = 1e4) -> Execution:
    return example_execution(
        "inca", 8, number, rounds=rounds, schedule=schedule, out_degree=out_degree, sigma_star=1.0, sigma_delta=sigma_delta
    )


@pytest.mark.parametrize("out_degree", [1, 2])
@pytest.mark.parametrize("number", range(12))
def test_full_rank_is_where_the_central_limit_is_reached(number: int, out_degree: int) -> None:
    """Theorem 4.5 both ways: mu^2 -> 1 / (n_H sigma_star^2) for everybody if and only if the rank is full."""
    execution = example(number, 2 + number % 4, out_degree=out_degree)
    adversary = Adversary.collusion({0, 1, 2} if number % 2 else {number % 8})
    transcript = execution.transcript()
    diagnosis = diagnose(transcript, adversary)
    limit = certificate_of(transcript, adversary, 1.0).mu ** 2
    reached = bool(np.allclose(limit, 1 / diagnosis.honest, rtol=1e-3))
    assert diagnosis.full_rank == reached
    if out_degree == 1:
        assert diagnosis.full_rank == (len(diagnosis.groups) == 1)
    if diagnosis.strongly_connected:
        assert diagnosis.full_rank
    assert sorted(party for group in diagnosis.groups for party in group) == sorted(adversary.honest(8))


def test_static_neighbours_fully_seen() -> None:
    """Theorem 4.9: on a ring, party 0 colludes and receives everything of party 7; an eavesdropper hears party 3."""
    execution = example(0, 6, "ring")
    adversary = Adversary(frozenset({0}), frozenset((3, time) for time in range(6)))
    diagnosis = diagnose(execution.transcript(), adversary)
    assert diagnosis.static
    assert diagnosis.watched == (3, 7)
    assert not diagnosis.full_rank
    words = " ".join(diagnosis.sentences())
    assert "Theorem 4.9" in words
    assert "parties 3, 7" in words
    assert not diagnose(example(0, 6).transcript(), adversary).static


def test_sentences_for_the_easy_ends() -> None:
    transcript = example(0, 6).transcript()
    assert diagnose(transcript, Adversary.everyone_but(2, 8)).sentences() == [
        "only one party is honest: nothing but its own noise hides it"
    ]
    crowd = diagnose(transcript, Adversary())
    assert crowd.full_rank
    assert "the 8 honest parties hide in one crowd" in crowd.sentences()[0]


def test_protocols_without_exchange() -> None:
    diagnosis = diagnose(example_execution("local-dp", 4, sigma=1.0).transcript(), Adversary())
    assert diagnosis.rank == 0
    assert not diagnosis.full_rank


def test_noise_that_pairs_share_joins_them() -> None:
    """A path 0-1-2-3 of pairs, all told to everybody: a coalition in the middle cuts it."""
    builder = TranscriptBuilder(4)
    own = [builder.add_noise([party], 1.0, "star") for party in range(4)]
    shared = [builder.add_noise([party, party + 1], 1.0, "delta") for party in range(3)]
    for party in range(4):
        noise = {own[party]: 1.0}
        noise |= {shared[party]: 1.0} if party < 3 else {}
        noise |= {shared[party - 1]: -1.0} if party else {}
        builder.add_message(party, 1, values={party: 1.0}, noise=noise, released=True)
    transcript = builder.build()
    whole = diagnose(transcript, Adversary())
    assert (whole.groups, whole.rank, whole.full_rank, whole.strongly_connected) == (((0, 1, 2, 3),), 3, True, True)
    cut = diagnose(transcript, Adversary.collusion({1}))
    assert (cut.groups, cut.rank, cut.full_rank) == (((2, 3), (0,)), 1, False)
