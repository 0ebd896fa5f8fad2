"""Muffliato: its gossip, its own accounting, and what its accounting leaves out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.bounds import round_up
from quietmean.graphs import NEVER, ExecutionTrace, churn
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Adversary, mu_of_budget
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.protocols.execution import Execution
from quietmean.protocols.muffliato import Muffliato, mean_renyi_epsilon, neighbour_epsilon, network_design, rounds_for
from quietmean.protocols.muffliato.party import chebyshev_momentum, default_rounds, gossip_flows, spectral_gap
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilentPopulation
from quietmean.testing import check_batch, check_transcript, example_execution
from quietmean.testing.examples import certificate_of
from support.refusals import raised, refused, refused_rows

GRAPHS = [("ring", 12, 1), ("ring", 7, 2), ("complete", 6, 1), ("hypercube", 16, 1), ("random-static", 11, 3), ("ring", 6, 3)]


def calm(schedule: str, parties: int, out_degree: int = 1, rounds: int = 5, **parameters: Any) -> Execution:
    settings: dict[str, Any] = {"schedule": schedule, "out_degree": out_degree, "rounds": rounds, "sigma": 1.0} | parameters
    return example_execution("muffliato", parties, 1, **settings)


def calm_matrix(execution: Execution) -> NDArray[np.float64]:
    """W of the first round."""
    trace, schedule = execution.trace, execution.schedule
    return next(gossip_flows(schedule, *trace.deliveries(schedule))).matrix.toarray()


@pytest.mark.parametrize(("schedule", "parties", "out_degree"), GRAPHS)
def test_the_gossip_matrix_and_its_gap(schedule: str, parties: int, out_degree: int) -> None:
    execution = calm(schedule, parties, out_degree)
    matrix = calm_matrix(execution)
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-14)
    second = np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]
    assert spectral_gap(schedule, parties, out_degree) == pytest.approx(1.0 - second, abs=1e-10)


def test_the_gap_of_random_cycles() -> None:
    """Friedman's bound holds in the limit: on 12 graphs of 200 parties it is missed by at most a tenth of the eigenvalue."""
    bound = spectral_gap("expander", 200, 4)
    for number in range(12):
        execution = example_execution("muffliato", 200, number, schedule="expander", out_degree=4, rounds=1, sigma=1.0)
        matrix = calm_matrix(execution)
        second = np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]
        assert second <= (1 - bound) * 1.1


def test_acceleration_is_the_papers_and_helps() -> None:
    gap = spectral_gap("ring", 32, 1)
    momentum = chebyshev_momentum(gap)
    assert momentum == pytest.approx(2 * (1 - math.sqrt(gap * (1 - gap / 4))) / (1 - gap / 2) ** 2)
    values = np.sin(np.arange(32.0))[:, None]
    errors = []
    for chosen in (1.0, "chebyshev"):
        execution = calm("ring", 32, rounds=150, momentum=chosen)
        vector = execution.run_batch(values, InsecureSilentPopulation(32)).vector
        errors.append(float(np.abs(vector - values.mean()).max()))
    assert errors[1] < errors[0] / 10
    assert calm("permutation", 12, momentum="chebyshev").protocol.describe()["momentum"] == 1.0


def test_every_party_ends_near_the_mean_of_the_noisy_values() -> None:
    noise, values = InsecurePopulationNoise(7, 64), np.cos(np.arange(128.0)).reshape(64, 2)
    for schedule in ("hypercube", "expander", "permutation"):
        rounds = default_rounds(schedule, 64, 3)
        execution = calm(schedule, 64, 3, rounds=rounds, momentum="chebyshev")
        releases = execution.run(values, noise).releases
        expected = (values + noise.normal("star", 0, 2)).mean(axis=0)
        assert len(releases) == 64
        # Far below the noise of the mean itself, which has standard deviation 1/8.
        assert max(np.abs(release.vector - expected).max() for release in releases.values()) < 0.06
        assert all(release.weight == pytest.approx(1.0) for release in releases.values())


