"""Every call that changes a file fails once, or is a death once, those inside SQLite included: nothing that was told is lost.

The life that is struck ends well or with 75, never with another code and never with a traceback; the next one ends well, and has
what it would have had. The processes are real, and so are their libraries: see ``tests/faults/inject.c``.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.stories import STORIES
from support.injected import Call, Faults, Rule, places_of_faults, require_all_seen
from support.lives import Life, Lives, prepared
from support.tally import tally

EVER = 10**9
# What is done at a place: the action, for how many calls, and its error.
WAYS = {
    "no space once": ("fail", 1, errno.ENOSPC),
    "an error once": ("fail", 1, errno.EIO),
    "errors for a while": ("fail", 4, errno.EIO),
    "no space from there on": ("fail", EVER, errno.ENOSPC),
    "a death": ("die", 1, 0),
    "half of a write": ("short", 1, 0),
}
# Of so many places one is tried in every run.
SAMPLE = 60


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with prepared() as made:
        yield made


def undisturbed(lives: Lives, story: str, folder: Path) -> tuple[Life, list[Call]]:
    faults = Faults(folder / "faults")
    faults.set([Rule("keep", folder / "place")])
    life = lives.run(story, folder / "place", faults.folder)
    assert life.code == 0, life
    return life, faults.calls()


def struck(lives: Lives, story: str, folder: Path, way: str, place: int, whole: Life) -> list[str]:
    """What is wrong with a life that is struck there, or with the one after it."""
    action, times, number = WAYS[way]
    faults = Faults(folder / "faults")
    faults.set([Rule(action, folder / "place", place, times, argument=number)])
    life = lives.run(story, folder / "place", faults.folder)
    hit = next((call for call in faults.calls() if call.acted), None)
    faults.set([])
    holds = lives.run(story, folder / "place", faults.folder, "holds")
    after = lives.run(story, folder / "place", faults.folder)
    shutil.rmtree(folder)
    wrong = []
    if life.code not in (0, 75, -9) or (life.code == 0 and life.found != whole.found):
        wrong.append(f"ends with {life.code}: {life.error} {life.trace[-300:]}")
    if life.code == 75 and not life.error.endswith(("again.", "goes on.")):
        wrong.append(f"says {life.error!r}")
    if holds.code != 0 or not set(life.told) <= set(holds.found):
        wrong.append(f"lost {set(life.told) - set(holds.found or ())} ({holds.code}: {holds.error})")
    if (after.code, after.found) != (0, whole.found):
        wrong.append(f"the next one ends with {after.code}, {after.found}: {after.error} {after.trace[-300:]}")
    at = "nothing" if hit is None else f"{hit.kind} {hit.path.rpartition('/')[2]} at {hit.offset}"
    return [f"{way} at call {place} ({at}): {one}" for one in wrong]


@pytest.mark.parametrize("story", STORIES)
def test_all_bytes_are_written_by_calls_that_are_seen(story: str, lives: Lives, tmp_path: Path) -> None:
    _, calls = undisturbed(lives, story, tmp_path)
    writes = require_all_seen(calls, tmp_path / "place")
    assert len(writes) >= 1
    tally("writes", {"story": story, "writes": {Path(path).name: count for path, count in sorted(writes.items())}})
    assert {"write", "sync"} <= {call.kind for call in calls}


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sample", "all"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("story", STORIES)
def test_a_fault_at_every_place(story: str, way: str, every: bool, lives: Lives, tmp_path: Path) -> None:
    whole, calls = undisturbed(lives, story, tmp_path / "whole")
    places = [place for place, call in enumerate(places_of_faults(calls)) if WAYS[way][0] != "short" or call.kind == "write"]
    first = list(WAYS).index(way)
    chosen = places if every else places[first % SAMPLE :: SAMPLE] or places[:1]
    wrong = [text for place in chosen for text in struck(lives, story, tmp_path / str(place), way, place, whole)]
    tally("places", {"story": story, "way": way, "tried": len(chosen), "wrong": len(wrong)})
    assert not wrong, f"{len(wrong)} at {len(chosen)} places:\n" + "\n".join(wrong)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kilobytes", range(2, 420, 11))
@pytest.mark.parametrize("story", STORIES)
def test_a_folder_that_is_full_and_then_is_not(story: str, kilobytes: int, lives: Lives, tmp_path: Path) -> None:
    whole, _ = undisturbed(lives, story, tmp_path / "whole")
    place, faults = tmp_path / "full" / "place", Faults(tmp_path / "full" / "faults")
    rooms = [place, place / "box", place / "site", place / "register"]
    faults.set([Rule("room", room, argument=1000 * kilobytes) for room in rooms])
    full = lives.run(story, place, faults.folder)
    assert full.code == 75 or (full.code, full.found) == (0, whole.found), full
    faults.set([])
    holds = lives.run(story, place, faults.folder, "holds")
    assert set(full.told) <= set(holds.found), holds
    after = lives.run(story, place, faults.folder)
    assert (after.code, after.found) == (0, whole.found), after
