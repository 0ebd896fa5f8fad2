"""All parties of a run in one process: who is killed is left out, the others agree, and no clock is waited for."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import secrets
import time
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.node.local import Kill, run_together
from quietmean.node.local.memory import MemoryNetwork
from quietmean.node.net import Identity
from quietmean.node.session import Carrier
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import configure
from support.processes import require_agreement

PARTIES = 6


def plan_of(protocol: str, dropouts: float = 0.2, **options: Any) -> Plan:
    return calibrate(Target(PARTIES, 1.0, 1e-6, colluding=1, dropouts=dropouts, dimension=3), configure(protocol, options))


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("packed-sharing", {}),
        ("cordp-dme", {}),
        ("gopa", {}),
        ("secagg", {}),
        pytest.param("inca", {"rounds": 6}, marks=pytest.mark.slow),
    ],
)
def test_the_others_agree_without_who_is_killed(protocol: str, options: dict[str, Any]) -> None:
    begun, told = time.monotonic(), list[tuple[str, str]]()
    plan, values = plan_of(protocol, **options), np.arange(3.0 * PARTIES).reshape(PARTIES, 3) / 100
    last = min(2, plan.protocol.rounds)
    outcome = run_together(plan, values, kills=[Kill(4, last)], report=lambda name, event: told.append((name, event["event"])))
    assert outcome.killed == (4,)
    require_agreement(outcome, set(range(PARTIES)) - {4})
    assert outcome.messages > 0
    assert outcome.bytes_sent > outcome.messages
    assert {name for name, event in told if event == "round"} == {f"party-{party}" for party in range(PARTIES)}
    # Time-outs are of ten seconds and of a minute.
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("protocol", ["packed-sharing", "cordp-dme"])
def test_answers_at_once_and_shared_work_change_no_result(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against requests in a task each, and parties of which each works everything out itself; with the same secrets."""

    def results() -> list[tuple[object, ...]]:
        drawn = itertools.count()
        monkeypatch.setattr(secrets, "token_bytes", lambda size: hashlib.shake_256(b"%d" % next(drawn)).digest(size))
        monkeypatch.setattr(Identity, "generate", lambda: Identity(Ed25519PrivateKey.from_private_bytes(secrets.token_bytes(32))))
        outcome = run_together(plan_of(protocol), np.arange(3.0 * PARTIES).reshape(PARTIES, 3) / 100, kills=[Kill(4, 2)])
        return [
            (party, result.total_vector.tolist(), result.heard, result.execution.to_json(), result.silent, result.late)
            for party, result in outcome.results.items()
        ]

    fast = results()
    monkeypatch.setattr(MemoryNetwork, "carrier", lambda network, party: Carrier(network.links(party)))
    assert results() == fast


def test_a_run_from_where_a_loop_runs_already() -> None:
    """As in a notebook."""

    async def cell() -> int:
        return len(run_together(plan_of("packed-sharing"), np.zeros((PARTIES, 3))).results)

    assert asyncio.run(cell()) == PARTIES


def test_whose_processes_are_needed_says_so() -> None:
    plan, values = plan_of("packed-sharing"), np.zeros((PARTIES, 3))
    for kill in (Kill(1, 1, restart_after=0.3), Kill(1, 1, after=0.1)):
        with pytest.raises(InputError, match="Run the parties as processes"):
            run_together(plan, values, kills=[kill])
    with pytest.raises(InputError, match="does not exist"):
        run_together(plan, values, kills=[Kill(PARTIES, 1)])
    with pytest.raises(InputError, match="the values have shape"):
        run_together(plan, values[:2])


def test_without_enough_parties_there_is_no_result_and_no_wait() -> None:
    plan, begun = plan_of("packed-sharing", dropouts=0.0), time.monotonic()
    with pytest.raises(ProtocolFailure, match="no party finished the study"):
        run_together(plan, np.zeros((PARTIES, 3)), kills=[Kill(party, 1) for party in range(1, PARTIES)])
    assert time.monotonic() - begun < 60
