"""Studies between processes of ``quietmean join``, some of them killed: each has a key, files, a ledger and a port of its own.

Parties are forks of one prepared process (:mod:`join_server`): on two cores, importing took longer than studies. All else is what
a person starts: the command with its arguments, its default options, sockets, a store on disk and SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.local.fork_launcher import ForkLauncher
from quietmean.node.local.processes import PartyProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.ports import reserved

SERVER = str(Path(__file__).with_name("join_server.py"))
# Nobody sits at these sites. They also take part where no epsilon is promised beforehand.
POLICY = "[policy]\nunattended = true\nlargest_epsilon = inf\n"
# How often the victim's events are counted, and how long a study may take at most (s).
LOOK, MOST = 0.02, 300.0


@dataclass(frozen=True)
class Kill:
    """SIGKILL for ``party`` after so many ``events`` and ``after`` seconds; started again ``away`` seconds later, or never."""

    party: int
    events: int
    after: float = 0.0
    away: float | None = None


@dataclass(frozen=True)
class Site:
    """A party's folder: its key, data and ledger; what it wrote."""

    folder: Path
    name: str
    address: tuple[str, int]

    def write(self, data: str) -> RosterEntry:
        """Its key, ``data`` (CSV) and policy. Returns its public entry."""
        settings = self.folder / "config" / "quietmean"
        settings.mkdir(parents=True)
        (settings / "policy.toml").write_text(POLICY)
        (settings / "policy.toml").chmod(0o600)
        (self.folder / f"{self.name}.csv").write_text(data)
        identity = Identity.generate()
        identity.save(self.folder / "quietmean.key")
        return RosterEntry(self.name, self.address, identity.public_key)

    def order(self, more: Sequence[str], answer_only: bool) -> Path:
        """The file that says what its process does: ``quietmean join`` as its person types it."""
        arguments = ["join", "study.toml", "--roster", "roster.toml", "--data", f"{self.name}.csv", "--yes", "--json"]
        environment = {"XDG_CONFIG_HOME": str(self.folder / "config"), "XDG_DATA_HOME": str(self.folder / "data")}
        order = {
            "arguments": [*arguments, "--events", "events.jsonl", *more],
            "folder": str(self.folder),
            "environment": environment,
            "answer_only": answer_only,
        }
        path = self.folder / "order.json"
        path.write_text(json.dumps(order))
        return path

    @property
    def events(self) -> list[bytes]:
        """What it has reported, a JSON object a line."""
        path = self.folder / "events.jsonl"
        return path.read_bytes().splitlines() if path.exists() else []

    def is_due(self, kill: Kill) -> bool:
        """Who leaves for good does so once the study has begun, which needs all."""
        events = self.events
        return len(events) >= kill.events and (kill.away is not None or any(b'"event": "round"' in line for line in events))

    @property
    def said(self) -> str:
        """The last of what it wrote to standard error."""
        return (self.folder / "stderr.txt").read_text(errors="replace")[-2000:]


@dataclass(frozen=True)
class Joined:
    """A study that is over: result documents by party, the events of each, and whether the victim was killed before its end."""

    documents: Mapping[int, dict[str, Any]]
    receipts: Mapping[int, Path]
    events: Mapping[int, int]
    struck: bool
    failures: Mapping[int, str]


class Machine:
    """Starts studies; parties of several may run at once."""

    def __init__(self, launcher: ForkLauncher) -> None:
        self._launcher = launcher

    @classmethod
    @contextlib.asynccontextmanager
    async def ready(cls) -> AsyncIterator[Machine]:
        async with ForkLauncher(Path(SERVER), (SERVER,)) as launcher:
            yield cls(launcher)

    async def study(
        self,
        folder: Path,
        text: str,
        tables: Sequence[str],
        *,
        kill: Kill | None = None,
        more: Sequence[str] = (),
        answer_only: bool = False,
    ) -> Joined:
        """All parties of the study file ``text`` join it, with CSV ``tables``, one each; ``more`` arguments for each.

        ``answer_only``: without the pages and the forecast beside the answer.
        """
        with reserved(len(tables)) as ports:
            sites = [Site(folder / f"site-{party}", f"site-{party}", ("127.0.0.1", port)) for party, port in enumerate(ports)]
            roster = Roster(tuple(site.write(table) for site, table in zip(sites, tables, strict=True))).to_toml()
            for site in sites:
                (site.folder / "roster.toml").write_text(roster)
                (site.folder / "study.toml").write_text(text)

            async def start(order: Path, log: BinaryIO) -> PartyProcess:
                with socket.socket() as unused:
                    return await self._launcher.start(order, unused, log)

            strikes = [kill if kill and kill.party == at else None for at in range(len(sites))]
            found = [
                Party(site, site.order(more, answer_only), start, strike) for site, strike in zip(sites, strikes, strict=True)
            ]
            await asyncio.wait_for(asyncio.gather(*(party.take_part() for party in found)), MOST)
        return Joined(
            {at: party.document for at, party in enumerate(found) if party.document is not None},
            {at: party.site.folder / f"study-{party.site.name}.receipt.json" for at, party in enumerate(found)},
            {at: len(party.site.events) for at, party in enumerate(found)},
            any(party.struck for party in found),
            {at: party.site.said for at, party in enumerate(found) if party.document is None},
        )


class Party:
    """The processes of one party, one after the other."""

    def __init__(
        self, site: Site, order: Path, start: Callable[[Path, BinaryIO], Awaitable[PartyProcess]], kill: Kill | None
    ) -> None:
        self.site, self.struck = site, False
        self.document: dict[str, Any] | None = None
        self._order, self._start, self._kill = order, start, kill

    async def take_part(self) -> None:
        await self._run(self._kill)
        if self.struck and self._kill is not None and self._kill.away is not None:
            await asyncio.sleep(self._kill.away)
            await self._run(None)

    async def _run(self, kill: Kill | None) -> None:
        with (self.site.folder / "stderr.txt").open("ab") as log:
            process = await self._start(self._order, log)
        strike = None if kill is None else asyncio.create_task(self._strike(process, kill))
        try:
            output = b"" if process.stdout is None else await process.stdout.read()
            if await process.wait() == 0:
                self.document = json.loads(output)
        finally:
            if strike is not None:
                strike.cancel()
            process.kill()

    async def _strike(self, process: PartyProcess, kill: Kill) -> None:
        while not self.site.is_due(kill):
            await asyncio.sleep(LOOK)
        await asyncio.sleep(kill.after)
        if process.returncode is None:
            self.struck = True
            process.kill()


if sys.platform != "linux":
    raise SystemExit("processes are forked on Linux only")
