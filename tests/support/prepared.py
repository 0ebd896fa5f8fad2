"""A process that has imported what commands import, and starts copies of itself as commands: ``prepared.py SOCKET``.

An order is its length, JSON and four open files: standard input, output, errors, and where to tell how the command ended.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

LENGTH, STATUS, NUMBER = struct.Struct("<Q"), struct.Struct("<i"), struct.Struct("<q")
# What is executed itself, and what needs an extra that few commands import.
_APART = ("quietmean.__main__", "quietmean.cli.main", "quietmean.desk", "quietmean.flower", "quietmean.testing")
_FILES = 4


def _import_all() -> None:
    import quietmean

    for found in walk_packages(quietmean.__path__, "quietmean.", onerror=lambda name: None):
        if not found.name.startswith(_APART):
            # What needs an extra that is not installed here, a command of it says itself.
            with suppress(ModuleNotFoundError):
                import_module(found.name)
    # Copies collect no waste of it: each page that they look at is copied.
    gc.collect()
    gc.freeze()


def _become(order: dict[str, Any], files: list[int]) -> None:
    """Be this command, in a process that is its own."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if order["session"]:
        os.setsid()
    for place, number in enumerate(files[:3]):
        os.dup2(number, place)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    # As an interpreter has it that is told of a module.
    sys.path[0] = order["folder"]
    sys.argv[1:] = order["arguments"]
    sys.stdin, sys.stdout, sys.stderr = (open(place, mode, closefd=False, **how) for place, mode, how in _STREAMS)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc,assignment]
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


_ERRORS: dict[str, Any] = {"errors": "backslashreplace", "buffering": 1}
_STREAMS: tuple[tuple[int, str, dict[str, Any]], ...] = ((0, "r", {}), (1, "w", {}), (2, "w", _ERRORS))


def _received(orders: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    begun, files, _, _ = socket.recv_fds(orders, LENGTH.size, _FILES)
    if not begun:
        return None
    with orders.dup() as rest, rest.makefile("rb") as stream:
        return json.loads(stream.read(LENGTH.unpack(begun)[0])), files


def main() -> None:
    """Until nobody gives orders any more."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    told: dict[int, int] = {}
    sources: list[socket.socket | int] = [orders, woken]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if woken in ready:
            os.read(woken, 4096)
            while told and (found := os.waitpid(-1, os.WNOHANG))[0]:
                where = told.pop(found[0])
                os.write(where, STATUS.pack(found[1]))
                os.close(where)
        if orders not in ready:
            continue
        received = _received(orders)
        if received is None:
            return
        order, files = received
        child = os.fork()
        if not child:
            _become(order, files)
            return
        told[child] = files[3]
        for number in files[:3]:
            os.close(number)
        orders.sendall(NUMBER.pack(child))


if __name__ == "__main__":
    main()
