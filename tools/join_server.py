"""The process that forks the parties of :mod:`joins`: ``python tools/join_server.py IGNORED DESCRIPTOR`` (Linux only).

It has imported what ``quietmean join`` needs, which takes longer than a small study. What a fork then runs is the command's own
entry point, with its arguments: the code, files, sockets and signals of a process that was started anew. Like the server of local
runs, whose loop this is, it reads no data and makes no key, seed or TLS context.

What shows a result and is no part of it, the pages and the forecast beside the answer, takes four times as long as a study: a
party whose order says ``answer_only`` leaves it out.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import socket
import sys
from pathlib import Path
from unittest import mock

from quietmean.cli.answers import Pages
from quietmean.cli.main import main as command
from quietmean.node.local import child, fork_server
from quietmean.protocols import registry
from quietmean.studies.outcome.forecast import Forecast

# Imported where they are needed, and all of them by a study; other distributions' that draw its report.
LATE = ("cli", "node", "planning", "privacy", "report", "statistics", "studies")
# What studies of a table of text do without: Polars has threads, and a process with threads is not to be forked.
NOT_HERE = ("quietmean.node.local", "quietmean.cli.desk")
DRAWING = ("matplotlib.figure", "matplotlib.backends.backend_svg")


def import_all() -> None:
    registry()
    for folder in LATE:
        package = importlib.import_module(f"quietmean.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(NOT_HERE):
                importlib.import_module(module.name)
    for name in DRAWING:
        importlib.import_module(name)


def leave_out_what_only_shows() -> None:
    """In this process from now on."""
    mock.patch.object(Pages, "write").start()
    mock.patch.object(Forecast, "to_json", return_value=[]).start()


def join(settings: Path, listening: int) -> int:
    """Run the command whose ``arguments``, ``folder`` and ``environment`` are in a file. It opens its own sockets."""
    os.close(listening)
    given = json.loads(settings.read_bytes())
    os.chdir(given["folder"])
    os.environ.update(given["environment"])
    if given["answer_only"]:
        leave_out_what_only_shows()
    try:
        command(given["arguments"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def main(descriptor: int) -> int:
    import_all()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as control, mock.patch.object(child, "main", join):
        fork_server.ForkServer(control).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[2])))
