"""A node that ends tells those who are connected why: nobody is asked whether one that was stopped has started."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from quietmean.core.errors import NotYet, ProtocolFailure, StorageError
from quietmean.node.net import Ending
from support.command_lines import command, ending
from support.rosters import on_this_machine, write_roster
from support.site_policy import write_policy
from support.smallest_study import of_ages

NAMES = ("north", "south", "east")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (None, Ending.OVER),
        (KeyboardInterrupt, Ending.STOPPED),
        (NotYet, Ending.LATER),
        (StorageError, Ending.OUTAGE),
        (MemoryError, Ending.OUTAGE),
        (ProtocolFailure, Ending.FAILED),
        (ValueError, Ending.FAILED),
    ],
)
def test_each_end_has_its_word(kind: type[BaseException] | None, why: Ending) -> None:
    assert Ending.of(kind) is why
    assert len({each.in_words for each in Ending}) == len(Ending)


def test_who_waits_is_told_that_another_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_policy(unattended=True)
    for name in NAMES:
        Path(f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20, 60))))
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(3)))
    Path("study.toml").write_text(
        of_ages(epsilon=4.0, colluding=1, protocol="packed-sharing", round_timeout=20.0, start_timeout=25.0)
    )

    def join(name: str) -> list[str]:
        files = ["--roster", "roster.toml", "--key", f"{name}.key", "--data", f"{name}.csv", "--store", f"{name}.store"]
        return ["join", "study.toml", *files, "--receipt", f"{name}.json", "--no-ledger", "--yes", "--events", f"{name}.events"]

    running = {name: command(tmp_path, *join(name)) for name in ("north", "east")}
    try:
        deadline = time.monotonic() + 60
        # Both have heard of each other: south alone is waited for.
        while not all('["south"]' in _text(name) for name in running):
            assert time.monotonic() < deadline, [_text(name) for name in running]
            time.sleep(0.1)
        running["east"].send_signal(signal.SIGTERM)
        assert ending(running["east"])[0] == 130
        code, _, errors = ending(running["north"])
    finally:
        for process in running.values():
            process.kill()
    assert code == 3
    assert "east: it was stopped, and goes on by the same command" in errors
    assert "south: nobody listens at its address" in errors
    assert "has it started" not in errors
    assert '"event": "ended", "peer": "east"' in _text("north")


def _text(name: str) -> str:
    path = Path(f"{name}.events")
    return path.read_text() if path.exists() else ""
