"""Studies between processes that share a port at each party: two at once, among strangers, and through restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.errors import InputError
from support.meeting import meet
from support.pages import commands
from support.rosters import write_roster
from support.shared_port import PortProcess, client_hello, short_folder
from support.site_policy import write_policy

PAGE = "how-to/network.md"
NAMES = ("north", "south", "east")
PORT_MEMORY = 8 * 2**20


@pytest.fixture
def ports(free_ports: Callable[[int], list[int]]) -> Iterator[dict[str, PortProcess]]:
    """One a party, each with a folder of its own; none is started."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name, port in zip(NAMES, free_ports(3), strict=True):
            found[name] = PortProcess(port, stack.enter_context(short_folder()) / "run")
            stack.callback(found[name].kill)
        yield found


class Crowd:
    """Connections of strangers to a port: silent, garbage, half a ClientHello, whole ones for nobody here; kept up."""

    KINDS = (
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        client_hello("f" * 32 + ".invalid")[:200],
        client_hello("f" * 32 + ".invalid"),
        client_hello("example.org"),
        b"\x16\x03\x01\x40\x00\x01\x00\x3f\xf0" + bytes(4000),
    )

    def __init__(self, address: tuple[str, int], size: int = 200) -> None:
        self._address, self._size = address, size
        self.made = 0

    async def run(self) -> None:
        there: list[asyncio.StreamWriter] = []
        try:
            while True:
                for writer in [writer for writer in there if writer.transport.is_closing()]:
                    there.remove(writer)
                with contextlib.suppress(OSError):
                    while len(there) < self._size:
                        reader, writer = await asyncio.open_connection(*self._address)
                        writer.write(self.KINDS[self.made % len(self.KINDS)])
                        writer.transport.__dict__["reader"] = reader
                        there.append(writer)
                        self.made += 1
                await asyncio.sleep(0.1)
        finally:
            for writer in there:
                writer.transport.abort()


# --- two studies at once ---------------------------------------------------------------------------------------------

# As join runs it, without what comes before and after: a party of one of the studies, and the mean that it has.
_STUDY = """
import asyncio, json, sys
from pathlib import Path
import quietmean as qm
from quietmean.core.errors import InputError
from quietmean.core.site_options import NodeOptions
from quietmean.node import Identity, NodeSettings, Roster, run_party
from quietmean.node.monitor import RoundBegun
from quietmean.node.net import Seal, listening_place
from quietmean.node.phase import Phase
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
import numpy as np
digest, name, through, store, value, pauses = sys.argv[1:]

def report(event):
    # Here everything stands until the test goes on.
    if isinstance(event, RoundBegun) and event.phase == Phase.MIXING and str(event.round) in pauses.split():
        print("round", event.round, flush=True)
        sys.stdin.readline()

plan = Plan(Target(parties=3, epsilon=1.0, delta=1e-6, dimension=3), IncA(rounds=6, sigma_star=0.0, sigma_delta=1.0))
settings = NodeSettings(
    identity=Identity.load(Path(f"{name}.key")),
    roster=Roster(Roster.load(Path("roster.toml")).entries, Seal(digest, (0, 1, 2))),
    plan=plan,
    value=plan.admit(np.full(3, float(value))),
    store=Path(store),
    round_timeout=60.0,
    start_timeout=120.0,
    listen=listening_place(NodeOptions(listen_through=Path(through))),
    report=report,
)
print(json.dumps(asyncio.run(run_party(settings)).mean.tolist()))
"""
# Digests as if the same parties had sealed two studies, and what the parties bring to each.
STUDIES = {"a" * 64: (0.1, 0.3, 0.5), "b" * 64: (0.5, 0.4, 0.0)}


def part(
    folder: Path, digest: str, name: str, port: PortProcess, *, store: str = "", pauses: Sequence[int] = ()
) -> subprocess.Popen[str]:
    value, pipe = STUDIES[digest][NAMES.index(name)], subprocess.PIPE
    place, stops = store or f"{digest[0]}-{name}.store", " ".join(map(str, pauses))
    command = [sys.executable, "-c", _STUDY, digest, name, str(port.folder), place, str(value), stops]
    return subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.slow
