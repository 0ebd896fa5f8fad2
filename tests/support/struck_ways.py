"""Every feature in every way in: whether it can be had, why not, and parties of which one is killed at any of its writes.

``python -m support.struck_ways`` writes the table anew.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.ledger import Ledger
from quietmean.node.local import fork_server
from quietmean.studies.agreement.any_study import any_of_tables
from quietmean.studies.outcome.feasible import feasible
from support.injected import Faults, Rule, places_of_faults
from support.ports import reserved
from support.processes import as_processes
from support.site_policy import write_policy
from support.struck_study import Commands, prepared_commands
from support.ways_in import MEMBERS, NAMES, PROTOCOLS, ROUND_TIMEOUT, WAYS, Cell, Consortium

_DATA = Path(__file__).parent.parent / "data"
TABLE, CHANGES = _DATA / "ways_in.toml", _DATA / "ways_in_changes.toml"
YES = "yes"
_HEAD = """\
# Each feature of a study in each way in: "yes", or why not, as whoever writes, invites or seals is told.
# A test holds it to the code; parties take part in each cell that says yes, one of them killed at one of its writes.
# Made by: PYTHONPATH=tests python -m support.struck_ways
"""
_HEAD_OF_CHANGES = """\
# How many changes of files the party makes that is struck, counted once with nobody killed: among all of them it is drawn
# where it is killed. A member of a committee comes after the contributors.
# Made by: PYTHONPATH=tests python -m support.struck_ways changes
"""
# What a study asks for beside its protocol. By a protocol that is to be had in all ways; a committee has its own.
ASKED: dict[str, dict[str, Any]] = {
    "unit person": {"unit": "person"},
    "unit party": {"unit": "party", "epsilon": 30.0},
    "nats": {"protocol": "consensus", "unit": "party", "nats": 0.4, "epsilon": None},
    "eavesdropping": {"eavesdropping": 1.0},
    "start by a quorum": {"start_in": 300.0, "minimum": 3},
    "dropouts": {"dropouts": 0.34},
    "records per party": {"records_per_party": [30, 50]},
    "statistics": {
        "statistic": [{"kind": "mean", "column": "age"}, {"kind": "histogram", "column": "age", "edges": [20, 55, 90]}]
    },
    "rows of persons": {"unit": "person", "rows": "first"},
    "links x25519": {"links": "x25519"},
    "clip": {"clip": 1.0},
}
_TRIES = 4
# Some protocols round differently at each party. Gossip ends when no party is further from the mean than 1e-9 of the
# length of the three noisy values, of at most 1.4 each (a record's 1 and seven deviations of noise on 40); twice that for two.
APART = {"muffliato": 2e-9 * 1.4 * math.sqrt(3)}
# What a run says that lost a party which it cannot do without.
_FAILED = "ProtocolFailure"
# What parties import on their way, once for all of them.
_IMPORTED = ("api.joining", "api.sessions", "sessions.joined", "sessions.receipt", "node.local.fork_launcher")
# In seconds: how long a member that comes again is waited for, where the others, who can do without it, have ended.
_LATE = 3.0
# In seconds: far enough for a busy machine.
CONTRIBUTE_IN = 600.0
# A party that was killed at the last of its writes finds that all others have ended. In a session it asks for the length of a
# round where they are, then for half of one in the round that goes on; in a study it answers them for the length of a round.
# Anything else ends sooner; the rest is for the machine.
_PATIENCE = (1.0 + 0.5 + 1.0) * ROUND_TIMEOUT


def feature_cells() -> Iterator[tuple[str, Cell]]:
    """Each feature's name, with each way in."""
    for way in WAYS:
        for name in PROTOCOLS:
            yield name, _cell(name, way, {})
        for name, fields in ASKED.items():
            usual = "packed-sharing" if way == "committee" else "cordp-dme"
            yield name, _cell(fields.get("protocol", usual), way, fields)


