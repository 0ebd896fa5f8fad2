"""A study and a session of one round, beside each other: what is the same for those who take part, and where they differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.codec import digest
from quietmean.core.errors import InputError, NotStarted, NotYet
from quietmean.core.party import Vector
from quietmean.node import (
    Identity,
    NodeResult,
    NodeSettings,
    PlannedValue,
    Roster,
    RosterEntry,
    Series,
    SeriesOver,
    Waits,
    folder,
    run_party,
)
from quietmean.node.folder import DiskPlace, FolderSettings, FolderTransport, Slot, Timetable
from quietmean.node.folder.place import OwnFile, Poller, Seen
from quietmean.node.mailbox import mailbox_bytes
from quietmean.node.net import Seal
from quietmean.node.session import StudySession
from quietmean.node.storage import Store
from quietmean.planning import Admitted, Plan, Target
from quietmean.protocols.inca import IncA
from support.folder_world import MAILBOXES

PARTIES = 3
IDENTITIES = [Identity.generate() for _ in range(PARTIES)]
VALUES = np.arange(2.0 * PARTIES).reshape(PARTIES, 2) / 40
# Without independent noise the estimate is the exact mean.
PLAN = Plan(Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=2), IncA(rounds=2, sigma_star=0.0, sigma_delta=0.7))
# Nobody is late on a slow machine either.
PATIENT = Waits(120.0, 120.0)


def admitted(value: Vector) -> Admitted:
    return PLAN.admit(np.array(value))


async def in_a_study(settings: NodeSettings, value: Vector) -> NodeResult:
    return await run_party(replace(settings, brought=PlannedValue(PLAN, admitted(value))))


async def in_a_session(settings: NodeSettings, value: Vector) -> NodeResult:
    async with Series(settings, 1) as series:
        if series.over:
            end = series.last
            assert end is not None
        else:
            end = await series.mean(admitted(value))
        return end.result


Way = Callable[[NodeSettings, Vector], Coroutine[Any, Any, NodeResult]]
both = pytest.mark.parametrize("way", [in_a_study, in_a_session])


def settings_of(folder: Path, addresses: Iterable[tuple[str, int]], seal: Seal | None = None) -> list[NodeSettings]:
    """Of all parties. What they bring is given with each value."""
    entries = [RosterEntry(f"party-{party}", address, IDENTITIES[party].public_key) for party, address in enumerate(addresses)]
    brought = PlannedValue(PLAN, admitted(np.zeros(2)))
    roster = Roster(tuple(entries), seal)
    return [
        NodeSettings(identity=one, roster=roster, brought=brought, store=folder / f"{party}.store", waits=PATIENT)
        for party, one in enumerate(IDENTITIES)
    ]


@pytest.fixture
def connected(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> list[NodeSettings]:
    return settings_of(tmp_path, [("127.0.0.1", port) for port in free_ports(PARTIES)])


def by_folder(folder: Path, now: float = 0.0) -> list[NodeSettings]:
    """As started by a schedule: each ends once there is nothing new."""
    (folder / "share").mkdir(exist_ok=True)
    found = settings_of(folder, [("folder.invalid", party + 1) for party in range(PARTIES)])
    return [
        replace(
            settings,
            transport=FolderSettings(
                lambda session: DiskPlace(folder / "share", session),
                MAILBOXES[party],
                {one: mailbox_bytes(MAILBOXES[one]) for one in range(PARTIES)},
                Timetable.of([PLAN], 1000.0, 1000.0),
                quiet=0.05,
                clock=lambda: now,
            ),
        )
        for party, settings in enumerate(found)
    ]


async def all_of_them(way: Way, settings: list[NodeSettings]) -> list[NodeResult]:
    async with asyncio.timeout(20.0):
        return await asyncio.gather(*(way(one, VALUES[party]) for party, one in enumerate(settings)))


def stores(settings: NodeSettings) -> set[str]:
    return {path.name.removeprefix(settings.store.name) for path in settings.store.parent.glob(f"{settings.store.name}*")}


async def interrupt(task: asyncio.Task[Any], when: Callable[[], bool]) -> None:
    """As Ctrl-C does, as soon as it is so far."""
    while not when():
        assert not task.done()
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@both
def test_the_same_mean_from_other_stores(way: Way, connected: list[NodeSettings]) -> None:
    """A study's result is in its store; a round's in a second one, beside that of the session, which is never over by a round."""
    results = asyncio.run(all_of_them(way, connected))
    for result in results:
        np.testing.assert_allclose(result.mean, VALUES.mean(axis=0), rtol=1e-12)
        np.testing.assert_array_equal(result.total_vector, results[0].total_vector)
    for settings in connected:
        assert stores(settings) == ({""} if way is in_a_study else {"", ".round"})
        store = Store(settings.store, 2, PLAN.grid)
        assert (store.result() is None) == (way is in_a_session)
        store.close()
    # After the end the same is found again, without any other party.
    again = asyncio.run(way(connected[0], VALUES[0]))
    np.testing.assert_array_equal(again.total_vector, results[0].total_vector)
    assert again.public_seed == results[0].public_seed


def test_other_data_are_refused_by_a_study_which_goes_on_with_its_own(connected: list[NodeSettings]) -> None:
    async def story() -> list[NodeResult]:
        begun = asyncio.create_task(in_a_study(connected[2], VALUES[2]))
        await interrupt(begun, lambda: connected[2].store.exists() and connected[2].store.stat().st_size > 0)
        with pytest.raises(InputError, match="started with other data"):
            await in_a_study(connected[2], VALUES[2] + 1)
        return await all_of_them(in_a_study, connected)

    for result in asyncio.run(story()):
        np.testing.assert_allclose(result.mean, VALUES.mean(axis=0), rtol=1e-12)


def test_with_other_data_a_round_of_a_session_is_missed_for_good(connected: list[NodeSettings]) -> None:
    """What it sent cannot be taken back: also with its own data it does not go on then."""
    round_store = connected[2].store.with_name("2.store.round")

    async def story() -> None:
        begun = asyncio.create_task(in_a_session(connected[2], VALUES[2]))
        others = [Series(settings, 1) for settings in connected[:2]]
        async with asyncio.timeout(20.0):
            # Who is in is agreed on, and they begin no round.
            await asyncio.gather(*(one.__aenter__() for one in others))
            await interrupt(begun, lambda: round_store.exists() and round_store.stat().st_size > 0)
            async with Series(connected[2], 1) as third:
                assert not third.over
                with pytest.raises(SeriesOver, match="round 1 goes on only with the vector that it began with, and is missed"):
                    await third.mean(admitted(VALUES[2] + 1))
                assert (third.progress.begun, third.progress.results, third.over) == (1, 0, True)
            assert not round_store.exists()
            async with Series(connected[2], 1) as third:
                with pytest.raises(SeriesOver, match="1 round is over"):
                    await third.mean(admitted(VALUES[2]))
            await asyncio.gather(*(one.__aexit__() for one in others))

    asyncio.run(story())


def test_a_round_is_on_disk_before_it_exists(connected: list[NodeSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    """First the session's store says that the round is begun, then its own is made, and only then anything is sent."""
    order: list[str] = []
    save, opened, run = Store.save_series, NodeSettings.open_store, StudySession.run

    def saves(store: Store, content: bytes) -> None:
        save(store, content)
        order.append("begun")

    def opens(settings: NodeSettings, *given: Any) -> Store:
        order.append("opened" + settings.store.suffix)
        return opened(settings, *given)

    async def runs(session: StudySession) -> NodeResult:
        order.append("runs")
        return await run(session)

    monkeypatch.setattr(Store, "save_series", saves)
    monkeypatch.setattr(NodeSettings, "open_store", opens)
    monkeypatch.setattr(StudySession, "run", runs)

    async def story() -> None:
        async def one(party: int) -> None:
            async with Series(connected[party], 1) as series:
                await turns[party].wait()
                await series.mean(admitted(VALUES[party]))

        turns = [asyncio.Event() for _ in range(PARTIES)]
        parts = [asyncio.create_task(one(party)) for party in range(PARTIES)]
        async with asyncio.timeout(20.0):
            for turn in turns:
                turn.set()
                while order.count("runs") < turns.index(turn) + 1:
                    await asyncio.sleep(0.01)
            await asyncio.gather(*parts)

    asyncio.run(story())
    assert order == ["opened.store"] * PARTIES + ["begun", "opened.round", "runs"] * PARTIES