def test_two_studies_at_once_on_one_port_among_strangers(tmp_path: Path, ports: dict[str, PortProcess]) -> None:
    write_roster(tmp_path, {name: port.address for name, port in ports.items()})

    async def among_strangers() -> tuple[dict[tuple[str, str], tuple[int, str, str]], int]:
        crowd = Crowd(ports["north"].address)
        harm = asyncio.create_task(crowd.run())
        try:
            while crowd.made < 200:
                await asyncio.sleep(0.02)
            # Of one party both studies; the others of the second come later.
            first, second = STUDIES
            started = {(first, name): part(tmp_path, first, name, ports[name]) for name in NAMES}
            started |= {(second, name): part(tmp_path, second, name, ports[name]) for name in NAMES}
            ends = await asyncio.gather(*(asyncio.to_thread(process.communicate, timeout=200) for process in started.values()))
        finally:
            harm.cancel()
            await asyncio.gather(harm, return_exceptions=True)
        codes = [process.returncode for process in started.values()]
        return {which: (code, *end) for which, code, end in zip(started, codes, ends, strict=True)}, crowd.made

    PortProcess.start(ports.values())
    before = ports["north"].memory()
    ends, made = asyncio.run(among_strangers())
    grown = ports["north"].memory() - before
    for (digest, _), (code, output, errors) in ends.items():
        assert code == 0, errors
        assert errors == ""
        np.testing.assert_allclose(json.loads(output), np.full(3, np.mean(STUDIES[digest])), atol=1e-6)
    counts = {name: port.stop() for name, port in ports.items()}
    print(f"{made} strangers, {grown / 2**20:.1f} MiB more, {counts['north']}")
    # Of any two of a study one dials the other.
    assert sum(each["handed_over"] for each in counts.values()) >= 6
    assert made >= 200
    for kind in ("absent", "refused"):
        assert counts["north"][kind] >= 200 // len(Crowd.KINDS)
    assert counts["north"]["evicted"] + counts["north"]["late"] >= 200 // len(Crowd.KINDS)
    assert grown < PORT_MEMORY, grown
    assert all(not list(port.folder.iterdir()) for port in ports.values())


def test_a_second_process_of_the_same_study_is_refused(tmp_path: Path, ports: dict[str, PortProcess]) -> None:
    """With a store of its own, so that the port alone tells; without the port's process there is nobody to share with."""
    write_roster(tmp_path, {name: port.address for name, port in ports.items()})
    digest, port = next(iter(STUDIES)), ports["north"]
    first = part(tmp_path, digest, "north", port)
    try:
        while not (port.folder.is_dir() and list(port.folder.iterdir())):
            assert first.poll() is None, first.communicate()
            time.sleep(0.05)
        second = part(tmp_path, digest, "north", port, store="other.store")
        _, errors = second.communicate(timeout=100)
        assert second.returncode != 0
        assert "another process takes this party's connections in this study" in errors
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()


# --- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_port_and_study_are_killed_and_come_back(tmp_path: Path, ports: dict[str, PortProcess]) -> None:
    write_roster(tmp_path, {name: port.address for name, port in ports.items()})
    PortProcess.start(ports.values())
    digest = next(iter(STUDIES))
    with contextlib.ExitStack() as stack:
        parties = {name: part(tmp_path, digest, name, port, pauses=(2, 4)) for name, port in ports.items()}
        for party in parties.values():
            stack.callback(party.communicate)
            stack.callback(party.kill)

        def said() -> list[str]:
            assert all(party.stdout is not None for party in parties.values())
            return [party.stdout.readline() for party in parties.values() if party.stdout is not None]

        def on() -> None:
            for party in parties.values():
                assert party.stdin is not None
                party.stdin.write("on\n")
                party.stdin.flush()

        assert said() == ["round 2\n"] * 3
        # Nobody owns a port: what was handed over goes on.
        for port in ports.values():
            port.kill()
        on()
        assert said() == ["round 4\n"] * 3
        PortProcess.start(ports.values())
        assert [len(list(port.folder.iterdir())) for port in ports.values()] == [1, 1, 1]
        # A new process, in the place of its old one; all its connections are new.
        parties["north"].kill()
        parties["north"].communicate()
        parties["north"] = part(tmp_path, digest, "north", ports["north"])
        on()
        for party in parties.values():
            output, errors = party.communicate(timeout=200)
            assert party.returncode == 0, errors
            np.testing.assert_allclose(json.loads(output), np.full(3, np.mean(STUDIES[digest])), atol=1e-6)
    counts = {name: port.stop() for name, port in ports.items()}
    assert sum(each["handed_over"] for each in counts.values()) >= 2


