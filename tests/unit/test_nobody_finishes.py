"""Of an execution that nobody finishes nobody counts, under every protocol: there is no result.

But under packed sharing, where sums are published before the last round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quietmean.graphs import ExecutionTrace
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target, configure, registry
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in sorted(registry().keys() - {"packed-sharing"})),
    *(("consensus", {"open_edges": which}) for which in ("each", "all")),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_nobody_counts(name: str, options: dict[str, Any]) -> None:
    target = Target(parties=4, epsilon=1.0, delta=1e-6, dimension=2, sensitivity=2.0)
    protocol = calibrate(target, configure(name, options), trials=0, executions=4).protocol
    schedule = protocol.draw_schedule(4, Seed.public("nobody finishes"))
    execution = Execution(protocol, schedule, ExecutionTrace.everyone(protocol.rounds, 4), 2.0, np.ones(4))
    assert execution.contributors().all()
    for last in range(1, len(execution.trace.online)):
        online = np.ones_like(execution.trace.online)
        online[last:] = False
        left = replace(execution, trace=replace(execution.trace, online=online))
        assert not left.trace.finished.any()
        assert not left.contributors().any(), last
        assert not left.parts.any(), last
        assert left.counted_weight() == 0, last
