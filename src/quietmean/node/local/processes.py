"""The processes of a local run: every party in an interpreter of its own, started by exec."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

# The parties share this machine's cores: one thread each. Numerical libraries read this when they are imported.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

# Python's arguments for the process of a party, which gets the settings file and the number of the listening socket.
PARTY = ("-m", "quietmean.node.local.child")


class PartyProcess(Protocol):
    """The process of a party; ``returncode`` is None while it runs, and negative if a signal ended it."""

    @property
    def stdout(self) -> asyncio.StreamReader | None: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def kill(self) -> None: ...


class Launcher(Protocol):
    """Starts processes of parties: with a settings file, a socket that listens already, and a log for standard error."""

    async def prepare(self) -> None:
        """Return once an interpreter has imported what a party needs: how long that takes says how busy the machine is."""

    async def start(self, settings: Path, listening: socket.socket, log: BinaryIO) -> PartyProcess: ...


class ExecLauncher:
    """Launches each party as a process of its own.

    ``program``: Python's arguments before the path of the settings file.
    """

    def __init__(self, program: Sequence[str]) -> None:
        self._program = program

    async def prepare(self) -> None:
        # One more than there are parties, which import the same when they start.
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", f"import {PARTY[1]}", env=os.environ | ONE_THREAD)
        await process.wait()

    async def start(self, settings: Path, listening: socket.socket, log: BinaryIO) -> PartyProcess:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *self._program,
            str(settings),
            str(listening.fileno()),
            stdout=PIPE,
            stderr=log,
            pass_fds=[listening.fileno()],
            env=os.environ | ONE_THREAD,
        )


class ChildSettings(msgspec.Struct, frozen=True):
    """Paths are absolute. ``value``: a file of d float64 numbers, little endian. Time-outs are in seconds.

    ``freeze_round``: the process stops itself (SIGSTOP) at the beginning of this mixing round, so that it can be killed there.
    """

    key: str
    roster: str
    plan: str
    value: str
    weight: float
    store: str
    result: str
    round_timeout: float
    start_timeout: float
    gone_timeout: float | None = None
    freeze_round: int | None = None
    links: str = "x25519"
