"""A run of 20 and of 100 parties on this machine, beside as many interpreters that only start or only import the node.

``pytest benchmarks/test_local_run.py -m "slow or not slow"``. Ratios of one run. Values, keys and plans are made beforehand.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from quietmean.node.local import run_local
from quietmean.node.local.processes import ONE_THREAD, PARTY
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import get_protocol


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
def test_a_run_beside_bare_starts(tmp_path: Path, protocol: str, parties: int, table: Callable[[str], None]) -> None:
    options = {"rounds": 11} if protocol == "inca" else {}
    plan = calibrate(Target(parties, 1.0, 1e-6, colluding=parties // 10), get_protocol(protocol).from_options(options))
    values = np.zeros((parties, 1))

    def seconds(name: str, program: tuple[str, ...] | None) -> float:
        outcome = asyncio.run(run_local(plan, values, tmp_path / name, program=program))
        assert len(outcome.results) == parties
        return outcome.seconds

    bare, node = interpreters("import numpy", parties), interpreters("import quietmean.node.local.child", parties)
    forked, executed = seconds("fork", None), seconds("exec", PARTY)
    table(
        f"{protocol}, {parties} parties: forked {forked:.2f} s, by exec {executed:.2f} s; as many interpreters that import "
        f"numpy {bare:.2f} s, the node {node:.2f} s: "
        f"forked {forked / bare:.1f} times the first, {forked / node:.2f} times the second"
    )