# --- as the page says ------------------------------------------------------------------------------------------------


# As join, from Python.
_JOIN = """
import sys, warnings
import quietmean as qm
warnings.simplefilter("ignore")
print(qm.join("study.sealed", key="north.key", data="north.csv", accept=sys.argv[1], listen_through=sys.argv[2]).missing)
"""


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path, ports: dict[str, PortProcess]) -> None:
    """South as the page has it; north joins from Python, behind a port of its own."""
    page, join = commands(PAGE)[3:5]
    assert join.endswith(" --listen-through /run/quietmean-port")
    own = {name: "{}:{}".format(*ports[name].address) for name in ("north", "south")}
    study = {"name": "ages", "epsilon": 4.0, "delta": 1e-6, "colluding": 1, "protocol": "local-dp", "start_timeout": 60.0}
    meeting = meet(tmp_path, tuple(own), {"study": study, "column": [{"name": "age", "low": 0, "high": 100}]}, addresses=own)
    sealed = meeting.seal()
    (tmp_path / "study.sealed").write_bytes(sealed.signed.to_file())
    for number, (name, identity) in enumerate(meeting.identities.items()):
        identity.save(tmp_path / f"{name}.key")
        (tmp_path / f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20 + 10 * number, 70))))

    def start(*command: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, *command], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)

    def typed(line: str) -> subprocess.Popen[str]:
        line = line.replace("DIGEST", sealed.digest).replace("/run/quietmean-port", str(ports["south"].folder))
        return start("-m", "quietmean.cli.main", *line.split()[1:])

    with contextlib.ExitStack() as stack:
        owner = typed(page.replace(":7001", own["south"]))
        stack.callback(owner.communicate)
        stack.callback(owner.kill)
        PortProcess.start([ports["north"]])
        assert owner.stdout is not None
        assert "listening on" in owner.stdout.readline()
        both = [typed(join), start("-c", _JOIN, sealed.digest, str(ports["north"].folder))]
        for process in both:
            stack.callback(process.kill)
        (said, errors), (missing, more) = (process.communicate(timeout=200) for process in both)
        assert [process.returncode for process in both] == [0, 0], errors + more
        assert "2 of 2 parties counted" in said
        assert missing == "[]\n"
        owner.terminate()
        output, errors = owner.communicate(timeout=30)
        assert (owner.returncode, errors) == (0, "")
        assert "connections handed over" in output


@pytest.mark.slow
def test_a_session_of_many_rounds(tmp_path: Path, ports: dict[str, PortProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_policy(unattended=True, largest_epsilon=100.0)
    write_roster(tmp_path, {name: port.address for name, port in ports.items()})
    PortProcess.start(ports.values())
    terms = {"name": "averaging", "dimension": 3, "rounds": 4, "epsilon": 20.0, "delta": 1e-5, "colluding": 1}

    async def one(name: str, level: float) -> int:
        through = ports[name].folder
        counted = 0
        async with qm.session(terms, "roster.toml", f"{name}.key", yes=True, no_ledger=True, listen_through=through) as rounds:
            while not rounds.over:
                mean = await rounds.mean(np.full(3, level))
                assert abs(mean.mean - 0.2).max() < 6 * np.max(mean.standard_error)
                counted += len(mean.counted)
        return counted

    async def all_three() -> list[int]:
        return await asyncio.gather(*(one(name, level) for name, level in zip(NAMES, (0.5, 0.2, -0.1), strict=True)))

    with (
        pytest.raises(InputError, match="listen and listen_through exclude each other"),
        qm.session(terms, "roster.toml", "north.key", yes=True, no_ledger=True, listen="127.0.0.1:7001", listen_through="run"),
    ):
        pass
    assert asyncio.run(all_three()) == [12, 12, 12]
    assert sum(port.stop()["handed_over"] for port in ports.values()) >= 3
