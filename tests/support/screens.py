"""What a command prints, at a terminal of 80 columns and in a pipe; and what is wrong with it as a first screen."""

from __future__ import annotations

import fcntl
import io
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from quietmean.cli.main import main

COLUMNS, LINES = 80, 12
# Colours and movements of a terminal, and what a live line had before it was drawn anew.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\n]*\r(?!\n)")
# What people paste, or click: a command, the path of a file, and an address.
_COMMAND = re.compile(r"(^|[\s:])quietmean [a-z]")
_PATH = re.compile(r"\S+:\d{2,5}\b|\S*/\S{12,}|\S+\.(html|json|store|key)\b")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Screen:
    """What was printed on standard output, and on standard error; and the exit code."""

    code: int
    out: str
    err: str = ""

    @property
    def lines(self) -> list[str]:
        """What stays on the screen."""
        return [line.rstrip() for line in _CONTROL.sub("", self.out.replace("\r\n", "\n")).splitlines()]

    def faults(self, uncounted: Sequence[str] = (), codes: Sequence[int] = (0,)) -> list[str]:
        """What is wrong with it; lines that begin with one of ``uncounted`` do not count."""
        counted = [line for line in self.lines if not line.startswith(tuple(uncounted))]
        # Warnings are sentences on standard error, of any length.
        wide = [line for line in self.lines if len(line) > COLUMNS and not (_COMMAND.search(line) or _PATH.search(line))]
        return [
            *([] if self.code in codes else [f"exit code {self.code}: {self.err}"]),
            *(["nothing is printed"] if not self.lines else []),
            *([f"{len(counted)} lines"] if len(counted) > LINES else []),
            *(f"{len(line)} columns: {line}" for line in wide),
            *(["a traceback"] if "Traceback" in self.out + self.err or "a defect" in self.err else []),
        ]


@contextmanager
def _streams(terminal: bool) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    out, err = (_Terminal(), _Terminal()) if terminal else (io.StringIO(), io.StringIO())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(COLUMNS))
        patch.setenv("TERM", "xterm")
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", err)
        yield out, err


def screen_of(line: str, terminal: bool) -> Screen:
    """Type a line here."""
    code = 0
    with _streams(terminal) as (out, err):
        try:
            main(shlex.split(line))
        except SystemExit as end:
            code = int(end.code or 0)
    return Screen(code, out.getvalue(), err.getvalue())


def screen_of_process(line: str, terminal: bool, *, until: str = "", on_error: bool = False, patience: float = 120.0) -> Screen:
    """Type a line as a process of its own; one that serves is interrupted once it printed the words of ``until``.

    ``on_error``: the screen is all that is said, on standard error too.
    """
    command = [sys.executable, "-m", "quietmean.cli.main", *shlex.split(line)]
    errors = Path("errors.txt")
    if terminal:
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    else:
        ours, theirs = os.pipe()
    environment = {**os.environ, "TERM": "xterm", "PYTHONUNBUFFERED": "1"}
    with errors.open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs if on_error else said, env=environment
        )
    os.close(theirs)
    printed, begun = b"", time.monotonic()
    try:
        while time.monotonic() < begun + patience:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:
                # The end of a terminal whose process has ended.
                break
            if not part:
                break
            printed += part
            if until and until in printed.decode(errors="replace"):
                process.send_signal(signal.SIGINT)
                until = ""
        code = process.wait(patience)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return Screen(code, printed.decode(), errors.read_text())
