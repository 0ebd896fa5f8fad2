"""A real process under attack by unknown peers and by a party with a valid key: bounded memory and log, the right result."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import ssl
import struct
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pytest

from quietmean.core.party import Vector
from quietmean.node import Identity, NodeResult, NodeSettings, PlannedValue, Roster, RosterEntry, Waits, run_party
from quietmean.node.local.processes import ChildSettings
from quietmean.node.net import VERSION, CancelTransfer, Credentials, Heartbeat, Limits, Log, Refusals, Start, Transfer
from quietmean.node.net.stream import read_frame
from quietmean.node.net.wire import AnyFrame, Hello, encode_frame
from quietmean.node.session.logs import PartyLog, encode_log
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed

# The victim is party 0, a process of its own. Party 3 plays honestly, and its key is used by an attacker too.
VICTIM, LAST, INSIDER, PARTIES, ROUNDS, DIMENSION = 0, 2, 3, 4, 6, 2
# 64 unfinished handshakes cost up to half a megabyte each: a TLS buffer of 256 KiB and OpenSSL's own state.
# The rest is for the connections of three parties, the largest logs, and the study itself.
ALLOWED_GROWTH = (32 + 16) * 2**20
LIMITS = Limits.of_study(PARTIES, ROUNDS, DIMENSION)

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def memory(process: Process, entry: str) -> int | None:
    """Bytes: VmRSS now, VmHWM at most since the last reset; None once it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith(entry):
                return int(line.split()[1]) * 1024
    return None


def reset_peak(process: Process) -> None:
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


