"""``quietmean port``: one port for several studies of one site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.console import note, out


def command(
    *,
    listen: str,
    runtime_dir: Path,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Own a port that several studies of this site share: each connection is handed over to the process of its study.

    The parties of a study name the one that they dial by a number that only the sealed study explains. Each study's process takes
    its connections with join --listen-through. This one reads, keeps and logs nothing: stop it and start it again at any time,
    and connections that it has handed over live on. It needs no key, and what nobody here waits for is closed.

    Parameters
    ----------
    listen
        HOST:PORT to listen on, or :PORT for all addresses of this machine: where the parties' address in their studies leads.
    runtime_dir
        The folder in which the processes of the studies wait for their connections, all of one account and closed to others
        (mode 0700); it is made if it is not there. The same as for --listen-through.
    json
        One JSON document on standard output, once it listens.
    """
    import asyncio

    from quietmean.cli.serving import serve, shown_entrance, tell_listening
    from quietmean.node.net import runtime_folder
    from quietmean.node.port import PortServer
    from quietmean.node.relay import open_entrance, parse_entrance

    folder = runtime_folder(runtime_dir)
    host, port = parse_entrance(listen)
    server = PortServer(open_entrance((host, port)), folder)

    def ready() -> None:
        shown = shown_entrance(host, port)
        about = {"listening": shown, "runtime_dir": str(folder)}
        tell_listening(json, about, f"port: listening on {shown}; studies take part with --listen-through {folder}")

    asyncio.run(serve(server, ready))
    counts = server.counts
    ended = (
        f"port: ended; {counts.handed_over} connections handed over, {counts.absent} for nobody here, "
        f"{counts.refused} of no party, {counts.late} too late, {counts.evicted} gave way to others"
    )
    note(ended)
    if not json:
        out.print(ended, markup=False, soft_wrap=True)
