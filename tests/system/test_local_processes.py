"""Parties of a local run as forks of one process: apart from each other in everything that is secret, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from quietmean.core.errors import ProtocolFailure
from quietmean.node.local.fork_launcher import ForkLauncher
from quietmean.node.local.processes import PartyProcess
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="parties are forked on Linux only")

# A server whose parties do something else. It gets the usual arguments.
SERVER = """
import sys
from pathlib import Path
from quietmean.node.local import child, fork_server

def party(settings, listening):
    {}

child.main = party
sys.exit(fork_server.main(Path(sys.argv[1]), int(sys.argv[2])))
"""

DRAWS = """
    import json, os, random, secrets, socket, ssl, uuid
    import numpy as np
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from quietmean.randomness import Seed
    with socket.socket(fileno=listening) as heard:
        port = heard.getsockname()[1]
    print(json.dumps({
        "settings": str(settings), "port": port, "process": os.getpid(), "descriptors": sorted(os.listdir("/proc/self/fd")),
        "numpy global": np.random.random(), "numpy": np.random.default_rng().random(), "random": random.random(),
        "secrets": secrets.token_hex(), "tls": ssl.RAND_bytes(16).hex(), "identifier": str(uuid.uuid4()),
        "seed": Seed.from_os().secret.hex(), "key": X25519PrivateKey.generate().private_bytes_raw().hex(),
    }))
    return 0
"""
# What the parent has drawn already, a child has a copy of: the generator that is most easily left alone.
COPIES = SERVER.replace(
    "child.main = party", "import numpy as np\nnp.random.random()\nfork_server.renew_after_fork = lambda: None\n{}"
)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    target = Target(parties=3, epsilon=1.0, delta=1e-6)
    path.write_text(json.dumps(Plan(target, IncA(rounds=3, sigma_star=1.0, sigma_delta=1.0)).to_json()))
    return path


@contextlib.asynccontextmanager
async def started(plan: Path, program: str, count: int) -> AsyncIterator[tuple[ForkLauncher, Sequence[PartyProcess]]]:
    async with ForkLauncher(plan, ("-c", program)) as launcher:
        yield launcher, [await start(launcher, plan.with_name(f"party-{party}")) for party in range(count)]


async def start(launcher: ForkLauncher, settings: Path) -> PartyProcess:
    with socket.create_server(("127.0.0.1", 0)) as listening, settings.with_suffix(".log").open("ab") as log:
        return await launcher.start(settings, listening, log)


def runs(process: int) -> bool:
    """Not ended, and not only waiting for somebody to ask how it ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def output(process: PartyProcess) -> str:
    assert process.stdout is not None
    return (await process.stdout.read()).decode()


async def drawn(plan: Path, program: str, count: int) -> list[dict[str, Any]]:
    async with started(plan, program, count) as (_, processes):
        told = [json.loads(await output(process)) for process in processes]
        assert [await process.wait() for process in processes] == [0] * count
    return told


@pytest.mark.slow
def test_nothing_secret_is_the_same_in_two_parties(plan: Path) -> None:
    told = asyncio.run(drawn(plan, SERVER.format(DRAWS), 20))
    assert {len(one["descriptors"]) for one in told} == {4}, "three standard ones, and that of the listing itself"
    assert all(one["port"] for one in told), "each has its listening socket"
    for name in set(told[0]) - {"descriptors", "port"}:
        assert len({one[name] for one in told}) == 20, name


def test_this_would_be_seen(plan: Path) -> None:
    told = asyncio.run(drawn(plan, COPIES.format(DRAWS, "child.main = party"), 3))
    assert len({one["numpy global"] for one in told}) == 1
    assert len({one["numpy"] for one in told}) == 3


def test_an_end_is_told_as_it_was(plan: Path) -> None:
    async def ends() -> None:
        body = """
    number = int(settings.name[-1])
    if number == 1:
        raise ValueError("a private 42")
    if number == 2:
        import signal
        signal.pause()
    return 5
"""
        async with started(
            plan, SERVER.format("from quietmean.core.logs import hide_error_texts; hide_error_texts()" + body), 3
        ) as (
            _,
            processes,
        ):
            assert [await process.wait() for process in processes[:2]] == [5, 1]
            assert processes[2].returncode is None
            processes[2].kill()
            assert await processes[2].wait() == -signal.SIGKILL
            # As with any process, nothing happens.
            processes[2].kill()

    asyncio.run(ends())
    log = plan.with_name("party-1.log").read_text()
    assert "ValueError" in log
    assert "42" not in log


def test_parties_end_with_the_process_that_started_them(plan: Path) -> None:
    async def dies() -> None:
        body = "import os, signal; print(os.getpid(), os.getppid(), flush=True); signal.pause()"
        async with started(plan, SERVER.format(body), 1) as (launcher, (process,)):
            assert process.stdout is not None
            party, server = map(int, (await process.stdout.readline()).split())
            os.kill(server, signal.SIGKILL)
            assert await process.wait() == -signal.SIGKILL
            assert await process.stdout.read() == b""
            while runs(party):
                await asyncio.sleep(0.01)
            with pytest.raises(ProtocolFailure, match=(r"the process that starts the parties has ended\. Start the run again")):
                await start(launcher, plan.with_name("party-9"))

    asyncio.run(dies())


def test_two_threads_are_never_forked(plan: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def starts() -> None:
        program = SERVER.format("return 0").replace(
            "child.main = party", "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
        )
        with pytest.raises(ProtocolFailure, match="Start the run again"):
            async with started(plan, program, 1):
                pass

    asyncio.run(starts())
    assert "2 threads is not to be forked" in capfd.readouterr().err
