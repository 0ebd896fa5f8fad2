"""Whose value is in a result: of who passed its value on, a part may be, whatever became of its release."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quietmean.graphs import ExecutionTrace
from quietmean.node.series import what_arrived
from quietmean.node.session import NodeResult
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import get_protocol
from quietmean.randomness import Seed

PARTIES, LIAR = 5, 2
ZERO: dict[str, Any] = dict.fromkeys(("transfers", "bytes_sent", "bytes_received", "seconds"), 0)
NOTHING: dict[str, Any] = dict.fromkeys(("late", "refusals", "remarks", "silent", "unresolved", "known_until"), ())


@pytest.mark.parametrize(("taken", "counted"), [(False, PARTIES - 1), (True, PARTIES)])
def test_who_passed_on_nothing_that_anybody_took_is_not_counted(taken: bool, counted: int) -> None:
    plan = calibrate(Target(PARTIES, 1.0, 1e-6), get_protocol("gossip").from_options({"rounds": 4}))
    execution = plan.execution(Seed.public("taken"), ExecutionTrace.everyone(plan.protocol.rounds, PARTIES))
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    # All of its messages, or all but the first.
    lost[1 if taken else 0 :, LIAR] = True
    execution = replace(execution, trace=replace(execution.trace, lost=lost))
    heard = tuple(party for party in range(PARTIES) if party != LIAR)
    result = NodeResult(np.zeros(1), 4.0, heard, execution, public_seed="", **ZERO, **NOTHING)
    missing, as_it_went = what_arrived(result, plan)
    assert missing == {LIAR}
    assert as_it_went.contributors().sum() == counted
    assert as_it_went.contributors()[LIAR] == taken
    # What the study cost has nothing to do with that.
    assert (as_it_went.trace.online == execution.trace.online).all()
