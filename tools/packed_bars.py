"""Write measurements/packed-bars.md: what packed secret sharing was asked to reach, and what it reaches, measured in one run.

``QUIETMEAN_FLOWER_PYTHON=.venv-flower/bin/python python tools/packed_bars.py``; without that variable Flower is left out.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

import numpy as np
from equal_promises import central, error
from page_figures import ending
from page_parts import DOCS, ROOT, table

from quietmean.core.party import Message, PartyId
from quietmean.core.workers import one_thread
from quietmean.graphs import ExecutionTrace
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.encoding import leaving
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME, SMALL_PRIME
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.simulation import simulate
from quietmean.transcript import run_lockstep

sys.path.insert(0, str(ROOT / "tests"))
from support.packed_bars import BARS

PAGE = DOCS / "measurements/packed-bars.md"
EPSILON, DELTA, SEED = 1.0, 1e-6, 20_261_122
RUNS, COORDINATES = 60, 500
# The task of which bytes and times are measured.
PARTIES, DIMENSION = 100, 100_000
MILLISECONDS = {10: 15.0, 50: 25.0}
FLOWER = "QUIETMEAN_FLOWER_PYTHON"


def target(parties: int, colluding: int, dropouts: float, dimension: int) -> Target:
    return Target(parties, EPSILON, DELTA, dimension, 1.0, colluding, dropouts)


def benchmark(name: str) -> ModuleType:
    """A module of the benchmarks: what it measures is measured here in the same way."""
    sys.path.insert(0, str(ROOT))
    return importlib.import_module(f"benchmarks.{name}")


# --- error ---


def predictions(parties: int, colluding: int, dropouts: float) -> tuple[float, float, float]:
    """Over the curator's: for one coordinate, for many, and for many if half leave while dealing."""
    one, plan = (calibrate(target(parties, colluding, dropouts, dimension), PackedSharing()) for dimension in (1, COORDINATES))
    half = float(plan.protocol.TRAITS.planning.figures(plan.protocol, plan.target)["mse_if_half_leave_while_dealing"])
    curator = central(plan.target)
    return error(one) / curator, error(plan) / curator, half / curator


def error_row(parties: int, colluding: int, dropouts: float, bar: float) -> tuple[str, ...]:
    plan = calibrate(target(parties, colluding, dropouts, COORDINATES), PackedSharing())
    found, curator = simulate(plan, runs=RUNS, seed=SEED), central(plan.target)
    one, many, half = predictions(parties, colluding, dropouts)
    return (
        f"n = {parties}, c = {colluding}, {dropouts:.0%}",
        f"{bar:g}",
        f"{one:.3f}",
        f"{many:.3f}",
        f"{found.mse / curator:.3f} ({found.mse_standard_error / curator:.3f})"
        + (f" ({found.failed} failed)" * bool(found.failed)),
        f"{half:.3f}",
    )


# --- bytes ---