def test_a_round_has_a_label_of_its_own(tmp_path: Path) -> None:
    """The digest of the session and the number of the round is that of its roster; conveners stay those of the session."""
    (settings, *_) = settings_of(tmp_path, [("folder.invalid", party + 1) for party in range(PARTIES)], Seal("a" * 64, (1, 0, 2)))
    study = {"format": "quietmean-session-1", "roster": settings.roster.digest, "plan": PLAN.digest}
    assert settings.study == digest(study)
    series = Series(settings, 2)
    series.store = settings.open_store()
    series.load()
    labels = {settings.study}
    for number in (1, 2):
        of_round = series.settings_of(number, admitted(VALUES[0]))
        label = digest({"format": "quietmean-round-1", "session": settings.study, "round": number})
        assert (of_round.roster.digest, of_round.roster.conveners) == (label, (1, 0, 2))
        assert of_round.roster.entries == settings.roster.entries
        assert of_round.study == digest({**study, "roster": label})
        assert of_round.store == tmp_path / "0.store.round"
        labels.add(of_round.study)
    assert len(labels) == 3
    series.store.close()


@both
def test_visits_by_a_schedule_end_as_not_yet_until_there_is_a_result(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No two are ever there together; the command ends with 4 then."""
    monkeypatch.setattr(folder, "_LAST_PAUSE", 0.02)
    assert NotYet.exit_code == 4
    results: dict[int, NodeResult] = {}
    for visit in range(30 * PARTIES):
        party = visit % PARTIES
        if party in results:
            continue
        try:
            results[party] = asyncio.run(way(by_folder(tmp_path)[party], VALUES[party]))
        except NotYet:
            continue
        if len(results) == PARTIES:
            break
    assert len(results) == PARTIES
    for result in results.values():
        np.testing.assert_allclose(result.mean, VALUES.mean(axis=0), rtol=1e-12)
        np.testing.assert_array_equal(result.total_vector, results[0].total_vector)
    for settings in by_folder(tmp_path):
        outboxes = {".outbox"} if way is in_a_study else {".outbox", ".round.outbox"}
        assert {end for end in stores(settings) if end.endswith("outbox")} == outboxes


@both
def test_who_comes_after_all_waits_has_no_result(way: Way, tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="did not start"):
        asyncio.run(way(by_folder(tmp_path, now=1e6)[0], VALUES[0]))


def test_who_dies_between_its_result_and_its_last_answers_puts_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By folder a party ends as soon as it has all logs: its answer to the last one is in its outbox only until it leaves."""
    monkeypatch.setattr(folder, "_LAST_PAUSE", 0.02)
    close, looked, dead = FolderTransport.close, Poller.look, set[int]()

    async def without_a_last_look(post: FolderTransport, *, answering: bool = True) -> None:
        # From its result on, its process puts nothing any more.
        await close(post, answering=answering and not dead)

    def until_its_result(poller: Poller, outgoing: dict[Slot, OwnFile], *more: Any) -> list[Seen]:
        own = next(iter(outgoing), None)
        dies = bool(dead) and own is not None and own.sender == 1
        # A look later than it could: nothing that comes with the last log goes before the result is durable.
        mine = {slot: file for slot, file in outgoing.items() if slot in known} if dies else outgoing
        known.update(outgoing)
        return looked(poller, mine, *more)

    known = set[Slot]()
    monkeypatch.setattr(FolderTransport, "close", without_a_last_look)
    monkeypatch.setattr(Poller, "look", until_its_result)
    results: dict[int, NodeResult] = {}
    deaths = 0
    for visit in range(40 * PARTIES):
        party = visit % PARTIES
        settings = by_folder(tmp_path)[party]
        dead.clear()
        if party == 1 and not deaths:
            dead.add(party)
        try:
            ended = asyncio.run(in_a_study(settings, VALUES[party]))
        except NotYet:
            continue
        deaths += bool(dead)
        if not dead:
            results[party] = ended
        if len(results) == PARTIES:
            break
    assert deaths == 1
    assert len(results) == PARTIES, f"{sorted(results)} have a result"
    for result in results.values():
        np.testing.assert_array_equal(result.total_vector, results[0].total_vector)
