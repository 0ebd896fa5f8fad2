"""A drop that strangers crowd: an honest upload comes in at once, and the log stays small. Loopback has many addresses."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from quietmean.node.net import Identity
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.executions import Register
from support.committee_study import CommitteeStudy

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="loopback has one address elsewhere")
# An honest one is in its network, and strangers are in one of their own.
HONEST, STRANGERS = "127.0.0.2", "127.0.0.3"
FLOODS = 4
# What one waits for who is honest, and how much strangers write into the log in a day, at most.
SECONDS, DAY = 2.0, 1 << 20
JUNK = b"POST /contributions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
KINDS = (
    JUNK,
    b"\x16\x03\x01\x00\x05hello",
    b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"\0" * 40 + b"\r\n\r\n",
)


@dataclass
class Crowded:
    """A drop in a process of its own, with ``file`` to send."""

    process: subprocess.Popen[str]
    port: int
    file: bytes
    log: Path

    def upload(self) -> float:
        """Seconds until an honest contribution was acknowledged, sent again where it is turned away."""
        begun = time.monotonic()
        while time.monotonic() < begun + 30.0:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30, source_address=(HONEST, 0))
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
                connection.request("POST", "/contributions", self.file)
                if connection.getresponse().status == 200:
                    break
        return time.monotonic() - begun

    def connected(self, source: str = STRANGERS) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 30, (source, 0))


@pytest.fixture
def crowded(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[Crowded]:
    study, (port,) = CommitteeStudy(tmp_path, {"epsilon": 8.0}), free_ports(1)
    Identity.generate().save(tmp_path / "drop.key")
    one = CommitteeContributor(
        study.sealed, study.plan, study.identities["c1"], study.keys["c1"], Register(tmp_path / "register")
    )
    file = one.contribute(study.sealed.study.workload.encode(np.array([[400.0]]), step=study.plan.value_step)).to_file()
    line = ["--study", study.path, "--listen", f"127.0.0.1:{port}", "--folder", tmp_path / "box", "--key", tmp_path / "drop.key"]
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "quietmean", "serve", "drop", *map(str, line), "--json"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert process.stdout is not None
            json.loads(process.stdout.readline())
            yield Crowded(process, port, file, log)
        finally:
            process.terminate()
            assert process.wait(30) == 0
            assert process.stdout is not None
            process.stdout.close()


@pytest.mark.parametrize(
    ("idle", "rate", "seconds"), [(600, 200.0, 1.5), pytest.param(10_000, 1000.0, 20.0, marks=pytest.mark.slow)]
)
def test_an_honest_upload_does_not_wait_for_strangers(crowded: Crowded, idle: int, rate: float, seconds: float) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 20_000), most))
    waits, sent, over = [crowded.upload()], [0] * FLOODS, threading.Event()

    def flood(own: int) -> None:
        begun = time.monotonic()
        while not over.is_set():
            # It does not wait for an answer: that is for the honest.
            with contextlib.suppress(OSError), crowded.connected() as stranger:
                stranger.sendall(KINDS[sent[own] % len(KINDS)])
            sent[own] += 1
            time.sleep(max(0.0, begun + FLOODS * sent[own] / rate - time.monotonic()))

    with contextlib.ExitStack() as stack:
        for _ in range(idle):
            stack.enter_context(crowded.connected())
        flooding = [threading.Thread(target=flood, args=[own]) for own in range(FLOODS)]
        for thread in flooding:
            thread.start()
        begun = time.monotonic()
        while time.monotonic() < begun + seconds:
            waits.append(crowded.upload())
            time.sleep(0.05)
        over.set()
        for thread in flooding:
            thread.join()
    print(
        f"{idle} idle, {sum(sent) / seconds:.0f} requests/s of strangers, waits up to {max(waits):.2f} s in {len(waits)} uploads"
    )
    assert max(waits) < SECONDS
    # So many lines of a kind an hour, whatever comes.
    assert 24 * crowded.log.stat().st_size < DAY


def test_idle_connections_of_the_same_network_give_way_too(crowded: Crowded) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(crowded.connected(HONEST))
        assert crowded.upload() < SECONDS
