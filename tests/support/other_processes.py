"""The processes that compute for this one, as the system knows them."""

from __future__ import annotations

import os
import re
from pathlib import Path


def computing(parent: int) -> list[int]:
    """The processes that joblib started for another one."""
    own = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in own if b"popen_loky" in Path(f"/proc/{child}/cmdline").read_bytes()]


def largest_other() -> int:
    """The most memory that one of them has had, in kB, with what it shares."""
    statuses = [Path(f"/proc/{child}/status").read_text() for child in computing(os.getpid())]
    return max(int(found[1]) for status in statuses if (found := re.search(r"VmHWM:\s+(\d+) kB", status)))
