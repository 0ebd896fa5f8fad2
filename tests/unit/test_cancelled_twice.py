"""A party that is cancelled while it closes, as by a second Ctrl-C or a timeout in a timeout, still closes everything.

The second cancellation comes at every step of the event loop in turn: a port that stays taken, or a task that goes on, would
keep the party from taking its part again in the same process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import PeerError
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry, StartTerms, Waits, run_party
from quietmean.node.net import open_socket
from quietmean.node.preflight import Agreed, CheckSession
from quietmean.studies.agreement.study import StudyTerms

STEPS = 10
LATER = time.time() + 3600


def make_settings(folder: Path, ports: list[int]) -> list[NodeSettings]:
    identities = [Identity.generate() for _ in ports]
    roster = Roster(
        tuple(
            RosterEntry(f"party-{place}", ("127.0.0.1", port), identity.public_key)
            for place, (port, identity) in enumerate(zip(ports, identities, strict=True))
        )
    )
    columns = [{"name": "age", "low": 0, "high": 1}]
    plan = StudyTerms.parse({"column": columns, "protocol": "packed-sharing", "unit": "party"}).choice(len(ports)).plan
    return [
        NodeSettings(
            identity=identity,
            roster=roster,
            brought=PlannedValue(plan, plan.admit(np.full(plan.target.dimension, 0.5))),
            store=folder / f"{place}.store",
            waits=Waits(round=5.0, start=30.0),
        )
        for place, identity in enumerate(identities)
    ]


def by_socket(settings: NodeSettings) -> Coroutine[Any, Any, object]:
    return run_party(settings)


def by_time(settings: NodeSettings) -> Coroutine[Any, Any, object]:
    return run_party(replace(settings, start=StartTerms(4, LATER, {})))


def by_check(settings: NodeSettings) -> Coroutine[Any, Any, object]:
    check = CheckSession(settings.identity, settings.roster, Agreed.of(settings.roster, settings.plan))
    check.listen()
    return check.run(60.0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("run", [by_socket, by_time, by_check])
def test_everything_is_closed_whenever_the_second_cancellation_comes(
    run: Callable[[NodeSettings], Coroutine[Any, Any, object]], tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    ports = free_ports(5)
    first, second, *_ = make_settings(tmp_path, ports)

    async def cancel_twice(steps: int) -> None:
        running = [asyncio.create_task(run(settings)) for settings in (first, second)]
        # Long enough for connections between the two: what is closed then has something to send.
        await asyncio.sleep(0.15)
        assert not any(task.done() for task in running)
        for task in running:
            task.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in running:
            task.cancel()
        outcomes = await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 10)
        assert all(isinstance(outcome, asyncio.CancelledError | PeerError) for outcome in outcomes)
        await asyncio.sleep(0)
        for port in ports[:2]:
            open_socket(("127.0.0.1", port)).close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    for steps in range(STEPS):
        asyncio.run(cancel_twice(steps))


def test_a_check_that_listens_and_never_runs_gives_its_port_back(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    """What is printed between both may fail, as on a closed terminal."""
    ports = free_ports(5)
    first, *_ = make_settings(tmp_path, ports)
    check = CheckSession(first.identity, first.roster, Agreed.of(first.roster, first.plan))
    check.listen()
    check.close()
    open_socket(("127.0.0.1", ports[0])).close()
