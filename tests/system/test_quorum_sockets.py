"""The attempts to start over real connections, with real stores: parties in one process, so that a start takes a second."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from quietmean.core.domain import Links
from quietmean.core.errors import InputError, NotStarted, PeerError
from quietmean.core.growing import GrowingMap
from quietmean.node import (
    Identity,
    LinkKeys,
    NodeResult,
    NodeSettings,
    PairKeys,
    PlannedValue,
    Roster,
    RosterEntry,
    SiteHooks,
    Started,
    StartTerms,
    Waits,
    run_party,
)
from quietmean.node.net import Revealed, Start, encode_frame
from quietmean.node.net.wire import HEADER_LIMIT
from quietmean.node.session import Carrier, StudySession
from quietmean.node.session.settings import Opening
from quietmean.node.start import Announcement, Attempt, Machine, Proposal, StartPhase, StartProgress
from quietmean.node.start.started import RosterSignatures, dump_progress, from_frame, load_progress, to_frames
from quietmean.node.storage import Store
from quietmean.planning import Plan
from quietmean.randomness import Seed
from quietmean.studies.agreement.study import StudyTerms

NAMES = ("ada", "bob", "cyd", "dan", "eve")


@dataclass
class Parties:
    """Settings of five parties, of whom four may start a study."""

    folder: Path
    ports: Sequence[int]
    links: Links = Links.X25519
    started: dict[str, Started] = field(default_factory=dict)
    bound: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.identities = [Identity.generate() for _ in NAMES]
        self.keys = [MLKEM768PrivateKey.generate() for _ in NAMES]
        self.roster = Roster(
            tuple(
                RosterEntry(name, ("127.0.0.1", port), identity.public_key)
                for name, port, identity in zip(NAMES, self.ports, self.identities, strict=True)
            )
        )

    def settings(self, seconds: float, *, start_timeout: float = 30.0, protocol: str = "packed-sharing") -> list[NodeSettings]:
        """Of all parties, for a study that starts in so many seconds."""
        when = datetime.fromtimestamp(time.time() + seconds, UTC)
        column = {"name": "age", "low": 0, "high": 1}
        study = StudyTerms.parse({"column": [column], "minimum": 4, "start_by": when, "protocol": protocol, "unit": "party"})
        choice = study.choice(5)
        return [self._of(place, choice.plan, when, choice.smaller, start_timeout) for place in range(5)]

    def _of(self, place: int, plan: Plan, when: datetime, smaller: Mapping[int, Plan], start_timeout: float) -> NodeSettings:
        value, name = np.full(plan.target.dimension, 0.01 * (place + 1)), NAMES[place]
        planned_values = {size: PlannedValue(one, one.admit(value.copy())) for size, one in smaller.items()}
        start = StartTerms(4, when.timestamp(), planned_values)
        return NodeSettings(
            identity=self.identities[place],
            roster=self.roster,
            brought=PlannedValue(plan, plan.admit(value)),
            store=self.folder / f"{name}.store",
            site=SiteHooks(before_bound=self.bound.setdefault(name, []).append),
            waits=Waits(round=5.0, start=start_timeout),
            start=start,
            keys=LinkKeys(links=self.links, pairs=self._pairs(place) if self.links == Links.HYBRID else None),
        )

    def _pairs(self, place: int) -> PairKeys:
        return PairKeys(self.keys[place], {party: key.public_key().public_bytes_raw() for party, key in enumerate(self.keys)})

    async def run(self, settings: NodeSettings) -> NodeResult:
        def on_start(started: Started) -> None:
            self.started[settings.names[settings.party]] = started

        return await run_party(settings, on_start)


@pytest.fixture
def parties(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Parties:
    return Parties(tmp_path, free_ports(5))


def test_all_start_at_once_when_all_are_there(parties: Parties) -> None:
    async def run() -> list[NodeResult]:
        return await asyncio.gather(*(parties.run(one) for one in parties.settings(3600.0)))

    results = asyncio.run(run())
    assert len({float(result.mean[0]) for result in results}) == 1
    for own in parties.settings(3600.0):
        with contextlib.closing(sqlite3.connect(own.store)) as database:
            names = {name for (name,) in database.execute("SELECT name FROM fact")}
        # The seed of the noise is gone with the end.
        assert {"progress", "result"} <= names
        assert "seed" not in names
    assert {started.absent for started in parties.started.values()} == {()}
    assert {started.attempt for started in parties.started.values()} == {1}
    # The ledger was told of one attempt, the same at all.
    assert len({bound for calls in parties.bound.values() for bound in calls}) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("protocol", "links"), [("packed-sharing", Links.X25519), ("cordp-dme", Links.X25519), ("cordp-dme", Links.HYBRID)]
)
def test_four_start_and_a_late_one_is_told(
    parties: Parties, protocol: str, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    # dan is away: ada proposes. He comes once the others are bound.
    parties.links = links
    seeds: dict[frozenset[int], set[bytes]] = {}
    shared = StudySession._shared_seed

    def used(session: StudySession, other: int) -> Seed:
        seed = shared(session, other)
        seeds.setdefault(frozenset((session._settings.party, other)), set()).add(seed.secret)
        return seed

    monkeypatch.setattr(StudySession, "_shared_seed", used)

    async def run() -> tuple[list[NodeResult], BaseException | None]:
        everybody = parties.settings(0.0, protocol=protocol)
        late = everybody.pop(3)
        running = [asyncio.create_task(parties.run(one)) for one in everybody]
        while len(parties.started) < 4:
            await asyncio.sleep(0.001)
        told = asyncio.create_task(parties.run(late))
        results = await asyncio.gather(*running)
        # Where the others ended first, nobody is left to tell.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.shield(asyncio.gather(told, return_exceptions=True))
        told.cancel()
        (outcome,) = await asyncio.gather(told, return_exceptions=True)
        return results, outcome if isinstance(outcome, BaseException) else None

    results, late = asyncio.run(run())
    assert len({float(result.mean[0]) for result in results}) == 1
    assert {started.absent for started in parties.started.values()} == {("dan",)}
    assert parties.bound["dan"] == []
    assert isinstance(late, NotStarted | asyncio.CancelledError)
    for started in parties.started.values():
        # What they do together is another study than that of all, with the plan for four.
        assert started.members == (0, 1, 2, 4)
        assert started.settings.plan.target.parties == 4
    # Both ends of each pair have one seed, also where the places of those who are in are others than in the roster.
    assert len(seeds) == (6 if protocol == "cordp-dme" else 0)
    assert all(len(both) == 1 for both in seeds.values())
    for started in parties.started.values():
        others = set(range(4)) - {started.settings.party} if links == Links.HYBRID else set()
        assert started.settings.required_agreement.shared.keys() == others
    for own in parties.settings(0.0, protocol=protocol) if links == Links.HYBRID else ():
        with contextlib.closing(sqlite3.connect(own.store)) as database:
            # What came of the keys is gone with the end.
            (rows,) = database.execute("SELECT count(*) FROM encapsulated").fetchone()
            assert rows == 0 or own.names[own.party] == "dan"


def test_who_comes_after_the_start_is_told_by_the_members(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are bound, and their part takes long: the late one is told, and gives up for good, with that on disk."""

    async def takes_long(session: StudySession) -> NodeResult:
        await asyncio.sleep(3600)
        raise AssertionError

    monkeypatch.setattr(StudySession, "run", takes_long)

    async def run() -> str:
        everybody = parties.settings(0.0)
        late = everybody.pop(3)
        members = [asyncio.create_task(parties.run(one)) for one in everybody]
        while len(parties.started) < 4:
            await asyncio.sleep(0.01)
        with pytest.raises(NotStarted) as told:
            await asyncio.wait_for(parties.run(late), 60)
        for task in members:
            task.cancel()
        await asyncio.gather(*members, return_exceptions=True)
        # Not even at another try.
        with pytest.raises(NotStarted, match="gave up waiting"):
            await asyncio.wait_for(parties.run(late), 10)
        return str(told.value)

    assert "started without this party, with ada, bob, cyd, eve" in asyncio.run(run())
    assert parties.bound["dan"] == []


