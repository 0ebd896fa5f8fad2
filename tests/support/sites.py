"""Sites in network namespaces, each connected to a world in the middle as hospitals are: openly, behind a router, by a proxy.

Needs root, network namespaces and the command ip. Nothing is made outside namespaces, and they are deleted at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import pytest

IP = shutil.which("ip")
# Of the relay, in the middle.
WORLD = "10.78.0.1"
PORT, RELAY_PORT, PROXY_PORT = 7001, 443, 3128
# The same behind each router.
_ROUTER, _INSIDE = "192.168.9.1", "192.168.9.2"
_GATEWAY = Path(__file__).with_name("gateway.py")


class Connected(StrEnum):
    """``OPEN``: an address of its own. ``FORWARDED``: behind a router that forwards the port; ``NAT``: that forwards nothing.
    ``PROXY``: a web proxy is all that it reaches. ``ALONE``: nothing at all.
    """

    OPEN = "open"
    FORWARDED = "port forwarding"
    NAT = "NAT"
    PROXY = "proxy only"
    ALONE = "no network"


def ip(*arguments: str) -> str:
    done = subprocess.run([IP or "ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Sites:
    """One namespace for the world, one for each party, one for each router."""

    def __init__(self, kinds: Sequence[Connected]) -> None:
        self.kinds = tuple(kinds)
        self._prefix = f"qms{os.getpid()}x"
        self.world = f"{self._prefix}w"
        self._made: list[str] = []
        self._gateways: list[subprocess.Popen[str]] = []

    def party(self, number: int) -> str:
        return f"{self._prefix}{number}"

    def address(self, number: int) -> tuple[str, int]:
        """Where the others dial, if anybody could."""
        return f"10.78.{number + 1}.2", PORT

    def listens_at(self, number: int) -> str | None:
        """Where the party listens, if not at its address in the roster."""
        return f"{_INSIDE}:{PORT}" if self.kinds[number] in (Connected.FORWARDED, Connected.NAT) else None

    def environment(self, number: int) -> dict[str, str]:
        if self.kinds[number] != Connected.PROXY:
            return {}
        return {"https_proxy": f"http://10.78.{number + 1}.1:{PROXY_PORT}"}

    def build(self) -> None:
        self._make(self.world)
        ip("-n", self.world, "addr", "add", f"{WORLD}/32", "dev", "lo")
        self._write(self.world, "ip_forward", "0" if Connected.PROXY in self.kinds else "1")
        for number, kind in enumerate(self.kinds):
            name = self.party(number)
            self._make(name)
            if kind in (Connected.FORWARDED, Connected.NAT):
                self._behind_router(name, number, kind == Connected.FORWARDED)
            elif kind != Connected.ALONE:
                self._wire(name, number, default=kind == Connected.OPEN)
            if kind == Connected.PROXY:
                self._gateway(self.world, "proxy", f"10.78.{number + 1}.1", str(PROXY_PORT))

    def _make(self, name: str) -> None:
        ip("netns", "add", name)
        self._made.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def _wire(self, name: str, number: int, *, default: bool) -> None:
        """From the world to a namespace."""
        ip("-n", self.world, "link", "add", f"port{number}", "type", "veth", "peer", "name", "uplink", "netns", name)
        ip("-n", self.world, "addr", "add", f"10.78.{number + 1}.1/24", "dev", f"port{number}")
        ip("-n", self.world, "link", "set", f"port{number}", "up")
        ip("-n", name, "addr", "add", f"10.78.{number + 1}.2/24", "dev", "uplink")
        ip("-n", name, "link", "set", "uplink", "up")
        if default:
            ip("-n", name, "route", "add", "default", "via", f"10.78.{number + 1}.1")

    def _behind_router(self, name: str, number: int, forward: bool) -> None:
        router = f"{name}r"
        self._make(router)
        self._wire(router, number, default=True)
        ip("-n", router, "link", "add", "inner", "type", "veth", "peer", "name", "uplink", "netns", name)
        for inside, device, address in ((router, "inner", _ROUTER), (name, "uplink", _INSIDE)):
            ip("-n", inside, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", inside, "link", "set", device, "up")
        ip("-n", name, "route", "add", "default", "via", _ROUTER)
        # What comes from inside is the router's, whatever address it is for; its process dials on from the address outside.
        ip("-n", router, "rule", "add", "iif", "inner", "lookup", "100")
        ip("-n", router, "route", "add", "local", "default", "dev", "lo", "table", "100")
        self._gateway(router, "router", _INSIDE, f"{PORT},{RELAY_PORT}", *(["forward"] if forward else []))

    def _write(self, inside: str, setting: str, value: str) -> None:
        ip("netns", "exec", inside, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{setting}")

    def _gateway(self, inside: str, *arguments: str) -> None:
        command = [IP or "ip", "netns", "exec", inside, sys.executable, str(_GATEWAY), *arguments]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._gateways.append(started)
        assert started.stdout is not None
        if started.stdout.readline() != "ready\n":
            raise OSError(f"{' '.join(arguments)} does not start")

    def start(self, inside: str, arguments: Sequence[str], folder: Path, more: Mapping[str, str]) -> subprocess.Popen[str]:
        """``quietmean`` with these arguments in a namespace."""
        environment = {name: value for name, value in os.environ.items() if name.lower() != "https_proxy"} | dict(more)
        command = [IP or "ip", "netns", "exec", inside, sys.executable, "-m", "quietmean.cli.main", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)

    def listening(self, number: int) -> list[str]:
        """Sockets of the party's namespace that would take a connection."""
        tables = [ip("netns", "exec", self.party(number), "cat", f"/proc/net/{name}") for name in ("tcp", "tcp6")]
        return [line for table in tables for line in table.splitlines()[1:] if line.split()[3] == "0A"]

    def remove(self) -> None:
        for gateway in self._gateways:
            gateway.kill()
            gateway.communicate()
        for name in self._made:
            with contextlib.suppress(OSError):
                ip("netns", "del", name)


@contextlib.contextmanager
def sites(kinds: Sequence[Connected]) -> Iterator[Sites]:
    """Skips the test where namespaces cannot be made."""
    if IP is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the command ip")
    found = Sites(kinds)
    try:
        try:
            found.build()
        except OSError as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield found
    finally:
        found.remove()
