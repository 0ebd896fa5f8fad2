"""A session whose messages are files: rounds by the clock, in processes that share nothing but a folder."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.errors import NotStarted, NotYet
from quietmean.core.folders import data_folder
from quietmean.node import Identity
from quietmean.node.folder import FolderSettings
from quietmean.node.storage import size_of
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party import PartyContext
from support.command_lines import command, ending
from support.sessions import NAMES, entry_of, receipt_of, sealed_by_north, together
from support.site_policy import write_policy

D = 4
VECTORS = {name: np.full(D, scale / np.sqrt(D)) for name, scale in zip(NAMES, (0.9, 0.3, -0.3), strict=True)}


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    write_policy(largest_epsilon=25.0, budget={"epsilon": 25.0, "delta": 1e-4}, unattended=True)
    Path("share").mkdir()
    for name in NAMES:
        Identity.generate().save(Path(f"{name}.key"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is made in.*|nobody compared the safety code.*")
        yield


def agree(first: float = 300.0, interval: float = 60.0, **more: Any) -> Sealed:
    """The session as north sealed it, whose start waits for ``first`` seconds and each step of a round for ``interval``."""
    when = datetime.now(UTC) + timedelta(seconds=first)
    terms = {
        "name": "averaging",
        "dimension": D,
        "rounds": 3,
        "epsilon": 20.0,
        "delta": 1e-5,
        "colluding": 1,
        "dropouts": 0.34,
        "protocol": "cordp-dme",
        "transport": "folder",
        "deadlines": {"first": when.isoformat(), "interval": interval, "poll": 2.0},
        **more,
    }
    return sealed_by_north(terms, dict.fromkeys(NAMES, ""), Path("averaging.sealed"))


def part(name: str, **more: Any) -> qm.session:
    return qm.session("averaging.sealed", None, f"{name}.key", new_account=name, yes=True, folder="share", **more)


receipt = partial(receipt_of, "averaging")


def kept(name: str) -> int:
    """Bytes that a party keeps, of which all are listed with its store."""
    size = sum(path.stat().st_size for path in Path().glob(f"averaging-{name}.store*"))
    assert size_of(Path(f"averaging-{name}.store")) == size
    return size


def test_all_rounds_by_files_and_what_is_kept_does_not_grow() -> None:
    agree(rounds=5)
    sizes: dict[str, list[int]] = {name: [] for name in NAMES}

    async def one(name: str) -> list[bytes]:
        means: list[bytes] = []
        async with part(name) as rounds:
            while not rounds.over:
                release = await rounds.mean(VECTORS[name])
                assert set(release.counted) == set(NAMES)
                assert release.round == len(means) + 1
                means.append(release.mean.tobytes())
                sizes[name].append(kept(name))
        return means

    results = together(one, NAMES)
    assert results[0] == results[1] == results[2]
    assert len(set(results[0])) == 5
    terms = part("north").contract.terms
    for name in NAMES:
        assert max(sizes[name]) <= sizes[name][0] + 40_000
        assert (entry_of(name).status, entry_of(name).charged) == ("spent", terms.charge(5))
        assert receipt(name)["rounds"] == {"agreed": 5, "begun": 5, "with_mean": 5, "counted": dict.fromkeys(NAMES, 5)}
        assert receipt(name)["session"]["transport"] == "folder"


def visit(name: str, means: dict[int, set[bytes]]) -> bool:
    """What one start of a program by a schedule does; whether that was the last one."""
    try:
        with part(name, once=True) as rounds:
            # A program that knows nothing of the visits before it but what the session has.
            last = rounds.last()
            model = np.zeros(D) if last is None else last.mean
            while not rounds.over:
                release = rounds.mean(VECTORS[name] + model / 100)
                model = release.mean
                means.setdefault(release.round, set()).add(release.mean.tobytes())
    except NotYet:
        return False
    return True


@pytest.mark.slow
def test_by_schedule_alone_in_which_no_two_are_ever_there_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("quietmean.studies.party.files"), "_QUIET", 0.1)
    monkeypatch.setattr(import_module("quietmean.node.folder"), "_LAST_PAUSE", 0.05)
    agree(rounds=3)
    means: dict[int, set[bytes]] = {}
    left, visits = list(NAMES), 0
    while left:
        visits += 1
        left = [name for name in left if not visit(name, means)]
        assert visits < 30
    assert {number: len(same) for number, same in means.items()} == {1: 1, 2: 1, 3: 1}
    terms = part("north").contract.terms
    for name in NAMES:
        assert entry_of(name).charged == terms.charge(3)
        # None was missed, as it would be with another vector than at the visit before.
        assert receipt(name)["rounds"] == {"agreed": 3, "begun": 3, "with_mean": 3, "counted": dict.fromkeys(NAMES, 3)}


class Clock:
    """The one of all sites."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    ticking, transport = Clock(), PartyContext.transport

    def with_clock(files: PartyContext, *given: Any, **named: Any) -> Any:
        settings = transport(files, *given, **named)
        return replace(settings, clock=ticking) if isinstance(settings, FolderSettings) else settings

    monkeypatch.setattr(PartyContext, "transport", with_clock)
    monkeypatch.setattr(import_module("quietmean.node.folder"), "_LONGEST_NAP", 0.02)
    return ticking


