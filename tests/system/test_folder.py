"""A study whose messages are files in a folder: its page's commands, in processes that only share that folder."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.core.errors import NotYet
from quietmean.node.folder.remote import RemotePlace
from quietmean.studies.sealed import Sealed
from quietmean.studies.study_keys import StudyKeys
from support.pages import commands
from support.site_policy import write_policy

PARTIES = ("north", "south", "east")
PAGE = "how-to/folder.md"


class Sites:
    """Three parties that accepted and sealed; their processes."""

    def __init__(self, folder: Path, start: float = 300.0, interval: float = 60.0) -> None:
        self.folder = folder
        self.share = folder / "share"
        self.share.mkdir()
        # What the parties are told; a bucket's URL instead.
        self.place = str(self.share)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.output: dict[str, str] = {}
        new, *lines, self.line = commands(PAGE)
        for line in (new, "quietmean keygen --key north.key --name north"):
            main(shlex.split(line)[1:])
        study = folder / "study.toml"
        self.first = datetime.now(UTC) + timedelta(seconds=start)
        agreed = f'deadlines = {{first = "{self.first.isoformat()}", interval = {interval}, poll = 2.0}}'
        text, changed = re.subn("^deadlines = .*$", agreed, study.read_text(), flags=re.MULTILINE)
        assert changed == 1
        study.write_text(text)
        invite, accept, seal = lines
        main(shlex.split(invite)[1:])
        for name in PARTIES:
            main(shlex.split(accept.replace("south", name))[1:])
        main(shlex.split(seal)[1:])
        self.sealed = Sealed.load(folder / "study.sealed")
        for place, name in enumerate(PARTIES):
            (folder / f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20 + place, 60 + place))))

    def join(self, *names: str, once: bool = False) -> None:
        for name in names:
            line = self.line.replace("south", name).replace("/mnt/share", self.place)
            command = [
                sys.executable,
                "-m",
                "quietmean.cli.main",
                *shlex.split(line)[1:],
                "--yes",
                "--json",
                *(["--once"] if once else []),
            ]
            self.processes[name] = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )

    def visit(self, *names: str) -> dict[str, int]:
        """One process after the other, never two together; their exit codes."""
        codes = {}
        for name in names:
            self.join(name, once=True)
            self.output[name], errors = self.processes[name].communicate(timeout=120)
            codes[name] = self.processes[name].returncode
            assert codes[name] in (0, NotYet.exit_code), errors
        return codes

    def visit_until_the_end(self, *names: str, pause: float = 0.0, seconds: float = 400.0) -> list[dict[str, Any]]:
        """Visits in turn until nobody has any left; the results."""
        left, deadline = list(names), time.monotonic() + seconds
        while left:
            assert time.monotonic() < deadline
            codes = self.visit(*left)
            left = [name for name in left if codes[name]]
            time.sleep(pause)
        return [json.loads(self.output[name]) for name in names]

    def finish(self) -> dict[str, dict[str, Any]]:
        found = {}
        for name, process in self.processes.items():
            output, errors = process.communicate(timeout=240)
            assert process.returncode == 0, (name, errors)
            found[name] = json.loads(output)
        return found

    def rounds(self) -> list[str]:
        return [path.name for path in self.share.glob("*/q*") if any(path.iterdir())]

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].communicate()

    def close(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
                process.communicate()


@pytest.fixture
def sites(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    """Its parameters are those of :class:`Sites`: when the start ends, and how long each round is, in seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_policy(unattended=True)
    with contextlib.closing(Sites(tmp_path, *getattr(request, "param", ()))) as found:
        yield found


def test_three_parties_one_of_them_killed_and_started_again(sites: Sites) -> None:
    sites.join("north", "south", "east")
    deadline = time.monotonic() + 120
    while not sites.rounds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    sites.kill("south")
    # What anybody may put there.
    (session,) = sites.share.iterdir()
    for number in range(1, 4):
        slot = session / f"q{number:08d}"
        slot.mkdir(exist_ok=True)
        for junk in range(1000):
            (slot / f"{junk}").touch()
        (slot / f"0-1-{'0' * 32}").write_bytes(os.urandom(5000))
    sites.join("south")
    found = sites.finish()
    assert len({json.dumps(result["estimate"]) for result in found.values()}) == 1
    assert all(result["parties_counted"] == 3 for result in found.values())
    assert abs(found["north"]["estimate"] - 40.5) < 6 * found["north"]["standard_error"]


@pytest.mark.slow
def test_by_schedule_alone(sites: Sites) -> None:
    """As cron would run it: each party alone, with hours between the visits for all that anybody knows."""
    found = sites.visit_until_the_end(*PARTIES)
    assert len({json.dumps(result["estimate"]) for result in found}) == 1
    assert all(result["parties_counted"] == 3 for result in found)
    # What the folder keeps can be opened by nobody any more.
    assert all(StudyKeys.load(path).mailbox is None for path in sites.folder.glob("*.studykeys"))
    assert len(list(sites.folder.glob("*.studykeys"))) == 3
    # A visit after the end says the same and puts nothing.
    before = sites.rounds()
    assert sites.visit("north") == {"north": 0}
    assert json.loads(sites.output["north"])["estimate"] == found[0]["estimate"]
    assert sites.rounds() == before


@pytest.mark.slow
@pytest.mark.parametrize("sites", [(120.0, 30.0)], indirect=True)
def test_one_never_comes_again(sites: Sites) -> None:
    """After the others' deadlines, which go on while nobody's process runs."""
    for _ in range(3):
        sites.visit(*PARTIES)
    found = sites.visit_until_the_end("north", "south", pause=5.0)
    assert len({json.dumps(result["estimate"]) for result in found}) == 1
    assert found[0]["parties_counted"] in (2, 3)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a local server with the interface of S3."""
    for module in ("s3fs", "moto"):
        pytest.importorskip(module, reason="no local server with S3's interface: pip install quietmean[folder] moto[server]")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s"), ("ENDPOINT_URL", f"http://{host}:{port}")):
        monkeypatch.setenv(f"AWS_{name}", value)
    import s3fs

    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(f"hospitals-{port}")
    yield f"s3://hospitals-{port}/studies"
    server.stop()


@pytest.mark.slow
def test_by_schedule_in_a_bucket(sites: Sites, bucket: str) -> None:
    sites.place = bucket
    found = sites.visit_until_the_end(*PARTIES)
    assert len({json.dumps(result["estimate"]) for result in found}) == 1
    assert list(sites.share.iterdir()) == []


def test_places_in_a_bucket(bucket: str) -> None:
    place = RemotePlace(bucket, "a" * 64)
    name = "0-1-" + "0" * 32
    assert list(place.names("q00000001", {"0-1-"})) == []
    assert place.read("q00000001", name, 100) is None
    place.put("q00000001", name, b"x" * 100)
    place.put("q00000001", "2-1-" + "0" * 32, b"y")
    ((found, size, time_),) = place.names("q00000001", {"0-1-"})
    assert (found, size) == (name, 100)
    assert time_ > 0
    assert place.read("q00000001", name, 100) == b"x" * 100
    assert place.read("q00000001", name, 99) is None
    # Another session of the same folder sees none of it.
    assert list(RemotePlace(bucket, "b" * 64).names("q00000001", {"0-1-"})) == []
