"""The page on consortia: its commands, typed in its order by three parties with fresh accounts, from invitation to result."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quietmean.cli.common import command_of
from quietmean.node import Identity
from support.consent import accept as yes_of
from support.pages import commands
from support.site_policy import write_policy

PAGE = "take-part/invitation.md"
PARTIES = ("north", "south", "east")
# What two parties type who edit a roster by hand.
BY_HAND = commands(PAGE, "Edit a roster by hand")
# Install; the yes is given inside join.
BESIDES_COMMANDS = ("install", "yes")


class Site:
    """One party's machine: a folder and a user configuration of its own."""

    def __init__(self, name: str, folder: Path, ports: dict[str, int]) -> None:
        self.name, self.folder, self.ports = name, folder / name, ports
        self.typed: list[str] = []
        self.folder.mkdir()
        self.environment = {**os.environ, "XDG_CONFIG_HOME": str(self.folder)}

    def start(self, line: str, terminal: str | None = None) -> subprocess.Popen[str]:
        """Type a line of the page; ``terminal``: what is answered there, else there is none."""
        self.typed.append(command_of(shlex.split(line)[1:]) or "")
        for name, port in self.ports.items():
            line = line.replace(f"{name}.example:7001", f"127.0.0.1:{port}")
        command = [sys.executable, "-m", "quietmean.cli.main", *shlex.split(line)[1:]]
        ours, theirs = pty.openpty()
        if terminal is not None:
            os.write(ours, terminal.encode())
        stdin = subprocess.DEVNULL if terminal is None else theirs
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdin=stdin, stdout=pipe, stderr=pipe, text=True
        )
        os.close(theirs)
        process.__dict__["terminal"] = ours
        return process

    def type(self, line: str) -> str:
        return finished(self.start(line))

    def send(self, file: str, *others: Site) -> None:
        """By mail, relay or folder: nothing secret is in it."""
        for other in others:
            if other is not self:
                shutil.copy(self.folder / file, other.folder / file)


def finished(process: subprocess.Popen[str], code: int = 0) -> str:
    output, errors = process.communicate(timeout=600)
    os.close(process.__dict__["terminal"])
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return output if code == 0 else errors


