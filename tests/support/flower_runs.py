"""Real Flower: a SuperLink with a database and a log, SuperNodes or a simulation, and ``flwr run`` of an app."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from support.pages import blocks
from support.ports import reserved

FLOWER = "QUIETMEAN_FLOWER_PYTHON"
MISSING = f"{FLOWER} names no Python of an environment with quietmean[flower]: make bench-flower makes one"
_ROOT = Path(__file__).resolve().parents[2]
APP = _ROOT / "examples" / "flower"
# A client that is away raises for everything that is asked of it in that round: Flower reports it as failed.
_AWAY = """
from quietmean.flower.sealing import read_request

AWAY = {away!r}


def absent(message, context, call_next):
    home = context.node_config.get("quietmean-home")
    number = Path(str(home)).name if home is not None else context.node_config["partition-id"]
    request = read_request(message.content["quietmean"]["said"])
    if AWAY.get(getattr(request, "round", 0)) == int(number):
        raise RuntimeError("gone")
    return call_next(message, context)


app = ClientApp(mods=[absent, quietmean_mod])
"""


def flower_python() -> Path | None:
    named = os.environ.get(FLOWER)
    return Path(named) if named and Path(named).exists() else None


class FlowerRun:
    """One app on one SuperLink. ``seen``: all pages that its database had at any time that was looked, and lines of its log."""

    def __init__(self, root: Path, python: Path, away: dict[int, int]) -> None:
        self.root, self.programs = root, python.absolute().parent
        self.app = root / "app"
        shutil.copytree(APP, self.app, ignore=shutil.ignore_patterns("__pycache__"))
        client = self.app / "quiet" / "client.py"
        source = client.read_text()
        client.write_text(source.replace("app = ClientApp(mods=[quietmean_mod])\n", _AWAY.format(away=away)))
        self.database, self.log = root / "state.db", root / "superlink.log"
        self.seen: set[bytes] = set()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = os.environ | {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(_ROOT / "src"),
            "FLWR_HOME": str(root / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        (root / "flwr").mkdir()

    def simulate(self, timeout: float, settings: str) -> None:
        """All clients in one simulation of Flower's."""
        options = (
            "options.num-supernodes = 10\noptions.backend.client-resources.num-cpus = 1\n"
            "options.backend.client-resources.num-gpus = 0.0\n"
        )
        with self._superlink("--simulation"):
            self._run(timeout, settings, options)

    @property
    def said(self) -> str:
        """What the run showed to who started it."""
        return (self.root / "run.out").read_text(errors="replace")

    def deploy(self, homes: list[Path], timeout: float, settings: str, frozen: int = 0) -> None:
        """A SuperNode for each home, the last of which come and then do nothing any more."""
        with self._superlink(), contextlib.ExitStack() as nodes:
            for home, port in zip(homes, nodes.enter_context(reserved(len(homes))), strict=True):
                config = f'quietmean-home="{home}"'
                runtime = ["--superlink", f"127.0.0.1:{self.port}", "--port", str(port), "--node-config", config]
                nodes.enter_context(self._process(f"node-{home.name}", "flower-supernode", "--insecure", *runtime))
            for home in homes[len(homes) - frozen :]:
                said = self.root / f"node-{home.name}.out"
                self._until(f"{home.name} is no SuperNode", partial(_says, said, "SuperNode ID"))
                self._running[f"node-{home.name}"].send_signal(signal.SIGSTOP)
            self._run(timeout, settings)

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + 300
        while not holds():
            self._require_running()
            assert time.monotonic() < until, what
            time.sleep(0.2)

    @contextlib.contextmanager
    def _superlink(self, *more: str) -> Iterator[None]:
        with reserved(2) as (self.port, control), self._superlink_at(control, *more):
            yield

    @contextlib.contextmanager
    def _superlink_at(self, control: int, *more: str) -> Iterator[None]:
        arguments = ["--insecure", "--disable-runtime-dependency-installation", "--database", str(self.database)]
        arguments += ["--host", "127.0.0.1", "--port", str(self.port), "--control-api-address", f"127.0.0.1:{control}"]
        with self._process("superlink", "flower-superlink", *arguments, "--log-file", str(self.log), *more):
            self._until("the SuperLink does not listen", self._listens)
            ended = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(ended,))
            watcher.start()
            try:
                yield
            finally:
                ended.set()
                watcher.join()

    @contextlib.contextmanager
    def _process(self, label: str, program: str, *arguments: str) -> Iterator[None]:
        with (self.root / f"{label}.out").open("wb") as out:
            # A group of its own, with which whatever it started ends.
            process = subprocess.Popen(
                [self.programs / program, *arguments], env=self._environment, stdout=out, stderr=out, start_new_session=True
            )
            self._running[label] = process
            try:
                yield
            finally:
                del self._running[label]
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    pass
                finally:
                    # Also what it started.
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def _run(self, timeout: float, settings: str, options: str = "") -> None:
        # As the page has it.
        (there,) = blocks("models/flower.md", "toml")
        config = there.replace(":8000", f":{self.port}") + options
        (self.root / "flwr" / "config.toml").write_text(config)
        command: list[str | Path] = [self.programs / "flwr", "run", self.app, "here", "--stream", "--run-config", settings]
        until = time.monotonic() + timeout
        with (self.root / "run.out").open("wb") as out:
            process = subprocess.Popen(command, env=self._environment, stdout=out, stderr=out)
            try:
                while process.poll() is None:
                    self._require_running()
                    assert time.monotonic() < until, f"the run is not over after {timeout:g} s"
                    time.sleep(0.2)
            finally:
                process.kill()
                process.wait()
        assert process.returncode == 0, _end_of(self.root / "run.out")

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _require_running(self) -> None:
        """A link that has ended never comes back: nothing is worth waiting for."""
        for label, process in self._running.items():
            assert process.poll() is None, f"{label} ended with {process.returncode}: {_end_of(self.root / f'{label}.out')}"

    def _watch(self, ended: threading.Event) -> None:
        """The database's files whenever they changed: messages are taken out of it once they were delivered."""
        while not ended.is_set():
            for path in (self.database, self.database.with_name(self.database.name + "-wal"), self.log):
                with contextlib.suppress(OSError):
                    self.seen.update(_pieces(path, path.read_bytes()))
            ended.wait(0.5)


def _says(path: Path, words: str) -> bool:
    return words in path.read_text(errors="replace")


def _end_of(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:]


def _pieces(path: Path, content: bytes) -> list[bytes]:
    """Each is kept once, however often a file is looked at. Nothing goes on from a database's page into the next in the file."""
    if path.suffix == ".log":
        return content.splitlines()
    size, start, gap = int.from_bytes(content[16:18]), 0, 0
    if path.name.endswith("-wal"):
        # A header, and one before each page.
        size, start, gap = int.from_bytes(content[8:12]), 32, 24
    # One stands for 65536, which has no room there.
    size = 65_536 if size == 1 else max(size, 512)
    return [content[place + gap : place + gap + size] for place in range(start, len(content), size + gap)]
