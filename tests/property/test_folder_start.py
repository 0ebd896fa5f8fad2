"""A study through a folder that starts with those who are there: in every order of visits there is one result, and nobody hangs.

Each visit is a process of its own with the store and the folder that the ones before left: nothing else is known to it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from quietmean.node.start import StartPhase
from quietmean.node.start.policy import ByTime
from support.folder_visits import FIRST, POLL, START_BY, Visits
from support.folder_world import inline

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
MEMORY = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
EVERYBODY = range(3)
TURN = (FIRST - START_BY) / 11
# Long before the start, and in the first two attempts after it.
TIMES = (START_BY - 1000.0, START_BY + 1.0, START_BY + TURN + 1.0)


@pytest.fixture(autouse=True)
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "to_thread", inline)


def three(folder: Path) -> Visits:
    """Of whom two may start."""
    return Visits(folder, parties=3, minimum=2, colluding=0)


def all_histories(visits: int) -> tuple[int, set[tuple[int, frozenset[int]]]]:
    """Of so many visits and steps of the clock at the most, until somebody is bound: how many places there are, and where."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:

        def fresh() -> Path:
            return Path(directory) / str(next(numbers))

        waiting = deque([(three(fresh()), 0, 0)])
        seen, bound = {(waiting[0][0].state(), 0)}, set()
        while waiting:
            before, hour, length = waiting.popleft()
            for party in [*EVERYBODY, None]:
                after, later = before.copy(fresh()), hour + (party is None)
                if later < len(TIMES):
                    after.now = TIMES[later]
                    if party is not None:
                        after.visit(party)
                    after.check()
                    bound |= after.places
                    state = after.state(), later
                    if state not in seen and not any(after.bound):
                        seen.add(state)
                        if length + 1 < visits:
                            waiting.append((after, later, length + 1))
                            continue
                shutil.rmtree(after.folder)
            shutil.rmtree(before.folder)
    return len(seen), bound


@pytest.mark.slow
def test_all_short_histories_are_safe() -> None:
    states, _ = all_histories(4)
    assert states > 60


@pytest.mark.slow
def test_all_longer_histories_are_safe() -> None:
    states, bound = all_histories(8)
    print(f"\n{states} places, bound in {sorted((attempt, sorted(members)) for attempt, members in bound)}")
    assert states > 1000
    assert {attempt for attempt, _ in bound} >= {1}


def history(seed: int, folder: Path) -> Visits:
    """Visits at random, and then of all, or of all but one, until none has a visit left."""
    chance = random.Random(seed)
    story = three(folder)
    for _ in range(chance.randrange(12)):
        if chance.random() < 0.2:
            story.now = max(story.now, START_BY) + chance.choice([0.0, 1.0, POLL, TURN])
        party = chance.choice(EVERYBODY)
        if party not in story.over:
            story.visit(party)
            story.check()
    gone = chance.choice([None, *EVERYBODY])
    coming = [party for party in EVERYBODY if party != gone]
    story.go_on(coming)
    story.check()
    # Whoever comes has the result, or was told that the others started without it.
    assert story.results, (gone, story.not_in)
    if gone is not None and gone not in story.over:
        # Days later.
        story.visit(gone)
        story.check()
        assert gone in story.over or story.bound[gone]
    return story


def histories(seeds: range) -> None:
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            try:
                history(seed, Path(directory) / "history")
            except BaseException as error:
                error.add_note(f"history {seed}")
                raise


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(100, 130), marks=pytest.mark.slow)])
def test_histories_end_with_one_result(seeds: range) -> None:
    histories(seeds)


def test_who_comes_late_is_told_that_the_others_started_without_it(tmp_path: Path) -> None:
    story = three(tmp_path / "study")
    story.go_on([0, 1])
    story.visit(2)
    story.check()
    assert story.not_in[2].startswith("the study started without this party, with p0, p1. None of its data left this machine.")
    assert {one.absent for one in story.started.values()} == {("p2",)}
    # Long before the first deadline: nobody waits for it.
    assert story.now < START_BY + 10 * POLL


def test_files_of_who_is_bound_that_come_one_by_one_count_together(tmp_path: Path) -> None:
    """Three of four start; the fourth sees the files of one, and in another visit those of the next: one could lie."""
    story = Visits(tmp_path / "study", parties=4, minimum=3, colluding=1)
    story.go_on(range(3))
    share = story.folder / "share"
    whole = story.folder / "whole"
    share.rename(whole)
    for shown in ("0", "1"):
        for file in whole.glob(f"*/*/{shown}-*"):
            place = share / file.relative_to(whole)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
        assert not story.not_in
        story.visit(3)
        shutil.rmtree(share)
    story.check()
    assert story.not_in[3].startswith("the study started without this party, with p0, p1, p2")


def test_its_first_convener_starts_it_before_its_time(tmp_path: Path) -> None:
    """Whoever else asks for that changes nothing."""
    story = three(tmp_path / "study")
    story.asks = True
    for _ in range(3):
        story.visit(1)
    story.asks = False
    for party in (0, 1, 0):
        story.visit(party)
    assert not any(story.bound)
    story.asks = True
    for _ in range(8):
        # In the order of the roster, the first party convenes first.
        for party in (0, 1):
            if party not in story.over:
                story.visit(party)
    story.check()
    assert story.now < START_BY
    assert {party: one.attempt for party, one in story.started.items()} == {0: 1, 1: 1}


def test_too_few_end_at_the_first_deadline(tmp_path: Path) -> None:
    story = three(tmp_path / "study")
    story.visit(0)
    story.now = FIRST - 1.0
    story.visit(0)
    assert not story.over
    story.now = FIRST + 1.0
    story.visit(0)
    assert "did not start by its time with 2 parties or more. There were p0" in story.not_in[0]
    assert story.bound[0] == set()


def forgets_who_came(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ByTime, "_present", lambda occasion: set(occasion._there))


def takes_its_time_from_its_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ByTime, "_end_of_turn", lambda occasion, progress: occasion._accepted_at + occasion._turn)


def forgets_where_it_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StartPhase, "_save", lambda gathering, progress: setattr(gathering, "_standing", progress))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wrong", [forgets_who_came, takes_its_time_from_its_process, forgets_where_it_was])
def test_wrong_implementations_are_found(wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(monkeypatch)
    with pytest.raises(AssertionError):
        histories(range(30))
