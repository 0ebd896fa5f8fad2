"""Studies of real processes in every way in, under faults of disks, processes, clocks and the network: and a checker.

A seed says who takes part in what, and which faults come. All faults are over after ``HEALS`` seconds. Whoever was
killed, or ended because its machine can do nothing now (75), is started again, as a service manager does.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quietmean import FrameOfPersons
from quietmean.core.errors import ProtocolFailure, StorageError
from quietmean.ledger import Ledger
from quietmean.node import Identity
from quietmean.node.net import Purpose
from quietmean.protocols.committee.result import check_result, read_result
from quietmean.studies.agreement.contribution import DropLog, DropReceipt, session_of
from quietmean.studies.agreement.signed import signed_in
from quietmean.studies.outcome.feasible import feasible_sealed
from support.chaos_faults import ROUND, START, Fault
from support.injected import Faults, Rule
from support.ports import reserved
from support.proxy import GOOD, BadNetwork
from support.struck_study import Commands
from support.struck_ways import APART, CONTRIBUTE_IN, write_cell_policy
from support.ways_in import MEMBERS, NAMES, Cell, Consortium

# In seconds: when all faults are over, and what a busy machine takes besides.
HEALS, BESIDES = 4.0, 60.0
# A party asks for the length of a round where the others are, waits for half of one, and answers for one more.
ENDS = HEALS + START + 2.5 * ROUND + BESIDES
# As a service manager does it, in seconds.
_PAUSE = 0.7
_RESTARTS = 20
_LATE = 3.0
# Of one process at a time, and what one life may write for its operator.
_DESCRIPTORS, _LOG = 128, 1 << 15
_TELL_TALES = ("Traceback", "a defect", "Error:")
_OWN_SENTENCES = ("ProtocolFailure:", "StorageError:")


@dataclass
class Tale:
    """How it went: what is wrong, of each party the exit codes of its lives, and what the network did."""

    wrong: list[str] = field(default_factory=list)
    codes: dict[str, list[int]] = field(default_factory=dict)
    results: int = 0
    struck: int = 0
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        if self.wrong:
            return "wrong"
        ends = [codes[-1] for codes in self.codes.values() if codes]
        return "all have it" if not any(ends) else "some have it" if self.results else "no result, said"


class _Network:
    """Proxies before parties, in a thread of their own."""

    def __init__(self, places: Mapping[int, tuple[int, int]]) -> None:
        self.network = BadNetwork(GOOD)
        self._loop = asyncio.new_event_loop()
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve(places)])
        self._thread.start()
        self._ready.wait(10)

    async def _serve(self, places: Mapping[int, tuple[int, int]]) -> None:
        async with self.network.before({party: (port, ("127.0.0.1", own)) for party, (port, own) in places.items()}):
            self._ready.set()
            await self._over.wait()

    def begin(self, fault: Fault) -> None:
        self._loop.call_soon_threadsafe(self._begin, fault)

    def _begin(self, fault: Fault) -> None:
        if fault.kind == "network":
            self.network.conditions = fault.network
        elif fault.kind == "cut":
            self._cutting = self._loop.create_task(self.network.cut(reset=fault.reset))
        else:
            self.network.separate(frozenset([fault.victim]))

    def heal(self) -> None:
        def good() -> None:
            self.network.conditions = GOOD
            self.network.rejoin()

        self._loop.call_soon_threadsafe(good)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        self._loop.close()


@dataclass
class Chaos:
    """One study in ``folder``."""

    commands: Commands
    folder: Path
    way: str
    cell: Cell
    faults: Sequence[Fault]

    def tell(self) -> Tale:
        """Take part, and check."""
        begun, self.tale = time.monotonic(), Tale()
        self.folder.mkdir(parents=True)
        write_cell_policy(self.cell)
        with reserved(2 * len(self.cell.names) + 2) as ports:
            outer = ports[: len(self.cell.names)]
            own = dict(zip(self.cell.names, ports[len(outer) : 2 * len(outer)], strict=True))
            listen = {} if self.way in ("run", "file", "folder") else {name: f"127.0.0.1:{port}" for name, port in own.items()}
            drop = f"http://127.0.0.1:{ports[-1]}" if self.way == "drop" else None
            self.parties = Consortium(self.cell, self.folder, outer, charging=True, listen=listen, drop=drop)
            if self.way != "run":
                _ = self.parties.sealed
            for names, what in self._phases():
                places = {
                    place: (outer[self.cell.names.index(name)], own[name]) for place, name in enumerate(names) if name in listen
                }
                if what == "committee" and drop:
                    places = {len(NAMES): (ports[-1], ports[-2])}
                    self._drop_port = ports[-2]
                if not self._phase(names, what, places):
                    break
        self.tale.seconds = time.monotonic() - begun
        if not self.tale.wrong:
            self.tale.wrong += self._check()
        return self.tale

    def _phases(self) -> list[tuple[Sequence[str], str]]:
        if self.way == "run":
            return [(["south"], "run")]
        if self.way in ("committee", "drop"):
            return [([*NAMES, *(["drop"] if self.way == "drop" else [])], "committee"), (MEMBERS, "member")]
        return [(NAMES, self.way)]

    def _phase(self, names: Sequence[str], what: str, places: Mapping[int, tuple[int, int]]) -> bool:
        """Whether all came to an end."""
        self.what, self.codes = what, {name: list[int]() for name in names}
        self.tale.codes |= {f"{name}" if what != "committee" else f"{name} sends": codes for name, codes in self.codes.items()}
        # Members come after the contributors.
        self._clock = [Rule("clock", self.folder, argument=int(CONTRIBUTE_IN) + 1)] if what == "member" else []
        for name in names:
            self._set(name, [self._rule(name, one) for one in self._faults_of(names, name) if one.rule[0]])
        network = _Network(places) if places else None
        running = {self._start(name): name for name in names}
        due = sorted((one for one in self.faults if not one.rule[0]), key=lambda one: one.at)
        begun, stopped, healed = time.monotonic(), dict[int, float](), False
        coming: list[tuple[float, str]] = []
        try:
            while running or coming:
                now = time.monotonic() - begun
                if now > ENDS:
                    self.tale.wrong.append(f"{what}: no end of {[*running.values()]} after {now:.0f} s, {self._said()}")
                    return False
                while due and due[0].at <= now:
                    self._strike(due.pop(0), names, running, stopped, network, now)
                for process in [process for process, until in stopped.items() if until <= now]:
                    del stopped[process]
                    _signal(process, signal.SIGCONT)
                if now > HEALS and not healed:
                    healed = True
                    for name in names:
                        self._set(name, [])
                    if network is not None:
                        network.heal()
                self._look(running)
                for process, code in self.commands.ask({"seconds": 0.1}).items():
                    name = running.pop(int(process))
                    stopped.pop(int(process), None)
                    self.codes[name].append(code)
                    if self._again(name, code):
                        if len(self.codes[name]) > _RESTARTS:
                            self.tale.wrong.append(f"{name} does not come through: {self.codes[name]}, {self._said()}")
                            return False
                        coming.append((now + _PAUSE, name))
                while coming and coming[0][0] <= now:
                    name = coming.pop(0)[1]
                    running[self._start(name)] = name
                if what == "member" and not coming and self._late(running, now):
                    return True
                if not coming and [*running.values()] == ["drop"]:
                    for process in running:
                        _signal(process, signal.SIGTERM)
            return True
        finally:
            self.tale.struck += sum(call.acted not in ("", "keep") for name in names for call in self._files(name).calls())
            self._kill(running)
            if network is not None:
                network.close()

    def _late(self, running: Mapping[int, str], now: float) -> bool:
        """Whether only a member is left that came again when the others had ended, who can do without it: it may wait long."""
        if not (len(running) == 1 and all(self.codes[name] for name in running.values())):
            self._alone = now
        return now - self._alone > _LATE

    def _again(self, name: str, code: int) -> bool:
        if code in (StorageError.exit_code, -signal.SIGKILL):
            return True
        # What a drop did not acknowledge is sent again.
        return code == ProtocolFailure.exit_code and self.what == "committee" and self.parties.drop is not None

    def _faults_of(self, names: Sequence[str], name: str) -> list[Fault]:
        return [one for one in self.faults if names[one.victim % len(names)] == name]

    def _rule(self, name: str, fault: Fault) -> Rule:
        action, first, times, kind, argument = fault.rule
        return Rule(action, self.folder / ("dropped" if name == "drop" else name), first, times, kind, argument)

    def _set(self, name: str, rules: list[Rule]) -> None:
        self._files(name).set([*rules, *self._clock])

    def _files(self, name: str) -> Faults:
        return Faults(self.folder / f"{self.what}.{name}.faults")

    def _strike(
        self,
        fault: Fault,
        names: Sequence[str],
        running: Mapping[int, str],
        stopped: dict[int, float],
        network: _Network | None,
        now: float,
    ) -> None:
        if fault.kind in ("network", "cut", "apart"):
            if network is not None:
                network.begin(fault)
                self.tale.struck += 1
            return
        for process, name in running.items():
            if name == names[fault.victim % len(names)]:
                self.tale.struck += 1
                _signal(process, signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)
                if fault.kind == "stop":
                    stopped[process] = min(now + fault.seconds, HEALS)

    def _look(self, running: Mapping[int, str]) -> None:
        for process, name in running.items():
            with suppress(OSError):
                if (held := len([*Path(f"/proc/{process}/fd").iterdir()])) > _DESCRIPTORS:
                    self.tale.wrong.append(f"{name} has {held} descriptors")

    def _kill(self, running: Mapping[int, str]) -> None:
        for process in running:
            _signal(process, signal.SIGKILL)
        left = set(running)
        while left and (ended := self.commands.ask({"seconds": 5.0})):
            left -= set(map(int, ended))

    def _start(self, name: str) -> int:
        own = self.folder / f"{name}.data"
        own.mkdir(exist_ok=True)
        environment = {"XDG_DATA_HOME": str(own), "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"], "TMPDIR": str(own)}
        environment["QUIETMEAN_FAULTS"] = str(self._files(name).folder)
        environment["QUIETMEAN_WATCH"] = str(self.folder / "watched")
        files = {kind: str(self._told(name, len(self.codes[name]), kind)) for kind in ("out", "err")}
        order: dict[str, Any] = {"folder": str(self.folder), "environment": environment, **files}
        if name == "drop":
            return int(self.commands.ask({**order, "line": self._drop_line()}))
        cell, also = self.cell, {"listen": self.parties.listen, "drop": self.parties.drop}
        network = next((asdict(one.network) for one in self.faults if one.kind == "network" and self.what == "run"), None)
        given = [[cell.protocol, cell.way, cell.unit, cell.more], str(self.folder), name, self.what, also]
        return int(self.commands.ask({**order, "call": "support.watched:take_part", "given": [network, *given]}))

    def _drop_line(self) -> list[str]:
        key = self.folder / "drop.key"
        if not key.exists():
            Identity.generate().save(key)
        places = [
            "--study",
            str(self.parties.path),
            "--listen",
            f"127.0.0.1:{self._drop_port}",
            "--folder",
            str(self.parties.box),
        ]
        return ["serve", "drop", *places, "--key", str(key), "--json"]

    def _told(self, name: str, number: int, kind: str) -> Path:
        return self.folder / f"told-{self.what}-{name}.{number}.{kind}"

    def _said(self) -> str:
        files = sorted(self.folder.glob("told-*.err"))
        return " | ".join(f"{path.name}: {path.read_text(errors='replace')[-400:]}" for path in files if path.stat().st_size)

    # --- the checker ---------------------------------------------------------------------------------------------------------

    def _check(self) -> list[str]:
        """What is wrong; nothing, where it is as it has to be."""
        wrong = [
            f"{name} ends with {codes}: {self._said()}"
            for name, codes in self.tale.codes.items()
            if codes and codes[-1] not in (0, ProtocolFailure.exit_code, -signal.SIGKILL, StorageError.exit_code)
        ]
        for path in self.folder.glob("told-*.err"):
            text = path.read_text(errors="replace")
            plain = text
            for sentence in _OWN_SENTENCES:
                plain = plain.replace(sentence, "")
            wrong += [f"{path.name} says: {text[-2000:]}" for word in _TELL_TALES if word in plain]
            wrong += [f"{path.name} has {len(text)} characters"] if len(text) > _LOG else []
        return wrong or [*self._results(), *self._charges(), *self._twice(), *self._left()]

    def _results(self) -> list[str]:
        if self.way == "file":
            results = [
                [float(one.value) for answer in self.parties.combined().outcome.answers for one in answer.estimates.entries]
            ]
        else:
            ended = [name for name, codes in self.codes.items() if codes and codes[-1] == 0]
            results = [json.loads(self._told(name, len(self.codes[name]) - 1, "out").read_text()) for name in ended]
        self.tale.results = len(results)
        if not results and self.way != "run":
            # All faults were over before a round was.
            return [f"nobody has a result: {self.tale.codes}, {self._said()}"]
        whole = max(results, key=len, default=[])
        apart = APART.get(self.cell.protocol, 1e-9)
        # Who comes again to a session has the rounds that are left.
        tails = [(other, whole[len(whole) - len(other) :]) for other in results]
        wrong = (
            []
            if all(other == pytest.approx(tail, rel=apart, abs=apart) for other, tail in tails)
            else [f"different results: {results}"]
        )
        return [*wrong, *(self._acknowledged() if self.way == "drop" else [])]

    def _acknowledged(self) -> list[str]:
        """Each receipt is of a contribution that counts."""
        sealed = self.parties.sealed
        session = session_of(sealed, feasible_sealed(sealed).plan)
        receipts = {path.name: DropReceipt.of_file(path.read_bytes()) for path in self.folder.glob("box/*.receipt")}
        wrong = [f"{name} ended well without a receipt" for name in NAMES if f"{name}.contribution.receipt" not in receipts]
        for path in self.folder.glob("*.dropped"):
            log = DropLog.verified(signed_in(Purpose.COMMITTEE_LOG, path.read_bytes()), session)
            wrong += [
                f"{name} is not where its receipt says in {path.name}" for name, one in receipts.items() if not log.has(one.place)
            ]
        for sums in self.folder.glob("*.sums"):
            counted = {digest.hex() for digest, _, _ in check_result(session, read_result(session, sums.read_bytes())).counted}
            wrong += [f"{name} is not counted in {sums.name}" for name, one in receipts.items() if one.digest not in counted]
        return wrong

    def _charges(self) -> list[str]:
        """Each has one entry, and those that have a result are charged alike."""
        charges = {}
        for name in NAMES:
            path = self.parties.ledger(name) if self.way != "run" else None
            if path is not None and path.exists():
                with Ledger.open(path) as book:
                    accounts = {account.name: account.entries for account in book.accounts()}
                charges[name] = [(one.reserved, one.charged, one.settled) for one in accounts.get(name, ())]
        wrong = [f"the ledger of {name} has {entries}" for name, entries in charges.items() if len(entries) > 1]
        ended = [charges[name] for name in charges if (codes := self.codes.get(name)) and codes[-1] == 0]
        if any(one != ended[0] or not one for one in ended):
            wrong.append(f"the ledgers have {charges}")
        return wrong

    def _twice(self) -> list[str]:
        """What a party sent in a place, it sent once: whatever it did again had the same bytes."""
        sent: dict[str, set[str]] = {}
        for line in self._watched("sent"):
            place, _, content = line.rpartition(" ")
            sent.setdefault(place, set()).add(content)
        return [f"two things were sent in {place}" for place, contents in sent.items() if len(contents) > 1]

    def _left(self) -> list[str]:
        """Who has a result has no seed any more, in any file, and nobody has private values: by 8 bytes or more."""
        names = [name for name, codes in self.codes.items() if codes and codes[-1] == 0] if self.way != "run" else []
        looked: list[tuple[str, bytes]] = []
        for line in self._watched("secrets"):
            name, _, secret = line.rpartition(" ")
            raw = bytes.fromhex(secret)
            if name in names:
                looked += [(f"a seed of {name}", one) for one in (raw, secret.encode(), base64.b64encode(raw)[:40])]
        for name in NAMES:
            for number in self._private(name):
                looked += [(f"a value of {name}", one) for one in (struct.pack("<d", number), repr(number)[:14].encode())]
        wrong = []
        for path in self.folder.rglob("*"):
            if path.is_file() and not path.is_relative_to(self.folder / "watched"):
                content = path.read_bytes()
                wrong += [f"{what} is in {path.relative_to(self.folder)}" for what, one in looked if one in content]
        return wrong

    def _private(self, name: str) -> list[float]:
        data = self.parties.data(name)
        ages = (data.data if isinstance(data, FrameOfPersons) else data)["age"]
        return [float(age) for age in ages if float(age) * 8 != int(float(age) * 8)]

    def _watched(self, kind: str) -> list[str]:
        return [line for path in (self.folder / "watched").glob(f"*.{kind}") for line in path.read_text().splitlines()]


def _signal(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, number)
