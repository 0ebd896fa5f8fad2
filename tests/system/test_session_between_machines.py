"""``qm.session``: three real parties in one process, over TLS on loopback: many rounds, one agreement, one budget."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.codec import digest
from quietmean.core.domain import Links
from quietmean.core.errors import InputError, NotStarted
from quietmean.core.folders import configuration_folder, data_folder
from quietmean.learning import SharedModel
from quietmean.ledger import Ledger
from quietmean.node import NodeSettings, Roster, RosterEntry
from quietmean.node.net import format_address
from quietmean.node.series.party import SeriesParty, SeriesProgress
from quietmean.node.session import StudySession
from quietmean.node.start.policy import WhenAllAreThere
from quietmean.planning.influence import require_possible
from quietmean.randomness import Seed
from quietmean.sessions.joined import AsyncRounds
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study_keys import StudyKeys, keys_path
from quietmean.studies.party.audit import AuditLog, Event, verify
from support.relays import RelayProcess
from support.rosters import on_this_machine, write_roster
from support.sessions import NAMES, account_of, entry_of, receipt_of, sealed_by_north, together
from support.site_policy import write_policy

D = 20
# Inside the unit ball; the noise of a generous budget is small against it.
VECTORS = {name: np.full(D, scale / np.sqrt(D)) for name, scale in zip(NAMES, (0.9, 0.3, -0.3), strict=True)}
TERMS: dict[str, Any] = {
    "name": "averaging",
    "dimension": D,
    "rounds": 4,
    "epsilon": 20.0,
    "delta": 1e-5,
    "colluding": 1,
    "round_timeout": 3.0,
}


@pytest.fixture(autouse=True)
def consortium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]) -> None:
    monkeypatch.chdir(tmp_path)
    write_policy(largest_epsilon=25.0, budget={"epsilon": 25.0, "delta": 1e-4}, unattended=True)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(3)))


@pytest.fixture(params=["by roster", "sealed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each party has session and roster of its own, or all have one file that a convener sealed."""
    found: str = request.param
    monkeypatch.setitem(globals(), "SEALS", found == "sealed")
    return found


SEALS = False


def sealed(terms: dict[str, Any]) -> Path:
    """The session as north sealed it, with all parties of the roster."""
    path = Path("averaging.sealed")
    if not path.exists():
        entries = Roster.load(Path("roster.toml")).entries
        sealed_by_north(terms, {entry.name: format_address(entry.address) for entry in entries}, path)
    assert Sealed.load(path).terms == SessionStudy.parse(terms).sealable()
    return path


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is made in.*")
        warnings.filterwarnings("ignore", message="nobody compared the safety code.*")
        yield


def part(name: str, terms: dict[str, Any] = TERMS, **more: Any) -> qm.session:
    agreed: Any = (sealed(terms), None) if SEALS else (terms, "roster.toml")
    asked, roster = agreed
    return qm.session(asked, roster, f"{name}.key", **{"new_account": None if "account" in more else name, "yes": True, **more})


receipt = partial(receipt_of, "averaging")


def files(name: str) -> set[str]:
    return {path.name for path in Path().glob(f"averaging-{name}.store*")}


def test_files_stay_where_they_are_whatever_folder_a_program_works_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may change its folder between two rounds: no round has a store elsewhere, whose noise would be another one."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    async def all_rounds(taking_part: qm.session, name: str) -> None:
        async with taking_part as rounds:
            while not rounds.over:
                await rounds.mean(VECTORS[name])
                monkeypatch.chdir(elsewhere)

    # Each knows its files before anybody's program goes elsewhere.
    parts = {name: part(name, store=f"{name}.store", receipt=f"{name}.json") for name in NAMES}
    together(lambda name: all_rounds(parts[name], name), NAMES)
    assert list(elsewhere.iterdir()) == []
    assert {f"{name}.json" for name in NAMES} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.sampled(1)
