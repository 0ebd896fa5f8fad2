"""What a member keeps of its own sum while it sends it: one copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from quietmean.core.codec import StableBytes
from quietmean.core.party import Step
from quietmean.graphs import ExecutionTrace
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target, configure
from quietmean.randomness import Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.transcript import run_lockstep

PARTIES, DIMENSION = 3, 1000


class Watched:
    """A machine, and the steps that it made."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self.steps: list[Step[Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def end_round(self, *given: Any) -> Step[Any]:
        step: Step[Any] = self._machine.end_round(*given)
        self.steps.append(step)
        return step


def test_the_own_sum_is_kept_where_it_is_sent() -> None:
    plan = calibrate(Target(PARTIES, 8.0, 1e-6, DIMENSION, colluding=1), configure("packed-sharing"))
    noise, schedule = InsecurePopulationNoise(1, PARTIES), plan.schedule(Seed.public("memory"))
    machines = [
        Watched(plan.protocol.machine(schedule, party, np.zeros(DIMENSION), 1.0, noise.party(party))) for party in range(PARTIES)
    ]
    execution = plan.execution(Seed.public("memory"), ExecutionTrace.everyone(schedule.rounds, PARTIES), np.ones(PARTIES))
    run_lockstep(machines, execution.trace, execution.arrivals())
    published = 0
    for machine in machines:
        for step in machine.steps:
            own = step.state.own
            for message in step.send:
                if own is not None and len(message.content) > len(own.share.content):
                    kept, sent = (np.frombuffer(each, dtype=np.uint8) for each in (own.share.content, message.content))
                    assert np.shares_memory(kept, sent)
                    assert message.content.endswith(own.share.content)
                    assert all(sent_sum is not own or np.shares_memory(kept, sent) for sent_sum in step.state.sums.values())
                    published += 1
    assert published >= PARTIES


def test_what_stands_at_the_end_of_something_longer_is_the_same() -> None:
    own, longer = StableBytes(b"the end"), b"before the end"
    same = own.found_in(longer)
    assert same == own
    assert same.digest == own.digest
    assert np.shares_memory(np.frombuffer(same.content, dtype=np.uint8), np.frombuffer(longer, dtype=np.uint8))
