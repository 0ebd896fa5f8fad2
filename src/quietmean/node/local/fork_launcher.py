"""The processes of a local run as forks of one that is prepared: a party starts in milliseconds (Linux only).

They are separate processes (memory after the fork, files, SIGKILL, store) but not independent ones: addresses in memory and
hash seeds are the same in all. A local run is a rehearsal; ``quietmean join`` always starts an interpreter of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from quietmean.core.errors import ProtocolFailure
from quietmean.node.local.processes import ONE_THREAD, PartyProcess

# Python's arguments for the server, which gets the plan's file and the number of a socket.
SERVER = ("-m", "quietmean.node.local.fork_server")
# Of one message between launcher and server, in bytes.
MESSAGE_SIZE = 4096
_GONE = "the process that starts the parties has ended. Start the run again."

# Other systems start each party anew; checkers of types for them read no further.
assert sys.platform == "linux"  # noqa: S101


class ForkedProcess:
    """A party's process, a child of the fork server."""

    def __init__(self, stdout: asyncio.StreamReader, handle: int) -> None:
        """``handle``: a file descriptor of the process; unlike its number it never means another process."""
        self.stdout = stdout
        self._handle = handle
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        return self._code.result() if self._code.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    def kill(self) -> None:
        # Once it has ended, the handle is closed.
        if not self._code.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def ended(self, code: int) -> None:
        os.close(self._handle)
        self._code.set_result(code)


class ForkLauncher:
    """Asks :mod:`quietmean.node.local.fork_server` for forks while its context is open, which ends what still runs."""

    def __init__(self, plan: Path, server: Sequence[str] = SERVER) -> None:
        self._plan = plan
        self._arguments = server
        self._starting: deque[tuple[asyncio.StreamReader, asyncio.Future[ForkedProcess]]] = deque()
        self._running: dict[int, ForkedProcess] = {}
        self._prepared = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with remote:
            self._server = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._arguments,
                str(self._plan),
                str(remote.fileno()),
                stdin=DEVNULL,
                pass_fds=[remote.fileno()],
                env=os.environ | ONE_THREAD,
            )
        asyncio.get_running_loop().add_reader(self._control, self._hear)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # The server ends when nobody listens to it any more, and its children end with it.
        self._hang_up()
        await self._server.wait()

    async def prepare(self) -> None:
        await self._prepared.wait()

    async def start(self, settings: Path, listening: socket.socket, log: BinaryIO) -> PartyProcess:
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        stdout = asyncio.StreamReader()
        with os.fdopen(writing, "wb") as output:
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(reading, "rb"))
            if self._control.fileno() < 0:
                raise ProtocolFailure(_GONE)
            started: asyncio.Future[ForkedProcess] = loop.create_future()
            self._starting.append((stdout, started))
            request = json.dumps({"settings": str(settings)}).encode()
            socket.send_fds(self._control, [request], [listening.fileno(), output.fileno(), log.fileno()])
        return await started

    def _hear(self) -> None:
        """The server tells that it is ``ready``, or the ``pid`` of a process that has begun, with its handle, or of one that
        ended, with its ``code``.
        """
        message, handles, _, _ = socket.recv_fds(self._control, MESSAGE_SIZE, 1)
        if not message:
            self._hang_up()
            return
        event = json.loads(message)
        if "ready" in event:
            self._prepared.set()
            return
        if "code" in event:
            self._running.pop(event["pid"]).ended(event["code"])
            return
        stdout, started = self._starting.popleft()
        process = self._running[event["pid"]] = ForkedProcess(stdout, handles[0])
        if not started.cancelled():
            started.set_result(process)

    def _hang_up(self) -> None:
        if self._control.fileno() < 0:
            return
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        # Nobody waits for what has ended: the next start says so.
        self._prepared.set()
        for _, started in self._starting:
            if not started.done():
                started.set_exception(ProtocolFailure(_GONE))
        self._starting.clear()
        # Anyone who was not heard to end is killed with the server.
        for process in self._running.values():
            process.ended(-signal.SIGKILL)
        self._running.clear()
