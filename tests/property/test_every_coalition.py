"""What is charged holds for every coalition: formulas against all coalitions, and against the worst that was found."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from quietmean.graphs import ExecutionTrace
from quietmean.privacy import PrivacyAnalysis
from quietmean.privacy.coalitions import random_coalitions
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import worst_case
from quietmean.protocols.inca.worst_case import Stars
from quietmean.randomness import Seed
from quietmean.testing import example_execution
from support.every_coalition import worst_mu

DELTA = 1e-6


def proven(execution: Execution, size: int) -> Any:
    """By formula alone: no coalition is tried, and everybody else together is not asked."""
    return execution.protocol.worst_coalition(execution.schedule, execution.trace, execution.sensitivity, size)


def test_partners_that_all_collude() -> None:
    """60 parties, noise shared with 8 partners, 12 colluders: random coalitions never hold all partners of one party."""
    execution = example_execution("cordp-dme", 60, partners=8, sigma_own=0.624986, sigma_pair=33.1796)
    privacy = execution.privacy(DELTA)
    random = max(one.max_epsilon for one in privacy.each(random_coalitions(range(60), 12, 100, Seed.public("coalitions"))))
    certificate = privacy.coalitions(12, limit=100)
    assert random < 1.0
    assert certificate.at_least == pytest.approx(8.424, abs=1e-3)
    assert certificate.max_epsilon == pytest.approx(privacy.epsilon(1 / 0.624986), rel=1e-6)
    assert certificate.kind == "bound for every coalition"
    assert certificate.exceed_probability == 0


@pytest.mark.slow
def test_receivers_that_all_collude(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 parties, 12 colluders: those to whom one party sends are worse than random ones, and the bound is above both."""
    # Among so many it says no more with more effort.
    monkeypatch.setattr(worst_case, "_BRANCHING", 1e9)
    execution = example_execution("inca", 60, 5, rounds=6, schedule="uniform", sigma_star=0.62, sigma_delta=3.0)
    privacy = execution.privacy(DELTA)
    random = max(one.max_epsilon for one in privacy.each(random_coalitions(range(60), 12, 100, Seed.public("coalitions"))))
    certificate = privacy.coalitions(12, limit=100)
    assert random < 0.9 * certificate.at_least
    assert certificate.at_least <= certificate.max_epsilon <= privacy.epsilon(1 / 0.62) * (1 + 1e-6)
    assert certificate.found is not None
    assert certificate.to_json()["at_least_epsilon"] == certificate.found.max_epsilon
    assert "a bound" in certificate.describe()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("size", [0, 1, 2, 4])
@pytest.mark.parametrize("injection", ["incremental", "early"])
@pytest.mark.parametrize("number", range(3))
def test_the_stars_of_inca_hold_for_all_coalitions(injection: str, number: int, size: int) -> None:
    """8 parties with dropouts; also where the diagonal bound serves instead of trying the sets of partners."""
    churn = {"permanent": 0.25, "temporary": 0.15} if number else {}
    noise = {"sigma_star": 0.7, "sigma_delta": 2.0, "out_degree": 1 + number % 2}
    execution = example_execution("inca", 8, number, rounds=5, injection=injection, **noise, **churn)
    true = worst_mu(execution.privacy(DELTA), size)
    bound = proven(execution, size).mu
    assert (bound >= true * (1 - 1e-6)).all()
    assert (bound <= 1 / 0.7 * (1 + 1e-6)).all()
    protocol: Any = execution.protocol
    stars = Stars(protocol, execution.schedule, execution.trace)
    coarse = np.sqrt([stars.of(party).worst_information(size, 10**9) for party in range(8)])
    assert (coarse >= bound * (1 - 1e-6)).all()


