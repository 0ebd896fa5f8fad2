"""A run of 20 and of 100 parties on this machine, in one process and as processes, beside as many interpreters that only start.

``pytest benchmarks/test_local_run.py -m "slow or not slow"``. Ratios of one run. Values, keys and plans are made beforehand.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from quietmean.node.local import Kill, run_local, run_together
from quietmean.node.local.processes import ONE_THREAD, PARTY
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import configure
from support.bars import Bar

# Seconds of the first study that anybody runs, on an idle machine; times the bare starts of as many interpreters.
DEMO, TIMES_BARE = 8.0, 5.0
# Seconds of 100 and of 1000 parties in one process, and how they grow: a message of each to each other one has to be carried.
TOGETHER, THOUSAND, GROWTH = 15.0, 300.0, 2.2


def interpreters(program: str, parties: int) -> float:
    """Seconds of so many at once."""
    begun = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", program], env=os.environ | ONE_THREAD) for _ in range(parties)]
    assert [each.wait() for each in running] == [0] * parties
    return time.perf_counter() - begun


@pytest.mark.parametrize(
    ("protocol", "parties"),
    [("cordp-dme", 20), ("packed-sharing", 20), ("inca", 20), pytest.param("packed-sharing", 100, marks=pytest.mark.slow)],
)
def test_a_run_beside_bare_starts(tmp_path: Path, protocol: str, parties: int, table: Callable[[str], None], bar: Bar) -> None:
    options = {"rounds": 11} if protocol == "inca" else {}
    plan = calibrate(Target(parties, 1.0, 1e-6, colluding=parties // 10), configure(protocol, options))
    values = np.zeros((parties, 1))

    def seconds(name: str, program: tuple[str, ...] | None) -> float:
        # As long as a loaded machine takes for a hundred parties.
        patient = run_local(plan, values, tmp_path / name, program=program, round_timeout=60.0, start_timeout=1200.0)
        outcome = asyncio.run(patient)
        assert len(outcome.results) == parties
        return outcome.seconds

    bare, node = interpreters("import numpy", parties), interpreters("import quietmean.node.local.child", parties)
    forked = seconds("fork", None)
    executed = f"by exec {seconds('exec', PARTY):.2f} s" if parties == 20 else "by exec not run"
    table(
        f"{protocol}, {parties} parties: forked {forked:.2f} s, {executed}; as many interpreters that import "
        f"numpy {bare:.2f} s, the node {node:.2f} s: "
        f"forked {forked / bare:.1f} times the first, {forked / node:.2f} times the second"
    )
    if parties == 20:
        bar(f"a run of 20 parties, {protocol}, times 20 bare interpreters", forked / bare, TIMES_BARE)


def test_a_run_in_one_process(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    """The parties in one process, and the same as processes; a tenth leaves, and one party is killed. Processor seconds."""
    spent: dict[int, float] = {}
    for parties in (20, 50, 100):
        target = Target(parties, 1.0, 1e-6, colluding=parties // 10, dropouts=0.1, dimension=2)
        plan, values = calibrate(target, configure("packed-sharing", {})), np.zeros((parties, 2))
        begun = time.process_time()
        outcome = run_together(plan, values, kills=[Kill(1, 1)])
        spent[parties] = time.process_time() - begun
        assert len(outcome.results) == parties - 1
        if parties > 20:
            table(f"{parties} parties in one process: {spent[parties]:.2f} s, {outcome.messages} messages")
            continue
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        asyncio.run(run_local(plan, values, tmp_path / "processes", kills=[Kill(1, 1)], gone_timeout=0.1))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processes = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        table(
            f"{parties} parties in one process: {spent[parties]:.2f} s, {outcome.messages} messages; "
            f"as processes {processes:.2f} s ({processes / spent[parties]:.1f}x)"
        )
    bar("a run of 100 parties in one process, s", spent[100], TOGETHER)
    exponent = math.log(spent[100] / spent[20]) / math.log(5)
    table(f"from 20 to 100 parties it grows as n^{exponent:.2f}")
    bar("growth of a run in one process from 20 to 100 parties, exponent", exponent, GROWTH)


@pytest.mark.long
def test_a_thousand_parties_in_one_process(table: Callable[[str], None], bar: Bar) -> None:
    plan = calibrate(Target(1000, 1.0, 1e-6, colluding=100, dropouts=0.1, dimension=2), configure("packed-sharing", {}))
    begun = time.process_time()
    outcome = run_together(plan, np.zeros((1000, 2)), kills=[Kill(1, 1)])
    spent, memory = time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    assert len(outcome.results) == 999
    table(f"1000 parties in one process: {spent:.0f} s, {outcome.messages} messages, at most {memory:.0f} MB")
    bar("a run of 1000 parties in one process, s", spent, THOUSAND)


def test_the_demonstration(tmp_path: Path, table: Callable[[str], None], bar: Bar) -> None:
    """20 clinics of which two are killed, from the command to its report, beside as many interpreters that import the node."""
    node = interpreters("import quietmean.node.local.child", 20)
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "quietmean", "demo", "--out", str(tmp_path / "demo")], check=True, capture_output=True)
    took, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    table(f"quietmean demo: {took:.1f} s, {processor:.1f} s of processors; 20 interpreters that import the node {node:.1f} s")
    bar("quietmean demo, s", took, DEMO)
