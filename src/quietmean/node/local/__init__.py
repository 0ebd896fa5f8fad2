"""A local run: all parties of a study on one machine, in one process or each in one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

import msgspec
import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import Links
from quietmean.core.errors import InputError, QuietmeanError
from quietmean.core.outage import refuse_outage
from quietmean.core.party import PartyId, Vector
from quietmean.core.readable import printable
from quietmean.node.local.outcome import Kill, LocalOutcome, LocalReport, names_of, outcome_of, report_nothing, require_run
from quietmean.node.local.processes import PARTY, ChildSettings, ExecLauncher, Launcher, PartyProcess
from quietmean.node.local.together import run_together
from quietmean.node.net import Address, Identity, Roster, RosterEntry
from quietmean.node.session import NodeResult, refusal
from quietmean.node.tasks import Supervisor, Tasks
from quietmean.planning import Plan
from quietmean.protocols.execution import Execution

_LOOPBACK = "127.0.0.1"

# Given the addresses where the parties listen: for each party, the addresses at which it dials all parties. Proxies may run while
# the context is open.
ProxyFactory: TypeAlias = Callable[[Sequence[Address]], AbstractAsyncContextManager[Sequence[Sequence[Address]]]]
# A round's time-out that nobody names, in seconds: at least, and for each party. It grows as the start of an interpreter takes
# longer than ``_PREPARED``, to so many times that at most: the parties compute on this machine beside its other work.
_ROUND, _ROUND_EACH, _PREPARED, _LONGEST = 10.0, 0.1, 1.0, 30.0


class LocalKeywords(TypedDict, total=False):
    """How the parties of :func:`run_local` run; time-outs are in seconds. ``round_timeout`` None: as this machine is busy."""

    round_timeout: float | None
    start_timeout: float
    gone_timeout: float | None
    report: LocalReport
    program: Sequence[str] | None
    links: Links


async def run_local(
    plan: Plan,
    values: Vector,
    directory: Path,
    *,
    weights: Array | None = None,
    kills: Sequence[Kill] = (),
    proxies: ProxyFactory | None = None,
    **how: Unpack[LocalKeywords],
) -> LocalOutcome:
    """Run a study on values (n, d). ``directory`` is made (mode 0700) and holds keys, values, stores, logs and results.

    ``proxies``: makes proxies that the parties dial instead of each other, for example slow or lossy ones.
    ``program``: Python's arguments for the process of a party, started by exec with the arguments of
    :mod:`quietmean.node.local.child`; by default forks of one prepared process where the system can, else that module.
    ``links``: which keys protect what the processes tell each other. Stores outlive every process, but no power cut.
    Raises :class:`InputError` for impossible settings, :class:`ProtocolFailure` if no party finished, and of these
    :class:`GateRefused` if the gate before the release let no result out.
    """
    _check(plan, values, kills, directory)
    weights = np.ones(len(values)) if weights is None else weights
    run = _LocalRun(plan, values, weights, directory, kills, how)
    return await run.run(proxies or _straight)


@contextlib.asynccontextmanager
async def _straight(listening: Sequence[Address]) -> AsyncIterator[Sequence[Sequence[Address]]]:
    """A context without proxies: all dial where the others listen."""
    yield [listening] * len(listening)


def _check(plan: Plan, values: Vector, kills: Sequence[Kill], directory: Path) -> None:
    require_run(plan, values, kills)
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        refuse_outage(error, directory)
        raise InputError(f"work directory {directory} cannot be made ({error.strerror}). Name a new one.") from None


class _LocalRun:
    def __init__(
        self, plan: Plan, values: Vector, weights: Array, directory: Path, kills: Sequence[Kill], how: LocalKeywords
    ) -> None:
        self._directory = directory.resolve()
        self._values = values
        self._weights = weights
        named, self._start_timeout = how.get("round_timeout", 10.0), how.get("start_timeout", 60.0)
        self._measures = named is None
        self._round_timeout = patience(len(values), 0.0) if named is None else named
        self._gone_timeout = how.get("gone_timeout")
        self._kills = {party: [kill for kill in kills if kill.party == party] for party in range(len(values))}
        self._report, self._program = how.get("report", report_nothing), how.get("program")
        self._links = how.get("links", Links.X25519)
        self._names = names_of(len(values))
        self._processes: dict[PartyId, PartyProcess] = {}
        self._launcher: Launcher
        self._killed: list[PartyId] = []
        self._failures: dict[PartyId, str] = {}
        self._begun = self._hopeless = False
        self._supervisor = Supervisor()
        self._strikes = Tasks(self._supervisor.fail)
        self._plan = self._write("plan.json", json.dumps(plan.to_json()).encode())

    async def run(self, proxies: ProxyFactory) -> LocalOutcome:
        started = time.monotonic()
        _require_loopback()
        async with _launching(self._program, self._plan) as launcher, contextlib.AsyncExitStack() as stack:
            self._launcher = launcher
            if self._measures:
                await launcher.prepare()
                self._round_timeout = patience(len(self._names), time.monotonic() - started)
            # Bound but not listening: they reserve the ports for a restart and accept no connection.
            reserved = [stack.enter_context(_bound_socket(0)) for _ in self._names]
            ports = [holder.getsockname()[1] for holder in reserved]
            self._write_rosters(await stack.enter_async_context(proxies([(_LOOPBACK, port) for port in ports])))
            listening = [_bound_socket(port, listen=True) for port in ports]
            try:
                await self._supervisor.run(self._live_all(ports, listening))
            finally:
                await self._strikes.stop()
                for waiting in listening:
                    waiting.close()
                await self._reap()
        return self._outcome(time.monotonic() - started)

    async def _live_all(self, ports: Sequence[int], listening: Sequence[socket.socket]) -> None:
        await asyncio.gather(*(self._supervise(party, ports[party], listening[party]) for party in range(len(ports))))

    async def _supervise(self, party: PartyId, port: int, listening: socket.socket) -> None:
        """Run the consecutive processes of a party."""
        for kill in self._kills[party]:
            if not await self._live(party, listening, kill) or kill.restart_after is None:
                return
            await asyncio.sleep(kill.restart_after)
            listening = _bound_socket(port, listen=True)
        await self._live(party, listening, None)

    async def _live(self, party: PartyId, listening: socket.socket, kill: Kill | None) -> bool:
        """Run one process until its end; whether ``kill`` ended it."""
        deaths = len(self._killed)
        await self._start(party, listening, kill.freeze_round if kill else None)
        if self._hopeless:
            self._processes[party].kill()
        await self._follow(party, kill)
        return party in self._killed[deaths:]

    async def _start(self, party: PartyId, listening: socket.socket, freeze_round: int | None) -> None:
        with listening, (self._directory / f"{self._names[party]}.log").open("ab") as log:
            settings = self._settings(party, freeze_round)
            path = self._write(f"{self._names[party]}.settings.json", msgspec.json.encode(settings))
            self._processes[party] = await self._launcher.start(path, listening, log)

    def _settings(self, party: PartyId, freeze_round: int | None) -> ChildSettings:
        stem = str(self._directory / self._names[party])
        return ChildSettings(
            key=f"{stem}.key",
            roster=f"{stem}.roster.toml",
            plan=str(self._plan),
            value=str(self._write(f"{self._names[party]}.value", self._values[party].astype("<f8").tobytes())),
            weight=float(self._weights[party]),
            store=f"{stem}.store",
            result=f"{stem}.result.json",
            round_timeout=self._round_timeout,
            start_timeout=self._start_timeout,
            gone_timeout=self._gone_timeout,
            freeze_round=freeze_round,
            links=str(self._links),
        )

    async def _follow(self, party: PartyId, kill: Kill | None) -> None:
        """Read the events of a child process until it ends; kill it where ``kill`` says."""
        process, strike, deaths = self._processes[party], None, len(self._killed)
        if process.stdout is None:
            return
        async for line in process.stdout:
            event = json.loads(line)
            self._report(self._names[party], event)
            self._begun |= event["event"] in ("round", "closing", "done")
            if event["event"] == "error":
                self._failures[party] = event["message"]
            if kill is not None and strike is None and kill.is_due(event):
                strike = self._strikes.spawn(self._strike(party, process, kill.after or 0.0))
        code = await process.wait()
        if strike is not None:
            strike.cancel()
        # By whom else than by this run: by a system that is out of memory, for example.
        killed = code < 0 and not self._hopeless and party not in self._killed[deaths:]
        if code > 0 or killed:
            how = f"was killed by signal {-code}" if killed else f"ended with exit code {code}"
            # The log goes with the directory.
            self._failures.setdefault(party, f"the process {how}{self._end_of_log(party)}")
            if not self._begun:
                self._give_up()

    def _give_up(self) -> None:
        """A study starts with all parties: without one of them the others would only wait."""
        self._hopeless = True
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()

    def _end_of_log(self, party: PartyId) -> str:
        """Its last line, which for a defect is where it was and of which kind; empty if there is none."""
        lines = (self._directory / f"{self._names[party]}.log").read_text(errors="replace").split("\n")
        sentences = [line.strip() for line in lines if line.strip()]
        return f" ({printable(sentences[-1])})" if sentences else ""

    async def _strike(self, party: PartyId, process: PartyProcess, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if process.returncode is None:
            self._killed.append(party)
            process.kill()

    async def _reap(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
        # Reading to the end closes the pipes too.
        await asyncio.gather(*map(_read_to_end, self._processes.values()), return_exceptions=True)

    def _outcome(self, seconds: float) -> LocalOutcome:
        results: dict[PartyId, NodeResult] = {}
        # Large, and nearly always the same in all: each is read once.
        executions: list[tuple[Any, Execution]] = []
        errors: dict[PartyId, str | QuietmeanError] = {**self._failures}
        for party, name in enumerate(self._names):
            path = self._directory / f"{name}.result.json"
            if not path.exists():
                continue
            document = json.loads(path.read_bytes())
            if "refused" in document:
                errors[party] = refusal(document["refused"])
            else:
                results[party] = NodeResult.from_json(document, _read_once(document["execution"], executions))
        return outcome_of(self._names, results, errors, self._killed, seconds)

    def _write_rosters(self, addresses: Sequence[Sequence[Address]]) -> None:
        """Names and keys are the same in all rosters; addresses can differ, where proxies are between the parties."""
        identities = [Identity.generate() for _ in self._names]
        for name, identity, dialled in zip(self._names, identities, addresses, strict=True):
            identity.save(self._directory / f"{name}.key")
            entries = map(RosterEntry, self._names, dialled, [each.public_key for each in identities])
            self._write(f"{name}.roster.toml", Roster(tuple(entries)).to_toml().encode())

    def _write(self, name: str, content: bytes) -> Path:
        path = self._directory / name
        # The directory is the owner's alone, and so are all files in it.
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path


def patience(parties: int, start: float) -> float:
    """How long a round waits on a machine on which an interpreter took ``start`` to be ready; both in seconds."""
    return max(_ROUND, _ROUND_EACH * parties) * min(max(start / _PREPARED, 1.0), _LONGEST)


def _launching(program: Sequence[str] | None, plan: Path) -> AbstractAsyncContextManager[Launcher]:
    """What starts the parties of ``plan`` (a file): forks of a prepared process where that works, if ``program`` is None."""
    if program is None and sys.platform == "linux":
        from quietmean.node.local.fork_launcher import ForkLauncher

        return ForkLauncher(plan)
    return contextlib.nullcontext(ExecLauncher(program or PARTY))


def _read_once(document: Any, known: list[tuple[Any, Execution]]) -> Execution:
    """The execution of a document, which is that of an equal one if there was one."""
    for other, execution in known:
        if other == document:
            return execution
    known.append((document, Execution.from_json(document)))
    return known[-1][1]


async def _read_to_end(process: PartyProcess) -> None:
    if process.stdout is not None:
        await process.stdout.read()
    await process.wait()


def _require_loopback() -> None:
    """Raises :class:`InputError` where processes of this machine cannot reach each other: they would wait for each other."""
    with _bound_socket(0, listen=True) as door:
        try:
            socket.create_connection(door.getsockname(), timeout=5.0).close()
        except OSError as error:
            why = error.strerror or "no answer"
            raise InputError(
                f"parties on this machine talk over {_LOOPBACK}, which is unreachable ({why}). Bring the loopback interface up."
            ) from None


def _bound_socket(port: int, listen: bool = False) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.platform != "win32":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((_LOOPBACK, port))
    if listen:
        bound.listen(128)
    return bound


__all__ = ["Kill", "LocalOutcome", "run_local", "run_together"]