def _cell(protocol: str, way: str, fields: dict[str, Any]) -> Cell:
    more = {name: value for name, value in fields.items() if name not in ("unit", "protocol")}
    if way == "committee":
        more["contribute_in"] = CONTRIBUTE_IN
    return Cell(protocol, way, fields.get("unit", "record"), tuple(more.items()))


def write_cell_policy(cell: Cell) -> None:
    """Of sites that take part in all of them, and charge where they can."""
    epsilon = dict(cell.more).get("epsilon")
    budget = {"epsilon": epsilon + 1.0, "delta": 1e-3} if cell.charged and epsilon else None
    write_policy(budget=budget, unattended=True, largest_epsilon=100.0, largest_nats=1.0)


def table() -> dict[str, dict[str, str]]:
    """What the file says: by feature, then by way."""
    return tomllib.loads(TABLE.read_text("utf-8"))


def changes_of(feature: str) -> dict[str, int]:
    """Of how many changes of a party one is drawn, by what it does: of all that it makes."""
    return dict(tomllib.loads(CHANGES.read_text("utf-8")).get(feature, {}))


@contextmanager
def prepared_parties() -> Iterator[Commands]:
    """A prepared process, whose copies take part."""
    with prepared_commands() as commands:
        commands.ask({"prepare": ["support.struck_ways:prepare", "scipy.stats", *(f"quietmean.{name}" for name in _IMPORTED)]})
        yield commands


def take_part(cell: Sequence[Any], folder: str, name: str, what: str, also: Mapping[str, Any] | None = None) -> list[float]:
    """The numbers that a party has in the end, with its files in ``folder``; a contributor has none.

    ``also``: more fields of :class:`Consortium`.
    """
    warnings.simplefilter("ignore")
    tempfile.tempdir = None
    # At a change of a file the injector reads what the clock says.
    Path(folder, f"began-{what}-{name}").touch()
    protocol, way, unit, more = cell
    more = tuple((key, value) for key, value in more)
    parties = Consortium(Cell(protocol, way, unit, more), Path(folder), [], charging=True, **(also or {}))
    if what == "run":
        return numbers(parties.come_to()[0])
    if what in ("file", "committee"):
        parties.contribute(name)
        return []
    return numbers(asyncio.run(parties.one(name)))


def numbers(result: Any) -> list[float]:
    """The estimates of a result of any way."""
    if isinstance(result, list):
        return [float(value) for mean in result for value in np.ravel(mean)]
    if not hasattr(result, "outcome"):
        return [float(value) for value in result.result.mean]
    return [float(estimate.value) for answer in result.outcome.answers for estimate in answer.estimates.entries]


class _ForkedServer:
    """The fork server of a local run as a copy of this process: it has imported all that a server would import in a second."""

    def __init__(self, process: int) -> None:
        self._process = process

    async def wait(self) -> int:
        return os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, self._process, 0))[1])

    @classmethod
    async def start(cls, *line: str, pass_fds: Sequence[int], env: Mapping[str, str], **_: Any) -> _ForkedServer:
        """In the place of ``create_subprocess_exec``."""
        process = os.fork()
        if process:
            return cls(process)
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            # As of a program that is started: of the parent it has nothing but what it is passed.
            for begin, end in pairwise([2, *sorted(pass_fds), os.sysconf("SC_OPEN_MAX")]):
                os.closerange(begin + 1, end)
            os.environ.update(env)
            plan, descriptor = line[-2:]
            code = fork_server.main(Path(plan), int(descriptor))
        finally:
            os._exit(code)


def prepare() -> None:
    """What all of them import on their way, by a small study and a contribution; and plans that take seconds, which it keeps."""
    patch.object(asyncio, "create_subprocess_exec", _ForkedServer.start).start()
    # Struck are processes of parties, and what they write.
    as_processes(pytest.MonkeyPatch())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = os.environ["XDG_CONFIG_HOME"] = folder
        for way in ("run", "file"):
            place, cell = Path(folder) / way, _cell("cordp-dme", way, ASKED["statistics"])
            place.mkdir()
            write_cell_policy(cell)
            Consortium(cell, place, [], charging=True).come_to()
    for protocol, way in (("gossip", "run"), ("secret-sharing", "run"), ("inca", "run"), ("inca", "session")):
        cell = _cell(protocol, way, {})
        feasible(any_of_tables(cell.tables(), "the study"), len(NAMES), no_privacy=cell.bare)


