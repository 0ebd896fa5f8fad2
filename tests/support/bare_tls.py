"""The baseline: processes that send each other bytes over TLS as a node does, and do nothing else (``raw_tls_peer.py``)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import quietmean
from quietmean.node import Identity, Roster, RosterEntry


def over_bare_tls(directory: Path, steps: Sequence[list[dict[str, Any]]], *, durable: bool = False) -> tuple[float, float]:
    """Seconds of the slowest process, and processor seconds of all. ``steps``: of each party, what it sends and expects.

    Processes are started and connected beforehand. ``durable``: what comes in is on disk before it is acknowledged, and nothing
    else is.
    """
    directory.mkdir()
    identities = [Identity.generate() for _ in steps]
    listening = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in steps]
    entries = []
    for party, (identity, bound) in enumerate(zip(identities, listening, strict=True)):
        identity.save(directory / f"{party}.key")
        entries.append(RosterEntry(f"p{party}", ("127.0.0.1", bound.getsockname()[1]), identity.public_key))
    (directory / "roster.toml").write_text(Roster(tuple(entries)).to_toml())
    processes = []
    for party, (bound, own) in enumerate(zip(listening, steps, strict=True)):
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("raw_tls_peer.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[bound.fileno()],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(quietmean.__file__).parents[1])},
        )
        task = {
            "party": party,
            "roster": str(directory / "roster.toml"),
            "key": str(directory / f"{party}.key"),
            "descriptor": bound.fileno(),
            "steps": own,
            "durable": str(directory / f"{party}.bytes") if durable else "",
        }
        _tell(process, json.dumps(task))
        processes.append(process)
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
    for process in processes:
        _tell(process, "go")
    times = [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
    for process, bound in zip(processes, listening, strict=True):
        _tell(process, "go")
        process.communicate()
        bound.close()
    return max(each["seconds"] for each in times), sum(each["processor"] for each in times)


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