@dataclass
class Siege:
    """One study, its victim and those who attack it."""

    directory: Path
    identities: list[Identity] = field(default_factory=lambda: [Identity.generate() for _ in range(PARTIES)])
    sockets: list[socket.socket] = field(
        default_factory=lambda: [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(PARTIES)]
    )
    waiting_for: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        target = Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=DIMENSION)
        self.plan = Plan(target, IncA(rounds=ROUNDS, sigma_star=0.0, sigma_delta=0.7))
        self.values: Vector = np.arange(1.0, PARTIES * DIMENSION + 1).reshape(PARTIES, DIMENSION) / (PARTIES * DIMENSION**1.5)
        self.port = int(self.sockets[VICTIM].getsockname()[1])
        ports = [listening.getsockname()[1] for listening in self.sockets]
        entries = [RosterEntry(f"party-{k}", ("127.0.0.1", ports[k]), self.identities[k].public_key) for k in range(PARTIES)]
        self.roster = Roster(tuple(entries))
        self.study = self.settings(1).study
        self.insider = Credentials(self.identities[INSIDER], self.roster, self.study).client(VICTIM)
        self.handshake = Credentials(Identity.generate(), self.roster, self.study).client(VICTIM)

    def settings(self, party: int) -> NodeSettings:
        return NodeSettings(
            identity=self.identities[party],
            roster=self.roster,
            brought=PlannedValue(self.plan, self.plan.admit(self.values[party])),
            store=self.directory / f"{party}.store",
            waits=Waits(round=30.0, start=200.0),
            transport=self.sockets[party],
        )

    @property
    def log(self) -> str:
        return (self.directory / "victim.log").read_text()

    @contextlib.asynccontextmanager
    async def victim(self) -> AsyncIterator[Process]:
        """The process, once it waits for the others."""
        self.identities[VICTIM].save(self.directory / "victim.key")
        (self.directory / "roster.toml").write_text(self.roster.to_toml())
        (self.directory / "plan.json").write_text(json.dumps(self.plan.to_json()))
        stem, listening = str(self.directory / "victim"), self.sockets[VICTIM]
        settings = ChildSettings(
            key=f"{stem}.key",
            store=f"{stem}.store",
            result=f"{stem}.result",
            roster=str(self.directory / "roster.toml"),
            plan=str(self.directory / "plan.json"),
            value=f"{stem}.value",
            weight=1.0,
            round_timeout=30.0,
            start_timeout=200.0,
        )
        Path(settings.value).write_bytes(self.values[VICTIM].astype("<f8").tobytes())
        path = self.directory / "settings.json"
        path.write_bytes(msgspec.json.encode(settings))
        with (self.directory / "victim.log").open("wb") as log:
            command = (sys.executable, "-m", "quietmean.node.local.child", str(path), str(listening.fileno()))
            process = await asyncio.create_subprocess_exec(
                *command, stdout=PIPE, stderr=log, pass_fds=[listening.fileno()], env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}
            )
        listening.close()
        following = asyncio.create_task(self._follow(process))
        try:
            await self.until(lambda: len(self.waiting_for) == PARTIES - 1)
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await following

    async def _follow(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            event = json.loads(line)
            if "waiting_for" in event:
                self.waiting_for = event["waiting_for"]

    async def until(self, condition: object) -> None:
        assert callable(condition)
        async with asyncio.timeout(60.0):
            while not condition():
                await asyncio.sleep(0.02)

    # --- unknown peers ------------------------------------------------------------------------------------------------

    async def garbage(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        noise = BitStream(insecure_seed(number, "garbage"))
        # Every third begins like TLS.
        writer.write((b"\x16\x03\x01\x02\x00" if number % 3 == 0 else b"") + noise.words(200).tobytes())
        await until_closed(reader, writer)

    async def half_open(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        await until_closed(reader, writer)

    async def slow(self, number: int) -> None:
        """The beginning of a real greeting, a byte a second."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        end = asyncio.create_task(until_closed(reader, writer))
        for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200):
            if end.done():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(1.0)
        await end

    async def wrong_key(self, number: int) -> None:
        with contextlib.suppress(OSError, EOFError):
            reader, writer = await self.open(self.handshake)
            await until_closed(reader, writer)

    # --- the insider -----------------------------------------------------------------------------------------------------

    async def open(self, context: ssl.SSLContext) -> Stream:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="")

    async def enter(self) -> Stream:
        reader, writer = await self.open(self.insider)
        writer.write(encode_frame(Hello(VERSION, INSIDER, self.study)))
        await read_frame(reader, Limits.before_welcome())
        return reader, writer

    async def wrong_greeting(self, number: int) -> None:
        reader, writer = await self.open(self.insider)
        hello = [Hello(VERSION, INSIDER, f"{number:064x}"), Hello(VERSION, 1, self.study), Hello(VERSION + 1, INSIDER, "")]
        writer.write(encode_frame(hello[number % 3]))
        await until_closed(reader, writer)

    async def say(self, raw: bytes) -> None:
        """Something that is refused."""
        reader, writer = await self.enter()
        with contextlib.suppress(OSError):
            writer.write(raw)
            await writer.drain()
        await until_closed(reader, writer)

    async def flood(self, frame: AnyFrame, count: int, payload: bytes = b"", at_once: int = 8) -> None:
        """Requests that are answered; as fast as the answers come."""
        reader, writer = await self.enter()
        raw = encode_frame(frame, len(payload)) + payload
        for _ in range(count // at_once):
            writer.write(raw * at_once)
            for _ in range(at_once):
                await read_frame(reader, LIMITS)
        writer.transport.abort()

    async def commits(self, count: int) -> None:
        """Another commitment each time, of which each is refused."""
        reader, writer = await self.enter()
        for number in range(count):
            writer.write(encode_frame(Start(number, 1, (), b"", number.to_bytes(32, "big"))))
            await read_frame(reader, LIMITS)
        writer.transport.abort()

    async def never_reads(self) -> None:
        """Asks on and on and takes no answer."""
        _, writer = await self.enter()
        with contextlib.suppress(OSError):
            for number in range(20_000):
                if writer.is_closing():
                    break
                writer.write(encode_frame(Heartbeat(number, 0, 0)))
                await writer.drain()
        writer.transport.abort()

    async def parked(self) -> None:
        """Transfers for rounds that are far away, more than fit."""
        _, writer = await self.enter()
        for round_ in range(1, 17):
            payload = np.zeros(DIMENSION).tobytes()
            writer.write(
                encode_frame(Transfer(round_, 1, 10**6 + round_, 1.0, 2**31 - 1, b"", DIMENSION), len(payload)) + payload
            )
        await asyncio.sleep(0.5)
        writer.transport.abort()


async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, EOFError):
        while await reader.read(65536):
            pass
    writer.transport.abort()


def bad_frames(count: int) -> list[bytes]:
    """Each ends its connection."""
    stream = BitStream(insecure_seed(count, "frames"))
    nan = np.array([np.nan, 1.0]).tobytes()
    forged = b"\x82\xa4kind\xa5probe\xa8x\nrefused" + b"y" * 900
    told = [
        struct.pack(">II", 2**30, 0),
        struct.pack(">II", 30, 2**30) + bytes(30),
        struct.pack(">II", 2**32 - 1, 2**32 - 1),
        encode_frame(Transfer(1, 1, 1, 1.0, 1000, b"", DIMENSION), 16) + nan,
        encode_frame(Transfer(1, 1, 1, float("inf"), 1000, b"", DIMENSION), 16) + bytes(16),
        encode_frame(Transfer(1, 1, 1, float("nan"), 1000, b"", DIMENSION), 16) + bytes(16),
        encode_frame(Transfer(1, 1, 1, 1.0, 1000, b"", 7), 56) + bytes(56),
        encode_frame(Hello(VERSION, INSIDER, "")),
        encode_frame(Log(1), 10) + b"\xff" * 10,
        encode_frame(Log(1), 100) + b"\x91" * 100,
        # Line breaks and long texts in what the log would quote.
        struct.pack(">II", len(forged), 0) + forged,
        b"".join(encode_frame(CancelTransfer(number, 1, 2)) for number in range(2000)),
    ]
    random = [struct.pack(">II", 80, 0) + stream.words(10).tobytes() for _ in range(max(0, count - len(told)))]
    return [*told, *random]


def huge_log() -> bytes:
    """As large as is let in, all entries valid."""
    log = encode_log(PartyLog((1,), ((1, 2),) * ((LIMITS.log - 100) // 3), (), ()))
    assert len(log) <= LIMITS.log
    return log


async def one_after_the_other(works: Iterable[Awaitable[None]]) -> None:
    for work in works:
        await work


async def under_siege(siege: Siege, handshakes: int, floods: int, half_open: int) -> NodeResult:
    async with siege.victim() as victim:
        before = memory(victim, "VmRSS") or 0
        reset_peak(victim)
        begun, growth = time.monotonic(), 0

        def tell(what: str) -> None:
            nonlocal growth
            most = memory(victim, "VmHWM")
            growth = growth if most is None else most - before
            print(f"{time.monotonic() - begun:6.1f} s  RSS at most +{growth} bytes after {what}")

        await asyncio.gather(*(siege.garbage(number) for number in range(handshakes)))
        await asyncio.gather(*(siege.wrong_key(number) for number in range(handshakes // 5)))
        tell(f"{handshakes} connections with garbage, {handshakes // 5} with a wrong key")
        await one_after_the_other(siege.wrong_greeting(number) for number in range(handshakes // 5))
        frames = bad_frames(handshakes)
        await one_after_the_other(siege.say(raw) for raw in frames)
        tell(f"{handshakes // 5} wrong greetings, {len(frames)} bad frames")
        await siege.flood(Heartbeat(1, 0, 0), floods)
        await siege.never_reads()
        await one_after_the_other(siege.parked() for _ in range(3))
        tell(f"{floods} probes, 20000 more whose answers nobody reads, 48 early transfers")
        await siege.flood(Log(1), floods // 20, huge_log(), at_once=4)
        tell(f"{floods // 20} logs of {len(huge_log())} bytes")
        honest = [asyncio.create_task(run_party(siege.settings(party))) for party in (1, INSIDER)]
        await siege.until(lambda: siege.waiting_for == [f"party-{LAST}"])
        await siege.commits(floods // 4)
        tell(f"{floods // 4} conflicting commitments")
        idle = [asyncio.create_task(siege.half_open(number)) for number in range(half_open)]
        idle += [asyncio.create_task(siege.slow(number)) for number in range(half_open // 5)]
        await asyncio.sleep(0.2)
        study = asyncio.gather(*honest, run_party(siege.settings(LAST)))
        while not study.done():
            if (most := memory(victim, "VmHWM")) is not None:
                growth = max(growth, most - before)
            await asyncio.sleep(0.05)
        results = await study
        tell(f"{half_open} half-open and {half_open // 5} slow connections, and the study")
        async with asyncio.timeout(60.0):
            assert await victim.wait() == 0
        for task in idle:
            task.cancel()
        await asyncio.gather(*idle, return_exceptions=True)
    assert growth < ALLOWED_GROWTH
    for result in results:
        np.testing.assert_allclose(result.mean, siege.values.mean(axis=0), rtol=1e-9)
    return NodeResult.from_json(json.loads((siege.directory / "victim.result").read_bytes()))


def check_log(siege: Siege, result: NodeResult) -> None:
    """Each cause once, with who and why, on one line."""
    lines = [line.split(" ", 2)[2] for line in siege.log.splitlines()]
    print(f"{len(lines)} lines in the log, {len(siege.log)} bytes; {len(result.refusals)} causes in the result")
    assert all(line.startswith("refused ") for line in lines), siege.log
    assert len(lines) == len(set(lines))
    # What is refused after the result was put together is in the log only.
    told = ["refused " + re.sub(r" \(\d+ times\)$", "", refusal) for refusal in result.refusals]
    told = [line for line in told if not line.endswith(" further refusals")]
    assert len(told) == len(set(told))
    assert set(told) <= set(lines)
    assert len(lines) <= 2 * 17
    assert max(map(len, lines)) < 400
    causes = [
        "refused 127.0.0.1:",
        "TLS handshake failed (certificate verify failed)",
        "refused party-3: ",
        "study differs",
        "claims to be party 1",
        "version differs",
        "the limit is 65536",
        "not finite",
    ]
    for cause in causes:
        assert any(cause in line for line in lines), f"{cause!r} is not in the log"
    assert any(refusal.endswith(" times)") for refusal in result.refusals)


def besiege(tmp_path: Path, handshakes: int, floods: int, half_open: int) -> None:
    siege = Siege(tmp_path)
    result = asyncio.run(under_siege(siege, handshakes, floods, half_open))
    np.testing.assert_allclose(result.mean, siege.values.mean(axis=0), rtol=1e-9)
    assert result.heard == tuple(range(PARTIES))
    check_log(siege, result)


def test_the_list_of_refusals_is_bounded_and_safe_to_print() -> None:
    refusals = Refusals()
    assert refusals.note("192.0.2.1:4000", "no greeting") == ("192.0.2.1:4000", "no greeting")
    for port in range(5000, 5300):
        assert refusals.note(f"192.0.2.1:{port}", "no greeting") is None
    assert refusals.note("ada", "a header\nrefused bob: \x1b[31m" + 10_000 * "x") == (
        "ada",
        "a header?refused bob: ?[31m" + 273 * "x" + "...",
    )
    told = sum(refusals.note(f"198.51.{k // 256}.{k % 256}:1", f"reason {k}") is not None for k in range(20_000))
    told += sum(refusals.note("ada", f"reason {k}") is not None for k in range(20_000))
    lines = refusals.lines()
    # 254 more peers with a cause each, 15 more causes of ada, and that there is more.
    assert told == 254 + 15 + 1
    assert len(lines) == 2 + 254 + 15 + 1
    assert lines[0] == "192.0.2.1:4000: no greeting (301 times)"
    assert lines[-1] == f"others: {40_000 - 254 - 15} further refusals"
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("attacks", [(20, 400, 5), pytest.param((100, 20_000, 100), marks=pytest.mark.slow)])
def test_attacks_cost_a_bounded_amount(tmp_path: Path, attacks: tuple[int, int, int]) -> None:
    besiege(tmp_path, *attacks)
