"""A session between machines: what a round costs beside the same round in memory, beside a study anew, and beside bare TLS.

``pytest benchmarks/test_session.py -m "slow or not slow"``. Figures of one run on this machine. For n = 3 all parties are in one
process; for d = 1e6 each of four and of ten is one, and bare TLS carries the bytes that they sent, with what comes in on disk
before it is acknowledged, or not. The bar of three times bare TLS is not held on two cores: what packed sharing
sends is small (7.6 MB a party), and noise, shares, digests and durable steps take the processors, 0.14 s a party and round.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry, Series, Waits, run_party
from quietmean.node.net import Seal
from quietmean.sessions import MemoryEngine, SessionTerms
from support.bare_tls import over_bare_tls
from support.bars import Bar

# Seconds of a round outside of its execution, and beside the same in memory where no disk is in the way; times the bare bytes.
OVERHEAD, TIMES_BARE = 0.05, 3.0
MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - where files take no time, if the machine has it
ROUNDS = 30


def consortium(parties: int) -> tuple[list[Identity], tuple[RosterEntry, ...]]:
    identities = [Identity.generate() for _ in range(parties)]
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(parties)]
    entries = tuple(
        RosterEntry(f"p{place}", holder.getsockname(), identity.public_key)
        for place, (holder, identity) in enumerate(zip(holders, identities, strict=True))
    )
    for holder in holders:
        holder.close()
    return identities, entries


def durable_write(folder: Path) -> float:
    """Seconds of a page that is on disk when they are over, the median: what each step of a party takes at least."""
    seconds = []
    with (folder / "page").open("wb", buffering=0) as file:
        for _ in range(50):
            begun = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - begun)
    return float(np.median(seconds))


def session_rounds(folder: Path, terms: SessionTerms) -> tuple[float, float, float]:
    """Seconds of a round of the first party, the median, and of these outside of the execution itself; all in this process.

    And processor seconds a round, of all parties.
    """
    identities, entries = consortium(terms.parties)
    roster = Roster(entries, Seal(terms.digest, tuple(range(terms.parties))))
    seconds: list[tuple[float, float]] = []

    async def party(place: int) -> None:
        settings = NodeSettings(
            identity=identities[place],
            roster=roster,
            brought=PlannedValue(terms.plan, terms.plan.admit(np.zeros(terms.dimension))),
            store=folder / f"{place}.store",
            waits=Waits(round=60.0),
        )
        async with Series(settings, terms.rounds) as series:
            for _ in range(terms.rounds):
                value = terms.plan.admit(np.full(terms.dimension, 0.01), 1.0)
                begun = time.perf_counter()
                end = await series.mean(value)
                took = time.perf_counter() - begun
                if place == 0:
                    seconds.append((took, took - end.result.seconds))

    async def everybody() -> None:
        await asyncio.gather(*map(party, range(terms.parties)))

    processor = time.process_time()
    asyncio.run(everybody())
    processor = time.process_time() - processor
    whole, outside = np.median(seconds, axis=0).tolist()
    return whole, outside, processor / terms.rounds


def studies(folder: Path, terms: SessionTerms, repeats: int) -> list[float]:
    """Seconds of the same mean as a study anew: agreement, connections and store, too."""
    seconds = []
    for repeat in range(repeats):
        identities, entries = consortium(terms.parties)

        async def everybody(keys: list[Identity], roster: Roster, number: int) -> None:
            value = np.full(terms.dimension, 0.01)
            parts = [
                NodeSettings(
                    identity=key,
                    roster=roster,
                    brought=PlannedValue(terms.plan, terms.plan.admit(value.copy())),
                    store=folder / f"{number}-{place}.store",
                )
                for place, key in enumerate(keys)
            ]
            await asyncio.gather(*map(run_party, parts))

        begun = time.perf_counter()
        asyncio.run(everybody(identities, Roster(entries), repeat))
        seconds.append(time.perf_counter() - begun)
    return seconds


def in_memory(terms: SessionTerms) -> list[float]:
    engine, seconds = MemoryEngine(), []
    values = {place: terms.plan.admit(np.full(terms.dimension, 0.01)).vector for place in range(terms.parties)}
    for number in range(ROUNDS):
        begun = time.perf_counter()
        engine.exchange(terms.plan, number, values, np.ones(terms.parties), {})
        seconds.append(time.perf_counter() - begun)
    return seconds


@pytest.mark.parametrize("protocol", ["packed-sharing", "cordp-dme"])
def test_a_small_round(tmp_path: Path, table: Callable[[str], None], bar: Bar, protocol: str) -> None:
    terms = SessionTerms(parties=3, dimension=100, epsilon=8.0, delta=1e-5, rounds=ROUNDS, protocol=protocol)
    memory = float(np.median(in_memory(terms)))
    anew = float(np.median(studies(tmp_path, terms, 10)))
    on_disk, outside, _ = session_rounds(tmp_path, terms)
    table(f"{protocol}, d = 100, n = 3, milliseconds a round: in memory {1e3 * memory:.1f}, session {1e3 * on_disk:.1f}, ")
    table(f"  of these outside of the execution itself {1e3 * outside:.1f}, a study anew {1e3 * anew:.1f}; stores on disk,")
    table(f"  where a durable write of 4 kB takes {1e3 * durable_write(tmp_path):.2f}")
    bar(f"{protocol}, a small round outside of its execution, s", outside, OVERHEAD)
    if MEMORY_DISK.is_dir():
        folder = MEMORY_DISK / f"quietmean-{os.getpid()}-{protocol}"
        folder.mkdir()
        try:
            without, _, processor = session_rounds(folder, terms)
        finally:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        over = without - memory
        table(f"  session where files take no time {1e3 * without:.1f}, processor of all parties {1e3 * processor:.1f}")
        bar(f"{protocol}, a small round beside the same in memory, s", over, OVERHEAD)


LARGE: dict[str, Any] = {
    "name": "large",
    "dimension": 1_000_000,
    "rounds": 8,
    "epsilon": 8.0,
    "delta": 1e-5,
    "colluding": 1,
    "protocol": "packed-sharing",
    "round_timeout": 300.0,
    "start_timeout": 300.0,
}
# At most so many bytes a coordinate at once; of them the program's own: its vector, which has no name there, and the mean before.
MOST_AT_ONCE, OWN = 25, 16
PROGRAM = """
import json, sys, time, numpy as np, quietmean as qm
terms, key = json.loads(sys.argv[1]), sys.argv[2]
with qm.session(terms, "roster.toml", key, no_ledger=True) as rounds:
    while not rounds.over:
        update = np.full(terms["dimension"], 1e-4)
        begun, processor = time.perf_counter(), time.process_time()
        mean = rounds.mean(update)
        took = [time.perf_counter() - begun, mean.bytes_sent, time.process_time() - processor]
        sys.stdout.write(json.dumps(took) + "\\n")
        sys.stdout.flush()