def test_ten_lines_of_user_code_for_all_rounds(way: str) -> None:
    """Means of all rounds, one charge, one receipt, fresh noise each round."""
    sizes: list[int] = []

    async def one(name: str) -> list[np.ndarray[Any, Any]]:
        found: list[np.ndarray[Any, Any]] = []
        async with part(name) as rounds:
            with pytest.raises(InputError, match="entered already"):
                await rounds.__aenter__()
            while not rounds.over:
                mean = await rounds.mean(VECTORS[name])
                assert mean.counted == NAMES
                assert mean.round == len(found) + 1
                found.append(mean.mean)
                assert np.abs(mean.mean - sum(VECTORS.values()) / 3).max() < 6 * mean.standard_error
                sizes.append(sum(path.stat().st_size for path in Path().glob(f"averaging-{name}.store*")))
                assert [entry.status for entry in account_of(name).entries] == ["reserved"]
        return found

    results = together(one, NAMES)
    for mine in results[1:]:
        np.testing.assert_array_equal(mine, results[0])
    rounds = results[0]
    assert len({value.tobytes() for value in rounds}) == len(rounds) == 4
    contract = part("north").contract
    for name in NAMES:
        paid = entry_of(name)
        assert paid.status == "spent"
        assert paid.charged == paid.reserved == contract.charge
        document = receipt(name)
        assert document["rounds"] == {"agreed": 4, "begun": 4, "with_mean": 4, "counted": dict.fromkeys(NAMES, 4)}
        assert document["certificate"]["epsilon"] == contract.epsilon_a_priori <= 20.0
        assert document["origin"]["approval"]["contract"] == contract.digest
        assert ("sealed" in document["origin"]["approval"]) == (way == "sealed")
        own = [one.event for one in verify(AuditLog(data_folder() / "audit.jsonl"), {}).entries if one.party == name]
        assert own == [Event.YES, Event.CHARGED, Event.STARTED, Event.ENDED]
    ended = [receipt(name)["rounds"] for name in NAMES]
    # Who calls it again finds all over, and counts no round twice.
    assert together(one, NAMES) == [[]] * 3
    assert [receipt(name)["rounds"] for name in NAMES] == ended


def test_what_is_computed_after_a_round_holds_up_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others take who is busy for silent."""
    checks: list[Thread] = []

    def slow(*arguments: Any) -> None:
        checks.append(current_thread())
        require_possible(*arguments)

    monkeypatch.setattr("quietmean.sessions.joined.require_possible", slow)

    async def one(name: str) -> None:
        async with part(name) as rounds:
            await rounds.mean(VECTORS[name])

    together(one, NAMES)
    assert len(checks) == 3
    assert main_thread() not in checks


def test_noise_of_pairs_rests_on_ml_kem_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sealed session: one seed for each pair and round, the same at both ends; keys and secrets are gone with the end."""
    monkeypatch.setitem(globals(), "SEALS", True)
    terms = TERMS | {"protocol": "cordp-dme", "rounds": 2}
    seeds: dict[tuple[str, frozenset[int]], set[bytes]] = {}
    shared = StudySession._shared_seed

    def used(session: StudySession, other: int) -> Seed:
        settings = session._settings
        assert settings.keys.links == Links.HYBRID
        assert len(settings.required_agreement.shared[other].secret) == 32
        seed = shared(session, other)
        seeds.setdefault((settings.study, frozenset((settings.party, other))), set()).add(seed.secret)
        return seed

    monkeypatch.setattr(StudySession, "_shared_seed", used)

    async def one(name: str) -> None:
        async with part(name, terms) as rounds:
            for _ in range(2):
                await rounds.mean(VECTORS[name])

    together(one, NAMES)
    # Three pairs in two rounds.
    assert len(seeds) == 6
    assert {len(both) for both in seeds.values()} == {1}
    assert len(set.union(*seeds.values())) == 6
    digest = Sealed.load(sealed(terms)).invitation.digest
    for name in NAMES:
        assert receipt(name)["session"]["links"] == "hybrid"
        assert StudyKeys.load(keys_path(Path(f"{name}.key"), digest)).encapsulation is None


