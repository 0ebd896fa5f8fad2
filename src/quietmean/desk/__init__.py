"""The site's pages, for data owners without a shell: they show, and sign; studies run in other processes."""

from __future__ import annotations

import math
import os
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.portability import open_private
from quietmean.desk.access import LinkAccess, ProxyAccess, require_no_node_key
from quietmean.desk.app import Desk, make_app
from quietmean.desk.site_folder import SiteFolder
from quietmean.desk.starting import Here, Starter
from quietmean.node.net import open_account_socket, open_socket
from quietmean.node.relay import FrontLimits, web_server

# All who can connect are of one network, this machine: whoever holds most connections loses the oldest of them, and no rate
# keeps the one person from these pages for whom they are.
_LIMITS = FrontLimits(connections=128, burst=math.inf, rate=0.0, handshake=10, longest=600)


def serve(site: SiteFolder, here: Here, say: Callable[[str], None], *, port: int = 0, browser: bool = True) -> None:
    """Serve the pages until the page is left, or Ctrl-C. ``say`` gets the link.

    Raises :class:`InputError` for a ``port`` that is taken, and a key of the node that is none.
    """
    starter = None
    if here.key is not None:
        here.require_key()
        starter = Starter(site, here)
    try:
        opened = open_socket(("127.0.0.1", port))
    except InputError:
        raise InputError(f"port {port} of this machine is taken. Choose another with --port, or none for a free one.") from None
    with opened as listening:
        access = LinkAccess(listening.getsockname()[1])

        def stop() -> None:
            server.should_exit = True

        server = _server(Desk(site, access, here, starter, stop), listening)
        say(access.address)
        with tempfile.TemporaryDirectory(prefix="quietmean-") as folder:
            if browser:
                webbrowser.open(_opening(Path(folder), access).as_uri())
            server.serve_here()


def serve_behind_proxy(
    site: SiteFolder, here: Here, access: ProxyAccess, socket_and_user: tuple[Path, str], say: Callable[[str], None]
) -> None:
    """Serve the pages behind a proxy until it is stopped.

    ``socket_and_user``: the path, and the proxy's account; ``say`` gets who signed what.
    """
    require_no_node_key(site.folder, here.owner_key)
    path, proxy = socket_and_user
    with open_account_socket(path, proxy) as listening:
        try:
            server = _server(Desk(site, access, here, say=say), listening)
            say(f"behind {access.origin}, at {path}")
            server.serve_here()
        finally:
            path.unlink(missing_ok=True)


def _server(desk: Desk, listening: Any) -> Any:
    return web_server(make_app(desk), listening, _LIMITS, signals=True, date_header=False)


def _opening(folder: Path, access: LinkAccess) -> Path:
    """Write a file that leads to the page: others could see a link in the arguments of a process."""
    path = folder / "open.html"
    with os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w") as file:
        file.write('<!doctype html><meta charset="utf-8"><title>quietmean</title>')
        file.write(f'<meta http-equiv="refresh" content="0;url={access.address}">\n')
    return path


__all__ = ["Desk", "Here", "ProxyAccess", "SiteFolder", "make_app", "serve", "serve_behind_proxy"]