def sent_bytes(prime: int) -> float:
    """Content that a party sends on average in a run of the machines from which one party in ten is absent after dealing."""
    asked = target(PARTIES, 10, 0.1, DIMENSION)
    plan = calibrate(asked, PackedSharing(prime=prime))
    trace = ExecutionTrace.everyone(plan.protocol.rounds, PARTIES)
    trace.online[3:, :: PARTIES // leaving(asked)] = False
    execution = plan.execution(Seed.public("bytes"), trace)
    sizes = np.zeros(PARTIES)

    def watch(message: Message, receivers: frozenset[PartyId]) -> None:
        sizes[message.sender] += len(message.content) * len(message.recipients)

    noise = InsecurePopulationNoise(1, PARTIES)
    value = np.full(DIMENSION, 0.5 / np.sqrt(DIMENSION))
    machines = [execution.machine(party, value, noise.party(party)) for party in range(PARTIES)]
    run_lockstep(machines, trace, lambda round_, sender, receiver: True, watch)
    return float(sizes[trace.online[-1]].mean())


def byte_rows() -> list[tuple[str, ...]]:
    found = [("4-byte numbers", LARGE_PRIME, 2.5), ("2-byte numbers (the plan's)", SMALL_PRIME, 1.3)]
    return [(name, f"{4 * bar * DIMENSION / 1e3:,.0f} kB", f"{sent_bytes(prime) / 1e3:,.0f} kB") for name, prime, bar in found]


# --- time ---


def time_rows() -> list[tuple[str, ...]]:
    packed, secagg = benchmark("test_packed_sharing"), benchmark("test_secagg")
    value = np.random.default_rng(1).random(DIMENSION) / np.sqrt(DIMENSION)
    rows: list[tuple[str, ...]] = []
    with one_thread():
        for colluding, bar in MILLISECONDS.items():
            for prime in (LARGE_PRIME, SMALL_PRIME) if colluding == 10 else (LARGE_PRIME,):
                dealt, opened, noise = packed.costs(packed.planned(colluding, prime), value)
                name = f"dealing, c = {colluding}, modulo {prime}"
                rows.append((name, f"{bar:g} ms", f"{dealt:.1f} ms, {noise:.1f} of it noise", f"opening {opened:.1f} ms"))
        for dropped in (0, PARTIES // 10):
            ours = secagg.best(
                [secagg.run_machines(secagg.with_noise(dropped / PARTIES).protocol, dropped, "") for _ in range(2)]
            )
            rows.append(_beside(f"our `secagg-plus`, noise included, {dropped} dropped", ours))
            if os.environ.get(FLOWER):
                flower = secagg.best([secagg.run_flower(dropped) for _ in range(2)])
                rows.append(_beside(f"Flower's SecAgg+, without noise, {dropped} dropped", flower))
    return rows


def _beside(name: str, cost: Any) -> tuple[str, ...]:
    return (
        name,
        "",
        f"client {1000 * cost.client:.1f} ms",
        f"server {cost.server:.3g} s; a client sends {cost.sent / 1e3:,.0f} kB",
    )


def make_page() -> str:
    errors = [error_row(*cell) for cell in BARS]
    flower = "" if os.environ.get(FLOWER) else "\nFlower was not there when this page was made.\n"
    return TEXT.format(
        errors=table(
            ("cell", "bar", "predicted, d = 1", f"predicted, d = {COORDINATES}", "simulated", "if half leave while dealing"),
            errors,
        ),
        bytes=table(("content a party sends", "bar", "measured"), byte_rows()),
        times=table(("what", "bar", "a party", "besides"), time_rows()) + flower,
        runs=RUNS,
        coordinates=COORDINATES,
        dimension=DIMENSION,
        parties=PARTIES,
        neighbours=benchmark("test_secagg").NEIGHBOURS,
    )


TEXT = """\
# Packed secret sharing against its bars

This page is made by `python tools/packed_bars.py` in one run. Errors and bytes are the same each time; times are processor
times of one thread, the best of several, on the machine that made the page. Do not edit it by hand.

## Error

Mean squared error per coordinate over that of a trusted curator from whom nobody leaves; epsilon 1 at delta 1e-6. Dropouts
are spread uniformly over the five rounds of a usual run, and lost values are counted. Predicted for one coordinate and for
{coordinates}; simulated: {runs} runs of {coordinates} coordinates (standard error). The last column is the prediction
if half of those who leave do so while dealing.

{errors}
## Bytes

n = {parties}, c = 10, d = {dimension:,}, one party in ten gone: what the machines of those who stay send, without framing.
The bars are 2.5 and 1.3 times d numbers of 4 bytes.

{bytes}
## Time

The same task on one core: dealing with noise and rounding, coefficient matrix included, the sampler's table apart; adding up
and opening the sums of {parties} members. Beside it, in the same run, secure aggregation of {dimension:,} coordinates for
{parties} clients with {neighbours} neighbours.

{times}
"""


def main() -> int:
    page = make_page()
    if "--print" in sys.argv[1:]:
        print(page)
    else:
        PAGE.write_text(page + ending(f"measurements/{PAGE.name}"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
