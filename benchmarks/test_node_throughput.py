"""The node against the same bytes over bare TLS: 20 processes on this machine, and where the node's time goes.

``pytest benchmarks/test_node_throughput.py``. Ratios of one run; processes are started and connected beforehand in both.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.graphs import Schedule
from quietmean.node.local import run_local
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from quietmean.randomness import Seed
from support.bare_tls import over_bare_tls

PARTIES, ROUNDS = 20, 8


def plan(dimension: int) -> Plan:
    target = Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=dimension)
    return Plan(target, IncA(rounds=ROUNDS, sigma_star=0.1, sigma_delta=1.0))


def steps_of(schedule: Schedule, party: int, size: int) -> list[dict[str, Any]]:
    """The mixing rounds, then the broadcast."""
    mixing = [
        {"to": schedule.recipients(t, party), "expected": len(schedule.senders(t, party)), "bytes": size}
        for t in range(1, schedule.rounds + 1)
    ]
    others = [other for other in range(PARTIES) if other != party]
    return [*mixing, {"to": others, "expected": len(others), "bytes": size}]


def bare_tls(directory: Path, dimension: int, *, durable: bool = False) -> tuple[float, float]:
    """The messages of the plan: see :func:`over_bare_tls`."""
    schedule = plan(dimension).schedule(Seed.public("throughput"))
    return over_bare_tls(directory, [steps_of(schedule, party, 8 * dimension) for party in range(PARTIES)], durable=durable)


def node(directory: Path, dimension: int, measured: bool = False) -> tuple[float, int]:
    """Seconds from the first mixing round of the first party to the closing of the last one, and the bytes sent."""
    values = np.random.default_rng(0).normal(size=(PARTIES, dimension))
    begun: list[float] = []
    ended: list[float] = []

    def watch(name: str, event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["phase"] == "mixing" and event["round"] == 1:
            begun.append(time.perf_counter())
        elif event["event"] == "closing":
            ended.append(time.perf_counter())

    program = [str(Path(__file__).with_name("measured_node.py"))] if measured else None
    outcome = asyncio.run(
        run_local(plan(dimension), values, directory, round_timeout=120.0, start_timeout=180.0, report=watch, program=program)
    )
    assert len(outcome.results) == PARTIES
    return max(ended) - min(begun), outcome.bytes_sent


def breakdown(directory: Path) -> tuple[float, str]:
    """Of a measured run, sums over all parties: processor seconds, and a table with the time spent waiting beside them."""
    times = [json.loads(path.read_text()) for path in directory.glob("*.times")]
    assert len(times) == PARTIES
    lines, total = [], 0.0
    for part in sorted({part for each in times for part in each["wall"]}):
        cpu, wall = (sum(each[kind].get(part, 0.0) for each in times) for kind in ("cpu", "wall"))
        lines.append(f"  {part:16} {cpu:8.3f} s processor {max(wall - cpu, 0.0):9.3f} s waiting")
        total += cpu
    return total, "\n".join(lines)


@pytest.mark.parametrize("dimension", [10, 1_000, 100_000])
def test_node_throughput(tmp_path: Path, dimension: int, table: Callable[[str], None]) -> None:
    bare, bare_processor = bare_tls(tmp_path / "bare", dimension)
    durable, _ = bare_tls(tmp_path / "durable", dimension, durable=True)
    ours, sent = node(tmp_path / "run", dimension)
    # Apart, since the stopwatch costs time too.
    node(tmp_path / "measured", dimension, measured=True)
    processor, parts = breakdown(tmp_path / "measured")
    table(
        f"{PARTIES} processes, d = {dimension}, {sent / 1e6:.1f} MB: bare TLS {bare:.3f} s, node {ours:.3f} s, "
        f"{100 * bare / ours:.0f} % of bare; bare with durable receipt {durable:.3f} s, {100 * durable / ours:.0f} %; "
        f"processor {bare_processor:.2f} s and {processor:.2f} s\n{parts}"
    )