@pytest.fixture
def sites(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> dict[str, Site]:
    ports = dict(zip(PARTIES, free_ports(3), strict=True))
    found = {name: Site(name, tmp_path, ports) for name in PARTIES}
    for number, (name, site) in enumerate(found.items()):
        ages = range(20 + 10 * number, 60 + 10 * number)
        (site.folder / f"{name}.csv").write_text("age\n" + "\n".join(map(str, ages)))
    return found


def by(line: str, name: str) -> str:
    """South's line, typed by another party."""
    return line.replace("south", name)


@pytest.mark.slow
def test_the_commands_of_the_page(sites: dict[str, Site]) -> None:
    north, south, _ = everybody = list(sites.values())
    lines = iter(line for line in commands(PAGE) if line not in BY_HAND)
    for verb in ("study new", "key new", "study invite"):
        line = next(lines)
        assert line.startswith(f"quietmean {verb} ")
        north.type(line)
    north.send("study.invitation", *everybody)
    accept = next(lines)
    for site in everybody:
        site.type(by(accept, site.name))
        site.send(f"{site.name}.entry", north)
    north.type(next(lines))
    north.send("study.sealed", *everybody)
    words, check, join, joined_without_terminal = (next(lines) for _ in range(4))
    shown = {site.name: site.type(by(words, site.name)) for site in everybody}
    assert len({text.split("code  ")[1].partition("\n")[0] for text in shown.values()}) == 1
    assert "Your own entry, 'south', is in it as you signed it." in shown["south"]
    digest = shown["south"].split("digest ")[1].split()[0]

    refused = finished(south.start(join), code=2)
    assert "nobody said yes" in refused
    for process in [site.start(by(check, site.name)) for site in everybody]:
        assert "ready: 3 of 3" in finished(process)
    started = [
        north.start(by(join, "north"), "south\nyes\n"),
        south.start(join, "north, east\nyes\n"),
        sites["east"].start(joined_without_terminal.replace("DIGEST", yes_of("east", sites["east"].folder / "study.sealed"))),
    ]
    for process, site in zip(started, everybody, strict=True):
        assert re.search(r"(?m)^  mean\(age\)  +\d", finished(process)), site.name
    certify = next(lines)
    assert "epsilon" in south.type(certify)
    receipts = [json.loads((site.folder / f"{site.name}.receipt.json").read_text()) for site in everybody]
    assert len({receipt["result"]["estimate"] for receipt in receipts}) == 1
    assert receipts[1]["origin"]["sealed"] == {"digest": digest, "compared_with": ["east", "north"], "trusts_convener_for": []}
    assert receipts[0]["origin"]["roster"] == digest

    # What the page counts: a party that does not convene, without check, which is offered, and the refusal above.
    steps = {*BESIDES_COMMANDS, *south.typed} - {"check"}
    assert steps == {"install", "accept", "verify words", "yes", "join", "verify receipt"}
    assert len(steps) == 6

    north.type(next(lines))
    distrust = next(lines)
    north.send("north.key.revocation", south)
    south.type(distrust)
    assert "distrusts" in finished(south.start(words), code=2)
    assert list(lines) == []


@pytest.mark.slow
def test_the_page_on_what_a_site_takes_part_in(sites: dict[str, Site]) -> None:
    """A sealed study that the data owner signs; the audit log afterwards."""
    north, south, _ = everybody = list(sites.values())
    lines = iter(commands(PAGE))
    for _ in range(3):
        north.type(next(lines))
    north.send("study.invitation", *everybody)
    accept = next(lines)
    for site in everybody:
        site.environment["XDG_DATA_HOME"] = str(site.folder / "data")
        site.type(by(accept, site.name))
        site.send(f"{site.name}.entry", north)
    north.type(next(lines))
    north.send("study.sealed", *everybody)
    (north.folder / "north.csv").rename(north.folder / "wards.csv")

    contract, data, keygen, approve, join = commands("answer/decide.md")
    audit, verify, against = commands("answer/policy.md")
    assert "40 records" in north.type(data)
    north.type(keygen)
    write_policy(north.folder / "quietmean" / "policy.toml", approvers=[Identity.load(north.folder / "owner.key").public_key])
    digest = json.loads(north.type(f"{contract} --json"))["accept"]
    assert "Nothing was signed" in finished(north.start(approve, "no\n"), code=2)
    north_joins = join.partition(" --approval")[0]
    assert "1 of the approvers of" in finished(north.start(f"{north_joins} --accept {digest}"), code=2)
    finished(north.start(approve, "yes\n"))
    others = [f"quietmean join study.sealed --key {site.name}.key --data {site.name}.csv" for site in everybody[1:]]
    started = [
        north.start(join),
        *(
            site.start(f"{line} --accept {yes_of(site.name, site.folder / 'study.sealed')}")
            for site, line in zip(everybody[1:], others, strict=True)
        ),
    ]
    for process in started:
        assert re.search(r"(?m)^  mean\(age\)  +\d", finished(process))

    # Processes with a key are users of their own, here of that name.
    north.environment["XDG_DATA_HOME"] = str(north.folder / "data" / "north")
    assert "approvals used" in north.type(audit)
    entries = json.loads(north.type(f"{audit} --json"))["entries"]
    events = ["refused", "yes", "approvals used", "charged", "started", "ended"]
    assert [one["event"] for one in entries] == events
    assert "6 entries" in north.type(verify)
    assert "1 receipt: The end of the log in it is here." in " ".join(north.type(against).split())
    # Another site keeps how far this log had come, too; without that its receipt is about another log.
    south_receipt = south.folder / "study-south.receipt.json"
    checked = finished(north.start(f"{verify} --against {south_receipt}"))
    assert "1 receipt: The end of the log in it is here." in " ".join(checked.split())
    receipt = json.loads(south_receipt.read_text())
    del receipt["origin"]["audits_of_others"]["north"]
    south_receipt.write_text(json.dumps(receipt))
    assert "tells of" in finished(north.start(f"{verify} --against {south_receipt}"), code=2)
