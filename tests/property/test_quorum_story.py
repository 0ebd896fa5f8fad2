"""Ten parties come over eight hours, one never does: the study starts with nine, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from quietmean.core.errors import NotStarted
from quietmean.core.party import PartyId
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry, SiteHooks, StartTerms
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.net import ACCEPTED, AnswerFrame, Link, Start
from quietmean.node.session import Carrier
from quietmean.node.start import Attempt, StartPhase, load_progress, policy
from quietmean.node.storage import Store
from quietmean.randomness import Seed
from quietmean.studies.agreement.study import StudyTerms

PARTIES, HOURS = 10, 8
# Virtual seconds count from here.
MORNING = datetime(2027, 3, 1, 9, tzinfo=UTC)


@dataclass
class Disk:
    """Of one party: what survives its process. ``bound``: what the ledger was told."""

    standing_: bytes | None = None
    is_read_again: bool = True
    bound: set[str] = field(default_factory=set)

    def progress(self) -> bytes | None:
        return self.standing_

    def save_standing(self, progress: bytes, seed: bytes | None = None) -> None:
        self.standing_ = progress

    seed, nonce = Seed(bytes(32)), bytes(32)


@dataclass
class World:
    """Who runs, and what reaches whom: what is told to a party that is not there waits until the teller gives up."""

    rng: random.Random
    running: dict[PartyId, StartPhase] = field(default_factory=dict)

    def link(self, sender: PartyId, receiver: PartyId) -> Link:
        return cast(Link, _Wire(self, sender, receiver))


@dataclass
class _Wire:
    world: World
    sender: PartyId
    receiver: PartyId

    async def ask(self, frame: Start, *more: Any) -> AnswerFrame:
        while True:
            # Some of it is lost, all of it takes a while.
            await asyncio.sleep(self.world.rng.uniform(0.005, 0.3))
            there = self.world.running.get(self.receiver)
            if there is not None and self.world.rng.random() < 0.95:
                there.heard(self.sender, frame)
                return AnswerFrame(0, ACCEPTED, 0, 0)
            await asyncio.sleep(1.0)


def settings() -> list[NodeSettings]:
    start_by = MORNING.timestamp() + 3600 * HOURS
    when = datetime.fromtimestamp(start_by, UTC)
    column = {"name": "age", "low": 0, "high": 1}
    choice = StudyTerms.parse({"column": [column], "minimum": 6, "start_by": when, "protocol": "packed-sharing"}).choice(PARTIES)
    identities = [Identity.generate() for _ in range(PARTIES)]
    roster = Roster(
        tuple(RosterEntry(f"p{place}", ("192.0.2.1", 7000 + place), one.public_key) for place, one in enumerate(identities))
    )
    zeros = np.zeros(choice.plan.target.dimension)
    planned_values = {size: PlannedValue(plan, plan.admit(zeros)) for size, plan in choice.smaller.items()}
    return [
        NodeSettings(
            identity=one,
            roster=roster,
            brought=PlannedValue(choice.plan, choice.plan.admit(zeros)),
            store=Path("unused"),
            start=StartTerms(6, start_by, planned_values),
        )
        for one in identities
    ]


async def process(world: World, own: NodeSettings, disk: Disk) -> Attempt:
    """One process of a party, until it is bound."""
    party, loop = own.party, asyncio.get_running_loop()
    assert own.start is not None
    own = replace(own, site=SiteHooks(disk.bound.add), start=replace(own.start, clock=lambda: MORNING.timestamp() + loop.time()))
    links = {other: world.link(party, other) for other in range(PARTIES) if other != party}
    one = StartPhase(own, cast(Store, disk), Carrier(links), lambda event: None)
    world.running[party] = one
    one.start()
    try:
        attempt = await one.until_bound()
        # Its part in the study; it goes on telling.
        await asyncio.sleep(60)
        return attempt
    finally:
        world.running.pop(party, None)
        await one.stop()


async def party(world: World, own: NodeSettings, disk: Disk, arrives: float) -> Attempt | None:
    """Comes some time in the day, dies now and then, and is started again minutes later. None: it was not in."""
    await asyncio.sleep(arrives)
    while True:
        with contextlib.suppress(TimeoutError):
            try:
                async with asyncio.timeout(world.rng.expovariate(1 / 7200)):
                    return await process(world, own, disk)
            except NotStarted:
                return None
        await asyncio.sleep(world.rng.uniform(20, 600))


def day(seed: int) -> bool:
    """Whether the study started with everybody who was there. Checks what must hold in any case."""
    rng = random.Random(seed)
    everybody, world = settings(), World(rng)
    disks = [Disk() for _ in everybody]
    absent = rng.randrange(PARTIES)
    arrivals = [rng.uniform(0, 3600 * HOURS - 60) for _ in everybody]

    async def story() -> None:
        coming = [place for place in range(PARTIES) if place != absent]
        async with asyncio.TaskGroup() as group:
            for place in coming:
                group.create_task(party(world, everybody[place], disks[place], arrivals[place]))

    run_virtually(story())
    standings = [load_progress(disk.standing_) for disk in disks]
    attempts = [one.attempt for one in standings if one.bound and one.attempt is not None]
    for disk, progress in zip(disks, standings, strict=True):
        # The ledger knows one attempt of who is bound, and none of who is not: that is given back.
        assert len(disk.bound) == int(progress.bound)
        assert progress.bound or progress.never or disk is disks[absent]
    assert len({(one.proposal.attempt, one.members) for one in attempts}) <= 1
    return len(attempts) >= 6


@pytest.fixture(autouse=True)
def less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of waiting with a telling every ten seconds would be most of the test's time."""
    monkeypatch.setattr(policy, "_LONG_BEFORE", 300.0)


@pytest.mark.slow
def test_a_day_on_which_one_never_comes() -> None:
    assert day(1)


@pytest.mark.slow
def test_twenty_days_on_which_one_never_comes() -> None:
    started = sum(day(seed) for seed in range(100, 120))
    assert started >= 19
