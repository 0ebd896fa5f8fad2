"""Parties of a study through a folder that are never there together: each visit is a process of its own, as a schedule starts it.

All of it is the real thing: stores, outboxes, sealed and signed files in a folder of this machine. The time of day is given.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from quietmean.core.errors import NotStarted, NotYet
from quietmean.node import (
    Identity,
    NodeResult,
    NodeSettings,
    PlannedValue,
    Roster,
    RosterEntry,
    SiteHooks,
    Started,
    StartTerms,
    Waits,
    run_party,
)
from quietmean.node.folder import DiskPlace, FolderSettings, Timetable
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.mailbox import mailbox_bytes
from quietmean.node.start import load_progress
from quietmean.node.storage import outbox_path
from quietmean.planning.automatic import Choice
from quietmean.studies.agreement.study import StudyTerms
from support.folder_world import MAILBOXES

# Seconds since 1970: when it starts with those who are there, and until when it waits for the start; so often each party visits.
START_BY, POLL, INTERVAL = 1_000_000.0, 10.0, 100.0
FIRST = START_BY + 11 * 5 * POLL
IDENTITIES = [Identity.generate() for _ in range(5)]


@functools.cache
def terms(parties: int, minimum: int, colluding: int, protocol: str = "local-dp") -> tuple[StudyTerms, Choice]:
    """A study of so many parties, and its plans."""
    times = {name: datetime.fromtimestamp(when, UTC) for name, when in (("start_by", START_BY), ("first", FIRST))}
    study = StudyTerms.parse(
        {
            "column": [{"name": "age", "low": 0, "high": 1}],
            "unit": "party",
            "colluding": colluding,
            "protocol": protocol,
            "minimum": minimum,
            "start_by": times["start_by"],
            "transport": "folder",
            "deadlines": {"first": times["first"], "interval": INTERVAL, "poll": POLL},
        }
    )
    return study, study.choice(parties)


@dataclass
class Visits:
    """The parties' files in ``folder``. ``bound``: what each ledger was told; ``results``, and ``started`` of who is in."""

    folder: Path
    parties: int
    minimum: int
    colluding: int
    now: float = START_BY - 1000.0
    # Whether each party's person asks for a start before its time.
    asks: bool = False
    bound: list[set[str]] = field(default_factory=list)
    results: dict[int, NodeResult] = field(default_factory=dict)
    started: dict[int, Started] = field(default_factory=dict)
    # What it was told who is not in.
    not_in: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "share").mkdir(parents=True, exist_ok=True)
        self.bound = self.bound or [set() for _ in range(self.parties)]

    def copy(self, folder: Path) -> Visits:
        """The same history in another folder, to go on differently."""
        shutil.copytree(self.folder, folder)
        return replace(
            self,
            folder=folder,
            bound=[set(one) for one in self.bound],
            results=dict(self.results),
            started=dict(self.started),
            not_in=dict(self.not_in),
        )

    @property
    def over(self) -> set[int]:
        """Who has no visit left."""
        return self.results.keys() | self.not_in.keys()

    def visit(self, party: int, now: float | None = None) -> None:
        """A process of a party, until there is nothing new."""
        clock = self.now if now is None else now
        try:
            self.results[party] = run_virtually(
                run_party(self.settings(party, clock), functools.partial(self.started.__setitem__, party))
            )
        except NotYet:
            return
        except NotStarted as error:
            self.not_in[party] = str(error)

    def settings(self, party: int, clock: float) -> NodeSettings:
        """Those of a process that looks at its clock once."""
        study, choice = terms(self.parties, self.minimum, self.colluding)
        entries = [RosterEntry(f"p{one}", ("folder.invalid", one + 1), IDENTITIES[one].public_key) for one in range(self.parties)]
        value = np.full(choice.plan.target.dimension, 0.1 * (party + 1))
        planned_values = {size: PlannedValue(plan, plan.admit(value.copy())) for size, plan in choice.smaller.items()}
        folder = FolderSettings(
            lambda session: DiskPlace(self.folder / "share", session),
            MAILBOXES[party],
            {one: mailbox_bytes(MAILBOXES[one]) for one in range(self.parties)},
            Timetable.of(choice.plans, FIRST, INTERVAL),
            quiet=0.0,
            clock=lambda: clock,
        )
        return NodeSettings(
            identity=IDENTITIES[party],
            roster=Roster(tuple(entries)),
            brought=PlannedValue(choice.plan, choice.plan.admit(value)),
            store=self.folder / f"p{party}.store",
            waits=Waits(round=INTERVAL, start=study.required_deadlines.start_timeout(datetime.fromtimestamp(START_BY, UTC))),
            start=StartTerms(self.minimum, START_BY, planned_values, lambda: self.asks),
            site=SiteHooks(before_bound=self.bound[party].add),
            transport=folder,
        )

    def go_on(self, parties: Sequence[int], *, visits: int = 200) -> None:
        """The time to start has come, and these visit in turn, a poll after the other, until none has a visit left."""
        self.now = max(self.now, START_BY)
        for _ in range(visits):
            left = [party for party in parties if party not in self.over]
            if not left:
                return
            self.now += POLL
            for party in left:
                self.visit(party)
        raise AssertionError(f"{left} have no end")

    def check(self) -> None:
        """What must hold in every history: one result, in all ledgers one attempt, and none of who was told that it is not in."""
        assert all(len(one) <= 1 for one in self.bound), self.bound
        assert len({(one.attempt, one.members) for one in self._with_result.values()}) <= 1, self._with_result
        assert len({float(one.mean[0]) for one in self.results.values()}) <= 1, self.results
        for party in self.not_in:
            assert not self.bound[party], self.not_in[party]
            assert all(party not in one.members for one in self._with_result.values())

    def state(self) -> object:
        """Where all parties are, whatever they drew: what may follow depends on nothing else but the time."""
        return frozenset(self.over), tuple(_state(self.folder / f"p{party}.store") for party in range(self.parties))

    @property
    def places(self) -> set[tuple[int, frozenset[int]]]:
        """Attempts and members of who was ever bound."""
        return {(one.attempt, frozenset(one.members)) for one in self.started.values()}

    @property
    def _with_result(self) -> Mapping[int, Started]:
        return {party: self.started[party] for party in self.results if party in self.started}


def _state(store: Path) -> object:
    if not store.exists():
        return None
    with contextlib.closing(sqlite3.connect(store)) as database:
        row = database.execute("SELECT value FROM fact WHERE name = 'progress'").fetchone()
    with contextlib.closing(sqlite3.connect(outbox_path(store))) as database:
        files = frozenset(database.execute("SELECT kind, number, receiver, file IS NULL, answer IS NULL FROM file"))
    progress = load_progress(None if row is None else row[0])
    attempt = progress.attempt
    place = None
    if attempt is not None:
        inside = attempt.agreed, frozenset(attempt.commits), frozenset(attempt.openings), attempt.bound_there
        place = attempt.proposal.attempt, attempt.members, inside
    return place, progress.bound, progress.never, frozenset(progress.others_bound.items()), files