def test_the_program_on_the_page() -> None:
    """The session file and the few lines of the how-to page, by three parties, as they stand there."""
    page = (Path(__file__).parents[2] / "docs/models/sessions.md").read_text().partition("## Between machines")[2]
    file, program = (page.split(f"```{kind}\n", 1)[1].split("```", 1)[0] for kind in ("toml", "python"))
    Path("session.toml").write_text(file)
    assert len(program.splitlines()) <= 8
    found: dict[str, Any] = {}

    def run(name: str) -> None:
        names = {"start": np.zeros(3), "trained": lambda model: model + 0.1}
        exec(program.replace("north.key", f"{name}.key").replace('account="wards"', f'new_account="{name}"'), names)  # noqa: S102 - our own page
        found[name] = names["model"], names["rounds"]

    threads = [Thread(target=run, args=[name]) for name in NAMES]
    # Without a policy of its own, as a new user has it.
    (configuration_folder() / "policy.toml").unlink()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    models = [found[name][0] for name in NAMES]
    assert all(np.array_equal(model, models[0]) for model in models)
    assert [found[name][1].begun for name in NAMES] == [10, 10, 10]


# One vector each and nothing else to wait for: who is away costs no more than one time-out.
UNSTEADY: dict[str, Any] = TERMS | {"rounds": 5, "dropouts": 0.34, "protocol": "cordp-dme"}


async def mean_of_all(rounds: dict[str, AsyncRounds]) -> set[tuple[int, tuple[str, ...]]]:
    """(number, who is counted) of one round of these parties."""
    found = await asyncio.gather(*(one.mean(VECTORS[name]) for name, one in rounds.items()))
    return {(mean.round, mean.counted) for mean in found}


async def interrupt(running: qm.session) -> None:
    """As Ctrl-C does."""
    await running.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None)


@pytest.mark.sampled(1)
def test_different_members_are_away_in_different_rounds(way: str) -> None:
    async def story() -> None:
        running = {name: part(name, UNSTEADY) for name in NAMES}
        opened = await asyncio.gather(*(one.__aenter__() for one in running.values()))
        rounds = dict(zip(NAMES, opened, strict=True))
        assert await mean_of_all(rounds) == {(1, NAMES)}
        for away, number in (("east", 2), ("south", 4)):
            await interrupt(running[away])
            others = {name: one for name, one in rounds.items() if name != away}
            assert await mean_of_all(others) == {(number, tuple(name for name in NAMES if name != away))}
            running[away] = part(away, UNSTEADY)
            rounds[away] = await running[away].__aenter__()
            # What it had before it went away is still there.
            last = rounds[away].last()
            assert last is not None
            assert last.round == number - 1
            back = await asyncio.gather(*(one.mean(VECTORS[name]) for name, one in rounds.items()))
            assert {(mean.round, mean.counted) for mean in back} == {(number + 1, NAMES)}
            assert [mean.missed for mean in back] == [int(name == away) for name in rounds]
        assert {name: one.begun for name, one in rounds.items()} == {"north": 5, "south": 4, "east": 4}
        assert [one.over for one in rounds.values()] == [True, True, True]
        with pytest.raises(qm.InputError, match="5 rounds are over"):
            await rounds["north"].mean(VECTORS["north"])
        await asyncio.gather(*(one.__aexit__(None, None, None) for one in running.values()))

    asyncio.run(story())
    terms = part("north", UNSTEADY).contract.terms
    for name, begun in (("north", 5), ("south", 4), ("east", 4)):
        paid = entry_of(name)
        # A missed round costs nothing, and is given back at the end.
        assert paid.charged == terms.charge(begun)
        assert paid.reserved == terms.charge(5)
        assert receipt(name)["rounds"]["begun"] == begun
        assert receipt(name)["rounds"]["counted"]["north"] == begun
        # Nothing but the small store of the session and its last round is left.
        assert files(name) <= {f"averaging-{name}.store{end}" for end in ("", ".round", ".round.last", ".status.json")}


