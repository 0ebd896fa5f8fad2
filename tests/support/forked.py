"""Commands as copies of one process that has imported what commands import, which is most of the time that a short one takes.

What is started is a process like any other: with files, a folder, an environment and a session of its own, killed and waited for
as usual. What sets up an interpreter otherwise is executed as ever: other programs, other variables of Python, linker or locale,
a function before the program, open files that are passed on, and ``asyncio``, which waits for its children by itself.
Under ``make test-all`` everything is executed.
"""

from __future__ import annotations

import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from support import prepared
from support.effort import is_thorough
from support.prepared import LENGTH, NUMBER, STATUS

_MODULES = {"quietmean", "quietmean.cli.main"}
# What changes how an interpreter starts, or what happens before any of our code runs.
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "OMP_", "OPENBLAS_", "MALLOC_", "TZ")
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
# asyncio's own.
_UNBUFFERED = 0


class Forked(subprocess.Popen[Any]):
    """A process, which is copied where that makes no difference."""

    # Tests of what an interpreter has at its start execute everything.
    copies = True
    _told: int | None = None

    def __init__(self, args: Any, bufsize: int = -1, *more: Any, **given: Any) -> None:
        self._may_be_copied = self.copies and bufsize != _UNBUFFERED and not is_thorough()
        super().__init__(args, bufsize, *more, **given)

    def _execute_child(self, *given: Any) -> None:
        executed = super()._execute_child  # type: ignore[misc]
        how = inspect.signature(executed).bind(*given).arguments
        if not (self._may_be_copied and _is_plain(how)):
            executed(*given)
            return
        files = [_or(how["p2cread"], 0), _or(how["c2pwrite"], 1), _or(how["errwrite"], 2)]
        self._told, tell = os.pipe()
        try:
            self.pid = _the_prepared().start(_order(how), [*files, tell])
        finally:
            os.close(tell)
        self._child_created = True
        self._close_pipe_fds(*(how[name] for name in _PIPES))  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._told is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc,no-any-return]
        if wait_flags & os.WNOHANG and not select.select([self._told], [], [], 0)[0]:
            return 0, 0
        told = os.read(self._told, STATUS.size)
        os.close(self._told)
        self._told = None
        # Nobody tells where the prepared process was killed.
        return self.pid, STATUS.unpack(told)[0] if told else signal.SIGKILL

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self._told is not None:
            more["_waitpid"] = lambda number, flags: self._try_wait(flags)
        return super()._internal_poll(*given, **more)  # type: ignore[misc,no-any-return]


def _or(number: int, usual: int) -> int:
    return usual if number == -1 else number


def _is_plain(how: Mapping[str, Any]) -> bool:
    """Whether a command of ours is started in no unusual way."""
    line = how["args"]
    if isinstance(line, str | bytes | os.PathLike) or [*line[:2]] != [sys.executable, "-m"] or line[2] not in _MODULES:
        return False
    if (
        how["preexec_fn"] is not None
        or how["pass_fds"]
        or not how["close_fds"]
        or how["executable"] not in (None, sys.executable)
    ):
        return False
    if (
        any(how[name] is not None for name in ("uid", "gid", "gids"))
        or how["umask"] != -1
        or how["process_group"] not in (None, -1)
    ):
        return False
    return _at_start(_environment(how)) == _at_start(_the_prepared().environment)


def _environment(how: Mapping[str, Any]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in (os.environ if how["env"] is None else how["env"]).items()}


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}


def _order(how: Mapping[str, Any]) -> dict[str, Any]:
    _, _, module, *arguments = how["args"]
    return {
        "module": module,
        "arguments": [os.fsdecode(argument) for argument in arguments],
        "folder": str(Path(os.fsdecode(how["cwd"] or "")).absolute()),
        "environment": _environment(how),
        "session": bool(how["start_new_session"]),
    }


class _Prepared:
    def __init__(self) -> None:
        self.environment, self._lock = dict(os.environ), Lock()
        self._orders, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen([sys.executable, prepared.__file__, str(number)], pass_fds=[number])

    def start(self, order: Mapping[str, Any], files: Sequence[int]) -> int:
        """The number of the process that follows an order."""
        told = json.dumps(order).encode()
        with self._lock:
            socket.send_fds(self._orders, [LENGTH.pack(len(told))], files)
            self._orders.sendall(told)
            number: int = NUMBER.unpack(self._orders.recv(NUMBER.size, socket.MSG_WAITALL))[0]
        return number


@cache
def _the_prepared() -> _Prepared:
    return _Prepared()
