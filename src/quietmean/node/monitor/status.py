"""The status file of a node, for other processes, which cannot read its store: the store is locked by the node's process.

The file is replaced atomically, readable by its owner only, and holds nothing secret.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from quietmean.core.codec import decode_json
from quietmean.core.errors import InputError, reason_of
from quietmean.core.output import Output, json_object
from quietmean.core.portability import replace_whole

FORMAT = "quietmean-status-1"


def now() -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def iso_time(seconds: float) -> str:
    """ISO 8601 in UTC, to the second, of a time in seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def status_path(store: Path) -> Path:
    """The path of the status file that belongs to a store."""
    return store.with_name(store.name + ".status.json")


def status_at(store: Path) -> Output:
    """Where the status beside a store goes: in place of an earlier one, and of nothing else."""
    return Output(status_path(store), "the status", "--store", own=_is_status)


def _is_status(content: bytes) -> bool:
    return json_object(content).get("format") == FORMAT


def write_status(path: Path, status: Mapping[str, Any]) -> None:
    """Put the status of this process in place of the last one. Raises OSError."""
    document = {"format": FORMAT, **process_identity(os.getpid()), **status}
    replace_whole(path, json.dumps(document).encode())


def read_status(path: Path) -> dict[str, Any]:
    """A status file, with "alive" as it is now: true, false, or None where this cannot be determined.

    Raises :class:`InputError` if the file is missing, cannot be read, or is not a status file of this version.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"status file {path} does not exist: no node has run with this store") from None
    except OSError as error:
        raise _unreadable(path, reason_of(error)) from None
    document = decode_json(raw, object, partial(_unreadable, path))
    if not isinstance(document, dict) or document.get("format") != FORMAT or type(document.get("pid")) is not int:
        raise InputError(f"file {path} is not a status of this version ({FORMAT}): look with the version that runs the node")
    document["alive"] = _alive(document)
    return document


def _unreadable(path: Path, reason: str) -> InputError:
    return InputError(f"status file {path} cannot be read ({reason}): is it one that quietmean join wrote?")


def _alive(document: dict[str, Any]) -> bool | None:
    here = process_identity(document["pid"])
    if document.get("host") != here["host"]:
        return None
    try:
        os.kill(document["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    except OverflowError:
        return False
    if here["process"] is None or document.get("process") is None:
        return None
    return bool(here["process"] == document["process"])


def process_identity(pid: int) -> dict[str, Any]:
    """What distinguishes a process from a later one with the same number: its start time and the boot of the machine.

    ``process`` is None where the system does not provide it (it is in /proc on Linux).
    """
    host = platform.node()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # The second field is the name, in brackets, and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return {"host": host, "pid": pid, "process": None}
    zombie = fields[0] in ("Z", "X")
    return {"host": host, "pid": pid, "process": "ended" if zombie else f"{boot}:{fields[19]}"}
