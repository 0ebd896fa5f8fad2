"""Parties that crash, in one event loop at arbitrary moments and as real processes: no mass may be lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import PartyId, Vector
from quietmean.node import Identity, NodeResult, NodeSettings, PlannedValue, Roster, RosterEntry, Waits, run_party
from quietmean.node.local import Kill, LocalOutcome, run_local
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecureSilentPopulation
from support.processes import run_processes

# Longer than anybody is away: every wait ends because what was waited for has come.
ROUND_TIMEOUT = 20.0


def make_plan(parties: int, rounds: int, sigma_delta: float, dimension: int = 2) -> Plan:
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=dimension)
    return Plan(target, IncA(rounds=rounds, sigma_star=0.0, sigma_delta=sigma_delta))


def make_values(parties: int, dimension: int = 2) -> Vector:
    """In the plan's cube, of diameter 1."""
    values: Vector = (1 + np.sin(np.arange(parties * dimension, dtype=np.float64)).reshape(parties, dimension)) / (
        2 * np.sqrt(dimension)
    )
    return values


def assert_mass_is_right(result: NodeResult, values: Vector) -> None:
    """The total is what the logged execution gives in lockstep, without any noise."""
    releases = result.execution.run(values, InsecureSilentPopulation(len(values))).releases
    assert result.counted_twice == ()
    np.testing.assert_allclose(result.total_weight, sum(releases[party].weight for party in result.heard), rtol=1e-9)
    np.testing.assert_allclose(
        result.total_vector, np.sum([releases[party].vector for party in result.heard], axis=0), rtol=1e-9, atol=1e-9
    )


def reusable_socket(port: int = 0) -> socket.socket:
    listening = socket.create_server(("127.0.0.1", port), reuse_port=True)
    listening.setblocking(False)
    return listening


class CrashingParty:
    """Runs a party, breaks it off at given delays (seconds) after each start, and starts it again."""

    def __init__(self, settings: dict[str, Any], port: int, crashes: list[tuple[float, float]]) -> None:
        self._settings = settings
        self._port = port
        self._crashes = crashes

    async def run(self) -> NodeResult:
        for alive, away in self._crashes:
            running = asyncio.create_task(self._start())
            done, _ = await asyncio.wait([running], timeout=alive)
            if done:
                return running.result()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await asyncio.sleep(away)
        return await self._start()

    async def _start(self) -> NodeResult:
        return await run_party(NodeSettings(**self._settings, transport=reusable_socket(self._port)))


def crash_story(
    tmp_path: Path, plan: Plan, values: Vector, crashes: dict[PartyId, list[tuple[float, float]]]
) -> list[NodeResult]:
    parties = plan.target.parties
    identities = [Identity.generate() for _ in range(parties)]
    with contextlib.ExitStack() as stack:
        holders = []
        for _ in range(parties):
            holder = stack.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.bind(("127.0.0.1", 0))
            holders.append(holder)
        ports = [holder.getsockname()[1] for holder in holders]
        entries = [RosterEntry(f"p{i}", ("127.0.0.1", ports[i]), identities[i].public_key) for i in range(parties)]
        roster = Roster(tuple(entries))

        def party(number: PartyId) -> CrashingParty:
            settings = {
                "identity": identities[number],
                "roster": roster,
                "brought": PlannedValue(plan, plan.admit(values[number])),
                "store": tmp_path / f"{number}.store",
                "waits": Waits(ROUND_TIMEOUT, 120.0),
            }
            return CrashingParty(settings, ports[number], crashes.get(number, []))

        async def run() -> list[NodeResult]:
            return list(await asyncio.gather(*(party(number).run() for number in range(parties))))

        return asyncio.run(run())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_crashes_at_arbitrary_moments_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    parties, rounds = 5, 16
    values = make_values(parties)
    stream = BitStream(Seed.public("crashes", seed))
    crashes = {
        int(victim): [(0.1 + 0.4 * alive, 0.02 + 0.3 * away) for alive, away in stream.uniform(4).reshape(2, 2)]
        for victim in stream.permutation(parties)[:3]
    }
    # With cancelling noise on: a restart that drew it anew would leave some of it in the total.
    results = crash_story(tmp_path, make_plan(parties, rounds, sigma_delta=0.7), values, crashes)
    for result in results:
        assert result.heard == tuple(range(parties))
        assert_mass_is_right(result, values)


# Nobody who runs is late on a slow machine either; who is gone is missed after a probe, a quarter of the time-out.
PROBED: dict[str, Any] = {"round_timeout": ROUND_TIMEOUT, "gone_timeout": None}


def assert_all_but_2_finish(outcome: LocalOutcome, values: Vector, killed: list[PartyId], last_seen: int) -> None:
    """Party 2 died for good as it entered round 3, of 6. ``last_seen``: the last round in which others may have heard of it."""
    assert sorted(outcome.killed) == killed
    assert outcome.failures == {}
    assert sorted(outcome.results) == [0, 1, 3, 4, 5]
    for result in outcome.results.values():
        online = result.execution.trace.online
        np.testing.assert_array_equal(online[:, 2], np.arange(7) <= last_seen)
        assert online[:, [0, 1, 3, 5]].all()
        assert online[:5, 4].all()
        assert online[-1, 4]
        assert result.heard == (0, 1, 3, 4, 5)
        assert_mass_is_right(result, values)
        np.testing.assert_array_equal(result.total_vector, outcome.results[0].total_vector)
    assert outcome.messages == sum(result.transfers for result in outcome.results.values())


