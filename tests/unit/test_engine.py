"""The privacy engine: cases known by thought, structured views, and conditions of theorems."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quietmean.core.arrays import Matrix
from quietmean.core.bounds import Bound
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.privacy import Adversary, bound_mu, noise_levels
from quietmean.privacy.diagnostics import diagnose
from quietmean.privacy.information import iterative as iterative_module
from quietmean.privacy.information.round_recursion import find_rounds, private_diagonal, recursive_information
from quietmean.protocols.execution import Execution
from quietmean.testing import example_execution
from quietmean.testing.examples import certificate_of
from quietmean.transcript import TranscriptBuilder
from support.refusals import refused

# -- Cases whose privacy loss is known by thought: limits of the noise, of the adversary and of the graph.
METHODS = ("sparse", "dense")
EXACT = 1e-9


def all_messages(execution: Execution) -> Adversary:
    return Adversary.eavesdropper((i, t) for i in range(execution.parties) for t in range(execution.schedule.rounds))


def inca(parties: int = 8, rounds: int = 6, star: float = 0.5, delta: float = 2.0, **more: Any) -> Execution:
    return example_execution("inca", parties, rounds=rounds, sigma_star=star, sigma_delta=delta, **more)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("corrupt", [(), (3,), (1, 6)])
@pytest.mark.parametrize("injection", ["incremental", "early"])
def test_much_cancelled_noise_leaves_only_the_sum(corrupt: tuple[int, ...], injection: str, method: str) -> None:
    """mu^2 -> 1 / (n_H sigma_star^2), and the distance falls as 1 / sigma_delta^2 (IncA, Theorem 4.5)."""
    honest, distances = 8 - len(corrupt), []
    for delta in (1e2, 1e3, 1e4):
        certificate = certificate_of(
            inca(delta=delta, injection=injection).transcript(), Adversary.collusion(corrupt), 1.0, method
        )
        limit = 1 / (honest * 0.5**2)
        distances.append(float((certificate.mu**2 / limit - 1).max()))
        # The released sum alone gives this much away: an upper bound below it would be no bound.
        assert (certificate.mu_upper**2 >= limit).all()
    assert distances[2] < 1e-5
    assert distances[0] / distances[1] == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("delta", [0.1, 2.0, 100.0])
def test_who_sees_everything_leaves_local_dp(delta: float, method: str) -> None:
    execution = inca(delta=delta)
    seen = certificate_of(execution.transcript(), all_messages(execution), 3.0, method)
    np.testing.assert_allclose(seen.mu, 3.0 / 0.5, rtol=EXACT)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("out_degree", [1, 3])
def test_everyone_else_colluding_leaves_local_dp(out_degree: int, method: str) -> None:
    execution = inca(out_degree=out_degree)
    for party in range(8):
        certificate = certificate_of(execution.transcript(), Adversary.everyone_but(party, 8), 3.0, method)
        assert certificate.honest == (party,)
        np.testing.assert_allclose(certificate.mu, 3.0 / 0.5, rtol=EXACT)


@pytest.mark.parametrize("method", METHODS)
def test_one_colluder_sees_everything_of_a_complete_graph(method: str) -> None:
    for schedule, out_degree in (("complete", 1), ("uniform", 7), ("permutation", 7)):
        execution = inca(schedule=schedule, out_degree=out_degree)
        np.testing.assert_allclose(
            certificate_of(execution.transcript(), Adversary.collusion([2]), 1.0, method).mu, 2.0, rtol=EXACT
        )


@pytest.mark.parametrize("method", METHODS)
def test_out_neighbours_that_all_collude_leave_their_victim_local_dp(method: str) -> None:
    execution = inca(delta=1e3, schedule="ring")
    certificate = certificate_of(execution.transcript(), Adversary.collusion([3, 5]), 1.0, method)
    mu = dict(zip(certificate.honest, certificate.mu, strict=True))
    # 3 and 5 surround 4: they know all that it receives and all that it sends. The others protect each other.
    assert mu[4] == pytest.approx(2.0, rel=EXACT)
    assert max(mu[party] for party in (0, 1, 6)) < 2.0


@pytest.mark.parametrize("method", METHODS)
def test_one_round_by_hand(method: str) -> None:
    """T = 1, two parties who send to each other: an outsider sees y_i = (z_1 + z_2) / 2 + last portions, twice."""
    execution = inca(parties=2, rounds=1, star=1.0, delta=3.0)
    # y_1 = 3/4 x~_1 + 1/4 x~_2 + (eta_1 + eta_2)/2 - eta_1 and likewise y_2: their sum is x~_1 + x~_2, their difference
    # (x~_1 - x~_2)/2 - (eta_1 - eta_2).
    expected = 1 / (2 * 1.0) + (1 / 2) ** 2 / (2 / 4 + 2 * 9.0)
    certificate = certificate_of(execution.transcript(), Adversary(), 1.0, method)
    np.testing.assert_allclose(certificate.mu**2, expected, rtol=EXACT)


@pytest.mark.parametrize("method", METHODS)
def test_without_independent_noise_the_sum_is_disclosed(method: str) -> None:
    outsider = certificate_of(inca(star=0.0).transcript(), Adversary(), 1.0, method)
    assert (outsider.mu == math.inf).all()
    assert outsider.information.disclosures() == ["the sum of parties 0, 1, 2, 3, 4, 5, 6, 7 is disclosed"]
    assert outsider.max_epsilon == math.inf
    coalition = certificate_of(inca(star=0.0).transcript(), Adversary.collusion([0, 5]), 1.0, method)
    assert coalition.information.disclosures() == ["the sum of parties 1, 2, 3, 4, 6, 7 is disclosed"]


@pytest.mark.parametrize("method", METHODS)
def test_without_independent_noise_full_observation_discloses_every_value(method: str) -> None:
    execution = inca(star=0.0)
    seen = certificate_of(execution.transcript(), all_messages(execution), 1.0, method)
    assert seen.information.disclosures() == [f"the value of party {party} is disclosed" for party in range(8)]


@pytest.mark.parametrize("method", METHODS)
def test_dropped_party_without_messages_leaks_nothing(method: str) -> None:
    online = np.ones((7, 8), dtype=bool)
    online[1:, 3] = False
    execution = replace(inca(), trace=ExecutionTrace(online))
    certificate = certificate_of(execution.transcript(), Adversary.collusion([0]), 1.0, method)
    assert certificate.mu[certificate.honest.index(3)] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_inverse_is_linear_in_the_variance_of_cancelled_noise(method: str) -> None:
    """Lambda = (sigma_star^2 I + sigma_delta^2 P)^-1 without permanent dropouts, incremental injection."""

    def inverse(star: float, delta: float) -> Matrix:
        execution = inca(star=star, delta=delta, number=5)
        information = certificate_of(execution.transcript(), Adversary.collusion([2]), 1.0, method).information
        return np.linalg.inv(information.finite).astype(np.float64)

    structure = inverse(1.0, 1.0) - np.eye(7)
    for star, delta in ((0.1, 1.0), (2.0, 0.3), (1.0, 10.0)):
        np.testing.assert_allclose(inverse(star, delta), star**2 * np.eye(7) + delta**2 * structure, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_baselines(method: str) -> None:
    local = example_execution("local-dp", 5, sigma=0.5).transcript()
    np.testing.assert_allclose(certificate_of(local, Adversary.collusion([1]), 1.0, method).mu, 2.0, rtol=EXACT)
    central = example_execution("central-dp", 5, sigma=0.5, curator=1).transcript()
    np.testing.assert_allclose(certificate_of(central, Adversary(), 1.0, method).mu, 2.0, rtol=EXACT)
    np.testing.assert_allclose(certificate_of(central, Adversary.collusion([0]), 1.0, method).mu, 2.0, rtol=EXACT)
    trusted = certificate_of(central, Adversary.collusion([1]), 1.0, method)
    assert trusted.information.disclosures() == [f"the value of party {party} is disclosed" for party in (0, 2, 3, 4)]
    gossip = certificate_of(example_execution("gossip", 6, rounds=4).transcript(), Adversary(), 1.0, method)
    assert (gossip.mu == math.inf).all()


def test_static_neighbours_fail_where_dynamic_ones_do_not() -> None:
    """Theorem 4.9: with two fully observed honest parties a static graph never reaches the limit, a dynamic one does."""
    rounds, watched = 14, (2, 7)
    ratios = {}
    for schedule in ("random-static", "permutation"):
        for victims in (watched[:1], watched):
            execution = inca(parties=10, rounds=rounds, star=1.0, delta=1e4, schedule=schedule)
            adversary = Adversary.eavesdropper((i, t) for i in victims for t in range(rounds))
            ratios[schedule, len(victims)] = float(10 * certificate_of(execution.transcript(), adversary, 1.0).max_mu ** 2)
    assert ratios["random-static", 2] > 1.1
    assert ratios["random-static", 1] == pytest.approx(1.0, rel=1e-3)
    assert ratios["permutation", 2] == pytest.approx(1.0, rel=1e-3)


def test_impossible_adversaries_are_refused() -> None:
    transcript = inca().transcript()
    refused("corrupt party 8 does not exist", certificate_of, transcript, Adversary.collusion([8]), 1.0)
    for message in ((8, 0), (0, 7), (0, -1)):
        refused("does not exist", certificate_of, transcript, Adversary.eavesdropper([message]), 1.0)


def test_two_parties_without_any_message_stay_apart() -> None:
    """Nobody talks: each releases its own noisy value, as in local DP."""
    execution = replace(inca(parties=2, rounds=2), schedule=Schedule.from_lists([[[], []], [[], []]], 2))
    for transcript in (execution.transcript(), execution.traced_transcript()):
        np.testing.assert_allclose(certificate_of(transcript, Adversary(), 1.0).mu, 2.0, rtol=EXACT)


@pytest.mark.parametrize("method", METHODS)
def test_what_rounding_leaves_of_cancelled_noise_hides_nothing(method: str) -> None:
    """Only party 2 stays, has heard nothing, and without independent noise releases exactly its own value."""
    execution = inca(parties=3, rounds=2, star=0.0, delta=1.0)
    schedule = Schedule.from_lists([[[1], [], []], [[], [0, 2], [1, 0]]], 3)
    online = np.array([[True, True, True], [False, False, True], [False, False, True]])
    certificate = certificate_of(
        replace(execution, schedule=schedule, trace=ExecutionTrace(online)).transcript(), Adversary(), 1.0, method
    )
    assert certificate.information.disclosures() == ["the value of party 2 is disclosed"]
    assert certificate.mu.tolist() == [0.0, 0.0, math.inf]


# -- Which transcripts go in rounds, what happens to those that do not, and limits known by thought.
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


def test_one_round_of_a_structured_view_by_hand() -> None:
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
    refused("party 3 is not an honest party", bound_mu, inca().transcript(), Adversary.collusion([3]), 1.0, [2, 3])


def test_noise_levels_without_private_noise_disclose() -> None:
    levels = noise_levels(inca().transcript(), Adversary())
    assert np.isinf(levels.mu(0.0, 1.0, 1.0)).all()
    np.testing.assert_allclose(levels.mu(0.5, 1.0, 3.0), certificate_of(inca().transcript(), Adversary(), 3.0).mu, rtol=EXACT)


# -- The conditions of IncA's theorems, against the exact information in the limit of much cancelled noise.
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
    assert "protects all 8 honest parties as one group" in crowd.sentences()[0]


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
