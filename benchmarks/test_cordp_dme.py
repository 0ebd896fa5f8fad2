"""What CorDP-DME costs one of 100 clients at 100 000 coordinates: offline (keys, expansion) and online (one message).

Ratios are to drawing as many Gaussians with ``numpy.random.Generator(PCG64).standard_normal`` in the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from benchmarks.measuring import seconds
from pytest_benchmark.fixture import BenchmarkFixture

from quietmean.core.party import PartyId
from quietmean.protocols.cordp_dme import CorDPDME
from quietmean.protocols.mechanism import decoded
from quietmean.randomness import ExchangeKey, SecureNoise, Seed
from quietmean.randomness.insecure import insecure_seed

PARTIES, DIMENSION = 100, 100_000
KEYS = [ExchangeKey(insecure_seed(party, "key")) for party in range(PARTIES)]


def numpy_seconds() -> float:
    """Drawing n vectors of d Gaussians: the own one and n - 1 shared ones."""
    generator, buffer = np.random.Generator(np.random.PCG64(1)), np.empty(DIMENSION)

    def draw() -> None:
        for _ in range(PARTIES):
            generator.standard_normal(out=buffer)

    return seconds(draw, 3)[0]


def agree() -> dict[PartyId, Seed]:
    """The seeds of party 0 with all others."""
    return {other: KEYS[0].shared_seed(KEYS[other].public, "benchmark") for other in range(1, PARTIES)}


def test_offline_key_agreement(benchmark: BenchmarkFixture, table: Callable[[str], None]) -> None:
    benchmark(agree)
    assert benchmark.stats is not None
    spent = benchmark.stats.stats.min
    table(f"{PARTIES - 1} key agreements: {1e3 * spent:.1f} ms, {(PARTIES - 1) / spent:.0f} a second")


def test_offline_expansion(benchmark: BenchmarkFixture, table: Callable[[str], None]) -> None:
    protocol = CorDPDME(sigma_own=1.0, sigma_pair=1.0)
    schedule = protocol.draw_schedule(PARTIES, Seed.public("benchmark"))
    noise = SecureNoise(insecure_seed(0, "own"), cache(agree().__getitem__))
    machine = protocol.machine(schedule, 0, np.ones(DIMENSION), 1.0, noise)
    baseline = numpy_seconds()
    step = benchmark(machine.start)
    assert benchmark.stats is not None
    spent = benchmark.stats.stats.min
    online, _ = seconds(lambda: machine.end_round(step.state, [], frozenset()), 5)
    benchmark.extra_info |= {"ratio_to_numpy_draw": spent / baseline, "online_seconds": online}
    table(
        f"n={PARTIES} d={DIMENSION}: {spent:.3f} s offline, {spent / baseline:.2f} x numpy's drawing of as many Gaussians "
        f"({baseline:.3f} s); online {1e6 * online:.0f} us, {8 * DIMENSION / 1e6:.1f} MB to publish"
    )


def test_online_sum(benchmark: BenchmarkFixture, table: Callable[[str], None]) -> None:
    """What a reader of all messages does: add 100 vectors, decode."""
    protocol = CorDPDME(sigma_own=1.0, sigma_pair=1.0)
    messages = np.ones((PARTIES, DIMENSION))
    benchmark(lambda: decoded(protocol, PARTIES, messages.sum(axis=0), float(PARTIES)))
    assert benchmark.stats is not None
    table(f"sum and decode: {1e3 * benchmark.stats.stats.min:.1f} ms")
