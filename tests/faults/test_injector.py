"""The injector does what its rules say, and its log lacks nothing, or the one who reads it notices."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from support.injected import Faults, Rule, require_all_seen

_BEGIN = "import os, sys, time, mmap, errno, pathlib; place = pathlib.Path(sys.argv[1]); "
_OPEN = "handle = os.open(place / 'file', os.O_RDWR | os.O_CREAT); "


def run(code: str, faults: Faults, place: Path) -> subprocess.CompletedProcess[str]:
    place.mkdir(exist_ok=True)
    line = [sys.executable, "-c", _BEGIN + code, str(place)]
    return subprocess.run(line, env=faults.environment(), check=False, capture_output=True, text=True)


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "faults")


def test_the_call_that_is_named_fails_and_no_other(faults: Faults, tmp_path: Path) -> None:
    place = tmp_path / "place"
    faults.set([Rule("fail", place, 2, 2, "write", errno.EIO), Rule("fail", place / "other$", argument=errno.ENOSPC)])
    tries = """
for number in range(6):
    try: print(os.pwrite(handle, b"abc", 3 * number))
    except OSError as error: print(error.errno)
"""
    assert run(_OPEN + tries, faults, place).stdout.split() == ["3", "3", "5", "5", "3", "3"]
    assert (place / "file").read_bytes() == b"abcabc" + bytes(6) + b"abcabc"
    assert "No space" in run("open(place / 'other', 'w')", faults, place).stderr
    assert run("open(place / 'others', 'w')", faults, place).returncode == 0
    assert [call.acted for call in faults.calls() if call.acted] == ["fail", "fail", "fail"]


def test_half_of_a_write_and_a_death_in_it(faults: Faults, tmp_path: Path) -> None:
    place = tmp_path / "place"
    faults.set([Rule("short", place, kind="write")])
    assert run(_OPEN + "print(os.write(handle, b'abcdef'))", faults, place).stdout == "3\n"
    (place / "file").unlink()
    faults.set([Rule("die", place, 1, kind="write")])
    assert run(_OPEN + "os.write(handle, b'abcdef'); print(1)", faults, place).returncode == -9
    assert (place / "file").read_bytes() == b"abc"


def test_a_folder_has_room_for_so_many_bytes(faults: Faults, tmp_path: Path) -> None:
    place = tmp_path / "place"
    faults.set([Rule("room", place, argument=1000)])
    fills = "\ntry:\n  for _ in range(20): print(os.write(handle, bytes(300)))\nexcept OSError as error: print(error.errno)"
    assert run(_OPEN + fills, faults, place).stdout.split() == ["300", "300", "300", "100", str(errno.ENOSPC)]
    # What is there may be written over, and more after the rule is gone.
    assert run(_OPEN + "print(os.pwrite(handle, bytes(300), 0))", faults, place).stdout == "300\n"
    faults.set([])
    assert run(_OPEN + "print(os.pwrite(handle, bytes(300), 1000))", faults, place).stdout == "300\n"


def test_a_clock_that_is_ahead(faults: Faults, tmp_path: Path) -> None:
    """Intervals stay what they are."""
    faults.set([Rule("clock", tmp_path / "place", argument=86400)])
    code = _OPEN + "os.write(handle, b'x'); print(time.time() - os.stat(place / 'file').st_mtime, time.monotonic())"
    ahead, monotonic = map(float, run(code, faults, tmp_path / "place").stdout.split())
    assert 86300 < ahead < 86500
    faults.set([])
    assert float(run("print(time.monotonic())", faults, tmp_path / "place").stdout) - monotonic < 3600


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("os.ftruncate(handle, 4096); mmap.mmap(handle, 4096)[:3] = b'abc'", "memory map"),
        ("import numpy; numpy.ones(3).tofile(place / 'file')", "does not see"),
    ],
    ids=["memory map", "stdio"],
)
def test_bytes_that_no_fault_reaches_are_noticed(code: str, found: str, faults: Faults, tmp_path: Path) -> None:
    faults.set([Rule("keep", tmp_path / "place")])
    assert run(_OPEN + code, faults, tmp_path / "place").returncode == 0
    with pytest.raises(AssertionError, match=found):
        require_all_seen(faults.calls(), tmp_path / "place")
