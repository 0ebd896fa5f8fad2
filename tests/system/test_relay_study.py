"""Studies between processes that only dial out, to a relay: it is killed and started again, attacked, and lies."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.domain import Links
from quietmean.core.party import Vector
from quietmean.node import Identity
from quietmean.node.local import LocalOutcome, run_local
from quietmean.node.net import RelayAddress, public_key_bytes
from quietmean.node.tunnel import BINARY, LONGEST_MESSAGE, Attending, Call, frame
from quietmean.node.tunnel.route import RelayAccess
from quietmean.node.tunnel.websocket import upgrade_request
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from support.relays import RelayProcess

PARTIES = 4
UPGRADE, _ = upgrade_request("127.0.0.1", "/quietmean/1")


def plan_of(parties: int = PARTIES, rounds: int = 4) -> Plan:
    return Plan(
        Target(parties=parties, epsilon=1.0, delta=1e-6, dimension=3), IncA(rounds=rounds, sigma_star=0.0, sigma_delta=1.0)
    )


def values_of(plan: Plan) -> Vector:
    """In the plan's cube, of diameter 1."""
    shape = plan.target.parties, plan.target.dimension
    values: Vector = (1 + np.sin(np.arange(1.0, np.prod(shape) + 1)).reshape(shape)) / (2 * np.sqrt(plan.target.dimension))
    return values


@pytest.mark.slow
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

        outcome = asyncio.run(
            run_local(plan, values, tmp_path / "run", proxies=relay.between, report=watch, round_timeout=30.0, links=Links.HYBRID)
        )
        assert relay.process.pid not in killed
        assert relay.health()["since_start"]["joined"] >= 1
        assert killed
    # Nobody was counted as gone.
    assert (len(outcome.results), outcome.failures) == (PARTIES, {})
    for result in outcome.results.values():
        np.testing.assert_allclose(result.mean, values.mean(axis=0), atol=1e-6)


# --- hostile ones ----------------------------------------------------------------------------------------------------


class Crowd:
    """500 connections that do harm while they last, a tenth of them anew twenty times a second."""

    KINDS = (
        b"",
        b"GET /quiet",
        b"\x16\x03\x01\x02\x00" + bytes(100),
        UPGRADE,
        UPGRADE + frame(BINARY, bytes(LONGEST_MESSAGE + 1), masked=True),
        UPGRADE + frame(BINARY, b"who am I", masked=True),
        UPGRADE + b"\x82\xff" + bytes(7),
        b"x" * 60_000,
    )

    def __init__(self, address: RelayAddress) -> None:
        self._address = address
        self.made = 0

    async def run(self) -> None:
        open_ones: list[asyncio.StreamWriter] = []
        try:
            while True:
                for writer in open_ones[:-450]:
                    writer.transport.abort()
                del open_ones[:-450]
                for _ in range(50):
                    with contextlib.suppress(OSError):
                        _, writer = await asyncio.open_connection(*self._address)
                        writer.write(self.KINDS[self.made % len(self.KINDS)])
                        open_ones.append(writer)
                        self.made += 1
                await asyncio.sleep(0.05)
        finally:
            for writer in open_ones:
                writer.transport.abort()


@pytest.mark.slow
def test_a_study_among_five_hundred_hostile_connections(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    plan = plan_of(rounds=32)
    values = values_of(plan)

    async def work(relay: RelayProcess) -> LocalOutcome:
        crowd = Crowd(relay.address)
        harm = asyncio.create_task(crowd.run())
        while crowd.made < 500:
            await asyncio.sleep(0.05)
        try:
            outcome = await run_local(plan, values, tmp_path / "run", proxies=relay.between, round_timeout=30.0)
        finally:
            harm.cancel()
            await asyncio.gather(harm, return_exceptions=True)
        assert crowd.made >= 1000
        return outcome

    with RelayProcess(free_ports(1)[0]) as relay:
        before = relay.memory()
        outcome = asyncio.run(work(relay))
        grown = relay.memory() - before
        counts = relay.health()["since_start"]
    assert (len(outcome.results), outcome.failures) == (PARTIES, {})
    for result in outcome.results.values():
        np.testing.assert_allclose(result.mean, values.mean(axis=0), atol=1e-6)
    assert counts["refused"] + counts["evicted"] > 100
    # 256 places without a proof, 8 KiB of a head each, and what Python keeps.
    assert grown < 32 * 2**20, grown


@pytest.mark.slow
def test_memory_of_pairs_whose_readers_stop(free_ports: Callable[[int], list[int]]) -> None:
    """105 pairs, both ends of which send and read nothing."""
    identities = [Identity.generate() for _ in range(15)]

    async def work(relay: RelayProcess) -> tuple[int, int, int]:
        accesses = [RelayAccess(relay.address, each, "ab" * 32) for each in identities]
        keys = [public_key_bytes(each.public_key) for each in identities]
        attending = [await access.open("attend") for access in accesses]
        for stream in attending:
            assert isinstance(await stream.message(), Attending)
        before, ends = relay.memory(), list[socket.socket]()
        for called, caller in ((b, a) for a in range(15) for b in range(a)):
            calling = asyncio.create_task(accesses[caller].join(await accesses[caller].open("call", peer=keys[called])))
            call = await attending[called].message()
            assert isinstance(call, Call)
            ends.append(await accesses[called].join(await accesses[called].open("answer", ticket=call.ticket)))
            ends.append(await calling)
        sent = await asyncio.gather(*map(fill, ends))
        grown = relay.memory() - before
        for end in ends:
            end.close()
        await asyncio.gather(*(access.close() for access in accesses))
        return grown, len(ends) // 2, sum(sent)

    with RelayProcess(free_ports(1)[0]) as relay:
        grown, pairs, sent = asyncio.run(work(relay))
    print(f"{pairs} pairs: {grown / pairs / 1024:.0f} KiB each, {sent / 2**20:.0f} MiB on their way")
    assert pairs == 105
    assert sent > pairs * 2**20
    assert grown <= pairs * 256 * 1024


async def fill(end: socket.socket) -> int:
    """Send until nothing is taken any more; how many bytes were."""
    sent, loop = 0, asyncio.get_running_loop()
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(2.0):
                await loop.sock_sendall(end, bytes(65_536))
            sent += 65_536
    return sent


# --- speed -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_throughput_through_a_relay(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    """A study of 100 000 coordinates, directly and through a relay; the best of three in turn."""
    target = Target(parties=3, epsilon=1.0, delta=1e-6, dimension=100_000)
    plan = Plan(target, IncA(rounds=40, sigma_star=0.0, sigma_delta=1.0))
    values = values_of(plan)
    seconds: dict[str, list[float]] = {"direct": [], "relay": []}
    with RelayProcess(free_ports(1)[0]) as relay:
        for number in range(3):
            for way, proxies in (("direct", None), ("relay", relay.between)):
                run = run_local(plan, values, tmp_path / f"{way}-{number}", proxies=proxies, round_timeout=60.0)
                outcome = asyncio.run(run)
                assert (len(outcome.results), outcome.failures) == (3, {})
                seconds[way].append(max(result.seconds for result in outcome.results.values()))
        passed = relay.health()["since_start"]["bytes"]
    direct, through = (min(each) for each in seconds.values())
    ratio, rate = direct / through, passed / sum(seconds["relay"]) / 1e6
    print(f"direct {direct:.2f} s, relay {through:.2f} s: ratio {ratio:.2f}; {rate:.0f} MB/s passed on")
    assert ratio >= 0.5
