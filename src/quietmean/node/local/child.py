"""One party of a local run, as a process of its own: ``python -m quietmean.node.local.child settings.json DESCRIPTOR``.

The descriptor is that of an inherited socket that listens already.

Progress goes to standard output, one JSON object a line; the result to the file that the settings name.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.codec import decode_json
from quietmean.core.domain import Links
from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.logs import hide_error_texts
from quietmean.core.outage import outage_of
from quietmean.core.party import Vector
from quietmean.core.portability import replace_whole
from quietmean.node.driver import run_party
from quietmean.node.local.processes import ChildSettings
from quietmean.node.monitor import Done, Event, Failed, Report, RoundBegun, event_json
from quietmean.node.net import Identity, Roster
from quietmean.node.phase import Phase
from quietmean.node.secrecy import forbid_core_dumps
from quietmean.node.session import LinkKeys, NodeSettings, Observers, PlannedValue, Waits
from quietmean.node.storage import Lasting
from quietmean.planning import Plan


def main(path: Path, listening: int) -> int:
    """Run one party with the settings file ``path`` and the socket ``listening``. Returns 0, or the exit code of the error."""
    forbid_core_dumps()
    hide_error_texts()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    settings = decode_json(path.read_bytes(), ChildSettings, InputError)
    try:
        asyncio.run(_take_part(settings, listening))
    except QuietmeanError as error:
        # Only a closed gate has one; its class is not imported here, with all that certificates need.
        if (record := getattr(error, "record", None)) is not None:
            replace_whole(Path(settings.result), json.dumps({"refused": record.to_json()}).encode())
        _report(Failed(str(error), error.exit_code))
        return error.exit_code
    except (OSError, MemoryError, ImportError, RuntimeError) as error:
        outage = outage_of(error, Path(settings.result))
        if outage is None:
            raise
        _report(Failed(str(outage), outage.exit_code))
        return outage.exit_code
    return 0


async def _take_part(settings: ChildSettings, descriptor: int) -> None:
    def report(event: Event) -> None:
        _report(event)
        frozen = isinstance(event, RoundBegun) and (event.phase, event.round) == (Phase.MIXING, settings.freeze_round)
        if frozen and sys.platform != "win32":
            os.kill(os.getpid(), signal.SIGSTOP)

    with socket.socket(fileno=descriptor) as listening:
        result = await run_party(node_settings(settings, listening, report))
    replace_whole(Path(settings.result), json.dumps(result.to_json()).encode())
    _report(Done())


def node_settings(settings: ChildSettings, listening: socket.socket | None, report: Report) -> NodeSettings:
    """The settings of the node, from the files that those of the process name. Raises :class:`InputError` for impossible ones."""
    plan = Plan.from_json(json.loads(Path(settings.plan).read_bytes()))
    return NodeSettings(
        identity=Identity.load(Path(settings.key)),
        roster=Roster.load(Path(settings.roster)),
        brought=PlannedValue(plan, plan.admit(read_value(Path(settings.value)), settings.weight, wipe=True), wiped=True),
        store=Path(settings.store),
        waits=Waits(settings.round_timeout, settings.start_timeout, settings.gone_timeout),
        transport=listening,
        observers=Observers(report),
        keys=LinkKeys(Links(settings.links)),
        lasting=Lasting.PROCESS,
    )


def read_value(path: Path) -> Vector:
    """Read the value of a party, shape (d,), straight into the array: this process has no other copy, so wiping this one
    is enough."""
    value = np.empty(path.stat().st_size // 8, dtype="<f8")
    with path.open("rb", buffering=0) as file:
        file.readinto(value.data.cast("B"))
    return value


def _report(event: Event) -> None:
    _print(event_json(event))


def _print(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