@pytest.mark.slow
def test_who_is_away_is_waited_for_until_its_time_and_comes_back_in_a_later_round(clock: Clock) -> None:
    agree(rounds=4, interval=1000.0)

    async def steady(name: str, turns: asyncio.Barrier) -> list[tuple[int, set[str]]]:
        seen = []
        async with part(name) as rounds:
            while not rounds.over:
                release = await rounds.mean(VECTORS[name])
                seen.append((release.round, set(release.counted)))
                await turns.wait()
                # For who comes back.
                await turns.wait()
        return seen

    async def leaving(turns: asyncio.Barrier) -> tuple[int, int, set[str]]:
        running = part("east")
        rounds = await running.__aenter__()
        await rounds.mean(VECTORS["east"])
        await turns.wait()
        await running.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        await turns.wait()
        # Rounds 2 and 3 go on without it: each of their waits is over in its time, and not before.
        for _ in range(2):
            waited = asyncio.ensure_future(turns.wait())
            done, _ = await asyncio.wait([waited], timeout=1.0)
            assert not done
            while not waited.done():
                clock.ahead += 250.0
                await asyncio.sleep(0.3)
            await turns.wait()
        async with part("east") as again:
            last = again.last()
            assert last is not None
            release = await again.mean(VECTORS["east"])
            await turns.wait()
            await turns.wait()
        return last.round, release.missed, set(release.counted)

    async def everybody() -> Any:
        turns = asyncio.Barrier(3)
        return await asyncio.gather(steady("north", turns), steady("south", turns), leaving(turns))

    north, south, (last, missed, counted) = asyncio.run(everybody())
    assert north == south == [(1, set(NAMES)), (2, {"north", "south"}), (3, {"north", "south"}), (4, set(NAMES))]
    assert (last, missed, counted) == (1, 2, set(NAMES))
    terms = part("north").contract.terms
    assert [entry_of(name).charged for name in NAMES] == [terms.charge(4), terms.charge(4), terms.charge(2)]


def test_who_comes_after_the_last_round_takes_part_in_none(clock: Clock) -> None:
    agree(rounds=2)

    async def one(name: str) -> None:
        async with part(name) as rounds:
            await rounds.mean(VECTORS[name])
            clock.ahead = 1e6
            with pytest.raises(qm.InputError, match="2 rounds are over"):
                await rounds.mean(VECTORS[name])

    together(one, NAMES)
    assert receipt("north")["rounds"]["begun"] == 1


PROGRAM = """
import sys
import numpy as np
import quietmean as qm
rounds = qm.joined()
while not rounds.over:
    print(rounds.mean(np.array(eval(sys.argv[0].removesuffix(".py").rpartition("=")[2]))).round, flush=True)
"""


def join(name: str, *more: str) -> subprocess.Popen[str]:
    program = Path(f"{name}={VECTORS[name].tolist()}.py")
    program.write_text(PROGRAM)
    line = ["join", "averaging.sealed", "--key", f"{name}.key", "--new-account", name, "--program", str(program)]
    line += ["--ledger", str(data_folder() / "ledger")]
    return command(Path(), *line, "--folder", "share", "--yes", *more)


