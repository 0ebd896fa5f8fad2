"""Many coalitions at once give what each gives alone."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.core.workers import Workers
from quietmean.privacy import Adversary, Effort, PrivacyAnalysis, coalitions
from quietmean.privacy.certificate import CoalitionCertificate, Scope
from quietmean.privacy.coalitions import most_tried
from quietmean.privacy.information import CoalitionSolver, coalition_batches
from quietmean.privacy.information.coalition_batches import DOUBTFUL, CoalitionBatches
from quietmean.privacy.information.coalition_solver import TripleBounds, triple_seconds
from quietmean.privacy.information.matrix import widened
from quietmean.privacy.information.solver import ViewSolver
from quietmean.testing import example_execution
from quietmean.transcript import Transcript
from support.dask_cluster import cluster

# -- All coalitions of a size at once are what the sparse solver says of each, and what is told as a bound is one.
DELTA = 1e-6
AGREEMENT = 1e-9
CHURN: dict[str, Any] = {"permanent": 0.2, "temporary": 0.15}


def batches_of(transcript: Transcript, read: list[int] | None = None) -> CoalitionBatches | None:
    public = transcript.released.copy()
    public[read or []] = True
    return CoalitionBatches.of(*ViewSolver(transcript).bare, public)


def compared(transcript: Transcript, size: int, share: float = 1.0, read: list[int] | None = None) -> tuple[int, int]:
    """How many coalitions were compared with the sparse solver, and how many left to it."""
    batches, solver, numbers = batches_of(transcript, read), ViewSolver(transcript), np.random.default_rng(size)
    assert batches is not None
    observed = [(int(transcript.sender[row]), int(transcript.message_round[row]) - 1) for row in read or []]
    every, same, left = set(), 0, 0
    for batch in batches.tried(range(transcript.parties), size):
        for last, information, error in zip(batch.last, batch.information, batch.error.tolist(), strict=True):
            coalition = (*batch.prefix, last)
            every.add(coalition)
            if error > DOUBTFUL:
                left += 1
                continue
            if numbers.random() >= share:
                continue
            same += 1
            exact = solver.sparse(Adversary(frozenset(coalition), frozenset(observed)))
            expected, found = exact.mu(1.0), np.sqrt(information[list(exact.honest)])
            np.testing.assert_allclose(found, expected, rtol=AGREEMENT, atol=AGREEMENT * expected.max(), err_msg=f"{coalition}")
            largest = int(expected.argmax())
            assert widened(found, error)[largest] >= expected[largest] * (1 - 1e-10)
    assert every == set(itertools.combinations(range(transcript.parties), size))
    return same, left


@pytest.mark.sampled(6)
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("injection", ["incremental", "early"])
def test_every_coalition_of_few_parties(injection: str, number: int, size: int) -> None:
    """Also where messages go between the members, so that some of what they know follows from the rest."""
    noise = {"sigma_star": 0.7, "sigma_delta": 2.0, "out_degree": 1 + number % 2}
    transcript = example_execution("inca", 8, number, rounds=5, injection=injection, **noise, **CHURN).transcript()
    same, left = compared(transcript, size)
    assert same == math.comb(8, size)
    assert left == 0


@pytest.mark.slow
def test_two_hundred_pairs_of_many_parties() -> None:
    transcript = example_execution("inca", 24, 3, rounds=9, sigma_star=1.1, sigma_delta=6.0, **CHURN).transcript()
    same, left = compared(transcript, 2, share=0.8)
    assert same >= 200
    assert left == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("star", "delta"), [(0.1, 50.0), (1.0, 1e-2), (1.0, 1e3), (30.0, 0.5)])
def test_noise_of_widely_different_sizes(star: float, delta: float) -> None:
    transcript = example_execution("inca", 9, 2, rounds=6, sigma_star=star, sigma_delta=delta, **CHURN).transcript()
    same, left = compared(transcript, 2)
    assert same + left == math.comb(9, 2)


def test_noise_that_hides_the_rest_is_left_to_the_solver_that_refines() -> None:
    """A bound then, that says of no effort that it would help."""
    execution = example_execution("inca", 9, 2, rounds=6, sigma_star=1e-3, sigma_delta=50.0)
    assert batches_of(execution.transcript()) is None
    found = PrivacyAnalysis.of_gaussian(execution.transcript(), 1.0, DELTA).coalitions(2, limit=5, effort=Effort(60))
    assert found.scope == Scope.BOUNDED
    assert math.isinf(found.seconds)


@pytest.mark.parametrize("name", ["muffliato", "local-dp"])
def test_other_protocols_with_noise_on_every_value(name: str) -> None:
    options: dict[str, Any] = {"muffliato": {"rounds": 4}, "local-dp": {}}[name]
    same, left = compared(example_execution(name, 7, sigma=0.9, **options).transcript(), 2)
    assert same + left == math.comb(7, 2)


def test_messages_that_are_read_are_public() -> None:
    transcript = example_execution("inca", 9, 4, rounds=6, sigma_star=0.8, sigma_delta=3.0).transcript()
    sent = np.nonzero((transcript.message_round > 1) & ~transcript.released)[0][::9]
    read = [transcript.find(int(transcript.sender[row]), int(transcript.message_round[row]) - 1) for row in sent]
    same, _ = compared(transcript, 2, read=sorted(set(read)))
    assert same == math.comb(9, 2)


def test_what_is_not_clear_is_left_to_the_solver_that_refines() -> None:
    """Noise of a size between nothing and something: a certificate that tries all says the same as one by one."""
    execution = example_execution("inca", 9, 1, rounds=6, sigma_star=1.0, sigma_delta=3e-5)
    privacy = PrivacyAnalysis.of_gaussian(execution.transcript(), 1.0, DELTA)
    tried = privacy.coalitions(2, limit=5, effort=Effort(60))
    one_by_one = PrivacyAnalysis.of_gaussian(execution.transcript(), 1.0, DELTA).coalitions(2)
    np.testing.assert_allclose(tried.mu, one_by_one.mu, rtol=1e-8)


def tried_one_by_one(privacy: PrivacyAnalysis, size: int) -> CoalitionCertificate:
    """Each coalition by the other solver, however many there are."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(coalitions, "_LEAST_BATCHED", math.inf)
        patched.setattr(CoalitionBatches, "tried", None)
        return privacy.coalitions(size, limit=10**6)