@dataclass(frozen=True)
class Untouched(Exception):
    """The party that was to be struck made fewer changes of files than was drawn."""

    changes: int


@dataclass
class StruckParties:
    """Parties of a cell as copies of one prepared process; one is killed at a change of a file, which ``seed`` draws of all
    ``changes`` that it makes, and comes again.
    """

    commands: Commands
    parties: Consortium
    seed: str = ""
    changes: dict[str, int] = field(default_factory=dict)

    def results(self) -> list[list[float]]:
        """Of all who have one. Fails with what was said where one does not come through, and where nobody was killed."""
        random, folder = Random(self.seed), self.parties.folder
        for number in range(_TRIES):
            self.parties = replace(self.parties, folder=folder / str(number))
            self.parties.folder.mkdir()
            try:
                return self._results(random)
            except Untouched as whole:
                if not 0 < whole.changes < self.changes[self.what]:
                    raise
                # It went on undisturbed: now it is known how many there are.
                self.changes[self.what] = whole.changes
        raise AssertionError(f"nobody was struck in {_TRIES} executions: {self.changes}")

    def _results(self, random: Random) -> list[list[float]]:
        way = self.parties.cell.way
        results = self._struck(way, random.randrange(self.changes[way]))
        if way == "run":
            return results
        self._require_charged_once()
        if way == "file":
            return [numbers(self.parties.combined())]
        return self._struck("member", random.randrange(self.changes["member"])) if way == "committee" else results

    def count(self) -> dict[str, int]:
        """How many changes there are, by an execution in which nobody is killed."""
        found = dict[str, int]()
        for what in ("committee", "member") if self.parties.cell.way == "committee" else (self.parties.cell.way,):
            try:
                self._struck(what, sys.maxsize)
            except Untouched as whole:
                found[what] = whole.changes
        return found

    def _struck(self, what: str, first: int) -> list[list[float]]:
        """Of those who do ``what``, one of whom is killed at its change ``first``; raises :class:`Untouched`."""
        names = {"run": ["south"], "member": MEMBERS}.get(what, NAMES)
        self.what, self.victim = what, names[min(1, len(names) - 1)]
        if what != "run":
            _ = self.parties.sealed
        rule = Rule("die", self.parties.folder / self.victim, first)
        # Members open when the time to contribute is over.
        later = [Rule("clock", self.parties.folder, argument=int(CONTRIBUTE_IN) + 1)] if what == "member" else []
        self.faults, self.others = (Faults(self.parties.folder / f"{what}.{which}") for which in ("faults", "others"))
        self.faults.set([rule, *later])
        self.others.set(later)
        codes: dict[str, list[int]] = {name: [] for name in names}
        running = {self._start(name, 0): name for name in names}
        waited = 0.0
        try:
            while running:
                assert waited < _PATIENCE, f"no end of {running}: {codes}, {self._said()}"
                ended = self.commands.ask({"seconds": 1.0})
                waited = 0.0 if ended else waited + 1.0
                if what == "member" and [*running.values()] == [self.victim] and len(codes[self.victim]) and waited > _LATE:
                    break
                for process, code in ended.items():
                    name = running.pop(int(process))
                    codes[name].append(code)
                    if code and name == self.victim and len(codes[name]) == 1:
                        self.faults.set(later)
                        running[self._start(name, 1)] = name
        finally:
            self._kill(running)
        calls = self.faults.calls()
        struck = [call for call in calls if call.acted == "die"]
        ends = [0] * (self.victim not in running.values())
        lives = [[-signal.SIGKILL, *ends]] if struck else [[0]]
        if struck and what == "run":
            # Killed was the whole run, or one of its parties: it says so, or does without.
            lives += [[ProtocolFailure.exit_code, 0]] * (_FAILED in self._told(self.victim, 0, "err").read_text()) + [[0]]
        expected = [{name: life if name == self.victim else [0] for name in names} for life in lives]
        assert codes in expected, f"{rule.line()}: {codes}, {self._said()}"
        if not struck:
            raise Untouched(len(places_of_faults(calls)))
        came = [name for name in names if codes[name][-1] == 0]
        return [json.loads(self._told(name, len(codes[name]) - 1, "out").read_text()) for name in came]

    def _kill(self, running: Mapping[int, str]) -> None:
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        left = set(running)
        while left and (ended := self.commands.ask({"seconds": 5.0})):
            left -= set(map(int, ended))

    def _require_charged_once(self) -> None:
        """Each has one entry, and who came again is charged as the others are."""
        charges = {}
        for name in NAMES:
            if (path := self.parties.ledger(name)) is not None:
                with Ledger.open(path) as book:
                    charges[name] = [(entry.reserved, entry.charged, entry.settled) for entry in book.account(name).entries]
        assert all(len(each) == 1 and each == charges[NAMES[0]] for each in charges.values()), f"the ledgers have {charges}"

    def _start(self, name: str, number: int) -> int:
        folder, cell = self.parties.folder, self.parties.cell
        own = folder / f"{name}.data"
        own.mkdir(exist_ok=True)
        environment = {"XDG_DATA_HOME": str(own), "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"], "TMPDIR": str(own)}
        environment["QUIETMEAN_FAULTS"] = str((self.faults if name == self.victim else self.others).folder)
        files = {kind: str(self._told(name, number, kind)) for kind in ("out", "err")}
        given = [[cell.protocol, cell.way, cell.unit, cell.more], str(folder), name, self.what]
        order = {
            "call": "support.struck_ways:take_part",
            "given": given,
            "folder": str(folder),
            "environment": environment,
            **files,
        }
        return int(self.commands.ask(order))

    def _told(self, name: str, number: int, kind: str) -> Path:
        return self.parties.folder / f"told-{self.what}-{name}.{number}.{kind}"

    def _said(self) -> str:
        return " | ".join(f"{path.name}: {path.read_text()[-500:]}" for path in sorted(self.parties.folder.glob("told-*.err")))


