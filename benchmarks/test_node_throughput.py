"""The node against the same bytes over bare TLS: 20 processes on this machine, and where the node's time goes.

``pytest benchmarks/test_node_throughput.py``. Ratios of one run; processes are started and connected beforehand in both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.measuring import node, steps_of

from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from quietmean.randomness import Seed
from support.bare_tls import over_bare_tls

PARTIES, ROUNDS = 20, 8


def plan(dimension: int) -> Plan:
    target = Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=dimension)
    return Plan(target, IncA(rounds=ROUNDS, sigma_star=0.1, sigma_delta=1.0))


def breakdown(directory: Path) -> tuple[float, str]:
    """Where a measured run spends its time, over all parties: processor seconds, and a table with waiting beside them."""
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
    asked, program = plan(dimension), [str(Path(__file__).with_name("measured_node.py"))]
    steps = steps_of(asked.schedule(Seed.public("throughput")), 8 * dimension)
    bare, bare_processor = over_bare_tls(tmp_path / "bare", steps)
    durable, _ = over_bare_tls(tmp_path / "durable", steps, durable=True)
    ours, sent = node(asked, tmp_path / "run")
    # Apart, since the stopwatch costs time too.
    node(asked, tmp_path / "measured", program=program)
    processor, parts = breakdown(tmp_path / "measured")
    table(
        f"{PARTIES} processes, d = {dimension}, {sent / 1e6:.1f} MB: bare TLS {bare:.3f} s, node {ours:.3f} s, "
        f"{100 * bare / ours:.0f} % of bare; bare with durable receipt {durable:.3f} s, {100 * durable / ours:.0f} %; "
        f"processor {bare_processor:.2f} s and {processor:.2f} s\n{parts}"
    )
