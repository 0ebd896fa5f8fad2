"""Relays for tests: the command as a process of its own, which can be killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from quietmean.node.net import Address, RelayAddress


class RelayProcess:
    """``quietmean serve relay`` on a port of this machine. ``options``: further ones."""

    def __init__(self, port: int, options: Sequence[str] = (), environment: dict[str, str] | None = None) -> None:
        self.address = RelayAddress("127.0.0.1", port)
        self._command = [
            sys.executable,
            "-m",
            "quietmean.cli.main",
            "serve",
            "relay",
            "--listen",
            f"127.0.0.1:{port}",
            "--json",
            *options,
        ]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def start(self) -> dict[str, Any]:
        """Returns once it listens, what it says then."""
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> int:
        """As its operator stops it; its exit code."""
        self.process.terminate()
        self.process.communicate(timeout=30)
        return self.process.returncode

    def health(self) -> dict[str, Any]:
        host, port = self.address
        with urlopen(f"http://{host}:{port}/health", timeout=10) as answer:
            document: dict[str, Any] = json.load(answer)
            return document

    def memory(self) -> int:
        """Resident, bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    @contextlib.asynccontextmanager
    async def between(self, listening: Sequence[Address]) -> AsyncIterator[Sequence[Sequence[Address]]]:
        """For :func:`run_local`: every party is at this relay."""
        yield [[self.address] * len(listening)] * len(listening)

    def __enter__(self) -> RelayProcess:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
