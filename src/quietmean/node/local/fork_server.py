"""The process that forks the parties of a local run: ``python -m quietmean.node.local.fork_server plan.json DESCRIPTOR``.

It is prepared once: it has imported what a party of the plan needs. It has one thread, reads no data and makes no key, seed,
generator or TLS context, so that nothing of this kind can be the same in two parties. It ends when its launcher hangs up, and
its children end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from quietmean.core.file_kinds import package_version
from quietmean.node.local import child
from quietmean.node.local.fork_launcher import MESSAGE_SIZE
from quietmean.planning import Plan
from quietmean.randomness.process import renew_after_fork

# Other systems start each party anew; checkers of types for them read no further.
assert sys.platform == "linux"  # noqa: S101

_PR_SET_PDEATHSIG = 1
_LARGEST_DESCRIPTOR = 1 << 16
# Where a party finds its socket; all above it is closed.
_LISTENING = 3


class ForkServer:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._running: set[int] = set()
        # Written to by the signal of a child's end.
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)

    def serve(self) -> None:
        """Serve until the launcher hangs up."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        # A Ctrl-C at the terminal goes to all: the parties end by themselves, and the launcher says when this is over.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        self._control.send(json.dumps({"ready": True}).encode())
        with selectors.DefaultSelector() as ready:
            ready.register(self._control, selectors.EVENT_READ)
            ready.register(self._woken, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    if key.fileobj is self._control and not self._launch():
                        return
                    if key.fileobj == self._woken:
                        os.read(self._woken, MESSAGE_SIZE)
                        self._reap()

    def _launch(self) -> bool:
        """Start what is asked for; False if the launcher has hung up."""
        request, descriptors, _, _ = socket.recv_fds(self._control, MESSAGE_SIZE, 3)
        if not request:
            return False
        _check_one_thread()
        pid = os.fork()
        if pid == 0:
            _become_party(Path(json.loads(request)["settings"]), *descriptors)
        handle = os.pidfd_open(pid)
        self._running.add(pid)
        socket.send_fds(self._control, [json.dumps({"pid": pid}).encode()], [handle])
        for descriptor in (handle, *descriptors):
            os.close(descriptor)
        return True

    def _reap(self) -> None:
        for pid in sorted(self._running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._running.remove(pid)
                self._control.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _become_party(settings: Path, listening: int, output: int, log: int) -> NoReturn:
    """Leave behind, in the child, what belongs to the server."""
    code = 1
    try:
        # If the server is killed, so is this process.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(output, 1)
        os.dup2(log, 2)
        os.dup2(listening, _LISTENING)
        os.closerange(_LISTENING + 1, _LARGEST_DESCRIPTOR)
        renew_after_fork()
        code = child.main(settings, _LISTENING)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Nothing of what the server registered for its own end happens here.
        os._exit(code)


def _check_one_thread() -> None:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"a process with {threads} threads is not to be forked")


def main(plan: Path, descriptor: int) -> int:
    # The protocol of the plan is imported by this, and what tells the release is read.
    gated = Plan.from_json(json.loads(plan.read_bytes())).gated
    package_version()
    if gated:
        # What decides there: imported by each party, it would take a third of a second of each.
        for name in ("scipy.sparse.linalg", "scipy.special", "quietmean.planning.gate"):
            importlib.import_module(name)
    # The collector does not touch, and thereby copy, what is shared.
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as control, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        ForkServer(control).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
