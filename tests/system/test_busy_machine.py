"""A study on a machine that is busy: a round waits for who is slow as long as the machine is, unless a time-out is named."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.assumptions import QueryStatement
from quietmean.node import local as node_local
from quietmean.node.local import fork_launcher
from quietmean.node.local.processes import ExecLauncher, PartyProcess
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome import here, local

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="parties are forked on Linux only")

PARTIES, SLOW = 5, 1
# Other work takes the machine for a second at the start, and for four while a party computes: twice the time-out of a machine
# without any, and a tenth of the one here, which is at least 20 times as long.
BASE, PREPARED, START, PAUSE = 2.0, 0.05, 1.0, 4.0
LATE = f"""
import sys, time
from pathlib import Path
from quietmean.node.local import fork_server

time.sleep({START})
sys.exit(fork_server.main(Path(sys.argv[1]), int(sys.argv[2])))
"""


class BusyMachine(fork_launcher.ForkLauncher):
    """Starts late, and stops one party for a while when it has begun to mix."""

    def __init__(self, plan: Path) -> None:
        super().__init__(plan, ("-c", LATE))
        self.processes: list[PartyProcess] = []
        machines.append(self)

    async def start(self, settings: Path, listening: socket.socket, log: BinaryIO) -> PartyProcess:
        process = await super().start(settings, listening, log)
        if settings.name.startswith(f"party-{SLOW}"):
            self.processes.append(process)
        return process

    def pause(self) -> None:
        (slow,) = self.processes
        self.send(slow, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(PAUSE, self.send, slow, signal.SIGCONT)

    @staticmethod
    def send(process: PartyProcess, number: signal.Signals) -> None:
        assert isinstance(process, fork_launcher.ForkedProcess)
        if process.returncode is None:
            signal.pidfd_send_signal(process._handle, number)


machines: list[BusyMachine] = []


@pytest.mark.parametrize(
    "protocol", ["secagg", *(pytest.param(other, marks=pytest.mark.slow) for other in ("secagg-plus", "gopa", "inca"))]
)
def test_nobody_is_lost_who_is_slow(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_launcher, "ForkLauncher", BusyMachine)
    monkeypatch.setattr(node_local, "_ROUND", BASE)
    monkeypatch.setattr(node_local, "_PREPARED", PREPARED)
    machines.clear()
    study = StudyTerms.parse(
        {
            "name": "ages",
            "epsilon": 6.0,
            "protocol": protocol,
            "dropouts": 1 / PARTIES,
            "colluding": 0,
            "options": {"rounds": 4} if protocol == "inca" else {},
            "column": [{"name": "age", "low": 0, "high": 100}],
        }
    )
    plan, paused = study.plan(PARTIES), list[str]()
    encoded = [study.workload.encode(np.full((20, 1), 50.0), step=plan.value_step) for _ in range(PARTIES)]

    def report(name: str, event: dict[str, Any]) -> None:
        if name == f"party-{SLOW}" and event["event"] == "round" and event["phase"] == "mixing" and not paused:
            paused.append(name)
            machines[0].pause()

    found = local.run_study(
        study,
        plan,
        encoded,
        [str(party) for party in range(PARTIES)],
        kills=[],
        round_timeout=None,
        report=report,
        processes=True,
    )
    assert paused
    assert found.outcome.execution.trace.finished.all()
    assert found.sent_by == f"all {PARTIES} parties"
    assert not found.remark


@pytest.mark.parametrize(
    ("parties", "seconds", "expected"),
    [(5, 0.3, 10.0), (5, 1.0, 10.0), (5, 9.0, 90.0), (5, 1000.0, 300.0), (200, 0.3, 20.0), (200, 9.0, 180.0)],
)
def test_a_round_waits_longer_as_processes_start_more_slowly(parties: int, seconds: float, expected: float) -> None:
    assert node_local.patience(parties, seconds) == pytest.approx(expected)


def test_other_systems_measure_the_start_of_an_interpreter() -> None:
    """There each party is an interpreter of its own, and one more is started first."""

    async def started() -> Sequence[str]:
        begun, told = [], []
        start = asyncio.create_subprocess_exec

        async def told_of(*arguments: str, **how: Any) -> asyncio.subprocess.Process:
            begun.append(await start(*arguments, **how))
            told.append(arguments[-1])
            return begun[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "create_subprocess_exec", told_of)
            await ExecLauncher(("-c", "")).prepare()
        assert [process.returncode for process in begun] == [0], "it has ended when this returns"
        return told

    assert asyncio.run(started()) == ["import quietmean.node.local.child"]


@pytest.mark.parametrize("named", [None, 1.5, 10.0, 40.0])
def test_a_named_time_out_is_kept(named: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds that are named, too, are not those of the default."""

    class Begun(Exception):
        pass

    def begin(*_: Any, **how: Any) -> None:
        begun.append(how["round_timeout"])
        raise Begun

    begun: list[float | None] = []
    monkeypatch.setattr(local, "run_local", begin)
    study = qm.Study({"age": (0, 100)}, "mean(age)", epsilon=6.0, protocol="secagg", colluding=0, round_timeout=named)
    terms = study.terms
    encoded = [terms.workload.encode(np.full((20, 1), 50.0)) for _ in range(200)]
    with contextlib.suppress(Begun):
        here.execute(
            terms, terms.plan(len(encoded)), encoded, [], QueryStatement(), report=lambda name, event: None, processes=True
        )
    assert begun == [named]
