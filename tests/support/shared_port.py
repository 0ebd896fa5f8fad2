"""Ports that several studies share: the command as a process of its own, which can be killed and started again."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path


def client_hello(name: str | None) -> bytes:
    """What Python's TLS says first, to a server of this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody has answered yet")


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A runtime folder: those of tests have long paths, which a socket's must not be."""
    found = Path(tempfile.mkdtemp(prefix="qm-"))
    try:
        yield found
    finally:
        shutil.rmtree(found, ignore_errors=True)


class PortProcess:
    """``quietmean port`` on a port of this machine, with a runtime folder."""

    def __init__(self, port: int, folder: Path) -> None:
        self.address = "127.0.0.1", port
        self.folder = folder
        own = ["port", "--listen", f"127.0.0.1:{port}", "--runtime-dir", str(folder)]
        self._command = [sys.executable, "-m", "quietmean.cli.main", *own]
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @staticmethod
    def start(ports: Iterable[PortProcess]) -> None:
        """Returns once all of them listen."""
        pipe, waiting = subprocess.PIPE, list(ports)
        for port in waiting:
            port._process = subprocess.Popen(port._command, stdout=pipe, stderr=pipe, text=True)
        for port in waiting:
            assert port.process.stdout is not None
            said = port.process.stdout.readline()
            assert "listening" in said, said or port.process.communicate()[1]

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> dict[str, int]:
        """As its operator stops it; what it counted."""
        self.process.send_signal(signal.SIGTERM)
        said, errors = self.process.communicate(timeout=30)
        assert (self.process.returncode, errors) == (0, "")
        # One line and nothing else: of what came, numbers alone.
        found = re.fullmatch(
            r"port: ended; (\d+) connections handed over, (\d+) for nobody here, (\d+) of no party, (\d+) too late, "
            r"(\d+) gave way to others\n",
            said,
        )
        assert found, said
        return dict(zip(("handed_over", "absent", "refused", "late", "evicted"), map(int, found.groups()), strict=True))

    def memory(self) -> int:
        """Resident, bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024
