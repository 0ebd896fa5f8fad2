"""IncA on a whole population against the cost of drawing its Gaussians with numpy, in the same run.

parties x rounds x coordinates per second, and the ratio to ``numpy.random.Generator(PCG64).standard_normal`` of as many values.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.measuring import by_workers, peak_gb
from pytest_benchmark.fixture import BenchmarkFixture

from quietmean.graphs import ExecutionTrace
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.target import Target
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.simulation import simulate

SIZES = [(100, 20, 100), (1000, 20, 100), (1000, 20, 1000)]


def make_execution(parties: int, rounds: int) -> Execution:
    protocol = IncA(rounds=rounds, sigma_star=1.0, sigma_delta=2.0, schedule="uniform")
    schedule = protocol.draw_schedule(parties, Seed.public("benchmark"))
    return Execution(protocol, schedule, ExecutionTrace.everyone(rounds, parties), 1.0, np.ones(parties))


@pytest.mark.parametrize(("parties", "rounds", "dimension"), SIZES)
def test_population_simulation(
    benchmark: BenchmarkFixture, parties: int, rounds: int, dimension: int, table: Callable[[str], None]
) -> None:
    execution = make_execution(parties, rounds)
    values = BitStream(Seed.public("values")).uniform(parties * dimension).reshape(parties, dimension)
    generator = np.random.Generator(np.random.PCG64(1))

    def draw_only() -> float:
        begun = time.perf_counter()
        for _ in range(rounds + 1):
            generator.standard_normal((parties, dimension))
        return time.perf_counter() - begun

    baseline = min(draw_only() for _ in range(3))
    result = benchmark(lambda: execution.run_batch(values, InsecurePopulationNoise(1, parties)).estimate())
    assert np.isfinite(result).all()
    assert benchmark.stats is not None
    seconds = benchmark.stats.stats.min
    benchmark.extra_info |= {
        "values_per_second": parties * rounds * dimension / seconds,
        "ratio_to_numpy_draw": seconds / baseline,
        "peak_memory_mb": 1024 * peak_gb(),
    }
    table(
        f"n={parties} T={rounds} d={dimension}: {parties * rounds * dimension / seconds:.3g} values/s,"
        f" {seconds / baseline:.2f} x numpy's drawing, peak {1024 * peak_gb():.0f} MB"
    )


def test_simulate_by_workers(table: Callable[[str], None]) -> None:
    """Runs of a plan, each history certified."""
    plan = IncA(rounds=10).calibrate(Target(parties=60, epsilon=1.0, delta=1e-6, colluding=2), executions=2)
    table(by_workers("n=60, 40 runs with their gate", lambda workers: simulate(plan, runs=40, gate=True, workers=workers).mse))