def main() -> None:
    """Write the table; or, by ``changes``, count the changes of each cell."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = os.environ["XDG_CONFIG_HOME"] = folder
        if sys.argv[1:] == ["changes"]:
            _write(CHANGES, _HEAD_OF_CHANGES, _counted(Path(folder)))
        else:
            _write(TABLE, _HEAD, _told(Path(folder)))


def _told(folder: Path) -> dict[str, dict[str, str]]:
    by_feature: dict[str, dict[str, str]] = {}
    for number, (name, cell) in enumerate(feature_cells()):
        ports = [7001 + place for place in range(len(cell.names))]
        write_cell_policy(cell)
        why = Consortium(cell, folder / str(number), ports).refused_before()
        by_feature.setdefault(name, {})[cell.way] = _quoted(YES if why is None else why)
    return by_feature


def _counted(folder: Path) -> dict[str, dict[str, str]]:
    by_feature: dict[str, dict[str, str]] = {}
    with prepared_parties() as commands:
        for number, (name, cell) in enumerate(feature_cells()):
            if table()[name][cell.way] != YES:
                continue
            write_cell_policy(cell)
            with reserved(len(cell.names)) as ports:
                parties = Consortium(cell, folder / str(number), ports, charging=True)
                parties.folder.mkdir()
                found = StruckParties(commands, parties).count()
            print(name, found, flush=True)
            by_feature.setdefault(name, {}).update({what: str(count) for what, count in found.items()})
    return by_feature


def _write(file: Path, head: str, tables: Mapping[str, Mapping[str, str]]) -> None:
    lines = [head]
    for name, values in tables.items():
        lines += ["", f'["{name}"]', *(f"{key} = {value}" for key, value in values.items())]
    file.write_text("\n".join(lines) + "\n", "utf-8")


def _quoted(text: str) -> str:
    if "'" in text:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return f"'{text}'"


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
