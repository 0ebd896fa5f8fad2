"""Real processes with a bad network between them: delays, stalls, cut connections, a partition in the middle, and kills."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.party import Vector
from quietmean.node.local import Kill, LocalOutcome, run_local
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from quietmean.randomness import BitStream, Seed
from quietmean.randomness.insecure import InsecureSilentPopulation
from support.proxy import BadNetwork, ProxyConditions

CALM = ProxyConditions(delay=(0.0, 0.0), loss=0.0, reset=0.0)


@dataclass(frozen=True)
class Split:
    """A third of the parties is cut off for ``seconds`` as party 0 enters mixing ``round``."""

    round: int
    seconds: float


def inca(parties: int, rounds: int, sigma_delta: float) -> Plan:
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=3)
    return Plan(target, IncA(rounds=rounds, sigma_star=0.0, sigma_delta=sigma_delta))


def values_of(plan: Plan) -> Vector:
    parties, dimension = plan.target.parties, plan.target.dimension
    """In the plan's cube, of diameter 1."""
    waves = np.sin(np.arange(1.0, parties * dimension + 1)).reshape(parties, dimension)
    values: Vector = (1 + waves) / (2 * np.sqrt(dimension))
    return values


def random_kills(parties: int, rounds: int, seed: int) -> list[Kill]:
    """A fifth of the parties, in a random round, back after 0.5 to 2 seconds."""
    stream = BitStream(Seed.public("weather kills", seed))
    victims = stream.permutation(parties)[: parties // 5].tolist()
    entered = 1 + stream.integers(rounds, len(victims))
    later, away = stream.uniform(len(victims)), 0.5 + 1.5 * stream.uniform(len(victims))
    return [
        Kill(victim, int(entered[k]), float(away[k]), after=float(later[k])) for k, victim in enumerate(victims) if victim != 0
    ]


async def travel(plan: Plan, directory: Path, conditions: ProxyConditions, split: Split | None, **more: Any) -> LocalOutcome:
    proxies = BadNetwork(conditions)
    loop = asyncio.get_running_loop()
    parted: list[float] = []

    def watch(name: str, event: dict[str, Any]) -> None:
        if split is None or parted or not name.endswith("0") or int(name.removeprefix("party-")) != 0:
            return
        if event["event"] == "round" and event["phase"] == "mixing" and event["round"] == split.round:
            parted.append(loop.time())
            # Party 0 stays with the majority: it can still be watched.
            parties = plan.target.parties
            proxies.separate(frozenset(range(parties - max(1, parties // 3), parties)))
            loop.call_later(split.seconds, proxies.rejoin)

    outcome = await run_local(
        plan, values_of(plan), directory / "run", start_timeout=300.0, proxies=proxies.between, report=watch, **more
    )
    missed = [int((~result.execution.trace.online[1:]).sum()) for result in outcome.results.values()]
    report = proxies.report
    print(
        f"{plan.target.parties} processes, {outcome.seconds:.1f} s, {len(outcome.killed)} kills, {outcome.messages} messages; "
        f"{report.connections} connections ({report.largest} at once), {report.chunks} chunks, {report.bytes} bytes, "
        f"{report.stalls} stalls, {report.resets} resets; rounds missed {max(missed, default=0)}"
    )
    assert (split is None) == (not parted)
    return outcome


def assert_all_finish(plan: Plan, outcome: LocalOutcome) -> None:
    assert outcome.failures == {}
    assert sorted(outcome.results) == list(range(plan.target.parties))


def assert_exact(plan: Plan, outcome: LocalOutcome) -> None:
    """Nobody missed anything, and all noise that is cancelled was cancelled."""
    assert_as_recorded(plan, outcome)
    for result in outcome.results.values():
        assert result.execution.trace.online.all()
        assert (result.silent, result.unresolved, result.counted_twice) == ((), (), ())
        assert result.heard == tuple(range(plan.target.parties))
        np.testing.assert_allclose(result.mean, values_of(plan).mean(axis=0), rtol=1e-9)


def assert_as_recorded(plan: Plan, outcome: LocalOutcome) -> None:
    """What noise there is has cancelled: the total is that of silent machines in lockstep under the recorded history."""
    assert_all_finish(plan, outcome)
    values = values_of(plan)
    compared = 0
    for result in outcome.results.values():
        if result.silent or any(other.unresolved for other in outcome.results.values()):
            continue
        releases = result.execution.run(values, InsecureSilentPopulation(len(values))).releases
        heard = [releases[party] for party in result.heard]
        np.testing.assert_allclose(result.total_weight, sum(release.weight for release in heard), rtol=1e-9)
        total = np.sum([release.vector for release in heard], axis=0)
        np.testing.assert_allclose(result.total_vector, total, rtol=0, atol=1e-9 * len(values))
        compared += 1
    print(f"{compared} of {len(outcome.results)} records compared; counted twice {twice(outcome)}, unresolved {open_(outcome)}")
    assert compared > 0


def twice(outcome: LocalOutcome) -> int:
    return max(len(result.counted_twice) for result in outcome.results.values())


def open_(outcome: LocalOutcome) -> int:
    return sum(len(result.unresolved) for result in outcome.results.values())


@pytest.mark.slow
def test_a_bad_network_changes_nothing(tmp_path: Path) -> None:
    plan = inca(4, 4, sigma_delta=0.7)
    conditions = ProxyConditions(seed=1, delay=(0.005, 0.03), loss=0.05, stall=(0.1, 0.3), reset=0.02)
    assert_exact(plan, asyncio.run(travel(plan, tmp_path, conditions, None, round_timeout=30.0)))


@pytest.mark.slow
def test_a_partition_longer_than_the_time_out(tmp_path: Path) -> None:
    # Rounds enough that all are together again before the last one ends: what is cut off then cannot be settled.
    plan = inca(4, 16, sigma_delta=0.0)
    outcome = asyncio.run(travel(plan, tmp_path, CALM, Split(3, 1.5), round_timeout=0.7))
    assert_as_recorded(plan, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_thirty_with_kills_and_a_partition_shorter_than_the_time_out(tmp_path: Path, seed: int) -> None:
    plan = inca(30, 20, sigma_delta=0.7)
    kills = random_kills(30, 20, seed)
    outcome = asyncio.run(travel(plan, tmp_path, ProxyConditions(seed), Split(10, 10.0), kills=kills, round_timeout=120.0))
    assert_exact(plan, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_thirty_with_kills_and_a_partition_longer_than_the_time_out(tmp_path: Path, seed: int) -> None:
    plan = inca(30, 20, sigma_delta=0.0)
    kills = random_kills(30, 20, seed)
    outcome = asyncio.run(travel(plan, tmp_path, ProxyConditions(seed), Split(10, 10.0), kills=kills, round_timeout=4.0))
    assert_as_recorded(plan, outcome)
