"""Lives of the stories of ``tests/faults/stories.py``, in processes that a fault may strike."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.injected import Faults

_TESTS = Path(__file__).parent.parent


@dataclass(frozen=True)
class Life:
    """How one life ended: its exit code, or the number of the signal below 0; what it found; and what it told, in its order."""

    code: int
    found: Any
    told: list[str]
    error: str = ""
    trace: str = ""


@dataclass
class Lives:
    """``process`` makes them, one at a time."""

    process: subprocess.Popen[str]

    def run(self, story: str, place: Path, faults: Path, do: str = "live") -> Life:
        """A life in the folder ``place``; what the injector knows is in ``faults``."""
        say, told = faults / "say", faults / "told"
        faults.mkdir(parents=True, exist_ok=True)
        place.mkdir(parents=True, exist_ok=True)
        say.unlink(missing_ok=True)
        before = told.stat().st_size if told.exists() else 0
        order = {"story": story, "place": str(place), "faults": str(faults), "say": str(say), "told": str(told), "do": do}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        said = json.loads(say.read_text()) if say.exists() else {}
        text = told.read_bytes()[before:].decode() if told.exists() else ""
        return Life(code, said.get("found"), text.splitlines(), said.get("error", ""), said.get("trace", ""))


@contextmanager
def prepared_process(module: str) -> Iterator[subprocess.Popen[str]]:
    """A process of a module that has imported everything, under the injector, and takes orders as lines."""
    environment = {**Faults(Path("/nonexistent")).environment(), "PYTHONPATH": str(_TESTS), "OPENBLAS_NUM_THREADS": "1"}
    line = [sys.executable, "-m", module]
    process = subprocess.Popen(line, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(timeout=60)
        process.stdout.close()


@contextmanager
def prepared() -> Iterator[Lives]:
    """A process that lives through stories of one file."""
    with prepared_process("faults.stories") as process:
        yield Lives(process)
