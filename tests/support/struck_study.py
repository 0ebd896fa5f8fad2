"""Studies of three parties in real processes, of which one has a machine that fails or dies, and is started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quietmean.ledger import Ledger
from quietmean.studies.party.audit import AuditLog, verify
from support.injected import Call, Faults, Rule
from support.lives import prepared_process
from support.rosters import on_this_machine, write_roster
from support.site_policy import toml
from support.smallest_study import of_ages

NAMES = ("north", "south", "east")
# Whose machine it is.
STRUCK = "south"
_JOIN = (
    "join study.toml --roster roster.toml --data ages.csv --policy policy.toml --store own.store --ledger own.ledger "
    "--receipt receipt.json --yes --json"
)
# A defect ends with a sentence of its own, whatever its exit code is.
_DEFECT = ("Traceback", "a defect")
_PATIENCE = 240.0


@dataclass
class Commands:
    """Copies of a prepared process: see ``tests/faults/commands.py``."""

    process: subprocess.Popen[str]

    def ask(self, order: Mapping[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def prepared_commands() -> Iterator[Commands]:
    """A process that runs commands of a study."""
    with prepared_process("faults.commands") as process:
        yield Commands(process)


@dataclass
class StruckStudy:
    """In ``folder``: a folder for each party. ``heals``: seconds after which the machine fails no longer."""

    commands: Commands
    folder: Path
    ports: Sequence[int]
    protocol: str = "cordp-dme"
    heals: float = 4.0
    endings: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in NAMES})

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        write_roster(self.folder, on_this_machine(NAMES, self.ports))
        for index, name in enumerate(NAMES):
            place = self.folder / name
            place.mkdir()
            (self.folder / f"{name}.key").rename(place / f"{name}.key")
            (place / "roster.toml").write_text((self.folder / "roster.toml").read_text())
            study = of_ages(epsilon=4.0, colluding=1, dropouts=0.0, protocol=self.protocol, start_timeout=90.0)
            (place / "study.toml").write_text(study)
            (place / "ages.csv").write_text("age\n" + "\n".join(map(str, range(20 + index, 60))) + "\n")
            (place / "policy.toml").write_text(toml({"policy": {"unattended": True}}))
            (place / "policy.toml").chmod(0o600)
        self.faults = Faults(self.folder / "faults")

    def run(self, *rules: Rule, modules: Path | None = None) -> list[str]:
        """What is wrong: nothing, where all have one result, or a sentence with 3."""
        self.faults.set(list(rules))
        running = {self._start(name, modules): name for name in NAMES}
        try:
            return self._until_all_ended(running, [rule for rule in rules if rule.action == "keep"])
        finally:
            for process in running:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            while running and self.commands.ask({"seconds": 1.0}):
                pass

    def calls(self) -> list[Call]:
        return self.faults.calls()

    @property
    def place(self) -> Path:
        """What belongs to the party that is struck."""
        return self.folder / STRUCK

    def _start(self, name: str, modules: Path | None = None) -> int:
        place = self.folder / name
        told = self.folder / f"told-{name}.{len(self.endings[name])}"
        line = [*_JOIN.split(), "--key", f"{name}.key", "--new-account", name]
        environment = {f"XDG_{kind}_HOME": str(place / kind.lower()) for kind in ("DATA", "CONFIG", "CACHE")}
        environment["MPLCONFIGDIR"] = str(self.folder.parent / "matplotlib")
        environment["QUIETMEAN_FAULTS"] = str(self.faults.folder) if name == STRUCK else ""
        files = {"out": f"{told}.out", "err": f"{told}.err", "modules": str(modules) if modules and name == STRUCK else ""}
        return int(self.commands.ask({"line": line, "folder": str(place), "environment": environment, **files}))

    def _until_all_ended(self, running: dict[int, str], healed: list[Rule]) -> list[str]:
        begun = time.monotonic()
        while running:
            if time.monotonic() > begun + self.heals:
                self.faults.set(healed)
            if time.monotonic() > begun + _PATIENCE:
                return [f"{', '.join(running.values())}: no end in {_PATIENCE:.0f} s, {self._said()}"]
            for process, code in self.commands.ask({"seconds": 0.3}).items():
                name = running.pop(int(process))
                self.endings[name].append(code)
                if code in (75, -signal.SIGKILL):
                    if len(self.endings[name]) > 8:
                        return [f"{name} does not come through: {self.endings[name]}, {self._said()}"]
                    running[self._start(name)] = name
        return self._wrong()

    def _wrong(self) -> list[str]:
        wrong = [f"{name} ends with {codes}: {self._said()}" for name, codes in self.endings.items() if codes[-1] not in (0, 3)]
        results = {name: self._result(name) for name, codes in self.endings.items() if codes[-1] == 0}
        first, *others = [result["estimate"] for result in results.values()] or [None]
        # Some protocols round differently at each party.
        if any(other != pytest.approx(first, rel=1e-9) for other in others):
            wrong.append(f"different results: {results}")
        if wrong or len(results) < len(NAMES):
            return wrong or [f"no result: {self.endings}, {self._said()}"]
        for text in (path.read_text() for path in self.folder.glob("*.err")):
            wrong += [f"a defect: {text}" for word in _DEFECT if word in text]
        for name in NAMES:
            with Ledger.open(self.folder / name / "own.ledger") as book:
                entries = book.account(name).entries
            if len(entries) != 1 or not entries[0].settled:
                wrong.append(f"the ledger of {name} has {entries}")
            receipt = json.loads((self.folder / name / "receipt.json").read_text())
            audit = next((self.folder / name).rglob("audit*"))
            found = verify(AuditLog(audit), {})
            if found.faults or "origin" not in receipt:
                wrong.append(f"the audit log of {name} has {found.faults}")
        return wrong

    def _result(self, name: str) -> dict[str, Any]:
        text = (self.folder / f"told-{name}.{len(self.endings[name]) - 1}.out").read_text()
        result: dict[str, Any] = json.loads(text)
        return result

    def _said(self) -> str:
        return " | ".join(f"{path.name}: {path.read_text()[-300:]}" for path in sorted(self.folder.glob("*.err")))
