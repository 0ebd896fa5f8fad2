"""Parties in network namespaces of their own, joined by a bridge: nothing but packets passes between them.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.smallest_study import of_ages

PORT = 7001
PATIENCE = 180.0
IP = shutil.which("ip")


def ip(*arguments: str) -> str:
    done = subprocess.run([IP or "ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Bridged:
    """Namespaces ``prefix``0, ``prefix``1, ... with addresses 10.77.0.1, 10.77.0.2, ... on the bridge in ``prefix``b."""

    prefix: str
    parties: int

    def name(self, party: int) -> str:
        return f"{self.prefix}{party}"

    def address(self, party: int) -> str:
        return f"10.77.0.{party + 1}"

    def build(self) -> None:
        bridge = f"{self.prefix}b"
        ip("netns", "add", bridge)
        ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
        ip("-n", bridge, "link", "set", "bridge", "up")
        for party in range(self.parties):
            ip("netns", "add", self.name(party))
            peer = ("peer", "name", "uplink", "netns", self.name(party))
            ip("-n", bridge, "link", "add", f"port{party}", "type", "veth", *peer)
            ip("-n", bridge, "link", "set", f"port{party}", "master", "bridge", "up")
            ip("-n", self.name(party), "addr", "add", f"{self.address(party)}/24", "dev", "uplink")
            ip("-n", self.name(party), "link", "set", "uplink", "up")
            ip("-n", self.name(party), "link", "set", "lo", "up")

    def cut(self, party: int) -> None:
        """Pull the plug: every packet from and to the party is lost."""
        ip("-n", f"{self.prefix}b", "link", "set", f"port{party}", "down")

    def mend(self, party: int) -> None:
        ip("-n", f"{self.prefix}b", "link", "set", f"port{party}", "up")

    def remove(self) -> None:
        for name in [f"{self.prefix}b", *map(self.name, range(self.parties))]:
            with contextlib.suppress(OSError):
                ip("netns", "del", name)


@contextlib.contextmanager
def network(parties: int) -> Iterator[Bridged]:
    """Skips the test where this machine does not allow it."""
    if IP is None:
        pytest.skip("the command ip is not installed")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    bridged = Bridged(f"qm{os.getpid()}x", parties)
    try:
        try:
            bridged.build()
        except OSError as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield bridged
    finally:
        bridged.remove()


def quietmean(*arguments: str, folder: Path, inside: str | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "quietmean.cli.main", *arguments]
    within = [] if inside is None else [IP or "ip", "netns", "exec", inside]
    return subprocess.Popen([*within, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def prepare(folder: Path, bridged: Bridged, round_timeout: float) -> float:
    """Keys, roster, study and data; returns the true mean."""
    roster, ages = "", []
    for party in range(bridged.parties):
        name = f"p{party}"
        address = f"{bridged.address(party)}:{PORT}"
        done = quietmean("key", "new", "--key", f"{name}.key", "--name", name, "--address", address, folder=folder)
        entry, errors = done.communicate(timeout=60)
        assert done.returncode == 0, errors
        roster += entry
        mine = list(range(20 + 5 * party, 60 + 5 * party))
        ages += mine
        (folder / f"{name}.csv").write_text("age\n" + "\n".join(map(str, mine)))
    (folder / "roster.toml").write_text(roster)
    (folder / "study.toml").write_text(of_ages(colluding=1, round_timeout=round_timeout))
    return sum(ages) / len(ages)


def join_all(folder: Path, bridged: Bridged) -> list[subprocess.Popen[str]]:
    def join(party: int) -> subprocess.Popen[str]:
        files = ["--roster", "roster.toml", "--data", f"p{party}.csv", "--key", f"p{party}.key", "--json"]
        return quietmean("join", "study.toml", *files, folder=folder, inside=bridged.name(party))

    return [join(party) for party in range(bridged.parties)]


def finish(processes: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    documents = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, errors
            documents.append(json.loads(output))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return documents


def assert_same_and_right(documents: list[dict[str, Any]], mean: float) -> None:
    for document in documents:
        assert document["estimate"] == documents[0]["estimate"]
        assert document["parties_counted"] == len(documents)
        assert document["counted_twice"] == []
        assert abs(document["estimate"] - mean) < 6 * document["standard_error"]


@pytest.mark.slow
def test_parties_that_share_nothing_but_a_wire(tmp_path: Path) -> None:
    begun = time.monotonic()
    with network(3) as bridged:
        mean = prepare(tmp_path, bridged, round_timeout=20.0)
        documents = finish(join_all(tmp_path, bridged))
    assert_same_and_right(documents, mean)
    print(f"3 namespaces, {time.monotonic() - begun:.1f} s, {sum(document['bytes'] for document in documents)} bytes")


@pytest.mark.slow
def test_plugs_are_pulled_again_and_again(tmp_path: Path) -> None:
    """Packets are really lost: each party in turn is off the wire for a moment, in all phases. TCP and the links come over it."""
    begun, cuts = time.monotonic(), 0
    with network(6) as bridged:
        mean = prepare(tmp_path, bridged, round_timeout=60.0)
        processes = join_all(tmp_path, bridged)
        try:
            while any(process.poll() is None for process in processes) and time.monotonic() - begun < PATIENCE:
                party = cuts % bridged.parties
                bridged.cut(party)
                time.sleep(0.15)
                bridged.mend(party)
                time.sleep(0.1)
                cuts += 1
        finally:
            documents = finish(processes)
    assert_same_and_right(documents, mean)
    assert cuts >= 6
    print(
        f"6 namespaces, {time.monotonic() - begun:.1f} s, {cuts} cuts, {sum(document['bytes'] for document in documents)} bytes"
    )


def test_no_namespace_is_left(tmp_path: Path) -> None:
    with network(2) as bridged:
        names = [f"{bridged.prefix}b", *map(bridged.name, range(2))]
        listed = ip("netns", "list")
        assert all(name in listed for name in names)
    listed = ip("netns", "list")
    assert not any(name in listed for name in names)
