"""Protection of the memory of this process against other processes and core dumps."""

from __future__ import annotations

import contextlib
import ctypes
import sys

_PR_SET_DUMPABLE = 4


def forbid_core_dumps() -> None:
    """If this process crashes, the system writes no core file (an image of its memory), where core files can be limited."""
    if sys.platform != "win32":
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def forbid_tracing() -> None:
    """Let no other process of the same user look into this one's memory or trace it, and leave no core dump (Linux only).

    A dump that is piped to a program goes there whatever the limit on core files says: this keeps it from happening.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
