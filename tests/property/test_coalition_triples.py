"""Coalitions of three: what pairs tell bounds them, and those that are left out change nothing."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.workers import Workers
from quietmean.privacy import Adversary, Effort, PrivacyAnalysis
from quietmean.privacy.coalition_certificate import CoalitionCertificate, Scope
from quietmean.privacy.coalitions import most_tried
from quietmean.privacy.information import CoalitionSolver, coalition_triples
from quietmean.privacy.information.coalition_triples import TripleBounds
from quietmean.privacy.information.solver import ViewSolver
from quietmean.testing import example_execution
from support.dask_cluster import cluster

DELTA = 1e-6
CHURN: dict[str, Any] = {"permanent": 0.2, "temporary": 0.15}


def analysis(parties: int, number: int = 0, trusted: frozenset[int] = frozenset(), **options: Any) -> PrivacyAnalysis:
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
    solver = analysis(parties, **options).solver
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
    every = tried_all(analysis(parties, number, rounds=rounds), monkeypatch)
    decided = analysis(parties, number, rounds=rounds).coalitions(3, limit=20, effort=Effort(600))
    assert decided.scope == every.scope == Scope.TRIED
    assert decided.tried == every.tried == math.comb(parties, 3)
    np.testing.assert_allclose(decided.mu, every.mu, rtol=2e-9)
    assert (decided.mu >= every.mu * (1 - 1e-12)).all()
    assert decided.worst == every.worst


def test_much_is_left_out_where_few_write_to_each_other() -> None:
    solver = analysis(60, 2, rounds=5).solver
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
    decided = analysis(24, trusted=trusted).coalitions(3, limit=20, effort=Effort(600))
    assert decided.tried == math.comb(21, 3)
    assert not decided.worst & trusted
    every = tried_all(analysis(24, trusted=trusted), monkeypatch)
    np.testing.assert_allclose(decided.mu, every.mu, rtol=2e-9)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_an_effort_that_does_not_suffice_gives_a_bound(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that may be worst are tried first; the bound holds for all, and is at most the protocol's own."""
    privacy = analysis(30, rounds=4)
    begun = privacy.solver.seconds(2, math.comb(30, 2)) + coalition_triples.seconds(math.comb(30, 3), 30)
    whole = analysis(30, rounds=4).coalitions(3, limit=20, effort=Effort(begun * 1.0001))
    assert whole.scope == Scope.BOUNDED
    part = privacy.coalitions(3, limit=20, effort=Effort(begun + share * (whole.seconds - begun)))
    assert (part.scope, part.exact) == (Scope.BOUNDED, False)
    every = tried_all(analysis(30, rounds=4), monkeypatch)
    assert (part.mu >= every.mu * (1 - 1e-9)).all()
    assert part.found is not None
    assert part.found.max_mu <= every.max_mu * (1 + 1e-9)
    alone = analysis(30, rounds=4).coalitions(3, limit=20)
    assert (part.mu <= alone.mu * (1 + 1e-9)).all()
    assert part.seconds == pytest.approx(whole.seconds)
    # With what it says that it takes, all are decided, also by the same analysis.
    assert privacy.coalitions(3, limit=20, effort=Effort(part.seconds)).scope == Scope.TRIED


def test_workers_change_no_bit(tmp_path: Path) -> None:
    """One process, two, four, and a scheduler that is known by its address."""
    one = analysis(30, rounds=4).coalitions(3, limit=20, effort=Effort(600))
    with cluster(tmp_path) as running:
        for workers in (2, "4", running.address):
            other = analysis(30, rounds=4).coalitions(3, limit=20, effort=Effort(600, workers))
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
    privacy = analysis(12)
    assert math.comb(12, 3) <= most_tried(privacy.solver, 3)
    assert privacy.coalitions(3, effort=Effort(600)).scope == Scope.TRIED
