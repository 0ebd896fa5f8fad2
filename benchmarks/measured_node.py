"""One party of a local run under a stopwatch: where do its processor time and its waiting go?

From the first mixing round to the closing. What is measured inside something else that is measured counts there alone. Writes
``<settings file>.times``, JSON: for each part, seconds of processor and of wall-clock time.
"""

from __future__ import annotations

import functools
import json
import selectors
import socket
import ssl
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quietmean.node.local import child
from quietmean.node.session import rounds
from quietmean.node.storage import Store


class Stopwatch:
    """Times of parts, each without those inside it."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)
        self._part = "loop and frames"
        self._running = False
        self._cpu_mark = self._wall_mark = 0.0

    def _switch(self, part: str) -> str:
        cpu, wall = time.process_time(), time.perf_counter()
        if self._running:
            self.cpu[self._part] += cpu - self._cpu_mark
            self.wall[self._part] += wall - self._wall_mark
        self._cpu_mark, self._wall_mark = cpu, wall
        previous, self._part = self._part, part
        return previous

    def run(self, running: bool) -> None:
        self._switch(self._part)
        self._running = running

    def watch(self, owner: Any, names: list[str], part: str) -> None:
        for name in names:
            setattr(owner, name, self._watched(getattr(owner, name), part))

    def _watched(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            previous = self._switch(part)
            try:
                return function(*arguments, **options)
            finally:
                self._switch(previous)

        return timed


def main(settings: Path, listening: int) -> int:
    watch = Stopwatch()
    watch.watch(ssl.SSLObject, ["read", "write"], "encryption")
    watch.watch(socket.socket, ["send", "recv_into"], "sockets")
    watch.watch(selectors.DefaultSelector, ["select"], "waiting")
    public = [name for name, member in vars(Store).items() if not name.startswith("_") and callable(member)]
    watch.watch(Store, public, "store")
    _watch_machines(watch)

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["phase"] == "mixing" and event["round"] == 1:
            watch.run(True)
        elif event["event"] == "closing":
            watch.run(False)
        print(json.dumps(event), flush=True)

    child._print = report
    code = child.main(settings, listening)
    settings.with_name(settings.name + ".times").write_text(json.dumps({"cpu": watch.cpu, "wall": watch.wall}))
    return code


def _watch_machines(watch: Stopwatch) -> None:
    original = rounds.PhaseRunner.__init__

    def made(runner: Any, context: Any, phase: Any, machine: Any, **options: Any) -> None:
        watch.watch(machine, ["start", "end_round", "expects"], "protocol")
        original(runner, context, phase, machine, **options)

    setattr(rounds.PhaseRunner, "__init__", made)  # noqa: B010


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