@pytest.mark.parametrize("momentum", [1.0, 1.5])
def test_absence_and_lost_messages_keep_the_mass(momentum: float) -> None:
    execution = calm("ring", 10, 2, rounds=12, momentum=momentum)
    trace = churn(Seed.public("away"), 12, 10, temporary=0.3)
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[::2, ::3, 1] = True
    execution = execution.with_trace(ExecutionTrace(trace.online, lost))
    values = np.arange(20.0).reshape(10, 2)
    releases = execution.run(values, InsecureSilentPopulation(10)).releases
    np.testing.assert_allclose(sum(release.vector for release in releases.values()), values.sum(axis=0), rtol=1e-12)


def test_an_exchange_that_went_one_way_only_is_used_by_neither_end_but_seen() -> None:
    execution = calm("complete", 2, rounds=1)
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[0, 1, 0] = True
    execution = execution.with_trace(ExecutionTrace(execution.trace.online, lost))
    releases = execution.run(np.array([[2.0], [6.0]]), InsecureSilentPopulation(2)).releases
    assert [float(releases[party].vector[0]) for party in (0, 1)] == [2.0, 6.0]
    transcript = execution.transcript()
    assert certificate_of(transcript, Adversary(frozenset({1})), 1.0).max_mu == pytest.approx(1.0)
    assert certificate_of(transcript, Adversary(frozenset({0})), 1.0).max_mu == 0.0


