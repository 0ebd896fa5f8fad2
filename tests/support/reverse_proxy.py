"""A reverse proxy with a log-in, as hospitals have: ``python reverse_proxy.py SOCKET HEADER``; it prints its port.

Who is logged in is in the cookie ``login``. The header is its own in every request: what a browser sent there is taken away.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys


async def main(place: str, header: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
            kept = [line for line in lines if not line.lower().startswith((header.lower().encode() + b":", b"connection:"))]
            text = b"\n".join(lines)
            login = re.search(rb"(?im)^cookie:.*\blogin=([\w.]+)", text)
            length = re.search(rb"(?im)^content-length: *(\d+)", text)
            body = await reader.readexactly(int(length.group(1))) if length else b""
            if login is None:
                writer.write(b"HTTP/1.1 302 Found\r\nLocation: https://login.hospital.example/\r\nContent-Length: 0\r\n\r\n")
            else:
                far_reader, far = await asyncio.open_unix_connection(place)
                named = header.encode() + b": " + login.group(1)
                far.write(b"\r\n".join([*kept, named, b"Connection: close", b"", b""]) + body)
                writer.write(await far_reader.read())
                far.close()
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
