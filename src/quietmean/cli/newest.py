"""Where runs on this machine leave their receipts, and which of them is the newest."""

from __future__ import annotations

from pathlib import Path

from quietmean.cli.console import err
from quietmean.core.errors import InputError

# Folders of runs are named so, with the time behind it.
RUN = "quietmean-run-"


def execution_or_newest(path: Path | None) -> Path:
    """What was named, or the receipt of the newest run in the working folder, which is said.

    Raises :class:`InputError` where neither is there.
    """
    if path is not None:
        return path
    receipts = sorted(Path().glob(f"{RUN}*/receipt.json"), key=lambda receipt: (receipt.stat().st_mtime_ns, str(receipt)))
    if not receipts:
        raise InputError("which execution is not clear: name a receipt or an execution file; this folder has no run")
    err.print(f"quietmean: note: of {receipts[-1]}, the newest run here", soft_wrap=True)
    return receipts[-1]