@pytest.mark.slow
def test_a_real_process_that_dies_for_good(tmp_path: Path) -> None:
    values = make_values(6)
    plan = make_plan(6, 6, sigma_delta=0.0)
    outcome = run_processes(plan, values, tmp_path, [Kill(2, 3)], round_timeout=4.0)
    # In round 3, at whose beginning it was killed, it may have seen something.
    assert_all_but_2_finish(outcome, values, [2], last_seen=3)


def test_a_real_process_that_dies_and_comes_back(tmp_path: Path) -> None:
    values = make_values(6)
    outcome = run_processes(make_plan(6, 6, sigma_delta=0.7), values, tmp_path, [Kill(4, 4, restart_after=0.3)], **PROBED)
    assert outcome.killed == (4,)
    assert outcome.failures == {}
    assert sorted(outcome.results) == [0, 1, 2, 3, 4, 5]
    for result in outcome.results.values():
        assert result.execution.trace.online.all()
        assert result.heard == (0, 1, 2, 3, 4, 5)
        assert_mass_is_right(result, values)
        np.testing.assert_allclose(result.mean, values.mean(axis=0), rtol=1e-9)


@pytest.mark.slow
def test_real_processes_with_real_deaths(tmp_path: Path) -> None:
    values = make_values(6)
    kills = [Kill(2, 3), Kill(4, 4, restart_after=0.3)]
    outcome = run_processes(make_plan(6, 6, sigma_delta=0.0), values, tmp_path, kills, **PROBED)
    # What comes before its round is kept in memory, so it was lost with the first process of party 4. The second one never hears
    # of party 2, and cannot know how far that went before it left: it counts as seen all that party 2 would have sent, with its
    # release. None of it is in a total.
    assert_all_but_2_finish(outcome, values, [2, 4], last_seen=6)


@pytest.mark.slow
def test_a_party_that_is_away_for_rounds_misses_them(tmp_path: Path) -> None:
    # Rounds enough that the others are not done before it is back: while it is started, each costs them 0.4 s.
    parties, rounds = 4, 60
    values = make_values(parties)
    plan = make_plan(parties, rounds, sigma_delta=0.7)
    outcome = run_processes(plan, values, tmp_path, [Kill(1, 2, restart_after=2.5)], round_timeout=4.0, gone_timeout=0.2)
    assert outcome.failures == {}
    for result in outcome.results.values():
        online = result.execution.trace.online
        assert online[:3, 1].all()
        assert not online[:, 1].all()
        assert online[:, [0, 2, 3]].all()
        assert_mass_is_right(result, values)


def test_a_local_run_leaves_its_files_to_the_owner_only(tmp_path: Path) -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    plan = make_plan(2, 2, sigma_delta=0.7)
    outcome = run_processes(plan, make_values(2), tmp_path, report=lambda name, event: events.append((name, event)), **PROBED)
    np.testing.assert_allclose(outcome.results[0].mean, make_values(2).mean(axis=0), rtol=1e-9)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run" / "party-0.settings.json").stat().st_mode) == 0o600
    assert {event["event"] for _, event in events} >= {"agreement", "round", "closing", "done"}
    rounds = [event for name, event in events if name == "party-1" and event["event"] == "round"]
    until = rounds[0].pop("until")
    assert datetime.fromisoformat(until).tzinfo is not None
    assert rounds[0] == {"event": "round", "phase": "mixing", "round": 1, "of": 2, "waiting_for": ["party-0"]}


def test_a_local_run_that_cannot_be(tmp_path: Path) -> None:
    plan = make_plan(3, 2, sigma_delta=0.7)
    with pytest.raises(InputError, match="values have shape"):
        asyncio.run(run_local(plan, make_values(2), tmp_path / "run"))
    with pytest.raises(InputError, match="party 7 to be killed"):
        asyncio.run(run_local(plan, make_values(3), tmp_path / "run", kills=[Kill(7, 1)]))
    with pytest.raises(InputError, match="cannot be made"):
        asyncio.run(run_local(plan, make_values(3), tmp_path))


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("sys.exit('no such thing')", r"ended with exit code 1 \(no such thing\)"),
        # As by a system that is out of memory.
        ("os.kill(os.getpid(), 9)", "was killed by signal 9"),
    ],
)
def test_a_party_that_ends_before_the_start_is_not_waited_for(tmp_path: Path, ends: str, why: str) -> None:
    program = ("-c", f"import os, sys, time; 'party-1' in sys.argv[1] and {ends}; time.sleep(100)")
    plan, begun = make_plan(3, 2, sigma_delta=0.7), time.monotonic()
    with pytest.raises(ProtocolFailure, match=f"study: party-1: the process {why}$"):
        asyncio.run(run_local(plan, make_values(3), tmp_path / "run", program=program, start_timeout=90.0))
    assert time.monotonic() - begun < 60


def test_a_local_run_that_nobody_finishes(tmp_path: Path) -> None:
    plan = make_plan(2, 2, sigma_delta=0.7)
    with pytest.raises(ProtocolFailure, match="no party finished"):
        asyncio.run(run_local(plan, make_values(2), tmp_path / "run", kills=[Kill(0, 1), Kill(1, 1)]))