def test_too_few_end_cleanly(parties: Parties) -> None:
    async def run() -> list[BaseException | NodeResult]:
        three = parties.settings(0.5, start_timeout=1.5)[:3]
        return await asyncio.gather(*(parties.run(one) for one in three), return_exceptions=True)

    for outcome in asyncio.run(run()):
        assert isinstance(outcome, NotStarted)
        assert "4 parties or more. There were ada, bob, cyd" in str(outcome)
    assert all(not calls for calls in parties.bound.values())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("stage", ["accepted", "committed", "revealed", "bound"])
def test_a_party_that_dies_in_the_start_goes_on_where_it_was(
    parties: Parties, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process ends right after a change is on disk and before it is told; another one continues, and is bound once."""
    seen: list[StartProgress] = []
    save = Store.save_standing
    dying = parties.settings(3600.0)
    path = dying[2].store

    def reached(progress: StartProgress) -> str:
        attempt = progress.attempt
        if attempt is None:
            return ""
        stages = [("bound", progress.bound), ("revealed", attempt.all_committed), ("committed", attempt.all_agreed)]
        return next((name for name, there in stages if there), "accepted")

    def saved(store: Store, progress: bytes, seed: bytes | None = None) -> None:
        if store._path == path and dead and not again:
            raise _Dies
        save(store, progress, seed)
        if store._path == path:
            found = load_progress(progress)
            seen.append(found)
            if reached(found) == stage and not dead:
                dead.append(True)
                raise _Dies

    dead: list[bool] = []
    again: list[bool] = []
    monkeypatch.setattr(Store, "save_standing", saved)

    async def run() -> list[NodeResult]:
        others = [asyncio.create_task(parties.run(one)) for place, one in enumerate(dying) if place != 2]
        own = asyncio.create_task(parties.run(dying[2]))
        while not dead:
            await asyncio.sleep(0.01)
        own.cancel()
        await asyncio.gather(own, return_exceptions=True)
        again.append(True)
        own_result = await parties.run(dying[2])
        return [*await asyncio.gather(*others), own_result]

    results = asyncio.run(run())
    assert len({float(result.mean[0]) for result in results}) == 1
    assert len({started.settings.study for started in parties.started.values()}) == 1
    nonces = {progress.attempt.own.nonce for progress in seen if progress.attempt is not None}
    attempts = {progress.latest for progress in seen if progress.attempt is not None}
    assert len(nonces) == len(attempts)
    assert len(set(parties.bound["cyd"])) == 1


class _Dies(Exception):
    pass


@pytest.mark.slow
def test_an_attempt_that_fails_is_followed_by_another_one(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """ada proposes all, and is gone before they have committed: bob's turn comes, with fresh nonces and without ada."""
    nonces: dict[str, dict[int, bytes]] = {name: {} for name in NAMES}
    proposed = asyncio.Event()
    save = Store.save_standing

    def saved(store: Store, progress: bytes, seed: bytes | None = None) -> None:
        save(store, progress, seed)
        attempt = load_progress(progress).attempt
        name = store._path.stem
        if attempt is not None and name in nonces:
            assert nonces[name].setdefault(attempt.proposal.attempt, attempt.own.nonce) == attempt.own.nonce
        if attempt is not None and name != "ada":
            proposed.set()

    monkeypatch.setattr(Store, "save_standing", saved)
    # Of ada everybody hears the proposal, and nothing after it.
    announce = Machine.announce

    def told_by(machine: Machine, progress: StartProgress) -> Announcement:
        announcement = announce(machine, progress)
        return replace(announcement, commit=b"", openings={}, bound=False) if machine.party == 0 else announcement

    monkeypatch.setattr(Machine, "announce", told_by)

    async def run() -> list[NodeResult]:
        everybody = parties.settings(1.0, start_timeout=30.0)
        ada, *others = [asyncio.create_task(parties.run(one)) for one in everybody]
        await proposed.wait()
        await asyncio.sleep(0.2)
        ada.cancel()
        await asyncio.gather(ada, return_exceptions=True)
        return await asyncio.gather(*others)

    assert len({float(result.mean[0]) for result in asyncio.run(run())}) == 1
    assert {started.absent for started in parties.started.values()} == {("ada",)}
    (attempt,) = {started.attempt for started in parties.started.values()}
    assert attempt > 1
    for name in NAMES[1:]:
        assert len(nonces[name]) == len(set(nonces[name].values())) > 1


def test_who_is_there_and_does_not_get_on_is_left_out_in_the_end(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    announce = Machine.announce

    def told_by(machine: Machine, progress: StartProgress) -> Announcement:
        announcement = announce(machine, progress)
        return replace(announcement, commit=b"", openings={}, bound=False) if machine.party == 4 else announcement

    monkeypatch.setattr(Machine, "announce", told_by)

    async def run() -> list[NodeResult | BaseException]:
        everybody = [asyncio.create_task(parties.run(one)) for one in parties.settings(0.5, start_timeout=15.0)]
        results = await asyncio.gather(*everybody[:4], return_exceptions=True)
        everybody[4].cancel()
        await asyncio.gather(everybody[4], return_exceptions=True)
        return results

    assert all(isinstance(result, NodeResult) for result in asyncio.run(run()))
    assert {started.absent for name, started in parties.started.items() if name != "eve"} == {("eve",)}
    assert "eve" not in parties.started


def test_a_ledger_that_knows_another_attempt_stops_the_party(parties: Parties) -> None:
    def knows_another(study: str) -> None:
        raise InputError("the ledger knows another attempt")

    async def run() -> BaseException | NodeResult:
        settings = parties.settings(3600.0)
        assert settings[4].start is not None
        settings[4] = replace(settings[4], site=SiteHooks(knows_another))
        others = [asyncio.create_task(parties.run(one)) for one in settings[:4]]
        (outcome,) = await asyncio.gather(parties.run(settings[4]), return_exceptions=True)
        # The others are bound and go on without it, which has sent nothing of its data.
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        return outcome

    assert isinstance(asyncio.run(run()), InputError)
    with contextlib.closing(sqlite3.connect(parties.folder / "eve.store")) as database:
        assert database.execute("SELECT count(*) FROM state").fetchone() == (0,)


def test_the_record_is_what_was_written() -> None:
    proposal = Proposal(3, frozenset({0, 2, 3, 4}), b"s" * 64)
    opening = Opening(b"n" * 32, 2.5, b"x" * 32)
    # The seed is not in it, but in a place of its own.
    attempt = Attempt(proposal, opening, frozenset({0, 2}), GrowingMap({2: b"h" * 32}), GrowingMap({2: opening}), frozenset({4}))
    for progress in (
        StartProgress(),
        StartProgress(attempt),
        StartProgress(attempt, bound=True),
        StartProgress(None, never=True),
    ):
        assert load_progress(dump_progress(2, progress)) == progress
    everybody = Proposal(1, frozenset(range(5)), b"")
    for told in (Announcement(), Announcement(proposal, b"h" * 32, {2: opening}, bound=True), Announcement(everybody, b"h" * 32)):
        (frame,) = to_frames(told, 5)
        assert from_frame(frame, 5) == told


def test_openings_of_many_parties_take_several_frames() -> None:
    """Each fits into a header, and says all the rest again."""
    everybody = Proposal(1, frozenset(range(500)), b"")
    openings = {party: Opening(bytes([party % 256]) * 32, 1e300, b"x" * 32) for party in range(500)}
    frames = list(to_frames(Announcement(everybody, b"h" * 32, openings, bound=True), 500))
    assert len(frames) == 16
    assert all(len(encode_frame(frame)) < HEADER_LIMIT for frame in frames)
    heard = [from_frame(frame, 500) for frame in frames]
    assert {party: opening for one in heard for party, opening in one.openings.items()} == openings
    assert {(one.proposal, one.commit, one.bound) for one in heard} == {(everybody, b"h" * 32, True)}


def test_hostile_tellings_are_refused_and_change_nothing(parties: Parties) -> None:
    """Random frames of a member: refused as such, or without any effect; nothing else is raised."""
    settings, rng = parties.settings(3600.0)[0], random.Random(1)
    liar = RosterSignatures(parties.identities[1], parties.roster)

    def frame() -> Start:
        attempt, members = (
            rng.choice([0, 1, 2, 11, 2**31 - 1]),
            rng.choice([(), (0, 1, 2, 3), (1, 2, 3, 4), (0, 1, 2, 99), (1,) * 4]),
        )
        proposal = Proposal.signed(settings.study, attempt, members, liar)
        signature = rng.choice([b"", b"s" * 64, b"s" * 63, proposal.signature])
        party, weight = rng.choice([0, 1, 99]), rng.choice([1.0, float("nan"), -1.0])
        opened = Revealed(party, b"n" * 32, weight, b"x" * 32)
        commit = rng.choice([b"", b"h" * 32, b"h"])
        return Start(0, attempt, members, signature, commit, rng.choice([(), (opened,), (opened, opened)]), rng.random() < 0.3)

    async def run() -> set[int]:
        store = settings.open_store()
        found = set()
        try:
            one = StartPhase(settings, store, Carrier({}), lambda event: None)
            for _ in range(500):
                with contextlib.suppress(PeerError):
                    one.heard(1, frame())
                assert not one.progress.bound
                found.add(one.progress.latest)
        finally:
            store.close()
        return found

    # Its own signature is good for its own attempt only, in which this party is with it and enough others.
    assert asyncio.run(run()) == {0, 2}


def test_a_gathering_refuses_an_unsafe_minimum(parties: Parties) -> None:
    settings = parties.settings(0.0)[0]
    assert settings.start is not None
    settings = replace(settings, start=replace(settings.start, start_quorum=3))
    store = settings.open_store()
    try:
        with pytest.raises(InputError, match=r"minimum is 3, .* Choose 4\.\.5"):
            StartPhase(settings, store, Carrier({}), lambda event: None)
    finally:
        store.close()
