"""The processes that compute for this one, as the system knows them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def found_by_all(place: Path, module: str, source: str, script: str) -> Iterator[Path]:
    """The folder, with a module of functions that other processes find there, too, and a script."""
    from joblib.externals.loky import get_reusable_executor

    (place / f"{module}.py").write_text(source)
    (place / "script.py").write_text(script)
    sys.path.insert(0, str(place))
    # Processes that wait for work since an earlier test do not have the folder on their path.
    get_reusable_executor().shutdown(wait=True)
    yield place
    sys.path.remove(str(place))


def computing(parent: int) -> list[int]:
    """The processes that joblib started for another one."""
    own = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in own if b"popen_loky" in Path(f"/proc/{child}/cmdline").read_bytes()]


def largest_other() -> int:
    """The most memory that one of them has had, in kB, with what it shares."""
    statuses = [Path(f"/proc/{child}/status").read_text() for child in computing(os.getpid())]
    return max(int(found[1]) for status in statuses if (found := re.search(r"VmHWM:\s+(\d+) kB", status)))
