"""What a party and a planner wait for, each beside its baseline in one run: imports, plans of many parties, discrete noise."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.measuring import seconds

import quietmean as qm
from quietmean.randomness import Seed
from quietmean.randomness.discrete_gaussian import SamplingTable, cumulative_table, invert
from quietmean.randomness.stream import BitStream
from support.bars import Bar

USED = """
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
# Not that of the resources, which begins with what the parent had.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(used.ru_utime + used.ru_stime, int(peak.split()[1]) // 1024)
"""
PLAN = """
from quietmean.planning import Target
from quietmean.planning.candidates import rank
rank(Target({parties}, 1.0, 1e-7, 1, 1.0, {parties} // 10, 0.1))
"""


def used(script: str) -> tuple[float, int]:
    """Processor seconds, and megabytes at most, of an interpreter of its own; the least of three."""
    runs = [
        subprocess.run([sys.executable, "-c", f"{script}\n{USED}"], capture_output=True, text=True, check=True).stdout.split()[
            -2:
        ]
        for _ in range(3)
    ]
    return min(float(seconds) for seconds, _ in runs), min(int(megabytes) for _, megabytes in runs)


def test_the_first_name(table: Callable[[str], None], bar: Bar) -> None:
    bare, stats = used("import numpy"), used("import scipy.stats")
    names = {name: used(f"import quietmean as qm; qm.{name}") for name in dir(qm)}
    for name, (mine, megabytes) in sorted(names.items(), key=lambda used: used[1]):
        table(f"qm.{name}: {mine:.2f} s, {megabytes} MB; {mine / bare[0]:.1f}x numpy, {mine / stats[0]:.1f}x scipy.stats")
    table(f"numpy {bare[0]:.2f} s, {bare[1]} MB; scipy.stats {stats[0]:.2f} s, {stats[1]} MB")
    bar("any name of qm, s of processor", max(seconds for seconds, _ in names.values()), 0.5)
    bar("any name of qm, MB", max(megabytes for _, megabytes in names.values()), 60)


@pytest.mark.parametrize("parties", [20_000, 1_000_000])
def test_a_plan_of_many(parties: int, table: Callable[[str], None], bar: Bar) -> None:
    (few, small), (mine, megabytes) = used(PLAN.format(parties=20)), used(PLAN.format(parties=parties))
    table(f"{parties:,} parties: {mine:.1f} s, {megabytes} MB; 20 parties {few:.1f} s, {small} MB ({mine / few:.1f}x)")
    bar(f"a plan of {parties:,} parties, MB", megabytes, 1000)
    bar(f"a plan of {parties:,} parties, s of processor", mine, 20)


def values(one: SamplingTable, count: int) -> tuple[float, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """Processor seconds, the least of five, and what is drawn; in blocks that stay in the cache."""
    seed, block = Seed.public("bench"), 8192

    def drawn() -> list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
        stream = BitStream(seed.derive("high"))
        return [invert(one, stream.words(min(block, count - begin)), seed, begin) for begin in range(0, count, block)]

    least, found = seconds(drawn, 5, time.process_time)
    return least, np.concatenate(found)


@pytest.mark.parametrize("scale", [50.0, 2476.0, 10_000.0, 32_000.0])
def test_discrete_noise(scale: float, table: Callable[[str], None]) -> None:
    mine = cumulative_table(scale)
    starts = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
    coarse = replace(mine, guide=np.searchsorted(mine.high, starts, side="left").astype(np.int32), bits=16)
    (fine, drawn), (before, expected) = values(mine, 1_000_000), values(coarse, 1_000_000)
    np.testing.assert_array_equal(drawn, expected)
    table(
        f"scale {scale:g}, 1e6 values: {1e3 * fine:.1f} ms, with a guide of 16 bits {1e3 * before:.1f} ms ({before / fine:.1f}x)"
    )
