"""Parties in network namespaces that reach a relay and nothing else, and that nothing reaches: join, kill and restart, one gone.

Needs root and network namespaces; skipped with the reason elsewhere. Nothing is made outside namespaces, and they are deleted at
the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import RelayAddress
from support.outside import Authority
from support.site_policy import write_policy

pytestmark = pytest.mark.slow

IP = shutil.which("ip")
RELAY = RelayAddress("10.78.0.1", 443)
PARTIES = 4
PATIENCE = 240.0
STUDY = """
[study]
name = "ages"
epsilon = 2.0
delta = 1e-6
colluding = 1
dropouts = 0.25
protocol = "cordp-dme"
round_timeout = 8.0
start_timeout = 120.0

[[column]]
name = "age"
low = 0
high = 100
"""


def ip(*arguments: str) -> str:
    done = subprocess.run([IP or "ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Star:
    """The relay in the middle, which forwards no packets, and a wire from each party to it."""

    def __init__(self) -> None:
        self._prefix = f"qmr{os.getpid()}x"
        self.relay = f"{self._prefix}r"

    def party(self, number: int) -> str:
        return f"{self._prefix}{number}"

    def build(self) -> None:
        ip("netns", "add", self.relay)
        ip("-n", self.relay, "link", "set", "lo", "up")
        ip("-n", self.relay, "addr", "add", f"{RELAY.host}/32", "dev", "lo")
        for number in range(PARTIES):
            name = self.party(number)
            ip("netns", "add", name)
            ip("-n", self.relay, "link", "add", f"port{number}", "type", "veth", "peer", "name", "uplink", "netns", name)
            ip("-n", self.relay, "addr", "add", f"10.78.{number + 1}.1/24", "dev", f"port{number}")
            ip("-n", self.relay, "link", "set", f"port{number}", "up")
            ip("-n", name, "addr", "add", f"10.78.{number + 1}.2/24", "dev", "uplink")
            for device in ("lo", "uplink"):
                ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "route", "add", "default", "via", f"10.78.{number + 1}.1")

    def remove(self) -> None:
        for name in [self.relay, *map(self.party, range(PARTIES))]:
            with contextlib.suppress(OSError):
                ip("netns", "del", name)


@pytest.fixture
def star() -> Iterator[Star]:
    if IP is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the command ip")
    found = Star()
    try:
        try:
            found.build()
        except OSError as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield found
    finally:
        found.remove()


class Consortium:
    """The relay and the processes of the parties."""

    def __init__(self, star: Star, folder: Path) -> None:
        self._star, self._folder = star, folder
        authority = Authority(folder, "authority")
        self._environment = {**os.environ, "SSL_CERT_FILE": str(authority.file)}
        self._certificate, self._key = map(str, authority.leaf(RELAY.host))
        for name in ("https_proxy", "HTTPS_PROXY"):
            self._environment.pop(name, None)
        write_policy(unattended=True)
        entries = []
        for number in range(PARTIES):
            identity = Identity.generate()
            identity.save(folder / f"p{number}.key")
            entries.append(RosterEntry(f"p{number}", RELAY, identity.public_key))
            ages = range(20 + 5 * number, 60 + 5 * number)
            (folder / f"p{number}.csv").write_text("age\n" + "\n".join(map(str, ages)))
        (folder / "roster.toml").write_text(Roster(tuple(entries)).to_toml())
        (folder / "study.toml").write_text(STUDY)
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self.serving: subprocess.Popen[str] | None = None

    def _start(self, inside: str, *arguments: str) -> subprocess.Popen[str]:
        command = [IP or "ip", "netns", "exec", inside, sys.executable, "-m", "quietmean.cli.main", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self._folder, env=self._environment, stdout=pipe, stderr=pipe, text=True)

    def relay(self) -> None:
        files = ["--certificate", self._certificate, "--private-key", self._key, "--admit", "roster.toml"]
        self.serving = self._start(self._star.relay, "relay", "--listen", f":{RELAY.port}", *files)
        assert self.serving.stdout is not None
        assert "listening" in self.serving.stdout.readline()

    def join(self, number: int) -> None:
        files = ["--roster", "roster.toml", "--data", f"p{number}.csv", "--key", f"p{number}.key"]
        status = ["--events", str(self._folder / f"p{number}.events"), "--no-ledger", "--yes", "--json"]
        self.processes[number] = self._start(self._star.party(number), "join", "study.toml", *files, *status)

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].communicate()

    def until_begun(self, number: int) -> None:
        """The party has agreed with all others, and is where values leave."""
        events = self._folder / f"p{number}.events"
        deadline = time.monotonic() + PATIENCE
        while not (events.exists() and '"phase":"mixing"' in events.read_text().replace(" ", "")):
            assert time.monotonic() < deadline
            assert self.processes[number].poll() in (None, 0), self.processes[number].communicate()
            time.sleep(0.02)

    def results(self, *numbers: int) -> list[dict[str, Any]]:
        found = []
        for number in numbers:
            output, errors = self.processes[number].communicate(timeout=PATIENCE)
            assert self.processes[number].returncode == 0, errors
            found.append(json.loads(output))
        return found

    def listening(self, number: int) -> list[str]:
        """Sockets of the party's namespace that would take a connection."""
        tables = [ip("netns", "exec", self._star.party(number), "cat", f"/proc/net/{name}") for name in ("tcp", "tcp6")]
        return [line for table in tables for line in table.splitlines()[1:] if line.split()[3] == "0A"]

    def end(self) -> None:
        for process in [*self.processes.values(), *([] if self.serving is None else [self.serving])]:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture
def consortium(star: Star, tmp_path: Path) -> Iterator[Consortium]:
    found = Consortium(star, tmp_path)
    try:
        found.relay()
        yield found
    finally:
        found.end()


def test_all_join_and_nobody_listens(consortium: Consortium) -> None:
    for number in range(PARTIES):
        consortium.join(number)
    consortium.until_begun(0)
    assert [consortium.listening(number) for number in range(PARTIES)] == [[]] * PARTIES
    results = consortium.results(*range(PARTIES))
    assert {result["parties_counted"] for result in results} == {PARTIES}
    assert len({json.dumps(result["estimate"]) for result in results}) == 1


def test_one_is_killed_and_started_again(consortium: Consortium) -> None:
    for number in range(PARTIES):
        consortium.join(number)
    consortium.until_begun(2)
    consortium.kill(2)
    consortium.join(2)
    results = consortium.results(*range(PARTIES))
    assert len({json.dumps(result["estimate"]) for result in results}) == 1
    assert results[0]["parties_counted"] >= PARTIES - 1


def test_one_is_gone_for_good(consortium: Consortium) -> None:
    for number in range(PARTIES):
        consortium.join(number)
    for number in range(PARTIES):
        consortium.until_begun(number)
    consortium.kill(3)
    results = consortium.results(0, 1, 2)
    assert len({json.dumps(result["estimate"]) for result in results}) == 1
    assert results[0]["parties_counted"] >= PARTIES - 1
