"""However hospitals are connected: all join, one is killed and started again, one is gone for good.

Real processes in network namespaces; skipped with the reason where these cannot be made.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import RelayAddress
from support.outside import Authority
from support.site_policy import write_policy
from support.sites import RELAY_PORT, WORLD, Connected, Sites, sites
from support.smallest_study import of_ages

pytestmark = pytest.mark.slow

PARTIES = 4
RELAY = RelayAddress(WORLD, RELAY_PORT)
PATIENCE = 240.0
WAYS: dict[str, list[Connected]] = {
    "open": [Connected.OPEN] * PARTIES,
    "port forwarding": [Connected.FORWARDED] * PARTIES,
    "one behind NAT": [Connected.NAT] + [Connected.OPEN] * (PARTIES - 1),
    "all behind NAT, a relay": [Connected.NAT] * PARTIES,
    "proxy only, a relay": [Connected.PROXY] * PARTIES,
}
STUDY = of_ages(colluding=1, dropouts=0.25, protocol="cordp-dme", round_timeout=8.0)


class Consortium:
    """The processes of the parties, and of the relay where one is needed."""

    def __init__(self, sites: Sites, folder: Path, *, relayed: bool, parties: int = PARTIES) -> None:
        """With fewer sites than ``parties``, the last one has the rest of them."""
        self.parties = range(parties)
        self.sites, self._folder, self.relayed = sites, folder, relayed
        authority = Authority(folder, "authority")
        self._trust = {"SSL_CERT_FILE": str(authority.file)}
        self._certificate, self._key = map(str, authority.leaf(RELAY.host))
        write_policy(unattended=True)
        entries = []
        for number in self.parties:
            identity = Identity.generate()
            identity.save(folder / f"p{number}.key")
            entries.append(
                RosterEntry(f"p{number}", RELAY if relayed else sites.address(self._site(number)), identity.public_key)
            )
            ages = range(20 + 5 * number, 60 + 5 * number)
            (folder / f"p{number}.csv").write_text("age\n" + "\n".join(map(str, ages)))
        (folder / "roster.toml").write_text(Roster(tuple(entries)).to_toml())
        (folder / "study.toml").write_text(STUDY)
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self._serving: subprocess.Popen[str] | None = None

    def _site(self, number: int) -> int:
        return min(number, len(self.sites.kinds) - 1)

    def relay(self) -> None:
        files = ["--certificate", self._certificate, "--private-key", self._key, "--admit", "roster.toml"]
        arguments = ["serve", "relay", "--listen", f":{RELAY.port}", *files]
        self._serving = self.sites.start(self.sites.world, arguments, self._folder, self._trust)
        assert self._serving.stdout is not None
        assert "listening" in self._serving.stdout.readline()

    def join(self, number: int) -> None:
        files = ["--roster", "roster.toml", "--data", f"p{number}.csv", "--key", f"p{number}.key"]
        status = ["--events", str(self._folder / f"p{number}.events"), "--no-ledger", "--yes", "--json"]
        listens = None if self.relayed else self.sites.listens_at(self._site(number))
        listen = [] if listens is None else ["--listen", listens]
        environment = self._trust | self.sites.environment(self._site(number))
        arguments = ["join", "study.toml", *files, *status, *listen]
        self.processes[number] = self.sites.start(self.sites.party(self._site(number)), arguments, self._folder, environment)

    def join_all(self) -> None:
        for number in self.parties:
            self.join(number)

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
        assert len({json.dumps(result["estimate"]) for result in found}) == 1
        return found

    def end(self) -> None:
        for process in [*self.processes.values(), *([] if self._serving is None else [self._serving])]:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture(params=WAYS)
def consortium(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Consortium]:
    with sites(WAYS[request.param]) as built:
        found = Consortium(built, tmp_path, relayed="relay" in request.param)
        try:
            if "relay" in request.param:
                found.relay()
            yield found
        finally:
            found.end()


def test_all_join(consortium: Consortium) -> None:
    consortium.join_all()
    consortium.until_begun(0)
    if consortium.relayed:
        # No opening inwards is needed, as nobody listens.
        assert [consortium.sites.listening(number) for number in consortium.parties] == [[]] * PARTIES
    results = consortium.results(*consortium.parties)
    assert {result["parties_counted"] for result in results} == {PARTIES}


def test_one_is_killed_and_started_again(consortium: Consortium) -> None:
    consortium.join_all()
    consortium.until_begun(0)
    # The first one: where only one is behind a router, it is that.
    consortium.kill(0)
    consortium.join(0)
    results = consortium.results(*consortium.parties)
    assert results[0]["parties_counted"] >= PARTIES - 1


def test_one_is_gone_for_good(consortium: Consortium) -> None:
    consortium.join_all()
    for number in consortium.parties:
        consortium.until_begun(number)
    consortium.kill(3)
    results = consortium.results(0, 1, 2)
    assert results[0]["parties_counted"] >= PARTIES - 1


def test_twenty_behind_a_relay_need_no_opening_inwards(tmp_path: Path) -> None:
    """In one network without any neighbour but the relay's: nobody in it listens, from the first moment to the result."""
    with sites([Connected.NAT]) as built:
        found = Consortium(built, tmp_path, relayed=True, parties=20)
        try:
            found.relay()
            found.join_all()
            while any(process.poll() is None for process in found.processes.values()):
                assert built.listening(0) == []
                time.sleep(0.5)
            assert {result["parties_counted"] for result in found.results(*found.parties)} == {20}
        finally:
            found.end()
