"""One server for one browser, on a port that the system chooses."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.core.portability import open_private
from quietmean.desk.app import Desk, make_app
from quietmean.desk.door import LinkDoor
from quietmean.desk.shelf import Shelf
from quietmean.node.net import open_socket


def serve(
    shelf: Shelf,
    say: Callable[[str], None],
    *,
    policy: Path | None = None,
    ledger: Path | None = None,
    owner_key: Path | None = None,
    port: int = 0,
    browser: bool = True,
) -> None:
    """Until the page is left, or Ctrl-C. ``say`` gets the link."""
    import uvicorn

    try:
        opened = open_socket(("127.0.0.1", port))
    except InputError:
        raise InputError(f"port {port} of this machine is taken: choose another with --port, or none for a free one") from None
    with opened as listening:
        door = LinkDoor(listening.getsockname()[1])

        def stop() -> None:
            server.should_exit = True

        desk = Desk(shelf, door, policy, ledger, owner_key, stop)
        config = uvicorn.Config(
            make_app(desk), log_config=None, access_log=False, server_header=False, date_header=False, ws="none", lifespan="off"
        )
        server = uvicorn.Server(config)
        say(door.address)
        with tempfile.TemporaryDirectory(prefix="quietmean-") as folder:
            if browser:
                webbrowser.open(_opening(Path(folder), door).as_uri())
            server.run(sockets=[listening])


def _opening(folder: Path, door: LinkDoor) -> Path:
    """A file that leads to the page, so that the link is no argument of a process, which others could see."""
    place = folder / "open.html"
    with os.fdopen(open_private(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as file:
        file.write('<!doctype html><meta charset="utf-8"><title>quietmean</title>')
        file.write(f'<meta http-equiv="refresh" content="0;url={door.address}">\n')
    return place
