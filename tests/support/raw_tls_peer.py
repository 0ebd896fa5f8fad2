"""One process of the yardstick for the node's throughput: the same messages over TLS 1.3 and asyncio streams, nothing else.

Reads one JSON object from standard input: who it is, where the others listen, how many bytes it sends to whom in each step, and
the file, if any, in which what comes in is put, and synchronised, before it is acknowledged, as a node does. A step ends when all
its messages are acknowledged and all expected ones are in. Prints its seconds, of the clock and of the processor.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from quietmean.node.net import Credentials, Identity, Roster


async def main(task: dict[str, Any]) -> float:
    """Seconds from the first byte to the last acknowledgement, connections made before."""
    me, roster = task["party"], Roster.load(Path(task["roster"]))
    credentials = Credentials(Identity.load(Path(task["key"])), roster, "benchmark")
    arrived = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                payload = await reader.readexactly(size)
                if durable is not None:
                    os.write(durable, payload)
                    os.fdatasync(durable)
                writer.write(b"k")
                await writer.drain()
                arrived.release()
        except (EOFError, OSError, asyncio.CancelledError):
            writer.close()

    durable = os.open(task["durable"], os.O_WRONLY | os.O_CREAT, 0o600) if task["durable"] else None
    listening = socket.socket(fileno=task["descriptor"])
    server = await asyncio.start_server(serve, sock=listening, ssl=credentials.server, limit=256 * 1024)
    links = {}
    for other in sorted({peer for step in task["steps"] for peer in step["to"]}):
        host, port = roster.entries[other].address
        links[other] = await asyncio.open_connection(host, port, ssl=credentials.client(other), server_hostname="")
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

    async def send(peer: int, payload: bytes) -> None:
        reader, writer = links[peer]
        writer.write(len(payload).to_bytes(4, "big") + payload)
        await writer.drain()
        await reader.readexactly(1)

    begun, begun_processor = time.perf_counter(), time.process_time()
    for step in task["steps"]:
        payload = bytes([me % 256]) * step["bytes"]
        await asyncio.gather(*(send(peer, payload) for peer in step["to"]))
        for _ in range(step["expected"]):
            await arrived.acquire()
    seconds, processor = time.perf_counter() - begun, time.process_time() - begun_processor
    print(json.dumps({"seconds": seconds, "processor": processor}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    server.close()
    return seconds


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
