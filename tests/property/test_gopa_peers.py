"""GOPA without a collector: what is published, what that costs in every history, and what a party says to its partners."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import quietmean.protocols.gopa.party
from quietmean.core.errors import InputError
from quietmean.core.party import Message
from quietmean.graphs import ExecutionTrace, churn
from quietmean.planning import Target
from quietmean.planning.accuracy import draw_estimates
from quietmean.planning.calibrate import calibrate
from quietmean.privacy import Adversary
from quietmean.protocols.discrete import NoiseNumbers
from quietmean.protocols.execution import Execution
from quietmean.protocols.gopa import EXCESS, GOPA, expected_left_over, kept_information, least_present, peer_design
from quietmean.protocols.gopa.loss import conservative_mu
from quietmean.protocols.gopa.party import HERE, GopaPeer, PeerOutcome
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilentPopulation
from quietmean.testing import check_batch, check_transcript, example_execution
from quietmean.testing.examples import certificate_of

DELTA = 1e-6
EXCHANGE, RELEASE = 1, 2
# Who leaves before which round, and which messages (sender, receiver) of the exchange are lost.
STORIES: dict[str, tuple[dict[int, int], list[tuple[int, int]]]] = {
    "everybody stays": ({}, []),
    "before the exchange": ({2: EXCHANGE, 5: EXCHANGE}, []),
    "before publishing": ({3: RELEASE}, []),
    "before both": ({2: EXCHANGE, 3: RELEASE, 4: RELEASE}, []),
    "a lost message": ({}, [(1, 6)]),
    "lost in both directions, and one leaves": ({4: RELEASE}, [(1, 6), (6, 1), (0, 4)]),
}


def story(leaving: dict[int, int], lost: list[tuple[int, int]], parties: int = 8, **parameters: Any) -> Execution:
    settings = {"sigma_star": 0.5, "sigma_delta": 2.0, "partners": 7, "least_partners": 3} | parameters
    execution = example_execution("gopa", parties, 4, **settings)
    online = np.ones((3, parties), dtype=np.bool_)
    for party, first in leaving.items():
        online[first:, party] = False
    marked = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    for sender, receiver in lost:
        marked[0, sender] |= execution.schedule.neighbours[0, sender] == receiver
    return execution.with_trace(ExecutionTrace(online, marked))


def told(leaving: dict[int, int], lost: list[tuple[int, int]], one: int, other: int) -> bool:
    """Whether each of both heard the other."""
    there = all(leaving.get(party, 9) > EXCHANGE for party in (one, other))
    return there and (one, other) not in lost and (other, one) not in lost


@pytest.mark.parametrize(("leaving", "lost"), STORIES.values(), ids=STORIES.keys())
@pytest.mark.parametrize("coalition", [set(), {0}, {0, 4, 6}])
def test_the_engine_equals_a_dense_computation(leaving: dict[int, int], lost: list[tuple[int, int]], coalition: set[int]) -> None:
    """The view is one noisy value of each party that stayed, and nothing of what was rolled back."""
    execution, parties = story(leaving, lost), 8
    honest = [party for party in range(parties) if party not in coalition]
    stayed = [party for party in honest if party not in leaving]
    covariance = 0.25 * np.eye(parties)
    for one, other in itertools.combinations(honest, 2):
        if told(leaving, lost, one, other):
            shared = np.zeros(parties)
            shared[one], shared[other] = 1.0, -1.0
            covariance += 4.0 * np.outer(shared, shared)
    precision = np.linalg.inv(covariance[np.ix_(stayed, stayed)])
    expected = dict.fromkeys(honest, 0.0) | dict(zip(stayed, np.diag(precision).tolist(), strict=True))
    certificate = certificate_of(execution.transcript(), Adversary(frozenset(coalition)), 1.0)
    for party, mu in zip(certificate.honest, certificate.mu, strict=True):
        assert mu**2 == pytest.approx(expected[party], rel=1e-8, abs=1e-12)
    bound = conservative_mu(execution, coalition)
    assert all(mu <= bound.get(party, 0.0) * (1 + 1e-9) for party, mu in zip(certificate.honest, certificate.mu, strict=True))


@pytest.mark.parametrize(("leaving", "lost"), STORIES.values(), ids=STORIES.keys())
def test_what_is_in_the_total(leaving: dict[int, int], lost: list[tuple[int, int]]) -> None:
    """Values of all who stayed; noise of a pair only where one end left after both had heard each other."""
    execution, values = story(leaving, lost), np.arange(16.0).reshape(8, 2)
    noise = InsecurePopulationNoise(3, 8)
    stayed = [party for party in range(8) if party not in leaving]
    np.testing.assert_array_equal(np.nonzero(execution.contributors())[0], stayed)
    expected = (values + 0.5 * noise.normal("star", 0, 2))[stayed].sum(axis=0)
    left_over = 0
    for low, high in execution.schedule.pairs.tolist():
        if told(leaving, lost, low, high) and (low in leaving) != (high in leaving):
            left_over += 1
            shared = 2.0 * noise.shared_normal(np.array([[low, high]]), "delta", 0, 2)[0]
            expected = expected + (shared if low in leaving else -shared)
    assert PeerOutcome.of(3, execution.schedule, execution.trace).left_over == left_over
    releases = execution.run(values, noise).releases
    assert sorted(releases) == stayed
    total = np.sum([release.vector for release in releases.values()], axis=0)
    np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)
    silent = execution.run(values, InsecureSilentPopulation(8)).releases
    np.testing.assert_allclose(np.sum([one.vector for one in silent.values()], axis=0), values[stayed].sum(axis=0))


def test_nothing_but_what_is_published_depends_on_values_or_noise() -> None:
    """A party that told some of its partners that it is there, and died, has shown nothing. Nobody publishes twice."""
    leaving = {1: RELEASE, 2: EXCHANGE}
    traced = story(leaving, [(1, 3)]).traced_transcript()
    assert traced.messages == 6
    assert traced.released.all()
    assert sorted(traced.sender.tolist()) == [0, 3, 4, 5, 6, 7]


def random_history(execution: Execution, number: int) -> ExecutionTrace:
    """Parties leave and come back, messages get lost or are believed to be."""
    parties, stream = execution.parties, BitStream(Seed.public("gopa history", number))
    trace = churn(Seed.public("gopa churn", number), 2, parties, permanent=0.4 * (number % 3), temporary=0.15 * (number % 2))
    lost = stream.uniform(execution.schedule.neighbours.size).reshape(execution.schedule.neighbours.shape) < 0.1 * (number % 4)
    trace = replace(trace, lost=lost)
    delivered = np.argwhere(trace.delivered(execution.schedule)).tolist()
    chosen = [delivered[place] for place in sorted(set(stream.integers(max(len(delivered), 1), 3).tolist()))] if delivered else []
    rows = [(round_ + 1, sender, int(execution.schedule.neighbours[round_, sender, slot]), 0) for round_, sender, slot in chosen]
    return replace(trace, settled=np.array(rows, dtype=np.int64).reshape(-1, 4))


GRID: dict[str, Any] = {"grid": 2.0**-20, "dimension": 1}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("partners", "least", "grid"), [(6, 5, {}), (6, 3, GRID), (3, 3, {}), (6, 0, GRID)])
def test_no_history_costs_more_than_was_promised(partners: int, least: int, grid: dict[str, Any]) -> None:
    """20 random histories of 7 parties, every coalition of 1 and 2; the formula after the end is never below the truth either."""
    parameters = {"sigma_star": 0.8, "sigma_delta": 1.7, "partners": partners, "least_partners": least} | grid
    published = 0
    closest = 0.0
    for number in range(20):
        execution = example_execution("gopa", 7, number, **parameters)
        execution = execution.with_trace(random_history(execution, number))
        published += int(execution.contributors().sum())
        for size in (1, 2):
            bound = execution.protocol.worst_coalition(execution.schedule, execution.trace, 1.0, size)
            assert bound is not None
            promised = execution.protocol.a_priori(7, size, 1.0, DELTA).mu
            true = execution.privacy(DELTA).coalitions(size).mu
            assert (true <= promised * (1 + 1e-9)).all(), number
            for corrupt in itertools.combinations(range(7), size):
                seen = certificate_of(execution.transcript(), Adversary(frozenset(corrupt)), 1.0)
                assert (seen.mu <= bound.mu[list(seen.honest)] * (1 + 1e-9) + 1e-12).all(), number
            closest = max(closest, float(true.max()) / promised)
    assert published > 10
    print(f"partners {partners}, least {least}: at most {closest:.3f} of what was promised")
    # Some history comes near: the promise is no larger than it has to be.
    assert closest > 0.8


@pytest.mark.slow
def test_a_plan_keeps_its_target_before_anything_happens() -> None:
    for parties, dropouts, colluding in ((3, 0.0, 1), (8, 0.0, 1), (8, 0.13, 2), (20, 0.1, 2), (40, 0.2, 4), (1500, 0.1, 20)):
        target = Target(parties, 1.0, DELTA, colluding=colluding, dropouts=dropouts, dimension=3)
        plan = calibrate(target, GOPA())
        assert plan.above_target is None
        assert 0.99 <= plan.epsilon_a_priori <= 1.0
        collected = calibrate(target, GOPA(aggregator=0)) if parties == 8 else None
        assert collected is None or collected.above_target is not None


def test_levels_are_the_best_that_keep_the_target() -> None:
    """Against a search over v: the error is no larger, and privacy is used up."""
    for honest, left_over, unit in ((1, 0.5, 2.0), (6, 0.5, 1.0), (17, 3.0, 4.0), (5, 9.0, 1.0)):
        found = peer_design(honest, left_over, unit)
        assert kept_information(found.own, found.pair, honest) == pytest.approx(1.0 / unit, rel=1e-9)
        error = found.own + left_over * found.pair
        for own in np.linspace(unit / (honest + 1) * 1.001, unit, 400):
            rest = (unit - own) / honest
            assert error <= own + left_over * rest * own / (own - rest) + 1e-9
    everybody = peer_design(6, 0.0, 1.0)
    assert everybody.own == pytest.approx((1 + EXCESS) / 7)
    assert peer_design(0, 1.0, 3.0).own == 3.0


def test_predicted_error_is_that_of_executions() -> None:
    """Mean noise of 40 executions of the real schedule and dropouts, some of whose parties have too few partners: within 10 %."""
    for partners in (19, 9):
        target = Target(20, 1.0, DELTA, colluding=2, dropouts=0.2)
        plan = calibrate(target, GOPA(partners=partners, noise=NoiseNumbers.INSECURE_FLOAT64))
        protocol = plan.protocol
        assert isinstance(protocol, GOPA)
        estimates = draw_estimates(target, protocol.with_noise(1.0, 1.0), Seed.public("gopa estimates"), 40)
        noise = np.mean([one.noise_variance(protocol.sigma_star, protocol.sigma_delta) for one in estimates])
        print(partners, noise, plan.prediction["mse_noise"])
        assert noise == pytest.approx(plan.prediction["mse_noise"], rel=0.1)
        assert expected_left_over(target, partners) > 0
        assert least_present(target, partners) < partners


def test_a_wrong_sign_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quietmean.protocols.gopa.party, "sign", lambda party, other: 1.0)
    with pytest.raises(AssertionError, match="covariance of 'delta' noise"):
        check_transcript(story({2: 1}, []))
    with pytest.raises(AssertionError, match="release of party"):
        check_batch(story({2: 1}, []), np.ones((8, 2)))


def test_keeping_the_noise_of_absent_partners_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that shares noise with everybody, there or not, and one that publishes with too few partners."""
    masked = GopaPeer._masked
    monkeypatch.setattr(GopaPeer, "_masked", lambda self, partners: masked(self, self._partners))
    check_transcript(story({}, []))
    with pytest.raises(AssertionError):
        check_transcript(story({2: 1}, []))