def analysis(number: int = 0, parties: int = 14, trusted: frozenset[int] = frozenset()) -> PrivacyAnalysis:
    execution = example_execution("inca", parties, number, rounds=6, sigma_star=0.7, sigma_delta=2.0, **CHURN)
    return PrivacyAnalysis.of_gaussian(execution.transcript(), 1.5, DELTA, trusted=trusted)


@pytest.mark.parametrize("size", [2, 3])
def test_with_effort_every_coalition_is_tried(size: int) -> None:
    with_effort, one_by_one = analysis().coalitions(size, limit=20, effort=Effort(60)), tried_one_by_one(analysis(), size)
    assert with_effort.scope == Scope.TRIED
    assert with_effort.tried == one_by_one.tried == math.comb(14, size)
    np.testing.assert_allclose(with_effort.mu, one_by_one.mu, rtol=AGREEMENT)
    assert with_effort.worst == one_by_one.worst
    # Never less than what is exact, and tighter than the bound.
    assert (with_effort.mu >= one_by_one.mu * (1 - 1e-9)).all()
    bound = analysis().coalitions(size, limit=20)
    assert bound.scope == Scope.BOUNDED
    assert (with_effort.mu <= bound.mu * (1 + 1e-9)).all()
    assert 0 < bound.seconds < 60
    assert bound.to_json()["effort_to_try_all"] == bound.seconds


def test_with_effort_few_coalitions_are_tried_too() -> None:
    few = analysis(parties=8).coalitions(2, limit=5, effort=Effort(60))
    assert (few.scope, few.tried) == (Scope.TRIED, math.comb(8, 2))


def test_grids_are_counted_as_one_by_one() -> None:
    """Discrete noise: the loss of each coalition is that of its certificate."""
    grid: dict[str, Any] = {"grid": 2.0**-10, "noise": "discrete", "dimension": 3, "sigma_star": 0.75, "sigma_delta": 2.0}
    execution = example_execution("inca", 12, 2, rounds=6, **grid)
    tried = execution.privacy(DELTA).coalitions(2, limit=5, effort=Effort(60))
    again = tried_one_by_one(example_execution("inca", 12, 2, rounds=6, **grid).privacy(DELTA), 2)
    assert tried.exhaustive
    np.testing.assert_allclose(tried.mu, again.mu, rtol=AGREEMENT)


def test_trusted_parties_are_in_no_coalition() -> None:
    trusted = frozenset({0, 5})
    tried = analysis(trusted=trusted).coalitions(3, limit=20, effort=Effort(60))
    assert tried.tried == math.comb(12, 3)
    assert not tried.worst & trusted
    np.testing.assert_allclose(tried.mu, tried_one_by_one(analysis(trusted=trusted), 3).mu, rtol=AGREEMENT)


