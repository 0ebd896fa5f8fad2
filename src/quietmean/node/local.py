"""All parties of a study on this machine, each a real process that talks TLS over loopback, with throw-away keys."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import PartyId, Vector
from quietmean.node.child import ChildSettings
from quietmean.node.identity import Identity
from quietmean.node.result import NodeResult
from quietmean.node.roster import Roster, RosterEntry
from quietmean.planning import Plan

_LOOPBACK = "127.0.0.1"
# The parties share this machine's cores: one thread each.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

LocalReport: TypeAlias = Callable[[str, dict[str, Any]], None]


def _silent(name: str, event: dict[str, Any]) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class Kill:
    """SIGKILL ``party`` as it enters mixing ``round``; start it again ``restart_after`` seconds later, or never."""

    party: PartyId
    round: int
    restart_after: float | None = None


@dataclass(frozen=True)
class LocalOutcome:
    """``results`` of the parties that finished, ``failures`` (messages) of those that gave up, ``killed`` for good or not.

    ``messages`` and ``bytes_sent`` are sums over the results; ``seconds`` is wall-clock time.
    """

    results: dict[PartyId, NodeResult]
    failures: dict[PartyId, str]
    killed: tuple[PartyId, ...]
    seconds: float
    messages: int
    bytes_sent: int


async def run_local(
    plan: Plan,
    values: Vector,
    directory: Path,
    *,
    weights: NDArray[np.float64] | None = None,
    round_timeout: float = 10.0,
    start_timeout: float = 60.0,
    gone_timeout: float | None = None,
    kills: Sequence[Kill] = (),
    report: LocalReport = _silent,
) -> LocalOutcome:
    """Run a study on values (n, d). ``directory`` is made (mode 0700) and holds keys, values, stores, logs and results.

    Raises :class:`InputError` for impossible settings and :class:`ProtocolFailure` if no party finished.
    """
    _check(plan, values, kills, directory)
    weights = np.ones(len(values)) if weights is None else weights
    run = _LocalRun(plan, values, weights, directory, (round_timeout, start_timeout, gone_timeout), kills, report)
    return await run.run()


def _check(plan: Plan, values: Vector, kills: Sequence[Kill], directory: Path) -> None:
    target = plan.target
    if values.shape != (target.parties, target.dimension):
        raise InputError(
            f"the values have shape {values.shape} but the plan is for {(target.parties, target.dimension)}: make them agree"
        )
    for kill in kills:
        if not 0 <= kill.party < target.parties:
            raise InputError(f"party {kill.party} to be killed does not exist: parties are numbered 0..{target.parties - 1}")
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise InputError(f"work directory {directory} cannot be made ({error.strerror}): name a new one") from None


class _LocalRun:
    def __init__(
        self,
        plan: Plan,
        values: Vector,
        weights: NDArray[np.float64],
        directory: Path,
        timeouts: tuple[float, float, float | None],
        kills: Sequence[Kill],
        report: LocalReport,
    ) -> None:
        self._directory = directory.resolve()
        self._values = values
        self._weights = weights
        self._round_timeout, self._start_timeout, self._gone_timeout = timeouts
        self._kills = {kill.party: kill for kill in kills}
        self._report = report
        self._names = [f"party-{party:0{len(str(len(values) - 1))}d}" for party in range(len(values))]
        self._processes: dict[PartyId, Process] = {}
        self._killed: list[PartyId] = []
        self._failures: dict[PartyId, str] = {}
        self._write("plan.json", json.dumps(plan.to_json()).encode())

    async def run(self) -> LocalOutcome:
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            # Bound but not listening: they hold the ports for a restart and take no connection themselves.
            reserved = [stack.enter_context(_bound_socket(0)) for _ in self._names]
            ports = [holder.getsockname()[1] for holder in reserved]
            self._write_roster(ports)
            listening = [_bound_socket(port, listen=True) for port in ports]
            try:
                await asyncio.gather(*(self._supervise(party, ports[party], listening[party]) for party in range(len(ports))))
            finally:
                for waiting in listening:
                    waiting.close()
                await self._reap()
        return self._outcome(time.monotonic() - started)

    async def _supervise(self, party: PartyId, port: int, listening: socket.socket) -> None:
        kill = self._kills.get(party)
        await self._start(party, listening, kill.round if kill else None)
        await self._follow(party)
        if party in self._killed and kill is not None and kill.restart_after is not None:
            await asyncio.sleep(kill.restart_after)
            await self._start(party, _bound_socket(port, listen=True), None)
            await self._follow(party)

    async def _start(self, party: PartyId, listening: socket.socket, freeze_round: int | None) -> None:
        with listening, (self._directory / f"{self._names[party]}.log").open("ab") as log:
            settings = self._settings(party, listening.fileno(), freeze_round)
            path = self._write(f"{self._names[party]}.settings.json", msgspec.json.encode(settings))
            self._processes[party] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "quietmean.node.child",
                str(path),
                stdout=PIPE,
                stderr=log,
                pass_fds=[listening.fileno()],
                env=os.environ | _ONE_THREAD,
            )

    def _settings(self, party: PartyId, descriptor: int, freeze_round: int | None) -> ChildSettings:
        stem = str(self._directory / self._names[party])
        return ChildSettings(
            key=f"{stem}.key",
            roster=str(self._directory / "roster.toml"),
            plan=str(self._directory / "plan.json"),
            value=self._values[party].tolist(),
            weight=float(self._weights[party]),
            store=f"{stem}.store",
            result=f"{stem}.result.json",
            round_timeout=self._round_timeout,
            start_timeout=self._start_timeout,
            listen_fd=descriptor,
            gone_timeout=self._gone_timeout,
            freeze_round=freeze_round,
        )

    async def _follow(self, party: PartyId) -> None:
        """Read a child's progress until its end; kill it where that was asked for."""
        process, kill = self._processes[party], self._kills.get(party)
        if process.stdout is None:
            return
        async for line in process.stdout:
            event = json.loads(line)
            self._report(self._names[party], event)
            if event["event"] == "error":
                self._failures[party] = event["message"]
            due = kill is not None and event["event"] == "round" and event["phase"] == "mixing" and event["round"] == kill.round
            if due and party not in self._killed:
                self._killed.append(party)
                process.kill()
        code = await process.wait()
        if code > 0:
            self._failures.setdefault(party, f"the process ended with exit code {code}, see {self._names[party]}.log")

    async def _reap(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
        # Reading to the end closes the pipes too.
        await asyncio.gather(*(process.communicate() for process in self._processes.values()), return_exceptions=True)

    def _outcome(self, seconds: float) -> LocalOutcome:
        results = {}
        for party, name in enumerate(self._names):
            path = self._directory / f"{name}.result.json"
            if path.exists():
                results[party] = NodeResult.from_json(json.loads(path.read_bytes()))
        if not results:
            reasons = "; ".join(f"{self._names[party]}: {reason}" for party, reason in sorted(self._failures.items()))
            raise ProtocolFailure(f"no party finished the study: {reasons or 'all were killed'}")
        return LocalOutcome(
            results=results,
            failures=self._failures,
            killed=tuple(self._killed),
            seconds=seconds,
            messages=sum(result.transfers for result in results.values()),
            bytes_sent=sum(result.bytes_sent for result in results.values()),
        )

    def _write_roster(self, ports: Sequence[int]) -> None:
        entries = []
        for name, port in zip(self._names, ports, strict=True):
            identity = Identity.generate()
            identity.save(self._directory / f"{name}.key")
            entries.append(RosterEntry(name, (_LOOPBACK, port), identity.public_key))
        self._write("roster.toml", Roster(tuple(entries)).to_toml().encode())

    def _write(self, name: str, content: bytes) -> Path:
        path = self._directory / name
        # The directory is the owner's alone, and so are all files in it.
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path


def _bound_socket(port: int, listen: bool = False) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((_LOOPBACK, port))
    if listen:
        bound.listen(128)
    return bound
