"""A scheduler of Dask and its workers, each a process of its own on this machine, known by the scheduler's address alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

LIMIT = 90.0


@dataclass(frozen=True)
class Cluster:
    """``address`` of the scheduler, and the processes."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Ends all of them at the end. ``folder``: for their files; modules in it are found by the workers."""
    file = Path(mkdtemp(dir=folder)) / "scheduler.json"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(_started(folder, "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file)))
        until = time.monotonic() + LIMIT
        # It is there before it is written.
        while not (file.exists() and file.read_text().rstrip().endswith("}")):
            assert processes[0].poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        one = ("--nthreads", "1", "--no-nanny", "--local-directory", str(folder), "--memory-limit", "0")
        processes += [_started(folder, "worker", address, *one, "--name", f"w{number}") for number in range(workers)]
        yield Cluster(address, processes[0], processes[1:])
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait(LIMIT)


def _started(folder: Path, what: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        command: Sequence[str] = (sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments, "--no-dashboard")
        # Ctrl-C of a test is not for them.
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        )
