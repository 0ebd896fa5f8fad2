"""What keys of ML-KEM-768 and sealing every frame once more cost: links and whole studies against the same with TLS alone.

``pytest benchmarks/test_hybrid_links.py``. Ratios of medians, the two in turns, so that what else the machine does hits both.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.measuring import node, steps_of

from quietmean.core.domain import Links
from quietmean.node.net import Payload, Transfer
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from quietmean.randomness import Seed
from support.bare_tls import over_bare_tls
from support.two_parties import Party, two

DIMENSION = 40_000
MESSAGES, TURNS = 60, 9


def over_link(links: Links, payload: Payload) -> tuple[float, float]:
    """Wall-clock and processor seconds of so many messages in each direction at once; both ends are in this process."""

    async def run() -> tuple[float, float]:
        parties: list[Party] = two(links=links)
        transfer = Transfer(0, 1, 1, 1.0, 1000, b"", DIMENSION)

        async def ask(party: Party) -> None:
            for _ in range(MESSAGES):
                await party.link.ask(transfer, payload)

        await asyncio.gather(*(party.link.ask(transfer, payload) for party in parties))
        begun, processor = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(ask, parties))
        seconds = time.perf_counter() - begun, time.process_time() - processor
        await asyncio.gather(*(party.close() for party in parties))
        return seconds

    return asyncio.run(run())


def test_link(table: Callable[[str], None]) -> None:
    payload = memoryview(np.random.default_rng(0).bytes(8 * DIMENSION))
    times: dict[Links, list[tuple[float, float]]] = {links: [] for links in Links}
    for _ in range(TURNS):
        for links in Links:
            times[links].append(over_link(links, payload))
    wall, processor = (
        [statistics.median(each[kind] for each in times[links]) for links in (Links.X25519, Links.HYBRID)] for kind in (0, 1)
    )
    megabytes = 2 * MESSAGES * len(payload) / 1e6
    plain, hybrid = (megabytes / seconds for seconds in wall)
    table(
        f"one link, {megabytes:.0f} MB in messages of {len(payload) / 1e3:.0f} kB: TLS alone {plain:.0f} MB/s, hybrid "
        f"{hybrid:.0f} MB/s, {100 * hybrid / plain:.0f} % of it; processor time {processor[1] / processor[0]:.3f} times"
    )


@pytest.mark.parametrize("dimension", [10, 100_000])
def test_study(tmp_path: Path, dimension: int, table: Callable[[str], None]) -> None:
    parties = 6
    plan = Plan(
        Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=dimension), IncA(rounds=8, sigma_star=0.1, sigma_delta=1.0)
    )
    steps = steps_of(plan.schedule(Seed.public("throughput")), 8 * dimension)
    bare: list[float] = []
    times: dict[Links, list[float]] = {links: [] for links in Links}
    sent: dict[Links, int] = {}
    for turn in range(5):
        bare.append(over_bare_tls(tmp_path / f"bare-{turn}", steps)[0])
        for links in Links:
            took, sent[links] = node(plan, tmp_path / f"{links}-{turn}", links=links)
            times[links].append(took)
    plain, hybrid = (statistics.median(times[links]) for links in (Links.X25519, Links.HYBRID))
    straight = statistics.median(bare)
    megabytes = [sent[links] / 1e6 for links in (Links.X25519, Links.HYBRID)]
    table(
        f"{parties} processes, d = {dimension}: bare TLS {straight:.3f} s; X25519 {plain:.3f} s, {megabytes[0]:.2f} MB, "
        f"{100 * straight / plain:.0f} % of bare; hybrid {hybrid:.3f} s, {megabytes[1]:.2f} MB, {100 * straight / hybrid:.0f} % "
        f"of bare, {100 * plain / hybrid:.0f} % of the speed of X25519"
    )