def test_using_half_an_exchange_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong implementation that uses what arrived, though its own message did not."""
    from quietmean.protocols.muffliato import party

    original = party.MuffliatoParty.end_round
    monkeypatch.setattr(
        party.MuffliatoParty, "end_round", lambda self, state, received, delivered: original(self, state, received, _All())
    )
    execution = calm("ring", 5, 1, rounds=3)
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[0, 1, 0] = True
    execution = execution.with_trace(ExecutionTrace(execution.trace.online, lost))
    raised(AssertionError, "", check_transcript, execution)
    raised(AssertionError, "", check_batch, execution, np.eye(5))


class _All(frozenset[int]):
    def __contains__(self, item: object) -> bool:
        return True


def test_the_anchors_of_the_papers_figure() -> None:
    """IncA, appendix B: T = 8 comes from the second eigenvalue in the place of the spectral gap, which gives T = 17."""
    gap = spectral_gap("hypercube", 1024, 1)
    assert gap == pytest.approx(2 / 11)
    assert (rounds_for(1024, 1 - gap), rounds_for(1024, gap)) == (8, 17)
    papers, proper = (network_design(1024, 10, rounds, 0.1, 1e-5) for rounds in (8, 17))
    assert papers.mse == pytest.approx(0.1764, abs=5e-5)
    assert papers.sigma**2 > 180
    assert proper.mse == pytest.approx(0.3749, abs=5e-5)
    spent = mean_renyi_epsilon(papers.order, 8, 10, 1024, papers.sigma)
    assert spent + math.log(1e5) / (papers.order - 1) == pytest.approx(0.1, rel=1e-9)
    # Against a single neighbour the same noise is worth this much more.
    assert neighbour_epsilon(papers.sigma, 1e-5) == pytest.approx(0.24684, abs=1e-5)
    assert neighbour_epsilon(proper.sigma, 1e-5) == pytest.approx(0.16367, abs=1e-5)


def test_true_loss_is_local_dp_for_a_neighbour_and_less_for_the_others() -> None:
    execution = calm("hypercube", 16, rounds=2, sigma=3.0)
    transcript = execution.transcript()
    losses = np.array([certificate_of(transcript, Adversary(frozenset({party})), 1.0).mu for party in range(16)])
    for observer in range(16):
        honest = [party for party in range(16) if party != observer]
        for party, mu in zip(honest, losses[observer], strict=True):
            if party in execution.schedule.recipients(1, observer):
                assert mu == pytest.approx(1 / 3.0, rel=1e-7)
            else:
                assert mu < 0.9 / 3.0
    assert certificate_of(transcript, Adversary(frozenset({1, 9})), 1.0).max_mu == pytest.approx(1 / 3.0, rel=1e-7)


@pytest.mark.parametrize("momentum", [1.0, "chebyshev"])
def test_the_papers_mean_loss_bounds_the_exact_mean_loss(momentum: float | str) -> None:
    """Order-alpha loss of mu-GDP is alpha mu^2 / 2: the mean of mu^2 over observers against T d / (n sigma^2)."""
    execution = calm("hypercube", 16, rounds=4, momentum=momentum)
    transcript = execution.transcript()
    square = (
        sum(float((certificate_of(transcript, Adversary(frozenset({party})), 1.0).mu ** 2).sum()) for party in range(16)) / 16**2
    )
    print("mean mu^2:", square, "bound:", 2 * mean_renyi_epsilon(1.0, 4, 4, 16, 1.0))
    assert square <= 2 * mean_renyi_epsilon(1.0, 4, 4, 16, 1.0)
    assert square > 4 / 16, "the neighbours alone"
    if momentum == 1.0:
        exposed = [
            np.isclose(certificate_of(transcript, Adversary(frozenset({party})), 1.0).mu, 1.0).sum() for party in range(16)
        ]
        assert exposed == [9] * 16, "four neighbours and five more"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("parties", "colluding"), [(16, 1), (20, 0), (20, 5)])
def test_plans_are_local_dp(parties: int, colluding: int) -> None:
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, colluding=colluding, sensitivity=3.0)
    plan = calibrate(target, Muffliato())
    assert isinstance(plan.protocol, Muffliato)
    assert plan.protocol.sigma == round_up(3.0 / mu_of_budget(1.0, 1e-6))
    transcript = plan.execution(Seed.public("plan"), ExecutionTrace.everyone(plan.protocol.rounds, parties)).transcript()
    worst = max(certificate_of(transcript, Adversary(frozenset({party})), 3.0).max_mu for party in range(parties))
    assert 0.999 < epsilon_of_mu(worst, 1e-6) <= 1.0
    least = plan.protocol.sigma**2 / parties
    assert least <= plan.prediction["mse_noise"] <= 1.1 * least


def test_the_stated_error_of_one_partys_estimate() -> None:
    """One round on a ring: three noisy values of weight 2 each. After many rounds: all of them."""
    for rounds, counted in ((1, 3), (400, 9)):
        protocol = Muffliato.read({"sigma": 2.0, "rounds": rounds, "schedule": "ring"}).resolved(9)
        schedule = protocol.draw_schedule(9, Seed.public("any"))
        stated = protocol.error_variance(schedule, ExecutionTrace.everyone(rounds, 9), np.full(9, 2.0))
        assert stated == pytest.approx(4.0 * counted / (2 * counted) ** 2)


@refused_rows("muffliato_impossible_parameters_are_refused")
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    refused(message, example_execution, "muffliato", 8, **{"rounds": 3, "sigma": 1.0} | parameters)


@pytest.mark.parametrize("momentum", [1.0, 1.3])
def test_the_stated_error_is_that_of_this_execution(momentum: float) -> None:
    """Against the spread of simulated results, with parties that leave, lost messages and arrivals that nobody noticed."""
    execution = calm("ring", 8, rounds=5, sigma=2.0, momentum=momentum)
    trace = ExecutionTrace.everyone(5, 8)
    trace.online[3:, 2] = False
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[1, 5, 0] = True
    unnoticed = np.array([[2, 0, int(execution.schedule.neighbours[1, 0, 0]), NEVER]])
    execution = replace(execution.with_trace(ExecutionTrace(trace.online, lost, unnoticed)), weights=np.arange(1.0, 9.0))
    stated = execution.error_variance()
    assert stated is not None
    noise = InsecurePopulationNoise(3, 8)
    releases = execution.run_batch(np.zeros((8, 20_000)), noise)
    ends = releases.vector[releases.by] / releases.weight[releases.by][:, None]
    # The largest of 7 variances of 20 000 numbers: a relative error of 1 % each, 5 of them are allowed.
    assert ends.var(axis=1).max() == pytest.approx(stated, rel=0.05)
    calm_one = execution.with_trace(ExecutionTrace.everyone(5, 8)).error_variance()
    assert calm_one is not None
    assert stated != pytest.approx(calm_one, rel=0.005), "who is missing matters"