def test_who_has_too_few_partners_publishes_nothing() -> None:
    leaving = {2: EXCHANGE, 3: EXCHANGE, 5: EXCHANGE}
    assert story(leaving, [], least_partners=4).contributors().sum() == 5
    nobody = story(leaving, [], least_partners=5)
    assert nobody.run(np.ones((8, 1)), InsecureSilentPopulation(8)).releases == {}
    assert not nobody.contributors().any()
    # Whoever was away in the exchange and is there again publishes nothing either.
    online = np.ones((3, 8), dtype=np.bool_)
    online[EXCHANGE, 4] = False
    back = story({}, []).with_trace(ExecutionTrace(online))
    assert np.nonzero(~back.contributors())[0].tolist() == [4]
    assert sorted(back.run(np.ones((8, 1)), InsecureSilentPopulation(8)).releases) == [0, 1, 2, 3, 5, 6, 7]


def test_messages_that_cannot_be_read_count_as_not_arrived() -> None:
    execution = story({}, [], least_partners=1)
    machine = execution.machine(4, np.ones(2), InsecurePopulationNoise(1, 8).party(4))
    assert isinstance(machine, GopaPeer)
    step = machine.start()
    (hello,) = step.send
    assert (hello.vector.size, hello.content) == (0, HERE)
    assert machine.expects(step.state) == {0, 1, 2, 3, 5, 6, 7}
    good = [replace(hello, sender=sender) for sender in (1, 2, 3)]
    bad = [
        replace(good[0], sender=5, content=b""),
        replace(good[0], sender=6, content=b"\x02"),
        Message(7, (4,), 1, np.ones(2), 1.0),
    ]
    later = machine.end_round(step.state, [*bad, *good], frozenset({1, 3, 5, 6, 7}))
    assert later.release is None
    assert later.state.sharing == (1, 3), "2 is not known to have heard this party"
    assert machine.end_round(later.state, [], frozenset()).release is not None
    assert machine.miss_round(later.state).release is None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"least_partners": 8}, "a party has only 7 for sure"),
        ({"least_partners": 4, "partners": 3}, "a party has only 3 for sure"),
        ({"least_partners": -1}, "Choose 0 or more"),
        ({"least_partners": 2, "aggregator": 1}, "Leave one of the two out"),
        ({"aggregator": 8}, "Choose one of 0..7"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        story({}, [], **parameters)