def test_a_party_that_is_killed_in_a_round_goes_on_in_it_by_the_same_command() -> None:
    """Its files wait for it as the others do: it misses nothing, and sends nothing a second time in another way."""
    agree(rounds=3)
    killed = join("east")
    again: list[subprocess.Popen[str]] = []
    try:

        async def steady(name: str) -> list[tuple[int, set[str]]]:
            seen = []
            async with part(name) as rounds:
                while not rounds.over:
                    if rounds.round == 1 and name == "north":
                        # East has begun round 2 and waits for north.
                        while not _has_begun("east", 2):
                            await asyncio.sleep(0.05)
                        killed.send_signal(signal.SIGKILL)
                        await asyncio.to_thread(killed.wait)
                        again.append(join("east"))
                    release = await rounds.mean(VECTORS[name])
                    seen.append((release.round, set(release.counted)))
            return seen

        async def in_time(name: str) -> list[tuple[int, set[str]]]:
            async with asyncio.timeout(200.0):
                return await steady(name)

        north, south = together(in_time, NAMES[:2])
        code, output, errors = ending(again[0])
        assert code == 0, errors
    finally:
        for process in (killed, *again):
            process.kill()
            process.communicate()
    assert north == south == [(number, set(NAMES)) for number in (1, 2, 3)]
    assert output.split()[:2] == ["2", "3"]
    assert receipt("east")["rounds"]["begun"] == 3
    assert entry_of("east").charged == part("north").contract.terms.charge(3)


def _has_begun(name: str, number: int) -> bool:
    """What it put in this round is in the folder, of which each conversation has a part."""
    return len([path for path in Path("share").iterdir() if any(path.glob(f"q*/{_place(name)}-*"))]) > number


def _place(name: str) -> int:
    return [entry.name for entry in Sealed.load(Path("averaging.sealed")).entries].index(name)


def test_a_store_from_a_backup_takes_no_part() -> None:
    agree(rounds=3)
    copies: dict[Path, bytes] = {}

    async def one(name: str) -> None:
        running = part(name)
        rounds = await running.__aenter__()
        await rounds.mean(VECTORS[name])
        if name == "east":
            copies.update({path: path.read_bytes() for path in Path().glob("averaging-east.store*")})
        await rounds.mean(VECTORS[name])
        await running.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None)

    together(one, NAMES)
    for path in Path().glob("averaging-east.store*"):
        path.unlink()
    for path, content in copies.items():
        path.write_bytes(content)
    with pytest.raises(qm.InputError, match="restored or copied"), part("east") as rounds:
        rounds.mean(-VECTORS["east"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"deadlines": None}, "a session through a folder has no deadlines"),
        ({"transport": "connections"}, "the session has deadlines and its parties connect"),
        ({"round_timeout": 5.0}, "round_timeout has no effect in a session through a folder"),
        ({"deadlines": {"first": "2030-01-01T00:00:00Z", "interval": 3.0, "poll": 2.0}}, "deadlines.interval is 3 s"),
        ({"deadlines": {"first": 5, "interval": 3.0, "poll": 2.0}}, "deadlines.first must be a time"),
    ],
)
def test_a_session_that_cannot_go_through_a_folder_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(qm.InputError, match=sentence):
        agree(**changes)


def test_what_a_site_has_to_say_is_one_sentence_before_anything_is_sent() -> None:
    agree()
    with (
        pytest.raises(qm.InputError, match="Say where it is here, with folder=PATH"),
        qm.session("averaging.sealed", None, "north.key", new_account="north", yes=True),
    ):
        pass
    lines = dict(part("north").contract.lines())
    assert lines["through a folder, with"] == "; ".join(name for name in sorted(NAMES, key=_place) if name != "north")
    assert "then for 3 rounds of 3 steps, each 60 s longer" in lines["waits"]
    agree(first=-1.0)
    with pytest.raises(qm.InputError, match="which has passed"), part("north"):
        pass
    assert list(Path("share").iterdir()) == []


def test_two_have_all_rounds_where_the_third_never_comes() -> None:
    """Who is in is settled in the folder, for all rounds; who comes afterwards reads there that it is not."""
    write_policy(largest_epsilon=25.0, least_colluding=0, budget={"epsilon": 25.0, "delta": 1e-4}, unattended=True)
    soon = datetime.now(UTC) + timedelta(seconds=4)
    agree(first=200.0, rounds=2, colluding=0, minimum=2, start_by=soon.isoformat())

    async def one(name: str) -> list[tuple[int, set[str]]]:
        seen = []
        async with asyncio.timeout(100.0), part(name) as rounds:
            assert rounds.absent == ("east",)
            while not rounds.over:
                release = await rounds.mean(VECTORS[name])
                seen.append((release.round, set(release.counted)))
        return seen

    north, south = together(one, NAMES[:2])
    assert north == south == [(1, {"north", "south"}), (2, {"north", "south"})]
    with pytest.raises(NotStarted, match="started without this party"), part("east"):
        pass
    assert entry_of("east").charged.mu == 0.0
    assert receipt("north")["start"]["not_in_at_start"] == ["east"]
