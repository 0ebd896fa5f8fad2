"""A party by folder that dies at any write from its result to its last answers puts them when it comes again, in every way in.

Others wait for these answers until the deadline, which never comes here: where one is lost, they have no end.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import NotYet
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry, Series, Waits, run_party
from quietmean.node.folder import DiskPlace, FolderSettings, Outbox, Timetable
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.mailbox import mailbox_bytes
from quietmean.node.storage import Store
from quietmean.planning import Plan, Target
from quietmean.protocols.inca import IncA
from quietmean.protocols.local_dp import LocalDP
from quietmean.protocols.mechanism import Mechanism
from support.folder_world import MAILBOXES, MEMORY

PARTIES = 3
IDENTITIES = [Identity.generate() for _ in range(PARTIES)]
TARGET = Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=2)
PROTOCOLS = {"inca": IncA(rounds=2, sigma_star=0.0, sigma_delta=0.7), "local-dp": LocalDP(sigma=0.5)}
# Each party visits so often after a death, at the most.
VISITS = 4
# More than a party writes until its last answers are put; what comes then is of the next round.
DEATHS = 6
# The round that is looked at, and means by number of the round; a study has one.
FIRST = 1
Means = dict[int, list[float]]


class Died(BaseException):
    """Unwinds what the process was doing; it writes nothing any more."""


@dataclass
class Process:
    """The one that visits: it dies before its write ``fatal``, from 0, of those after its result, if that is its fate."""

    fatal: int | None = None
    found: bool = False
    writes: int = 0
    dead: bool = False

    def write(self) -> None:
        """It is about to write."""
        if self.dead or (self.found and self.writes == self.fatal):
            self.dead = True
            raise Died
        self.writes += self.found


class Machine:
    """Whose processes write to a store, an outbox and the folder; ``process`` is the one that runs."""

    def __init__(self) -> None:
        self.process = Process()

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        transaction, finish = Store._transaction, Store.finish

        @contextlib.contextmanager
        def writes(store: Store) -> Iterator[None]:
            self.process.write()
            with transaction(store):
                yield

        def finishes(store: Store, *given: Any) -> None:
            finish(store, *given)
            self.process.found = True

        monkeypatch.setattr(Store, "_transaction", writes)
        monkeypatch.setattr(Store, "finish", finishes)
        for owner, name in ((Outbox, "_execute"), (DiskPlace, "put"), (Path, "unlink")):
            monkeypatch.setattr(owner, name, self._writing(getattr(owner, name)))

    def _writing(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def write(*given: Any, **named: Any) -> Any:
            self.process.write()
            return usual(*given, **named)

        return write


async def slowly(work: Callable[..., Any], *given: Any) -> Any:
    """In place of a thread, on a slow share: by the time that a look puts anything, its party has gone on with what it has."""
    await asyncio.sleep(1.0)
    return work(*given)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(asyncio, "to_thread", slowly)
    made.watch(monkeypatch)
    return made


@dataclass
class Visits:
    """Parties of a study, or of a session of so many ``rounds``, whose processes are never there together."""

    folder: Path
    machine: Machine
    plan: Plan
    rounds: int | None
    means: list[Means] = field(default_factory=lambda: [{} for _ in range(PARTIES)])
    over: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        (self.folder / "share").mkdir(parents=True, exist_ok=True)

    def copy(self, folder: Path) -> Visits:
        """The same history, to go on differently."""
        shutil.copytree(self.folder, folder)
        return replace(self, folder=folder, means=[dict(one) for one in self.means], over=set(self.over))

    def visit(self, party: int, process: Process | None = None) -> Process:
        """A process of a party, until there is nothing new, or it dies."""
        self.machine.process = process or Process()
        # What a process that died has seen is nowhere.
        seen = dict(self.means[party])
        with contextlib.suppress(NotYet, Died):
            run_virtually(self._part(party, seen))
            if not self.machine.process.dead:
                self.over.add(party)
        if not self.machine.process.dead:
            self.means[party] = seen
        return self.machine.process

    def all_have_it(self) -> bool:
        return all(FIRST in one for one in self.means)

    def go_on(self, first: int) -> None:
        """All visit in turn, from ``first`` on, until all have the mean: each of them so often at the most."""
        for visit in range(first, first + VISITS * PARTIES):
            if self.all_have_it():
                return
            if visit % PARTIES not in self.over:
                self.visit(visit % PARTIES)

    def _part(self, party: int, means: Means) -> Coroutine[Any, Any, None]:
        return self._in_study(party, means) if self.rounds is None else self._in_session(party, means, self.rounds)

    async def _in_study(self, party: int, means: Means) -> None:
        means[FIRST] = (await run_party(self._settings(party))).mean.tolist()

    async def _in_session(self, party: int, means: Means, rounds: int) -> None:
        async with Series(self._settings(party), rounds) as series:
            if (last := series.last) is not None:
                means[last.number] = last.result.mean.tolist()
            while not series.over:
                end = await series.mean(self.plan.admit(np.full(2, 0.1 * (party + 1))))
                means[end.number] = end.result.mean.tolist()

    def _settings(self, party: int) -> NodeSettings:
        entries = [RosterEntry(f"p{one}", ("folder.invalid", one + 1), IDENTITIES[one].public_key) for one in range(PARTIES)]
        return NodeSettings(
            identity=IDENTITIES[party],
            roster=Roster(tuple(entries)),
            brought=PlannedValue(self.plan, self.plan.admit(np.full(2, 0.1 * (party + 1)))),
            store=self.folder / f"p{party}.store",
            waits=Waits(1e6, 1e6),
            transport=FolderSettings(
                lambda session: DiskPlace(self.folder / "share", session),
                MAILBOXES[party],
                {one: mailbox_bytes(MAILBOXES[one]) for one in range(PARTIES)},
                Timetable.of([self.plan], 1000.0, 1000.0),
                quiet=0.0,
                clock=lambda: 0.0,
            ),
        )


def struck(before: Visits, party: int, folder: Path) -> tuple[int, list[str]]:
    """How many deaths there are in the visit of a party that gets its result, and after which others have none."""
    lost: list[str] = []
    for fatal in range(DEATHS):
        story = before.copy(folder)
        dead = story.visit(party, Process(fatal)).dead
        story.go_on(party + 1)
        if not story.all_have_it():
            lost.append(f"p{party} dies before write {fatal}: {[number for number, one in enumerate(story.means) if one]} end")
        else:
            assert len({tuple(np.round(one[FIRST], 12)) for one in story.means}) == 1
        shutil.rmtree(folder)
        if not dead:
            return fatal, lost
    return DEATHS, lost


@pytest.mark.sampled
@pytest.mark.parametrize("rounds", [None, 2, 1], ids=["study", "middle round", "last round"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_death_at_every_write_from_the_result_to_the_last_answers(protocol: str, rounds: int | None, machine: Machine) -> None:
    mechanism: Mechanism = PROTOCOLS[protocol]
    deaths, lost = 0, list[str]()
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        folder = Path(directory)
        story = Visits(folder / "all", machine, Plan(TARGET, mechanism), rounds)
        for party in itertools.islice(itertools.cycle(range(PARTIES)), 20 * PARTIES):
            before = story.copy(folder / "before")
            if story.visit(party).found:
                more, without = struck(before, party, folder / "struck")
                deaths, lost = deaths + more, lost + without
            shutil.rmtree(before.folder)
            if story.all_have_it():
                break
    assert story.all_have_it()
    assert deaths > 1
    assert not lost, f"{len(lost)} of {deaths}:\n" + "\n".join(lost)
