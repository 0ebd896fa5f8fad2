"""A command as a process that also writes what it sent inside TLS: python -m support.recorded_process FRAMES COMMAND..."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from quietmean.cli.main import main
from support.recorded_links import recorded


def recorded_command(folder: Path, frames: Path, environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    """A process of ``quietmean`` with these arguments in the folder; ``frames`` is there when it has ended."""
    line = [sys.executable, "-m", "support.recorded_process", str(frames), *arguments]
    there = {**os.environ, **environment, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(line, cwd=folder, env=there, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


if __name__ == "__main__":
    with recorded() as directions:
        try:
            main(sys.argv[2:])
        finally:
            Path(sys.argv[1]).write_bytes(b"".join(direction.raw for direction in directions))
