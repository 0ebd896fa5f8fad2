"""The privacy engine against the dense evaluation of Theorem 4.1 in the same run, and how its cost grows.

Incremental IncA with uniform random neighbours, 10 % of the parties colluding, 10 % leaving for good. All on one thread of linear
algebra. The largest size is marked ``slow``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from benchmarks.measuring import by_workers, peak_gb, seconds

from quietmean.core.bounds import Bound
from quietmean.core.workers import Workers, one_thread
from quietmean.privacy import Adversary, Effort, PrivacyAnalysis, bound_mu, noise_levels
from quietmean.privacy.information import CoalitionSolver
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.inca.worst_case import Stars
from quietmean.testing import example_execution, theorem41
from quietmean.testing.examples import certificate_of
from quietmean.transcript import Transcript
from support.bars import Bar

# Parties, rounds, neighbours: one of them varies at a time.
SCALING = {
    "n": [(125, 20, 1), (250, 20, 1), (500, 20, 1), (1000, 20, 1), (2000, 20, 1)],
    "T": [(500, 10, 1), (500, 20, 1), (500, 40, 1), (500, 80, 1)],
    "k": [(500, 20, 1), (500, 20, 2), (500, 20, 4), (500, 20, 8)],
}


def make_execution(parties: int, rounds: int = 20, out_degree: int = 1) -> Execution:
    return example_execution(
        "inca",
        parties,
        1,
        permanent=0.1,
        rounds=rounds,
        sigma_star=0.5,
        sigma_delta=5.0,
        schedule="uniform",
        out_degree=out_degree,
    )


def colluding(parties: int) -> Adversary:
    return Adversary.collusion(range(parties // 10))


def test_against_the_dense_theorem(table: Callable[[str], None], bar: Bar) -> None:
    execution, adversary = make_execution(200), colluding(200)
    document, transcript = execution.to_json(), execution.transcript()
    with one_thread():
        dense, exact = seconds(lambda: theorem41(document, adversary.corrupt))
        sparse, _ = seconds(lambda: certificate_of(transcript, adversary, 1.0, "sparse").mu_upper)
        mine, mu = seconds(lambda: certificate_of(transcript, adversary, 1.0).mu_upper, 7)
        once, levels = seconds(lambda: noise_levels(transcript, adversary), 3)
        pair, again = seconds(lambda: levels.mu(0.5, 1.0, 1.0), 20)
    reference = np.sqrt(list(exact.values()))
    assert np.abs(mu**2 - reference**2).max() <= 1e-8 * (reference**2).max()
    np.testing.assert_allclose(again, mu, rtol=1e-8, atol=1e-6)
    table(
        f"n=200 T=20 k=1: Theorem 4.1 dense {dense:.2f} s, sparse {sparse:.2f} s ({dense / sparse:.1f}x), by rounds"
        f" {mine * 1e3:.0f} ms ({dense / mine:.0f}x), all noise levels {once * 1e3:.0f} ms, each further pair {pair * 1e6:.0f} us"
    )
    bar("n=200: a coalition, in thirtieths of the dense theorem's time", 30 * mine / dense, 1)
    bar("n=200: a further pair of noise levels, ms", 1e3 * pair, 1)


@pytest.mark.parametrize("parties", [50, 100, pytest.param(200, marks=pytest.mark.slow)])
def test_every_pair(parties: int, table: Callable[[str], None], bar: Bar) -> None:
    """All pairs at once against one at a time, of which some are taken; processor seconds of one thread."""
    transcript = make_execution(parties).transcript()
    pairs, drawn = math.comb(parties, 2), np.random.default_rng(parties)
    with one_thread():
        solver = CoalitionSolver(transcript)
        begun = time.process_time()
        batches = solver.batches
        assert batches is not None
        tried = sum(len(batch.last) for batch in batches.tried(range(parties), 2))
        mine = time.process_time() - begun
        begun = time.process_time()
        for _ in range(20):
            solver.information(sorted(drawn.permutation(parties)[:2].tolist()))
        one = (time.process_time() - begun) / 20
    table(
        f"n={parties}: all {pairs} pairs {mine:.1f} s, {1e3 * mine / pairs:.2f} ms a pair; one at a time {1e3 * one:.1f} ms"
        f" ({one * pairs / mine:.0f}x); peak memory {peak_gb():.2f} GB"
    )
    assert tried == pairs
    bar(f"n={parties}: all pairs, times what was said beforehand", mine / solver.seconds(2, pairs), 3)
    if parties == 200:
        bar("n=200: all pairs, s", mine, 180)


@pytest.mark.parametrize(
    ("parties", "size", "rounds"),
    [(40, 4, 20), pytest.param(60, 6, 30, marks=pytest.mark.slow), pytest.param(200, 20, 14, marks=pytest.mark.slow)],
)
def test_bound_of_all_coalitions(parties: int, size: int, rounds: int, table: Callable[[str], None]) -> None:
    """Where they are too many to be tried: by groups and branch and bound, beside stars alone; processor seconds."""
    noise: dict[str, Any] = {"sigma_star": 6.0, "sigma_delta": 8.0, "schedule": "circulant"}
    execution = example_execution("inca", parties, 1, permanent=0.1, rounds=rounds, **noise)
    protocol = execution.protocol
    assert isinstance(protocol, IncA)
    with one_thread():
        took, bound = seconds(
            lambda: protocol.worst_coalition(execution.schedule, execution.trace, 1.0, size), clock=time.process_time
        )
        stars = Stars(protocol, execution.schedule, execution.trace)
        alone = max(
            stars.of(party).worst_information(size, parties) for party in np.nonzero(execution.trace.finished)[0].tolist()
        )
    assert bound is not None
    proven = float(bound.mu[execution.trace.finished].max()) ** 2
    ratio = f"mu^2 {proven:.4f}, by stars {alone:.4f} ({alone / proven:.1f}x)"
    table(f"n={parties}, {size} colluding, {rounds} rounds: {took:.0f} s; {ratio}")
    # Where neither says more than own noise does they are equal, but for what is added for rounding.
    assert proven <= alone * (1 + 1e-6)


@pytest.mark.parametrize("parties", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_every_triple(parties: int, table: Callable[[str], None], bar: Bar) -> None:
    """All triples decided by bounds from their pairs, and those that are left tried; processor seconds of one thread."""
    privacy = PrivacyAnalysis.of_gaussian(make_execution(parties).transcript(), 1.0, 1e-6)
    every = math.comb(parties, 3)
    mine, certificate = seconds(lambda: privacy.coalitions(3, limit=20, effort=Effort(180)), clock=time.process_time)
    table(
        f"n={parties}: all {every} triples {mine:.1f} s; to try all of them is counted as"
        f" {privacy.solver.seconds(3, every):.0f} s; worst epsilon {certificate.max_epsilon:.4f}; peak memory {peak_gb():.2f} GB"
    )
    assert certificate.exhaustive
    if parties == 200:
        bar("n=200: all triples, s", mine, 180)


def test_pairs_by_workers(table: Callable[[str], None]) -> None:
    """All pairs; a loaded machine makes seconds of the clock longer."""
    parties = 200
    batches = CoalitionSolver(make_execution(parties).transcript()).batches
    assert batches is not None

    def largest(workers: int) -> float:
        return max(float(batch.information.max()) for batch in batches.tried(range(parties), 2, Workers(workers)))

    table(by_workers(f"n={parties}: all pairs", largest))


def test_a_thousand_parties(table: Callable[[str], None]) -> None:
    transcript, adversary = make_execution(1000).transcript(), colluding(1000)
    with one_thread():
        mine, certificate = seconds(lambda: certificate_of(transcript, adversary, 1.0))
        table(f"n=1000 T=20 k=1: exact {mine:.2f} s, peak {peak_gb():.2f} GB, max mu {certificate.max_mu:.6g}")
        sampled, bounds = seconds(lambda: bound_mu(transcript, adversary, 1.0, range(500, 564)))
    widest = max(bound.relative_width for bound in bounds)
    table(f"n=1000: bounds for 64 parties {sampled:.1f} s, relative width at most {widest:.1e}")
    mu = dict(zip(certificate.honest, certificate.mu, strict=True))
    assert all(bound.lower <= mu[party] <= bound.upper for party, bound in zip(range(500, 564), bounds, strict=True))
    assert widest <= 1e-3


@pytest.mark.parametrize("what", SCALING)
def test_scaling(what: str, table: Callable[[str], None]) -> None:
    varied, exact, iterated = [], [], []
    table(f"{'n':>6} {'T':>4} {'k':>3} {'exact s':>9} {'8 bounds s':>11}")
    for parties, rounds, out_degree in SCALING[what]:
        transcript, adversary = make_execution(parties, rounds, out_degree).transcript(), colluding(parties)
        with one_thread():
            exact.append(_certifying(transcript, adversary))
            sample = range(parties // 2, parties // 2 + 8)
            iterated.append(seconds(lambda: bound_mu(transcript, adversary, 1.0, sample))[0])  # noqa: B023
        varied.append({"n": parties, "T": rounds, "k": out_degree}[what])
        table(f"{parties:>6} {rounds:>4} {out_degree:>3} {exact[-1]:>9.3f} {iterated[-1]:>11.3f}")
    slopes = [np.polyfit(np.log(varied), np.log(times), 1)[0] for times in (exact, iterated)]
    table(f"cost grows as {what}^{slopes[0]:.2f} (exact), {what}^{slopes[1]:.2f} (bounds)")


def _certifying(transcript: Transcript, adversary: Adversary) -> float:
    return seconds(lambda: certificate_of(transcript, adversary, 1.0).max_mu)[0]


def _describe(bounds: list[Bound]) -> str:
    loud = [bound for bound in bounds if bound.upper > 1e-3]
    return f"max mu {max(bound.upper for bound in bounds):.6g}, width at most {max(b.relative_width for b in loud):.1e}"


def test_ten_thousand_parties_sampled(table: Callable[[str], None], bar: Bar) -> None:
    transcript, adversary = make_execution(10_000).transcript(), colluding(10_000)
    taken, bounds = seconds(lambda: bound_mu(transcript, adversary, 1.0, range(1000, 10_000, 141)))
    table(f"n=10000 T=20 k=1: bounds for {len(bounds)} parties {taken:.0f} s, peak {peak_gb():.2f} GB, {_describe(bounds)}")
    bar("n=10000: bounds for some parties, s", taken, 600)
    assert math.isfinite(max(bound.upper for bound in bounds))


@pytest.mark.slow
@pytest.mark.long
def test_ten_thousand_parties_all(table: Callable[[str], None], bar: Bar) -> None:
    transcript, adversary = make_execution(10_000).transcript(), colluding(10_000)
    with one_thread():
        taken, bounds = seconds(lambda: bound_mu(transcript, adversary, 1.0))
    table(f"n=10000 T=20 k=1: all {len(bounds)} honest parties {taken:.0f} s, peak {peak_gb():.2f} GB, {_describe(bounds)}")
    bar("n=10000: all parties, s", taken, 600)
    bar("n=10000: all parties, GB", peak_gb(), 4)
