"""Faults inside system calls of real processes: see ``tests/faults/inject.c``, which is compiled here."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_SOURCE = Path(__file__).parent.parent / "faults" / "inject.c"
# SQLite's index of a log: it is made anew from the log, and its pages are mapped.
_INDEX = "-shm"


@functools.cache
def injector() -> Path:
    """The compiled library. Skips the test where there is no compiler or another C library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("faults inside system calls need Linux and a C compiler")
    library = Path(tempfile.mkdtemp(prefix="inject-")) / "inject.so"
    line = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl", "-lpthread"]
    made = subprocess.run(line, check=False, capture_output=True, text=True)
    if made.returncode:
        pytest.skip("faults inside system calls need glibc and its headers")
    return library


@dataclass(frozen=True)
class Rule:
    """One line for the injector: what it does at the ``first`` (from 0) call that matches, and ``times - 1`` more."""

    action: str
    prefix: Path
    first: int = 0
    times: int = 1
    kind: str = "any"
    argument: int = 0

    def line(self) -> str:
        return f"{self.action} {self.argument} {self.first} {self.times} {self.kind} {self.prefix}"


@dataclass(frozen=True)
class Call:
    """One call that was to change a file, as it was made. ``acted``: what the injector did to it, if anything."""

    acted: str
    kind: str
    result: int
    error: int
    offset: int
    size: int
    content: bytes
    path: str
    other: str

    @property
    def done(self) -> bool:
        return self.result >= 0


@dataclass(frozen=True)
class Faults:
    """A folder that processes under the injector are told of, by their environment."""

    folder: Path

    def set(self, rules: Sequence[Rule]) -> None:
        """These rules from now on; what is counted and logged stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / "rules.new"
        fresh.write_text("".join(f"{rule.line()}\n" for rule in rules))
        fresh.replace(self.folder / "rules")

    def environment(self) -> dict[str, str]:
        return {**os.environ, "LD_PRELOAD": str(injector()), "QUIETMEAN_FAULTS": str(self.folder)}

    def calls(self) -> list[Call]:
        """All calls under a prefix so far, in their order."""
        log = self.folder / "log"
        content = log.read_bytes() if log.exists() else b""
        calls, place = [], 0
        while place < len(content):
            end = content.index(b"\n", place)
            acted, kind, *numbers, path, other = content[place:end].decode().split("\t")
            result, error, offset, size, kept = map(int, numbers)
            place = end + 1 + kept
            calls.append(Call(acted, kind, result, error, offset, size, content[end + 1 : place], path, other))
        return calls


def places_of_faults(calls: Sequence[Call]) -> list[Call]:
    """Those that a rule counts."""
    return [call for call in calls if call.kind != "map"]


def require_all_seen(calls: Sequence[Call], folder: Path, made_before: Sequence[Path] = ()) -> dict[str, int]:
    """How often each file was written; fails where a file has bytes that the injector did not see being written."""
    sizes: dict[str, int] = {}
    writes: dict[str, int] = {}
    for call in calls:
        if not call.done:
            continue
        if call.kind == "create":
            sizes[call.path] = 0
        elif call.kind == "write":
            sizes[call.path] = max(sizes.get(call.path, 0), call.offset + call.result)
            writes[call.path] = writes.get(call.path, 0) + 1
        elif call.kind == "truncate":
            sizes[call.path] = call.offset
        elif call.kind == "rename":
            sizes[call.other] = sizes.pop(call.path, 0)
            writes[call.other] = writes.pop(call.path, 0)
        elif call.kind == "link":
            sizes[call.other] = sizes.get(call.path, 0)
            writes[call.other] = writes.get(call.path, 0)
        elif call.kind == "unlink":
            sizes.pop(call.path, None)
    mapped = {call.path for call in calls if call.kind == "map" and not call.path.endswith(_INDEX)}
    assert not mapped, f"written through a memory map, which no fault reaches: {mapped}"
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(_INDEX)]
    there = {str(path): path.stat().st_size for path in files if path not in made_before}
    unseen = {path: size for path, size in there.items() if sizes.get(path) != size}
    assert not unseen, f"written by calls that the injector does not see: {unseen}"
    return writes
