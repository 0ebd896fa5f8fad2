"""What benchmarks share: times and memory of calls, work by several processes, Flower's side, and the node beside bare TLS."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from quietmean.graphs import Schedule
from quietmean.node.local import run_local
from quietmean.planning import Plan
from support.other_processes import largest_other

T = TypeVar("T")
FLOWER = "QUIETMEAN_FLOWER_PYTHON"


def seconds(call: Callable[[], T], repeats: int = 1, clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """The least time of some calls, and the last result."""
    least = np.inf
    for _ in range(repeats):
        begun = clock()
        result = call()
        least = min(least, clock() - begun)
    return float(least), result


def megabytes(call: Callable[[], Any]) -> float:
    """The most memory that a call has at once, beyond what was there before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def milliseconds(call: Callable[[], Any], times: int = 1) -> float:
    """Processor time of a call, the fastest of five rounds of ``times`` calls."""

    def some() -> None:
        for _ in range(times):
            call()

    return 1000 * seconds(some, 5, time.process_time)[0] / times


def processor_seconds(command: list[str]) -> float:
    """Processor time of a command and of all processes that it starts and waits for; raises where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def by_workers(what: str, run: Callable[[int], Any]) -> str:
    """A line about the work by this process, by two others and by four; seconds of the clock. All have to give the same."""
    (one, found), (two, again), (four, last) = (seconds(lambda: run(workers)) for workers in (1, 2, 4))  # noqa: B023
    assert found == again == last
    return (
        f"{what}: by one process {one:.1f} s, by two {two:.1f} s ({one / two:.2f}x), by four {four:.1f} s ({one / four:.2f}x), "
        f"their start included; memory {peak_gb():.2f} GB here, {largest_other() / 1024**2:.2f} GB in each other at its most"
    )


def flower(**sizes: int) -> dict[str, Any] | None:
    """What ``flower_secagg.py`` finds, by the Python that has Flower; None where no variable names one."""
    python = os.environ.get(FLOWER)
    if not python:
        return None
    command = [python, str(Path(__file__).with_name("flower_secagg.py")), *(f"--{name}={size}" for name, size in sizes.items())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def steps_of(schedule: Schedule, size: int) -> list[list[dict[str, Any]]]:
    """What each party of a plan sends and gets for :func:`over_bare_tls`: the mixing rounds, then the broadcast."""
    everybody = range(schedule.parties)
    return [
        [
            *(
                {"to": schedule.recipients(t, party), "expected": len(schedule.senders(t, party)), "bytes": size}
                for t in range(1, schedule.rounds + 1)
            ),
            {"to": [other for other in everybody if other != party], "expected": len(everybody) - 1, "bytes": size},
        ]
        for party in everybody
    ]


def node(plan: Plan, directory: Path, **options: Any) -> tuple[float, int]:
    """Seconds from the first mixing round of the first party to the closing of the last one, and the bytes sent."""
    target = plan.target
    values = np.random.default_rng(0).normal(size=(target.parties, target.dimension))
    begun: list[float] = []
    ended: list[float] = []

    def watch(name: str, event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["phase"] == "mixing" and event["round"] == 1:
            begun.append(time.perf_counter())
        elif event["event"] == "closing":
            ended.append(time.perf_counter())

    outcome = asyncio.run(run_local(plan, values, directory, round_timeout=120.0, start_timeout=180.0, report=watch, **options))
    assert len(outcome.results) == target.parties
    return max(ended) - min(begun), outcome.bytes_sent