"""


def parties_of(folder: Path, parties: int, program: str, terms: dict[str, Any]) -> list[list[Any]]:
    """What each party's own process printed, a JSON document a line."""
    identities, entries = consortium(parties)
    (folder / "roster.toml").write_text(Roster(entries).to_toml())
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(qm.__file__).parents[1])}
    processes = []
    for place, identity in enumerate(identities):
        identity.save(folder / f"{place}.key")
        command = [sys.executable, "-c", program, json.dumps(terms), f"{place}.key"]
        processes.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment))
    outputs = [process.communicate(timeout=3600)[0] for process in processes]
    return [[json.loads(line) for line in output.splitlines()] for output in outputs]


def bare_tls(folder: Path, parties: int, bytes_each: int, *, durable: bool) -> tuple[float, float]:
    """Seconds of the slowest party, each of which sends so many bytes to each other one, and processor seconds of all."""
    steps = [
        [{"to": [other for other in range(parties) if other != place], "expected": parties - 1, "bytes": bytes_each}]
        for place in range(parties)
    ]
    return over_bare_tls(folder / f"bare-{durable}", steps, durable=durable)


@pytest.mark.slow
@pytest.mark.parametrize("parties", [4, 10])
def test_a_large_round(tmp_path: Path, parties: int, table: Callable[[str], None], bar: Bar) -> None:
    # Seconds, bytes sent and processor seconds of each round of each party.
    found = parties_of(tmp_path, parties, PROGRAM, LARGE)
    # The first two have the connections, the tables of the sampler and the first memory.
    rounds = np.array(found)[:, 2:]
    assert rounds.shape == (parties, LARGE["rounds"] - 2, 3)
    seconds, processor = float(np.median(rounds[:, :, 0].max(axis=0))), float(np.median(rounds[:, :, 2].sum(axis=0)))
    sent = float(rounds[:, :, 1].mean())
    table(f"packed-sharing, d = 1e6, n = {parties}: {seconds:.2f} s a round, {processor:.2f} s of processors, ")
    table(f"  {sent / 1e6:.1f} MB sent by each party; the same over")
    times = []
    for name, durable in (("bare TLS", False), ("with durable receipt", True)):
        bare, used = bare_tls(tmp_path, parties, round(sent / (parties - 1)), durable=durable)
        times.append(bare)
        table(f"  {name} {bare:.2f} s ({seconds / bare:.1f} times), processors {used:.2f} s ({processor / used:.1f} times)")
    bar(f"a round of {parties} parties, d = 1e6, times bare TLS", seconds / max(times), TIMES_BARE)


MEMORY = """
import json, sys, numpy as np, quietmean as qm
def memory(what):
    line = next(line for line in open("/proc/self/status") if line.startswith(what))
    return int(line.split()[1]) * 1024
terms, key = json.loads(sys.argv[1]), sys.argv[2]
with qm.session(terms, "roster.toml", key, no_ledger=True) as rounds:
    before = memory("VmRSS")
    while not rounds.over:
        mean = rounds.mean(np.full(terms["dimension"], 1e-4))
print(json.dumps([before, memory("VmHWM")]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [100_000, 1_000_000, 10_000_000, pytest.param(100_000_000, marks=pytest.mark.long)])
def test_memory_of_a_round(tmp_path: Path, dimension: int, table: Callable[[str], None], bar: Bar) -> None:
    """Memory of one of three parties, in the second of two rounds, beside what it has when the session only stands."""
    asked = LARGE | {"dimension": dimension, "rounds": 2, "round_timeout": 3000.0, "start_timeout": 3000.0}
    peaks = [found for (found,) in parties_of(tmp_path, 3, MEMORY, asked)]
    before, most = peaks[0]
    each = (most - before) / dimension
    table(f"packed-sharing, n = 3, d = {dimension:,}: {most / 1e6:.0f} MB at most, {before / 1e6:.0f} MB before the first round:")
    table(f"  {each:.0f} bytes a coordinate, where one vector is 8, and {OWN} are the program's own")
    if dimension == 10_000_000:
        bar("memory of a round, d = 1e7, bytes a coordinate", each, MOST_AT_ONCE)
    if dimension == 100_000_000:
        bar("memory of three parties, d = 1e8, GB", sum(peak for _, peak in peaks) / 1e9, 8)
