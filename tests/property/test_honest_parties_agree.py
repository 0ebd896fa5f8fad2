"""Honest parties end with the results of the same releases, whatever one party does that nobody can take, or does not do.

Each waits for the others on its own. Who is kept waiting in one round is late in the next, and may not be given up for that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.node.local.virtual_time import run_virtually
from quietmean.planning import Plan, Target
from quietmean.planning.gate import GateRefused
from quietmean.protocols.gossip import Gossip
from quietmean.protocols.inca import IncA
from quietmean.protocols.result_broadcast import ResultBroadcast
from support.faults import FaultOutcome, FaultPlan
from support.gated import gated_plan
from support.liars import LiarMayFail, sending_what_nobody_takes, silent_since
from support.network import NetworkConditions

LIAR, ROUNDS, SEEDS = 2, 6, 8
MEMORY = next((path for path in (Path("/dev/shm"),) if path.is_dir()), None)  # noqa: S108
LIES: dict[str, Callable[..., Any]] = {
    "what nobody takes": sending_what_nobody_takes(LIAR),
    "nothing": silent_since(LIAR, 1),
    "nothing after half of the rounds": silent_since(LIAR, 4),
}
PLANS = {
    "gossip": Plan(Target(parties=5, epsilon=1.0, delta=1e-6, dimension=1), Gossip(rounds=ROUNDS), ResultBroadcast()),
    "inca": Plan(
        Target(parties=5, epsilon=1.0, delta=1e-6, dimension=1),
        IncA(rounds=ROUNDS, sigma_star=0.5, sigma_delta=4.0),
        ResultBroadcast(),
    ),
    "inca with a gate": gated_plan(5, ROUNDS),
}


def run(plan: Plan, seed: int) -> FaultOutcome:
    parties = plan.target.parties
    faults = FaultPlan(NetworkConditions(seed), round_timeout=2.0)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        values = np.linspace(0.0, 1.0, parties).reshape(parties, 1)
        return run_virtually(LiarMayFail(plan, values, np.ones(parties), faults, Path(directory)).run())


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", PLANS)
def test_all_heard_the_same(name: str, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = PLANS[name]
    monkeypatch.setattr(Plan, "machine", LIES[lie])
    for seed in range(SEEDS):
        outcome = run(plan, seed)
        ended = {party: result.heard for party, result in outcome.results.items() if party != LIAR}
        refused = {party for party, error in outcome.failures.items() if isinstance(error, GateRefused)} - {LIAR}
        assert len(ended) + len(refused) == plan.target.parties - 1, (seed, outcome.failures)
        assert len(set(ended.values())) <= 1, (seed, ended)
        assert not (ended and refused), seed