def test_workers_change_nothing() -> None:
    one, three = (analysis(1).coalitions(3, limit=20, effort=Effort(60, workers)) for workers in (1, 3))
    np.testing.assert_array_equal(one.mu, three.mu)
    assert one.worst == three.worst


def test_what_was_decided_is_kept() -> None:
    privacy = analysis()
    bound = privacy.coalitions(3, limit=20)
    assert privacy.coalitions(3, limit=20, effort=Effort(0)) is bound
    tried = privacy.coalitions(3, limit=20, effort=Effort(bound.seconds))
    assert tried.exhaustive
    assert privacy.coalitions(3, limit=20) is tried


def test_without_private_noise_or_room_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert batches_of(example_execution("gossip", 6, rounds=4).transcript()) is None
    assert not math.isfinite(
        PrivacyAnalysis.of_gaussian(example_execution("gossip", 6, rounds=4).transcript(), 1.0, DELTA).solver.seconds(2, 15)
    )
    monkeypatch.setattr(coalition_batches, "_MOST_NUMBERS", 1000)
    found = analysis().coalitions(3, limit=20, effort=Effort(math.inf))
    assert found.scope == Scope.BOUNDED
    assert "effort_to_try_all" not in found.to_json()


@pytest.mark.parametrize(("seconds", "workers"), [(-1.0, 1), (math.nan, 1), (1.0, 0)])
def test_an_effort_that_cannot_be(seconds: float, workers: int) -> None:
    with pytest.raises(InputError, match=r"^(effort is|workers are) .*\. Choose "):
        Effort(seconds, workers)


# -- Coalitions of three: what pairs tell bounds them, and those that are left out change nothing.
def analysis_of_coalition_triples(
    parties: int, number: int = 0, trusted: frozenset[int] = frozenset(), **options: Any
) -> PrivacyAnalysis:
    chosen = {"rounds": 6, "sigma_star": 0.7, "sigma_delta": 2.0, **CHURN, **options}
    execution = example_execution("inca", parties, number, **chosen)
    return PrivacyAnalysis.of_gaussian(execution.transcript(), 1.5, DELTA, trusted=trusted)


def bounds_of(solver: CoalitionSolver, able: list[int]) -> TripleBounds:
    assert solver.batches is not None
    return TripleBounds.of(solver.batches, able, Workers())


@pytest.mark.parametrize(
    ("parties", "options"),
    [
        (9, {}),
        (14, {"rounds": 3}),
        (24, {"rounds": 4, "sigma_delta": 6.0}),
        (24, {"rounds": 2, "sigma_star": 3.0, "out_degree": 2}),
        (20, {"rounds": 3, "injection": "early"}),
        (16, {"rounds": 3, "sigma_delta": 0.1}),
    ],
)
def test_no_triple_tells_more_than_its_bound(parties: int, options: dict[str, Any]) -> None:
    """Every bound by every member; some say much, as values of others that are hardly known say next to nothing."""
    solver = analysis_of_coalition_triples(parties, **options).solver
    triples, batches = bounds_of(solver, list(range(parties))), solver.batches
    assert batches is not None
    tightest = math.inf
    for batch in batches.tried(range(parties), 3):
        three = np.array([(*batch.prefix, last) for last in batch.last])
        told = batch.information.copy()
        np.put_along_axis(told, three, 0.0, axis=1)
        for rank in range(3):
            bounds = triples.bounds(three, rank)
            assert (told <= bounds * (1 + 1e-9)).all()
            tightest = min(tightest, np.divide(bounds, told, out=np.full(told.shape, np.inf), where=told > 0).min())
    assert tightest < 1.05


def tried_all(privacy: PrivacyAnalysis, monkeypatch: pytest.MonkeyPatch) -> CoalitionCertificate:
    """Each triple by the batches, none left out."""
    with monkeypatch.context() as patched:
        patched.setattr(TripleBounds, "exceeding", None)
        return privacy.coalitions(3, limit=10**7)


