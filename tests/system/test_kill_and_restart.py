"""Who is killed at any time and starts again by the same command takes part in all of it: in a study and in a session alike,
over connections of their own and at a relay."""

from __future__ import annotations

import asyncio
import contextlib
import json
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any, TypeVar

import numpy as np
import pytest

import quietmean as qm
from quietmean.node.net import Address
from support.command_lines import command, ending
from support.relays import RelayProcess
from support.rosters import on_this_machine, write_roster
from support.sessions import entry_of
from support.site_policy import write_policy

Result = TypeVar("Result")
NAMES = ("north", "south", "east")
ROUNDS = 3
TERMS = """
name = "both"
epsilon = 4.0
delta = 1e-6
colluding = 1
dropouts = 0.34
protocol = "cordp-dme"
round_timeout = 600.0
start_timeout = 600.0
"""
FILES = {
    "study": f'[study]{TERMS}[[column]]\nname = "age"\nlow = 0\nhigh = 100\n',
    "session": f"[session]{TERMS}dimension = 3\nrounds = {ROUNDS}\n",
}
# Each vector is made from the mean before it.
PROGRAM = """
import numpy as np
import quietmean as qm
rounds = qm.joined()
while not rounds.over:
    last = rounds.last()
    mean = rounds.mean(np.full(3, 0.1) if last is None else 0.5 * last.mean)
    print(mean.round, *mean.counted, mean.mean.tobytes().hex(), flush=True)
"""


@pytest.fixture(params=["connections", pytest.param("relay", marks=pytest.mark.slow)])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> Iterator[None]:
    """A folder with what each party has."""
    monkeypatch.chdir(tmp_path)
    write_policy(unattended=True)
    Path("program.py").write_text(PROGRAM)
    for index, name in enumerate(NAMES):
        Path(f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20 + index, 60))))
    port, *ports = free_ports(4)
    with contextlib.ExitStack() as stack:
        places: dict[str, Address] = on_this_machine(NAMES, ports)
        if request.param == "relay":
            places = dict.fromkeys(NAMES, stack.enter_context(RelayProcess(port)).address)
        write_roster(tmp_path, places)
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message=".*is made in.*")
        yield


class Killed:
    """East, as a process that is killed and started again. ``given``: what it takes part with."""

    def __init__(self, *given: str) -> None:
        agreed = ["agreed.toml", "--roster", "roster.toml", "--key", "east.key", "--receipt", "east.json", "--yes"]
        self._line = ["join", *agreed, *given, "--new-account", "east", "--ledger", "east.ledger"]
        self.processes: list[Popen[str]] = []
        self.start()

    def start(self) -> None:
        self.processes.append(command(Path(), *self._line, "--events", f"{len(self.processes)}.events"))

    def events(self) -> list[dict[str, Any]]:
        path = Path("0.events")
        # The last line may be half written.
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    async def kill(self, when: Callable[[list[dict[str, Any]]], bool]) -> None:
        """As soon as its events are so. It starts again at once."""
        while not when(self.events()):
            assert self.processes[0].poll() is None, self.processes[0].communicate()
            await asyncio.sleep(0.001)
        self.processes[0].kill()
        self.processes[0].wait()
        self.start()

    async def ending(self) -> str:
        """What it prints in both lives; the first one is killed, the second one ends well."""
        (first, begun, _), (second, printed, errors) = [await asyncio.to_thread(ending, process) for process in self.processes]
        assert (first, second) == (-9, 0), errors
        return begun + printed


async def story(
    killed: Killed,
    when: Callable[[list[dict[str, Any]]], bool],
    others: Sequence[Coroutine[Any, Any, Result]],
    back: asyncio.Event,
) -> tuple[str, list[Result]]:
    """What east prints, and what the others have, where it is killed as soon as its events are so; it is ``back`` then."""
    try:
        async with asyncio.timeout(900.0), asyncio.TaskGroup() as group:
            parts = [group.create_task(other) for other in others]
            await killed.kill(when)
            back.set()
            printed = await killed.ending()
        return printed, [part.result() for part in parts]
    finally:
        for process in killed.processes:
            process.kill()
            process.communicate()


def site_of(name: str) -> Any:
    return {"new_account": name, "ledger": f"{name}.ledger", "yes": True}


def charged(name: str) -> Any:
    paid = entry_of(name, Path(f"{name}.ledger"))
    assert paid.settled
    return paid.charged


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["agreement", "mixing", "dissemination"])
def test_in_a_phase_of_a_study(site: None, phase: str) -> None:
    Path("agreed.toml").write_text(FILES["study"])

    async def all_three() -> tuple[str, list[qm.StudyResult]]:
        parts = [qm.ajoin("agreed.toml", "roster.toml", f"{name}.key", data=f"{name}.csv", **site_of(name)) for name in NAMES[:2]]
        killed = Killed("--data", "east.csv", "--json")
        return await story(killed, lambda events: any(event["phase"] == phase for event in events), parts, asyncio.Event())

    printed, others = asyncio.run(all_three())
    east = json.loads(printed)
    assert east["not_counted"] == []
    assert [other.to_json()["estimate"] for other in others] == [east["estimate"]] * 2
    assert charged("east") == charged("north")


@pytest.mark.parametrize(
    "number", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), ROUNDS], ids="round {}".format
)
def test_in_a_round_of_a_session(site: None, number: int) -> None:
    """What it has sent of the round stays what it is: it makes the vector again, from the mean before."""
    Path("agreed.toml").write_text(FILES["session"])

    async def steady(name: str, back: asyncio.Event) -> list[str]:
        means = []
        async with qm.session("agreed.toml", "roster.toml", f"{name}.key", **site_of(name)) as rounds:
            while not rounds.over:
                if rounds.round + 1 == number:
                    await back.wait()
                last = rounds.last()
                mean = await rounds.mean(np.full(3, 0.1) if last is None else 0.5 * last.mean)
                means.append(" ".join([str(mean.round), *mean.counted, mean.mean.tobytes().hex()]))
        return means

    async def all_three() -> tuple[str, list[list[str]]]:
        back = asyncio.Event()
        parts = [steady(name, back) for name in NAMES[:2]]

        def in_round(events: list[dict[str, Any]]) -> bool:
            return [event.get("phase") for event in events].count("mixing") == number

        return await story(Killed("--program", "program.py"), in_round, parts, back)

    printed, (north, south) = asyncio.run(all_three())
    assert [line.split()[:4] for line in north] == [[str(round_), *NAMES] for round_ in range(1, ROUNDS + 1)]
    assert printed.splitlines()[:ROUNDS] == north == south
    assert json.loads(Path("east.json").read_text())["rounds"]["begun"] == ROUNDS
    assert charged("east") == charged("north")
