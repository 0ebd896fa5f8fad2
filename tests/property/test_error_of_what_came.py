"""What is stated of a result is about the releases that are in it, and no others: its error, its weight and who is counted.

Shares carry noise that only all releases together take away. Whoever dies after its last round, or sends what nobody takes, keeps
what it was handed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.session import NodeResult
from quietmean.planning import Plan, Target
from quietmean.planning.accuracy import noise_variance, released_noise, stated_variance
from quietmean.protocols.gossip import Gossip
from quietmean.protocols.inca import IncA
from quietmean.protocols.result_broadcast import ResultBroadcast
from quietmean.randomness.insecure import InsecureSilentPopulation
from quietmean.studies.outcome.outcome import opened_of
from support.faults import Crash, FaultOutcome, FaultPlan
from support.liars import LiarMayFail, sending_what_nobody_takes
from support.network import NetworkConditions

PARTIES, GONE = 5, 2
VALUES = np.linspace(0.0, 1.0, PARTIES).reshape(PARTIES, 1)
WEIGHTS = np.arange(3.0, 3.0 + PARTIES)
MEMORY = next((path for path in (Path("/dev/shm"),) if path.is_dir()), None)  # noqa: S108
PROTOCOLS = {"inca": IncA(rounds=4, sigma_star=0.5, sigma_delta=4.0), "gossip": Gossip(rounds=4)}


def plan_of(name: str) -> Plan:
    return Plan(Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=1), PROTOCOLS[name], ResultBroadcast())


def run(plan: Plan, seed: int, *crashes: Crash) -> FaultOutcome:
    faults = FaultPlan(NetworkConditions(seed), {GONE: crashes}, round_timeout=2.0)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        return run_virtually(LiarMayFail(plan, VALUES, WEIGHTS, faults, Path(directory)).run())


def require_stated(plan: Plan, result: NodeResult) -> bool:
    """Whether releases are missing that were made, as far as is known; False where nobody can know what came of a share."""
    if result.unresolved or result.counted_twice:
        return False
    execution, _ = opened_of(result, plan)
    transcript = result.execution.transcript()
    came = replace(transcript, released=transcript.released & np.isin(transcript.sender, result.heard))
    assert stated_variance(execution) == pytest.approx(noise_variance(came, WEIGHTS), rel=1e-9)
    assert released_noise(execution.in_result).weight == pytest.approx(result.total_weight, rel=1e-9)
    # The machines of everybody with a value of one party alone: is any of it in the releases that came?
    for party, counted in enumerate(execution.contributors().tolist()):
        alone = np.zeros((PARTIES, 1))
        alone[party] = 1.0
        releases = result.execution.run(alone, InsecureSilentPopulation(PARTIES)).releases
        assert counted == (abs(sum(float(releases[one].vector[0]) for one in result.heard)) > 1e-9)
    return bool(execution.left_out)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_who_dies_around_its_release(name: str) -> None:
    plan, missing = plan_of(name), 0
    last = run(plan, 1).writes[GONE]
    for before_the_end in range(7, 15):
        outcome = run(plan, 1, Crash(last - before_the_end, away=None))
        assert len(outcome.results) == PARTIES - 1
        missing += max(require_stated(plan, result) for result in outcome.results.values())
    # Else it had asked nothing: moments between the last share that came and the own release.
    assert 3 <= missing < 8


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("seed", range(3))
def test_who_sends_what_nobody_takes(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody else has a result, without anything of the liar, and what it was handed is known to be lost."""
    machine: Callable[..., Any] = sending_what_nobody_takes(GONE)
    monkeypatch.setattr(Plan, "machine", machine)
    plan = plan_of(name)
    outcome = run(plan, seed)
    assert outcome.failures == {}
    assert set(outcome.results) >= set(range(PARTIES)) - {GONE}
    for party, result in outcome.results.items():
        if party != GONE:
            assert GONE not in result.heard
            monkeypatch.undo()
            require_stated(plan, result)
            execution, _ = opened_of(result, plan)
            assert not execution.contributors()[GONE]
            monkeypatch.setattr(Plan, "machine", machine)