@pytest.mark.parametrize(
    ("parties", "rounds", "number"), [(30, 4, 0), (40, 5, 1), pytest.param(60, 9, 2, marks=pytest.mark.slow)]
)
def test_what_is_left_out_changes_nothing(parties: int, rounds: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    every = tried_all(analysis_of_coalition_triples(parties, number, rounds=rounds), monkeypatch)
    decided = analysis_of_coalition_triples(parties, number, rounds=rounds).coalitions(3, limit=20, effort=Effort(600))
    assert decided.scope == every.scope == Scope.TRIED
    assert decided.tried == every.tried == math.comb(parties, 3)
    np.testing.assert_allclose(decided.mu, every.mu, rtol=2e-9)
    assert (decided.mu >= every.mu * (1 - 1e-12)).all()
    assert decided.worst == every.worst


def test_much_is_left_out_where_few_write_to_each_other() -> None:
    solver = analysis_of_coalition_triples(60, 2, rounds=5).solver
    triples = bounds_of(solver, list(range(60)))
    assert solver.batches is not None
    floor = np.zeros(60)
    for batch in solver.batches.those(triples.likely()):
        told = batch.information.copy()
        np.put_along_axis(told, np.array([(*batch.prefix, last) for last in batch.last]), 0.0, axis=1)
        floor = np.maximum(floor, told.max(axis=0))
    assert len(triples.exceeding(floor * (1 + 1e-9), Workers())) < math.comb(60, 3) / 3


def test_trusted_parties_are_in_none(monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = frozenset({0, 5, 17})
    decided = analysis_of_coalition_triples(24, trusted=trusted).coalitions(3, limit=20, effort=Effort(600))
    assert decided.tried == math.comb(21, 3)
    assert not decided.worst & trusted
    every = tried_all(analysis_of_coalition_triples(24, trusted=trusted), monkeypatch)
    np.testing.assert_allclose(decided.mu, every.mu, rtol=2e-9)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_an_effort_that_does_not_suffice_gives_a_bound(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that may be worst are tried first; the bound holds for all, and is at most the protocol's own."""
    privacy = analysis_of_coalition_triples(30, rounds=4)
    begun = privacy.solver.seconds(2, math.comb(30, 2)) + triple_seconds(math.comb(30, 3), 30)
    whole = analysis_of_coalition_triples(30, rounds=4).coalitions(3, limit=20, effort=Effort(begun * 1.0001))
    assert whole.scope == Scope.BOUNDED
    part = privacy.coalitions(3, limit=20, effort=Effort(begun + share * (whole.seconds - begun)))
    assert (part.scope, part.exact) == (Scope.BOUNDED, False)
    every = tried_all(analysis_of_coalition_triples(30, rounds=4), monkeypatch)
    assert (part.mu >= every.mu * (1 - 1e-9)).all()
    assert part.found is not None
    assert part.found.max_mu <= every.max_mu * (1 + 1e-9)
    alone = analysis_of_coalition_triples(30, rounds=4).coalitions(3, limit=20)
    assert (part.mu <= alone.mu * (1 + 1e-9)).all()
    assert part.seconds == pytest.approx(whole.seconds)
    # With what it says that it takes, all are decided, also by the same analysis.
    assert privacy.coalitions(3, limit=20, effort=Effort(part.seconds)).scope == Scope.TRIED


def test_workers_change_no_bit(tmp_path: Path) -> None:
    """One process, two, four, and a scheduler that is known by its address."""
    one = analysis_of_coalition_triples(30, rounds=4).coalitions(3, limit=20, effort=Effort(600))
    with cluster(tmp_path) as running:
        for workers in (2, "4", running.address):
            other = analysis_of_coalition_triples(30, rounds=4).coalitions(3, limit=20, effort=Effort(600, workers))
            assert other.mu.tobytes() == one.mu.tobytes()
            assert (other.worst, other.tried, other.scope) == (one.worst, one.tried, one.scope)


@pytest.mark.slow
def test_two_hundred_triples_of_two_hundred_parties() -> None:
    """The worst that is told, and random ones, are what the sparse solver says of each."""
    execution = example_execution(
        "inca", 200, 1, permanent=0.1, rounds=20, sigma_star=0.5, sigma_delta=5.0, schedule="uniform", out_degree=1
    )
    transcript, numbers = execution.transcript(), np.random.default_rng(0)
    batches, solver = CoalitionSolver(transcript).batches, ViewSolver(transcript)
    assert batches is not None
    drawn = sorted({tuple(sorted(numbers.permutation(200)[:3].tolist())) for _ in range(200)})
    told = itertools.chain.from_iterable(
        zip(((*batch.prefix, last) for last in batch.last), batch.information, batch.error.tolist(), strict=True)
        for batch in batches.those(np.array(drawn))
    )
    for (coalition, information, error), expected in zip(told, drawn, strict=True):
        assert coalition == expected
        assert error < 1e-9
        exact = solver.sparse(Adversary.collusion(coalition))
        mu = exact.mu(1.0)
        np.testing.assert_allclose(np.sqrt(information[list(exact.honest)]), mu, rtol=1e-9, atol=1e-9 * mu.max())


def test_few_are_simply_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TripleBounds, "of", None)
    privacy = analysis_of_coalition_triples(12)
    assert math.comb(12, 3) <= most_tried(privacy.solver, 3)
    assert privacy.coalitions(3, effort=Effort(600)).scope == Scope.TRIED
