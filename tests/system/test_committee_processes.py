"""A day of a committee with real processes: one member killed for good while the sum is opened, one killed and started again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.protocols.committee.layout import Layout
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.executions import Register
from support.committee_study import CommitteeStudy, soon

MEMBERS = ("m1", "m2", "m3", "m4", "m5")
PAY = {f"c{place}": 80.0 * place for place in range(1, 13)}
# So long a test waits for what should come (s).
PATIENCE = 600.0


class Processes:
    """Members as processes of the command line, each with folders of its own."""

    def __init__(self, study: CommitteeStudy, box: Path) -> None:
        self.study, self.box = study, box
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        folder = self.study.folder
        own = {"XDG_CONFIG_HOME": str(folder / f"conf {name}"), "XDG_DATA_HOME": str(folder / f"data {name}")}
        line = ["join", str(self.study.path), "--key", str(self.study.key(name)), "--contributions", str(self.box), "--json"]
        with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("ab") as err:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "quietmean", *line], stdout=out, stderr=err, env=os.environ | own
            )

    def until(self, name: str, text: str) -> None:
        """Until a member says so."""
        said, end = self.study.folder / f"{name}.err", time.monotonic() + PATIENCE
        while text not in (told := said.read_text()):
            assert time.monotonic() < end, told
            time.sleep(0.02)

    def kill(self, name: str) -> None:
        self.running[name].send_signal(signal.SIGKILL)
        assert self.running.pop(name).wait(PATIENCE) == -signal.SIGKILL

    def results(self) -> dict[str, dict[str, Any]]:
        found = {}
        for name, process in self.running.items():
            code = process.wait(PATIENCE)
            assert code == 0, (name, (self.study.folder / f"{name}.err").read_text())
            found[name] = json.loads((self.study.folder / f"{name}.out").read_text())
        return found


HONEST = Layout.bits_of


def one_bit_is_none(layout: Layout, numbers: Any) -> Any:
    """In place of :meth:`Layout.bits_of`: a bit that is 50 makes a number that no pay is."""
    bits = HONEST(layout, numbers)
    bits[0] = 50
    return bits


def another_square(layout: Layout, numbers: Any) -> Any:
    """The lowest bit of the square is the other one."""
    bits = HONEST(layout, numbers)
    first = int(layout.starts[2])
    bits[first] = 1 - bits[first]
    return bits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "checked"),
    [("agreement", {}), ("mixing", {}), ("mixing", {"verified": True}), ("mixing", {"verified": True, "products": True})],
    ids=["agreement", "mixing", "mixing-verified", "mixing-products"],
)
def test_one_member_is_killed_for_good_and_one_is_started_again(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch, at: str, checked: dict[str, bool]
) -> None:
    """Where contributions are verified, the first one's numbers are none that a pay may be: all members leave it out.

    Where products are, its numbers are all in their ranges, and its square is not that of its pay.
    """
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(MEMBERS, free_ports(5), strict=True)}
    # What a member that starts again on a busy machine may take; whoever is gone costs a part of it in each round.
    fields = {"epsilon": 10.0, "round_timeout": 20.0}
    committee = {"contribute_by": soon(35), "grace": 1.0, "minimum": 3, **checked}
    names = tuple(PAY)
    study = CommitteeStudy(tmp_path, fields, committee, MEMBERS, names, addresses)
    box = tmp_path / "box"
    box.mkdir()
    # Two never come, and one sends garbage.
    for name in names[:-3]:
        register = Register(tmp_path / f"register of {name}")
        contributor = CommitteeContributor(study.sealed, study.plan, study.identities[name], study.keys[name], register)
        encoded = study.sealed.study.workload.encode(np.array([[PAY[name]]]), step=study.plan.value_step)
        with monkeypatch.context() as patch:
            if checked and name == names[0]:
                patch.setattr(Layout, "bits_of", another_square if "products" in checked else one_bit_is_none)
            (box / f"{name}.contribution").write_bytes(contributor.contribute(encoded).to_file())
        os.utime(box / f"{name}.contribution", (0, 0))
    (box / f"{names[-1]}.contribution").write_bytes(b"garbage")
    members = Processes(study, box)
    try:
        for name in MEMBERS:
            members.start(name)
        members.until("m4", at)
        members.kill("m4")
        members.start("m4")
        # Whoever never agreed to the study is no member of it: all have, before one is gone for good.
        members.until("m1", "mixing")
        members.kill("m5")
        results = members.results()
    finally:
        for process in members.running.values():
            process.kill()
            process.wait()
    assert len({document["estimate"] for document in results.values()}) == 1
    honest = names[1:-3] if checked else names[:-3]
    for document in results.values():
        contributions = document["contributions"]
        assert contributions["counted"] == len(honest)
        assert set(contributions["digests"]) == set(honest)
        assert contributions["left_out"][0]["why"] == "it is not a contribution to a committee"
        assert [one["name"] for one in contributions["left_out"][1:]] == ([names[0]] if checked else [])
        assert all("out of its range" in one["why"] for one in contributions["left_out"][1:])
        assert contributions["missing"] == [entry.name for entry in study.sealed.entries if entry.name in names[-3:]]
        truth = np.mean([PAY[name] for name in honest])
        assert abs(document["estimate"] - truth) < 8 * document["standard_error"]


@pytest.mark.slow
def test_a_member_that_comes_when_the_others_have_ended_is_told_so(
    tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    """It waited for an hour without a word: its line has the end of the wait, and what else may have happened."""
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(MEMBERS, free_ports(5), strict=True)}
    committee = {"contribute_by": soon(20), "grace": 1.0, "minimum": 3}
    names = tuple(PAY)
    study = CommitteeStudy(tmp_path, {"epsilon": 10.0, "round_timeout": 5.0}, committee, MEMBERS, names, addresses)
    box = tmp_path / "box"
    box.mkdir()
    for name in names:
        register = Register(tmp_path / f"register of {name}")
        contributor = CommitteeContributor(study.sealed, study.plan, study.identities[name], study.keys[name], register)
        encoded = study.sealed.study.workload.encode(np.array([[PAY[name]]]), step=study.plan.value_step)
        (box / f"{name}.contribution").write_bytes(contributor.contribute(encoded).to_file())
        os.utime(box / f"{name}.contribution", (0, 0))
    members = Processes(study, box)
    try:
        for name in MEMBERS[:-1]:
            members.start(name)
        assert len(members.results()) == 4
        members.start(MEMBERS[-1])
        members.until(MEMBERS[-1], "the time to start has passed: they may have gone on without this party")
        said = (tmp_path / f"{MEMBERS[-1]}.err").read_text()
        assert re.search(r"agreement, waiting for m\d, m\d, m\d, m\d until \d\d", said), said
    finally:
        for process in members.running.values():
            process.kill()
            process.wait()
