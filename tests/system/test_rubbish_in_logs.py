"""Strangers who send rubbish to a relay for hours: what is written of it does not grow with what they send."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.client_hello import client_hello
from support.outside import Authority

UPGRADE = (
    b"GET /v1 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
SENT = [
    b"",
    b"\x00" * 400,
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x00\x05rubbish",
    UPGRADE + b"\x82\xff" * 40,
    b"\xff" * 70_000,
]


@contextmanager
def served(arguments: list[str], port: int, folder: Path) -> Iterator[tuple[tuple[str, int], Callable[[], int]]]:
    """The command as a process that logs to a file: its address, and how many bytes it has written."""
    address = "127.0.0.1", port
    out, log = folder / "out.txt", folder / "log.txt"
    line = [sys.executable, "-m", "quietmean.cli.main", *arguments, "--listen", f"127.0.0.1:{port}", "--log-file", str(log)]
    with out.open("wb") as written:
        process = subprocess.Popen(line, stdout=written, stderr=written)
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(address, 1):
                break
            time.sleep(0.1)
        yield address, lambda: sum(path.stat().st_size for path in (out, log) if path.exists())
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert b"Traceback" not in out.read_bytes() + (log.read_bytes() if log.exists() else b"")


def rubbish(address: tuple[str, int], turns: int, tls: bool) -> None:
    """Connections that end in any way, with what is no message inside TLS and outside."""
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    inside.check_hostname, inside.verify_mode = False, ssl.CERT_NONE
    hello = client_hello("127.0.0.1")
    for turn in range(turns):
        for sent in [*SENT, hello, hello[:60]]:
            with suppress(OSError):
                connected = socket.create_connection(address, 5)
                if tls and turn % 2:
                    connected = inside.wrap_socket(connected)
                with connected:
                    connected.settimeout(0.02)
                    with suppress(OSError):
                        connected.sendall(sent)
                        connected.recv(100)
                    if turn % 3 == 0 and not isinstance(connected, ssl.SSLSocket):
                        # Ended by a reset.
                        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["relay", "relay with a certificate"])
def test_what_is_written_does_not_grow(kind: str, tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    arguments = ["serve", "relay"]
    if kind.endswith("certificate"):
        certificate, key = Authority(tmp_path, "authority").leaf("127.0.0.1")
        arguments += ["--certificate", str(certificate), "--private-key", str(key)]
    (port,) = free_ports(1)
    with served(arguments, port, tmp_path) as (address, written):
        rubbish(address, 1, kind.endswith("certificate"))
        before = written()
        rubbish(address, 12, kind.endswith("certificate"))
        assert written() - before == 0
