"""A run of 20 parties on this machine, beside what 20 interpreters cost that only start or only import the node.

``pytest benchmarks/test_local_run.py``. Ratios of one run. Values and keys are made outside; plans are made beforehand.
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

PARTIES = 20


def interpreters(program: str) -> float:
    """Seconds of 20 at once."""
    begun = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", program], env=os.environ | ONE_THREAD) for _ in range(PARTIES)]
    assert [each.wait() for each in running] == [0] * PARTIES
    return time.perf_counter() - begun


@pytest.mark.parametrize("protocol", ["cordp-dme", "packed-sharing", "inca"])
def test_a_run_of_twenty(tmp_path: Path, protocol: str, table: Callable[[str], None]) -> None:
    options = {"rounds": 11} if protocol == "inca" else {}
    plan = calibrate(Target(PARTIES, 1.0, 1e-6, colluding=2), get_protocol(protocol).from_options(options))
    values = np.zeros((PARTIES, 1))

    def seconds(name: str, program: tuple[str, ...] | None) -> float:
        outcome = asyncio.run(run_local(plan, values, tmp_path / name, program=program))
        assert len(outcome.results) == PARTIES
        return outcome.seconds

    bare, node = interpreters("import numpy"), interpreters("import quietmean.node.local.child")
    forked, executed = seconds("fork", None), seconds("exec", PARTY)
    table(
        f"forked {forked:.2f} s, by exec {executed:.2f} s; 20 interpreters that import numpy {bare:.2f} s, "
        f"the node {node:.2f} s: "
        f"forked {forked / bare:.1f} times the first, {forked / node:.2f} times the second"
    )
