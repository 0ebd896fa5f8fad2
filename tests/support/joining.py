"""Parties as a person starts them, for a study that begins with those who are there."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quietmean.core.domain import PrivacyUnit
from quietmean.ledger import Account, Ledger
from quietmean.node.net import RelayAddress
from support.command_lines import command, ending
from support.pages import commands
from support.rosters import on_this_machine, write_roster

_TERMS = """
name = "ages"
epsilon = 2.0
delta = 1e-6
colluding = 1
protocol = "{protocol}"
minimum = {minimum}
start_by = {start_by}
round_timeout = 20.0
start_timeout = {start_timeout}
{more}
"""
STUDY = f"""
[study]{_TERMS}
[[column]]
name = "age"
low = 0
high = 100
"""
SESSION = f"""
[session]
dimension = 3
rounds = 2{_TERMS}"""
# What a party of a session computes, and what it has in the end.
PROGRAM = """
from pathlib import Path
import numpy as np
import quietmean as qm
rounds = qm.joined()
own = Path(f"{rounds.contract.own.name}.means")
while not rounds.over:
    mean = rounds.mean(np.full(3, 0.1))
    assert len(mean.counted) >= 4, mean
    own.write_text((own.read_text() if own.exists() else "") + repr(mean.mean.tolist()))
"""
PAGE = "take-part/quorum.md"
NAMES = ("ada", "bob", "cyd", "dan", "eve")


def join(folder: Path, name: str, *more: str) -> subprocess.Popen[str]:
    """A party of a study that begins when all are there."""
    files = ("--roster", "roster.toml", "--data", f"{name}.csv", "--key", f"{name}.key", "--store", f"{name}.store")
    return command(folder, "join", "study.toml", *files, "--receipt", f"{name}.json", "--yes", "--json", *more)


def results_though_one_dies(folder: Path, options: Callable[[str], Sequence[str]]) -> list[dict[str, Any]]:
    """Of all parties, who join with these options: eve dies when its noise is in its store, and comes back."""
    running = {name: join(folder, name, *options(name)) for name in NAMES}
    deadline = time.monotonic() + 120
    while not (folder / "eve.store").exists() and running["eve"].poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    running["eve"].kill()
    running["eve"].communicate(timeout=180)
    running["eve"] = join(folder, "eve", *options("eve"))
    endings = {name: ending(process) for name, process in running.items()}
    assert {code for code, _, _ in endings.values()} == {0}, endings
    return [json.loads(output) for _, output, _ in endings.values()]


@dataclass
class Consortium:
    """Keys, data, roster and study, or session, of five parties in a folder; a process for each that has joined."""

    folder: Path
    ports: list[int]
    # Where all are called; by default each at a port of its own.
    relay: RelayAddress | None = None
    # A study or a session.
    kind: str = "study"
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = on_this_machine(NAMES, self.ports)
        write_roster(self.folder, places if self.relay is None else dict.fromkeys(NAMES, self.relay))
        for name, port in zip(NAMES, self.ports, strict=True):
            ages = range(20 + port % 7, 60)
            (self.folder / f"{name}.csv").write_text("age\n" + "\n".join(map(str, ages)))

    def study(
        self, seconds: float, *, minimum: int = 4, start_timeout: float = 40.0, protocol: str = "packed-sharing", more: str = ""
    ) -> None:
        """The study file: it starts in so many seconds from now."""
        when = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()
        (self.folder / "train.py").write_text(PROGRAM)
        text = (STUDY if self.kind == "study" else SESSION).format(
            minimum=minimum, start_by=when, start_timeout=start_timeout, protocol=protocol, more=more
        )
        (self.folder / "study.toml").write_text(text)

    def join(self, *names: str) -> None:
        """Type bob's line of the page as each of these."""
        (line,) = [one for one in commands(PAGE) if one.startswith("quietmean join")]
        for name in names:
            if self.kind == "session":
                line = line.replace("--data bob.csv", "--program train.py --account bob")
            arguments = shlex.split(line.replace("bob", name))[1:]
            more = ["--yes", "--json", "--ledger", f"{name}.ledger", "--store", f"{name}.store"]
            self.processes[name] = command(self.folder, *arguments, *more)

    def budget(self, *names: str) -> None:
        for name in names:
            with Ledger.open(self.folder / f"{name}.ledger", create=True) as book:
                unit = PrivacyUnit.RECORD if self.kind == "study" else PrivacyUnit.PARTY
                book.set_budget(name, 5.0, 1e-5, when=datetime.now(UTC), unit=unit)

    def account(self, name: str) -> Account:
        """What is charged to a party's data."""
        with Ledger.open(self.folder / f"{name}.ledger") as book:
            return book.account(name)

    def wait(self, name: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        return ending(self.processes[name])

    def result(self, name: str) -> dict[str, Any]:
        code, output, errors = self.wait(name)
        assert code == 0, errors
        document: dict[str, Any] = json.loads(output)
        return document

    def results(self, *names: str) -> list[dict[str, Any]]:
        """Of all these, who have the same: an estimate, or the means of all rounds."""
        found = [self.result(name) for name in names]
        if self.kind == "study":
            same = {str(result["estimate"]) for result in found}
        else:
            same = {(self.folder / f"{name}.means").read_text() for name in names}
            assert all(result["rounds"] == {"agreed": 2, "begun": 2} for result in found)
        assert len(same) == 1, same
        return found

    def close(self) -> None:
        for process in self.processes.values():
            if process.stdout is not None and not process.stdout.closed:
                process.kill()
                process.communicate()
