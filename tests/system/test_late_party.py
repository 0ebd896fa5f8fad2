"""A party that comes when the two others have their result: its process stood still, was killed, or was started so late."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from support.command_lines import command, ending
from support.rosters import on_this_machine, write_roster
from support.site_policy import BETWEEN_TWO, write_policy
from support.smallest_study import of_ages

NAMES = ("north", "south", "east")
# Seconds; after that any of these processes hangs.
LONGEST = 240


class Study:
    """Three parties in a folder, which is the current one, and the processes of those who have joined."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        self.running: dict[str, Popen[str]] = {}
        write_policy(**BETWEEN_TWO)
        write_roster(folder, on_this_machine(NAMES, ports))
        for name in NAMES:
            Path(f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20, 60))))

    def write(self, **fields: Any) -> None:
        Path("study.toml").write_text(of_ages(epsilon=4.0, dropouts=0.34, round_timeout=15.0, **fields))

    def join(self, *names: str) -> None:
        for name in names:
            files = ["--roster", "roster.toml", "--data", f"{name}.csv", "--key", f"{name}.key", "--store", f"{name}.store"]
            own = ["--receipt", f"{name}.json", "--events", f"{name}.events", "--no-ledger", "--yes", "--json"]
            self.running[name] = command(self.folder, "join", "study.toml", *files, *own)

    def wait_for(self, event: str, *names: str) -> None:
        """Wait until each of these parties says that it is there."""
        deadline = time.monotonic() + LONGEST
        while not all(f'"event": "{event}"' in said(name) for name in names):
            assert time.monotonic() < deadline, {name: said(name) for name in names}
            time.sleep(0.002)

    def result(self, name: str) -> dict[str, Any]:
        """As it prints it at its end."""
        code, output, errors = ending(self.running[name], LONGEST)
        assert code == 0, errors
        result: dict[str, Any] = json.loads(output)
        return result

    def counted(self, name: str) -> int:
        """Of how many parties its result is."""
        return int(self.result(name)["parties_counted"])


def said(name: str) -> str:
    path = Path(f"{name}.events")
    return path.read_text() if path.exists() else ""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]) -> Iterator[Study]:
    monkeypatch.chdir(tmp_path)
    found = Study(tmp_path, free_ports(3))
    try:
        yield found
    finally:
        for process in found.running.values():
            process.kill()
            process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGSTOP, signal.SIGKILL], ids=["stood still", "killed"])
def test_who_is_back_when_the_others_have_a_result(study: Study, signal_: signal.Signals) -> None:
    study.write(colluding=1, protocol="cordp-dme")
    study.join(*NAMES)
    study.wait_for("round", "east")
    # Perhaps its release has arrived at the others, perhaps not.
    study.running["east"].send_signal(signal_)
    if signal_ == signal.SIGSTOP:
        # They have a result and keep answering, as east is still connected.
        study.wait_for("closing", "north", "south")
        study.running["east"].send_signal(signal.SIGCONT)
        results = {name: study.result(name) for name in NAMES}
        assert results["east"]["parties_counted"] == 3
        assert {results[name]["parties_counted"] for name in ("north", "south")} <= {2, 3}
        # Each end says that there is another result, and whose.
        fewer = [name for name in ("north", "south") if results[name]["parties_counted"] == 2]
        for name in fewer:
            assert any("nothing published by east arrived here" in note for note in results[name]["notes"])
        there = [note for note in results["east"].get("notes", ()) if "is not in the result of" in note]
        told = f"what east published is not in the result of {' and '.join(fewer)}: that differs from this one"
        assert there == ([told] if fewer else [])
        return
    # Nobody listens at the address of a process that is dead: they do not keep answering until their last time-out.
    assert {study.counted(name) for name in ("north", "south")} <= {2, 3}
    study.running["east"].communicate()
    study.join("east")
    code, _, errors = ending(study.running["east"], LONGEST)
    assert code == 0 or (code == 3 and "the others had left or finished, ask one for the result" in errors), errors


@pytest.mark.slow
def test_who_starts_after_the_result_of_those_who_were_there(study: Study) -> None:
    start_by = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    study.write(colluding=0, protocol="packed-sharing", minimum=2, start_by=start_by, start_timeout=20.0)
    study.join("north", "south")
    assert [study.counted(name) for name in ("north", "south")] == [2, 2]
    study.join("east")
    code, _, errors = ending(study.running["east"], LONGEST)
    assert code == 3, errors
    assert "the study did not start by its time with 2 parties or more. There were east. None of this party's data left" in errors
    assert not Path("east.json").exists()