@pytest.mark.parametrize(("parties", "rounds"), [(14, 9), pytest.param(20, 11, marks=pytest.mark.slow)])
def test_a_star_is_worth_something(parties: int, rounds: int) -> None:
    """2 colluders: 1.35 times the exact mu at most, where own noise alone is worth more than 3 times that."""
    execution = example_execution("inca", parties, rounds=rounds, sigma_star=1.1, sigma_delta=4.0)
    exact = execution.privacy(DELTA).coalitions(2)
    assert exact.exhaustive
    assert float(proven(execution, 2).mu.max()) < 1.35 * exact.max_mu < 0.5 / 1.1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("aggregator", [None, 3])
@pytest.mark.parametrize("partners", [None, 4])
def test_shared_noise_by_formula(partners: int | None, aggregator: int | None) -> None:
    """cordp-dme with 9 parties and one that left: the formula for all pairs is exact where all messages are public."""
    noise: dict[str, Any] = {"sigma_own": 0.6, "sigma_pair": 1.7, "aggregator": aggregator, "partners": partners}
    for number, size in itertools.product(range(2), (0, 1, 2, 3, 7)):
        execution = example_execution("cordp-dme", 9, number, permanent=0.12 * number, **noise)
        true, bound = worst_mu(execution.privacy(DELTA), size), proven(execution, size).mu
        assert (bound >= true * (1 - 1e-9)).all()
        if aggregator is None and (partners is None or size >= 4):
            np.testing.assert_allclose(bound.max(), true.max(), rtol=1e-6)


def test_gopa_counts_no_noise_that_was_rolled_back() -> None:
    """The value of party 4 was sent but did not arrive: whoever rolled back has shown what it shares with party 4."""
    execution = example_execution("gopa", 7, partners=6, sigma_star=0.8, sigma_delta=3.0, aggregator=0)
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[0, 4, 0] = True
    late = execution.with_trace(ExecutionTrace(execution.trace.online, lost))
    assert proven(execution, 1).mu[4] < 0.8
    assert proven(late, 1).mu[4] == pytest.approx(1 / 0.8, rel=1e-9)
    assert (proven(late, 1).mu >= worst_mu(late.privacy(DELTA), 1) * (1 - 1e-9)).all()


def test_consensus_by_the_connectivity_of_its_graph() -> None:
    ring = [[party, (party + 1) % 8] for party in range(8)] + [[party, party + 4] for party in range(4)]
    noise: dict[str, Any] = {"sigma_z": 4.0, "local_noise": "gaussian", "sigma_local": 0.9}
    edges = sorted([min(edge), max(edge)] for edge in ring)
    execution = example_execution("consensus", 8, edges=edges, theta=0.2, c=0.4, iterations=4, **noise)
    for size in (1, 2, 3):
        true, bound = worst_mu(execution.privacy(DELTA), size), proven(execution, size).mu
        assert (bound >= true * (1 - 1e-6)).all()
    assert float(proven(execution, 1).mu.max()) < 0.75 / 0.9
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[2, 0, 0] = True
    assert proven(execution.with_trace(ExecutionTrace(execution.trace.online, lost)), 1) is None


def test_without_a_formula_everybody_else_counts() -> None:
    execution = example_execution("inca", 9, rounds=5, sigma_star=0.7, sigma_delta=2.0)
    privacy = PrivacyAnalysis.of_gaussian(execution.transcript(), 1.0, DELTA)
    certificate = privacy.coalitions(4, limit=20)
    np.testing.assert_allclose(certificate.mu, privacy.single_honest())
    assert certificate.proof == "everybody else together"


def test_what_nothing_bounds_is_infinite() -> None:
    certificate = example_execution("gossip", 12, rounds=5).privacy(DELTA).coalitions(5, limit=20)
    assert math.isinf(certificate.max_epsilon)


def test_trusted_parties_are_left_out_of_everybody_else() -> None:
    """The curator sees all values: a bound with it among the colluders would be worth nothing."""
    certificate = example_execution("central-dp", 12, sigma=1.5).privacy(DELTA).coalitions(5, limit=20)
    assert certificate.mu == pytest.approx(np.full(12, 1 / 1.5))
