"""What differs between operating systems, on this one."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from quietmean.core.portability import (
    allow_descriptors,
    lock,
    mode_of,
    open_private,
    owner_only,
    read_at,
    replace_durably,
    write_at,
)

_HOLDER = """
import os, sys
from quietmean.core.portability import lock
handle = os.open(sys.argv[1], os.O_RDWR)
lock(handle, shared=sys.argv[2] == "shared")
print("held", flush=True)
sys.stdin.read()
"""


def _holds(path: Path, how: str, seconds: float) -> bool:
    """Whether another process gets the lock within ``seconds``."""
    with subprocess.Popen([sys.executable, "-c", _HOLDER, path, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        try:
            return bool(select.select([other.stdout], [], [], seconds)[0])
        finally:
            other.kill()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("mine", "other", "together"), [("alone", "shared", False), ("shared", "alone", False), ("shared", "shared", True)]
)
def test_a_lock_excludes_others_as_it_says(tmp_path: Path, mine: str, other: str, together: bool) -> None:
    path = tmp_path / "log"
    path.touch()
    handle = os.open(path, os.O_RDWR)
    lock(handle, shared=mine == "shared")
    assert _holds(path, other, 20.0 if together else 1.5) is together
    os.close(handle)
    assert _holds(path, other, 20.0)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "account"
    before = os.umask(0o277)
    try:
        replace_durably(path, b"old")
    finally:
        os.umask(before)
    assert mode_of(path) == 0o600

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_durably(path, b"new")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


def test_a_crash_before_the_change_of_names_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "account"
    replace_durably(path, b"old")
    code = f"""
import os
from pathlib import Path
from quietmean.core.portability import replace_durably
Path.replace = lambda *_: os._exit(9)
replace_durably(Path({str(path)!r}), b"new")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert path.read_bytes() == b"old"
    replace_durably(path, b"newer")
    assert path.read_bytes() == b"newer"


def test_bytes_at_a_place(tmp_path: Path) -> None:
    handle = open_private(tmp_path / "blobs", os.O_RDWR | os.O_CREAT)
    owner_only(handle)
    assert write_at(handle, memoryview(b"a\nb\r\nc"), 10) == 6
    assert read_at(handle, 100, 9) == b"\0a\nb\r\nc"
    os.close(handle)


def test_no_more_descriptors_than_the_system_gives() -> None:
    assert allow_descriptors(64) == 64
    assert 0 < allow_descriptors(1 << 40) < 1 << 40
