"""What stands between a site and the rest of the world, as a process: a router that translates addresses, or a web proxy.

``python gateway.py router SITE PORTS [forward]``: TCP connections of the machine SITE to any address at one of PORTS go on from
the router's own address; with "forward", connections from outside to one of PORTS go to SITE, else they are refused.
``python gateway.py proxy HOST PORT``: CONNECT to anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Awaitable, Callable

# Of linux/in.h: answers go out with the address that the question was for.
_IP_TRANSPARENT = 19

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, greeting: bytes = b"") -> None:
    far_reader, far_writer = await asyncio.open_connection(host, port)
    writer.write(greeting)

    async def one_way(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(65_536):
                target.write(chunk)
                await target.drain()
        target.transport.abort()

    await asyncio.gather(one_way(reader, far_writer), one_way(far_reader, writer))


def router(site: str, forward: bool) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whatever address the connection was for is this machine's here: policy routing delivers it locally.
        (peer, *_), (host, port, *_) = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        with contextlib.suppress(OSError):
            if peer == site:
                await _carry(reader, writer, host, port)
            elif forward:
                await _carry(reader, writer, site, port)
        writer.transport.abort()

    return serve


async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, EOFError, ValueError):
        method, target, _ = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].split()
        host, _, port = target.decode().rpartition(":")
        if method == b"CONNECT":
            await _carry(reader, writer, host.strip("[]"), int(port), b"HTTP/1.1 200 Connection established\r\n\r\n")
    writer.transport.abort()


def _anywhere(port: int) -> socket.socket:
    """Listens, in this namespace, at every address there is, also at those of other machines."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
    opened.bind(("0.0.0.0", port))  # noqa: S104
    return opened


async def main(what: str, *arguments: str) -> None:
    if what == "router":
        site, ports, *rest = arguments
        serve = router(site, rest == ["forward"])
        listening = [await asyncio.start_server(serve, sock=_anywhere(int(port))) for port in ports.split(",")]
    else:
        host, port = arguments
        listening = [await asyncio.start_server(proxy, host, int(port))]
    print("ready", flush=True)
    await asyncio.gather(*(each.serve_forever() for each in listening))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