class _KilledError(BaseException):
    """Nothing of the process runs any more."""


def before_the_round_has_a_store(patch: pytest.MonkeyPatch) -> None:
    opened = NodeSettings.open_store

    def killed(settings: NodeSettings, *given: Any) -> Any:
        if settings.store.suffix == ".round":
            raise _KilledError
        return opened(settings, *given)

    patch.setattr(NodeSettings, "open_store", killed)


def as_soon_as_it_is_on_disk_that_it_begins(patch: pytest.MonkeyPatch) -> None:
    saved = SeriesParty.save

    def killed(party: SeriesParty, progress: SeriesProgress) -> None:
        saved(party, progress)
        raise _KilledError

    patch.setattr(SeriesParty, "save", killed)


@pytest.mark.parametrize(
    ("dies", "gone", "number"),
    [
        (before_the_round_has_a_store, False, 2),
        (before_the_round_has_a_store, True, 2),
        (as_soon_as_it_is_on_disk_that_it_begins, False, 1),
        pytest.param(as_soon_as_it_is_on_disk_that_it_begins, False, 2, marks=pytest.mark.slow),
        pytest.param(before_the_round_has_a_store, False, 1, marks=pytest.mark.slow),
    ],
)
def test_who_is_killed_as_it_begins_a_round_takes_part_in_it_when_it_is_back(
    dies: Callable[[pytest.MonkeyPatch], None], gone: bool, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the round has left: it is not missed. Where what was kept of it is gone nobody knows, and it is."""

    async def story() -> None:
        running = {name: part(name, UNSTEADY) for name in NAMES}
        rounds = dict(zip(NAMES, await asyncio.gather(*(one.__aenter__() for one in running.values())), strict=True))
        for before in range(1, number):
            assert await mean_of_all(rounds) == {(before, NAMES)}
        with monkeypatch.context() as patch:
            dies(patch)
            with pytest.raises(_KilledError):
                await rounds["east"].mean(VECTORS["east"])
        assert rounds["east"].begun == number
        await interrupt(running["east"])
        if gone:
            Path("averaging-east.store.round").unlink()
        running["east"] = part("east", UNSTEADY)
        coming = asyncio.create_task(running["east"].__aenter__())

        async def late() -> tuple[int, tuple[str, ...]]:
            # It is connected, and has to compute for more than half of the others' time-out.
            east = await coming
            await asyncio.sleep(0.6 * UNSTEADY["round_timeout"])
            mean = await east.mean(-VECTORS["east"])
            return mean.round, mean.counted

        others = {name: one for name, one in rounds.items() if name != "east"}
        found = await asyncio.gather(mean_of_all(others), late(), return_exceptions=True)
        expected = (number, NAMES) if not gone else (number, NAMES[:2])
        assert found[0] == {expected}
        if not gone:
            assert found[1] == expected
        for one in running.values():
            await interrupt(one)

    async def with_end() -> None:
        async with asyncio.timeout(60.0):
            await story()

    asyncio.run(with_end())


# Fifteen exchanges, in each of which who is away could be waited for.
MIXED: dict[str, Any] = TERMS | {"rounds": 2, "epsilon": 8.0, "protocol": "muffliato", "unit": "record", "round_timeout": 12.0}


@pytest.mark.parametrize("late", [False, True])
def test_who_is_past_a_round_holds_nobody_up_in_it(late: bool) -> None:
    """Whether what it kept of the round is gone, or it comes back once the others have given it up there."""
    terms = MIXED | {"round_timeout": 4.0} if late else MIXED
    records = np.full((40, D), 0.1)

    async def story() -> tuple[float, list[int], list[int]]:
        loop, running = asyncio.get_running_loop(), {name: part(name, terms, records=40) for name in NAMES}
        rounds = dict(zip(NAMES, await asyncio.gather(*(one.__aenter__() for one in running.values())), strict=True))
        if not late:
            with pytest.MonkeyPatch.context() as patch:
                before_the_round_has_a_store(patch)
                with pytest.raises(_KilledError):
                    await rounds["east"].mean(records)
            Path("averaging-east.store.round").unlink()
        await interrupt(running["east"])
        others = [asyncio.create_task(rounds[name].mean(records)) for name in NAMES[:2]]
        # Nobody is given up before the time-out; some time after it they are in another exchange.
        await asyncio.sleep(1.4 * terms["round_timeout"] if late else 0.5)
        back, running["east"] = loop.time(), part("east", terms, records=40)
        east = await running["east"].__aenter__()
        comes = asyncio.create_task(east.mean(records))
        first = [(await one).round for one in others]
        seconds = loop.time() - back
        second = await asyncio.gather(*(rounds[name].mean(records) for name in NAMES[:2]), comes)
        for party in running.values():
            await interrupt(party)
        return seconds, first, [one.round for one in second]

    seconds, first, second = asyncio.run(story())
    assert (first, second) == ([1, 1], [2, 2, 2])
    assert seconds < 2 * terms["round_timeout"]


PROGRAM = """
import sys, json, warnings, numpy as np, quietmean as qm
warnings.simplefilter("ignore")
terms, roster, name = json.loads(sys.argv[1]), *sys.argv[2:]
with qm.session(terms, roster or None, f"{name}.key", new_account=name, yes=True) as rounds:
    while not rounds.over:
        mean = rounds.mean(np.full(rounds.contract.study.dimension, 0.1))
        print(json.dumps([mean.round, mean.counted, mean.missed]), flush=True)
"""


def start(name: str, terms: dict[str, Any]) -> subprocess.Popen[str]:
    """A process of its own for one party."""
    agreed = (json.dumps(str(sealed(terms))), "") if SEALS else (json.dumps(terms), "roster.toml")
    command = [sys.executable, "-c", PROGRAM, *agreed, name]
    environment = os.environ | {"PYTHONPATH": str(Path(qm.__file__).parents[1])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


# So long the others wait in a party's absence.
PATIENT: dict[str, Any] = UNSTEADY | {"round_timeout": 10.0}


@pytest.mark.parametrize(
    ("way", "by"),
    [
        ("by roster", signal.SIGKILL),
        pytest.param("sealed", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("by roster", signal.SIGINT, marks=pytest.mark.slow),
    ],
    indirect=["way"],
)
def test_a_party_that_is_killed_comes_back_in_a_later_round(way: str, by: signal.Signals) -> None:
    killed = start("east", PATIENT)
    again: list[subprocess.Popen[str]] = []
    dead: list[str] = []
    try:
        came_back = asyncio.Event()

        async def steady(name: str) -> list[tuple[int, tuple[str, ...]]]:
            found = []
            async with part(name, PATIENT) as rounds:
                while not rounds.over:
                    if rounds.round == 2 and name == "north":
                        # South waits for north, so east is in the middle of the round.
                        await asyncio.sleep(0.3)
                        killed.send_signal(by)
                        await asyncio.to_thread(killed.wait)
                        dead.append(status("east")["started"])
                    if rounds.round == 3 and name == "north":
                        again.append(start("east", PATIENT))
                        while not _is_there(dead):
                            await asyncio.sleep(0.05)
                        came_back.set()
                    if rounds.round == 3:
                        # However long it takes: the time of a round that south has begun without them would run out.
                        await came_back.wait()
                    mean = await rounds.mean(VECTORS[name])
                    found.append((mean.round, mean.counted))
            return found

        north, _ = together(steady, NAMES[:2])
        printed, _ = again[0].communicate(timeout=30)
        assert again[0].returncode == 0
    finally:
        for process in (killed, *again):
            process.kill()
            process.communicate()
    assert [counted for _, counted in north[:2]] == [NAMES, NAMES]
    back = [json.loads(line) for line in printed.splitlines()]
    assert back
    assert back[0][2] <= 1
    assert back[-1][:2] == [5, list(NAMES)]
    begun = receipt("east")["rounds"]["begun"]
    terms = part("north", PATIENT).contract.terms
    paid = entry_of("east")
    assert paid.charged == terms.charge(begun)
    assert paid.charged.mu <= paid.reserved.mu


def status(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(f"averaging-{name}.store.status.json").read_text())
    return document


def _is_there(dead: list[str]) -> bool:
    """Whether another process of east than the one that is dead has connected to north."""
    east = next(peer for peer in status("north")["peers"] if peer["name"] == "east")
    started = status("east")["started"]
    return started not in dead and (east["last_heard"] or "") > started


@pytest.mark.slow
def test_by_way_of_a_relay_that_is_started_again(way: str, free_ports: Callable[[int], list[int]]) -> None:
    with RelayProcess(free_ports(1)[0]) as relay:
        roster = Roster.load(Path("roster.toml"))
        entries = [RosterEntry(entry.name, relay.address, entry.public_key) for entry in roster.entries]
        Path("roster.toml").write_text(Roster(tuple(entries)).to_toml())

        async def story() -> list[set[tuple[int, tuple[str, ...]]]]:
            running = [part(name, TERMS | {"round_timeout": 20.0}) for name in NAMES]
            opened = await asyncio.gather(*(one.__aenter__() for one in running))
            rounds = dict(zip(NAMES, opened, strict=True))
            found = [await mean_of_all(rounds), await mean_of_all(rounds)]
            await asyncio.to_thread(relay.kill)
            await asyncio.to_thread(relay.start)
            found += [await mean_of_all(rounds), await mean_of_all(rounds)]
            await asyncio.gather(*(one.__aexit__(None, None, None) for one in running))
            return found

        assert asyncio.run(story()) == [{(number, NAMES)} for number in (1, 2, 3, 4)]
        assert relay.health()["since_start"]["joined"] >= 1


def test_a_budget_that_ends_in_mid_session() -> None:
    """East can pay for two of five rounds: it takes part in these, and the others go on."""
    terms = part("north", UNSTEADY).contract.terms
    two = terms.charge(2).epsilon(1e-4)
    write_policy(largest_epsilon=25.0, budget={"epsilon": 25.0, "delta": 1e-4}, unattended=True)
    poor = {"ledger": "east.ledger"}
    with Ledger.open(Path("east.ledger"), create=True) as book:
        book.set_budget("east", two * 1.02, 1e-4, when=datetime.now(UTC), unit=terms.unit)
    with pytest.raises(qm.InputError, match="account 'east'"), part("east", UNSTEADY, **poor):
        pass

    async def one(name: str) -> list[tuple[int, tuple[str, ...]]]:
        found = []
        more = {"most": 2, **poor} if name == "east" else {}
        async with part(name, UNSTEADY, **more) as rounds:
            while not rounds.over:
                mean = await rounds.mean(VECTORS[name])
                found.append((mean.round, mean.counted))
            if name == "east":
                with pytest.raises(qm.InputError, match="as many as it pays for"):
                    await rounds.mean(VECTORS[name])
        return found

    north, south, east = together(one, NAMES)
    assert north == south
    assert east == north[:2] == [(1, NAMES), (2, NAMES)]
    assert north[2:] == [(number, NAMES[:2]) for number in (3, 4, 5)]
    poor_account = account_of("east", Path("east.ledger"))
    assert poor_account.charged == terms.charge(2)
    assert not poor_account.overspent
    assert receipt("east")["rounds"]["begun"] == 2
    # It has left for good: nothing is begun, and nothing is charged a second time.
    with part("east", UNSTEADY, most=2, **poor) as rounds:
        assert rounds.over
        with pytest.raises(qm.InputError, match="left the session for good"):
            rounds.mean(VECTORS["east"])
    assert account_of("east", Path("east.ledger")) == poor_account


def test_two_rounds_with_one_label_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check that every round has noise of its own finds a program that forgets the number of the round."""
    series = import_module("quietmean.node.series.party")
    monkeypatch.setattr(series, "digest", lambda about: digest({**about, "round": 0}))

    async def one(name: str) -> list[bytes]:
        async with part(name, TERMS | {"rounds": 2}) as rounds:
            return [(await rounds.mean(VECTORS[name])).mean.tobytes() for _ in range(2)]

    assert all(first == second for first, second in together(one, NAMES))


def refused(terms: dict[str, Any] = TERMS, **more: Any) -> str:
    with pytest.raises(qm.InputError) as found, part("north", terms, **more):
        pass
    assert files("north") == set()
    return str(found.value)


def test_what_is_refused_before_anything_is_sent() -> None:
    assert "rouns is unknown (did you mean 'rounds'?)" in refused({**TERMS, "rouns": 3})
    assert "dimension is missing" in refused({"rounds": 3})
    assert "session has no keyword 'acount' (did you mean 'account'?)" in refused(acount="wards")
    assert "Give account=NAME" in refused(account=None)
    with pytest.raises(qm.InputError, match="Give account=NAME, what the ledger calls it, or no_ledger=True") as found:
        part("north", account=None).give_up()
    assert "--" not in str(found.value)
    assert "is not the digest of this study" in refused(accept="0" * 64)
    assert "most is 9" in refused(most=9)
    assert "Leave records out" in refused(records=5)
    assert "Give records" in refused(TERMS | {"unit": "record"})
    assert "Choose at most 10000" in refused(TERMS | {"rounds": 10**9})
    write_policy(largest_epsilon=2.0, units=["record"], statistics=["mean"], smallest_parties=4)
    said = refused(yes=False)
    assert all(rule in said for rule in ("largest_epsilon", "units", "statistics", "smallest_parties"))
    write_policy(largest_epsilon=25.0)
    assert "nobody said yes" in refused(yes=False)
    Path("wrong.toml").write_text("[session]\nrounds = 2\n[column]\n")
    with pytest.raises(qm.InputError, match="one table"):
        qm.session("wrong.toml", "roster.toml", "north.key")


def test_vectors_that_cannot_be_are_refused_and_nothing_is_spent() -> None:
    async def one(name: str) -> None:
        async with part(name, TERMS | {"rounds": 1}) as rounds:
            for wrong, words in ((np.zeros(3), "has shape"), ("text", "not an array of numbers")):
                with pytest.raises(qm.InputError, match=words):
                    await rounds.mean(wrong)
            with pytest.raises(qm.InputError, match="clip is -1"):
                await rounds.mean(VECTORS[name], clip=-1.0)
            assert rounds.begun == 0
            # Far too long and not numbers: shortened, and counted as 0.
            mean = await rounds.mean(np.where(np.arange(D) % 2, np.inf, np.nan), clip=3.0)
            assert np.abs(mean.mean).max() < 3 + 6 * mean.standard_error

    together(one, NAMES)


def waits_in_vain(name: str, terms: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else is there; a moment is enough to see that."""
    with monkeypatch.context() as patch:
        patch.setattr(WhenAllAreThere, "start", lambda own, tasks: setattr(own, "_closing", tasks.spawn(asyncio.sleep(0.1))))
        with pytest.raises(NotStarted, match=says), part(name, terms):
            pass


def test_who_waited_in_vain_has_the_budget_back_until_something_may_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = TERMS | {"rounds": 2, "start_timeout": 90.0, "round_timeout": 30.0}
    for _ in range(2):
        waits_in_vain("north", terms, "for want of south.*What was reserved in the ledger is given back", monkeypatch)
        assert account_of("north").charged.mu == 0.0
        assert account_of("north").entries[-1].status == "spent"

    async def one_round(name: str) -> None:
        with contextlib.suppress(_AwayError):
            async with part(name, terms) as rounds:
                reserved = account_of(name).charged
                await rounds.mean(VECTORS[name])
                assert account_of(name).charged == reserved == rounds.contract.terms.charge(2)
                raise _AwayError

    together(one_round, NAMES)
    before, paid = account_of("north").charged, account_of("north").entries[-1]
    assert before.mu > 0
    # Whatever an end would say of it.
    with Ledger.open(data_folder() / "ledger") as book:
        assert not book.give_back(paid.study, when=datetime.now(UTC))
    assert account_of("north").charged == before


def test_a_session_that_never_starts_is_given_up_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = TERMS | {"start_timeout": 0.3}
    waits_in_vain("north", alone, r"did not start within 0\.3 s for want of south", monkeypatch)
    given_back = part("north", alone).give_up()
    assert given_back is not None
    assert {(entry.status, entry.charged.mu) for entry in given_back.entries} == {("spent", 0.0)}
    assert receipt("north")["rounds"]["begun"] == 0
    # For good: it never takes part in this session.
    with part("north", alone) as rounds:
        assert rounds.over
    assert account_of("north").charged.mu == 0.0


class _AwayError(Exception):
    """A party's program ends in the middle."""


def test_a_model_is_averaged_between_machines() -> None:
    """One party is away for two rounds and goes on with another's model: all have the same bits at the end, near the goal."""
    start = {"w": np.zeros((4, 4), np.float32), "b": np.zeros(4)}
    goals = dict(zip(NAMES, (1.0, 2.0, 3.0), strict=True))
    terms = {**TERMS, "protocol": "cordp-dme", "rounds": 8, "dropouts": 0.3, "round_timeout": 6.0}

    errors: list[float] = []

    def trained(model: Any, goal: float) -> Any:
        return {name: array + 0.7 * (goal - array) for name, array in model.items()}

    async def all_three() -> list[SharedModel]:
        missed, back = asyncio.Event(), asyncio.Event()

        async def rounds_of(name: str, shared: SharedModel, *, leaves_after: int | None = None) -> None:
            async with part(name, terms, ledger=Path(name)) as rounds:
                if leaves_after is None and shared.round:
                    back.set()
                while not rounds.over:
                    if shared.round == leaves_after:
                        raise _AwayError
                    mean = await rounds.mean(shared.difference(trained(shared.model, goals[name])))
                    shared.move(mean)
                    errors.append(mean.standard_error * shared.clip)
                    if shared.round == 4 and name != "east":
                        if name == "north":
                            shared.save("model.npz")
                            missed.set()
                        await back.wait()

        async def away_and_back(shared: SharedModel) -> None:
            with contextlib.suppress(_AwayError):
                await rounds_of("east", shared, leaves_after=2)
            await missed.wait()
            shared.load("model.npz")
            await rounds_of("east", shared)

        models = [SharedModel(start, clip=10.0) for _ in NAMES]
        await asyncio.gather(rounds_of("north", models[0]), rounds_of("south", models[1]), away_and_back(models[2]))
        return models

    found = asyncio.run(all_three())
    assert [shared.round for shared in found] == [8] * 3
    first = found[0].model
    assert first["w"].dtype == np.float32
    for shared in found[1:]:
        assert all(shared.model[name].tobytes() == first[name].tobytes() for name in first)
    # Four rounds with all three bring it from the mean of two to that of all, up to the noise.
    assert np.abs(first["b"] - 2.0).max() < 6 * max(errors)
    assert receipt("east")["rounds"]["counted"]["east"] == 6
