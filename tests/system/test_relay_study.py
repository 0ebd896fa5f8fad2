"""Studies between processes that only dial out, to a relay: it is killed and started again, attacked, and lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.party import Vector
from quietmean.node.local import run_local
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from support.relays import RelayProcess

PARTIES = 4


def plan_of(parties: int = PARTIES, rounds: int = 4) -> Plan:
    return Plan(
        Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=3), IncA(rounds=rounds, sigma_star=0.0, sigma_delta=1.0)
    )


def values_of(plan: Plan) -> Vector:
    """In the plan's cube, of diameter 1."""
    shape = plan.target.parties, plan.target.dimension
    values: Vector = (1 + np.sin(np.arange(1.0, np.prod(shape) + 1)).reshape(shape)) / (2 * np.sqrt(plan.target.dimension))
    return values


def test_parties_that_only_dial_out_finish(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    plan = plan_of()
    values = values_of(plan)
    with RelayProcess(free_ports(1)[0]) as relay:
        outcome = asyncio.run(run_local(plan, values, tmp_path / "run", proxies=relay.between))
        counts = relay.health()["since_start"]
        assert relay.stop() == 0
    assert (len(outcome.results), outcome.failures) == (PARTIES, {})
    for result in outcome.results.values():
        np.testing.assert_allclose(result.mean, values.mean(axis=0), atol=1e-6)
    assert counts["joined"] >= PARTIES * (PARTIES - 1) / 2
    assert counts["bytes"] > outcome.bytes_sent


def test_a_relay_killed_in_mid_study_and_started_again(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    plan = plan_of(rounds=6)
    values = values_of(plan)
    with RelayProcess(free_ports(1)[0]) as relay:
        killed: list[int] = []

        def watch(name: str, event: dict[str, Any]) -> None:
            if event["event"] == "round" and event["phase"] == "mixing" and event["round"] == 2 and not killed:
                killed.append(relay.process.pid)
                relay.kill()
                asyncio.get_running_loop().call_later(1.5, relay.start)

        outcome = asyncio.run(run_local(plan, values, tmp_path / "run", proxies=relay.between, report=watch, round_timeout=30.0))
        assert relay.process.pid not in killed
        assert relay.health()["since_start"]["joined"] >= 1
        assert killed
    # Nobody was counted as gone.
    assert (len(outcome.results), outcome.failures) == (PARTIES, {})
    for result in outcome.results.values():
        np.testing.assert_allclose(result.mean, values.mean(axis=0), atol=1e-6)
