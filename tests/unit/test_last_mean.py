"""The last mean of a session beside its store: whole, and not several times in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.graphs import ExecutionTrace
from quietmean.node.series.party import RoundEnd, keep_last, kept_last
from quietmean.node.session import NodeResult
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import configure
from quietmean.randomness import Seed

PARTIES = 3


@pytest.fixture(scope="module")
def plan() -> Plan:
    return calibrate(Target(PARTIES, 8.0, 1e-5, 1, 1.0, 1), configure("packed-sharing"))


def ended(plan: Plan, total: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> RoundEnd:
    execution = plan.execution(Seed.public("last"), ExecutionTrace.everyone(plan.protocol.rounds, PARTIES))
    zero: dict[str, Any] = dict.fromkeys(("transfers", "bytes_sent", "bytes_received", "seconds"), 0)
    nothing: dict[str, Any] = dict.fromkeys(("late", "refusals", "remarks", "silent", "unresolved"), ())
    result = NodeResult(total, 3.0, (0, 1, 2), execution, public_seed="", known_until=(1, 1, 1), **nothing, **zero)
    return RoundEnd.of(4, result, 0, plan)


# Of one coordinate, which is a number as well, and no line ends within what is no text.
@pytest.mark.parametrize("total", [[0.5], [np.frombuffer(b"\n" * 8, "<f8")[0], -0.0, 1e-300]])
def test_it_is_read_as_it_was(total: list[float], plan: Plan, tmp_path: Path) -> None:
    path, end = tmp_path / "last", ended(plan, np.array(total))
    assert kept_last(path, plan) is None
    keep_last(path, end)
    read = kept_last(path, plan)
    assert read is not None
    assert read.number == 4
    assert read.result.total_vector.tobytes() == end.result.total_vector.tobytes()
    assert read.result.to_json() == end.result.to_json()


def test_it_takes_no_second_vector_to_write_and_one_to_read(plan: Plan, tmp_path: Path) -> None:
    path, size = tmp_path / "last", 200_000
    end = ended(plan, np.arange(size, dtype=np.float64) / 3)
    keep_last(path, end)
    acts: list[tuple[int, Callable[[], object]]] = [(1, lambda: keep_last(path, end)), (10, lambda: kept_last(path, plan))]
    for most, act in acts:
        tracemalloc.start()
        act()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= most * size + 200_000, (peak, most)
