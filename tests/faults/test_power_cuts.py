"""A power cut at any call leaves files that are opened again, with all that was told: see ``tests/support/power_cuts.py``.

A run is recorded once, and what a cut may leave is laid out and opened by real processes. Seeds are fixed.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from faults.stories import STORIES
from support.injected import Call, Faults, Rule
from support.lives import Lives, prepared
from support.power_cuts import Disk, lay_out
from support.tally import tally

# Of so many calls one is followed by a cut in every run; three of a short story.
SAMPLE = 40
DRAWS = 3


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with prepared() as made:
        yield made


def recorded(lives: Lives, story: str, folder: Path, *rules: Rule) -> tuple[object, Disk]:
    """What a story finds in the end, and its disk; under a fault, lives follow each other until one ends well."""
    faults = Faults(folder / "faults")
    keeping = [Rule("keep", folder / "place"), Rule("keep", faults.folder / "told", kind="write")]
    faults.set([*keeping, *rules])
    for _ in range(4):
        life = lives.run(story, folder / "place", faults.folder)
        if life.code == 0:
            return life.found, Disk(faults.calls(), folder / "place", faults.folder / "told")
        assert life.code == 75, life
    raise AssertionError(life)


def wrong_after(
    lives: Lives, story: str, folder: Path, disk: Disk, cuts: Sequence[int], whole: object, draws: int
) -> tuple[int, list[str]]:
    """How many states were opened, and what is wrong with those that lost something or cannot be gone on from."""
    random, wrong, states, known = Random(story), list[str](), 0, set[int]()
    for after in cuts:
        told = {text for when, text in disk.told if when <= after}
        for number, state in enumerate(disk.states(after, draws, random)):
            same = hash((frozenset(state.items()), frozenset(told)))
            if same in known:
                continue
            known.add(same)
            states += 1
            again = folder / "again"
            lay_out(state, Path(disk.place), again / "place")
            faults = Faults(again / "faults")
            faults.set([])
            holds = lives.run(story, again / "place", faults.folder, "holds")
            life = lives.run(story, again / "place", faults.folder)
            shutil.rmtree(again)
            at = f"a cut after call {after} of {disk.length}, state {number}"
            if holds.code != 0 or not told <= set(holds.found):
                wrong.append(f"{at}: lost {told - set(holds.found or ())} ({holds.code}: {holds.error}) {holds.trace[-300:]}")
            elif (life.code, life.found) != (0, whole):
                wrong.append(f"{at}: ends with {life.code}, {life.found}: {life.error} {life.trace[-300:]}")
    return states, wrong


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sample", "all"])
@pytest.mark.parametrize("story", STORIES)
def test_a_cut_after_every_call(story: str, every: bool, lives: Lives, tmp_path: Path) -> None:
    whole, disk = recorded(lives, story, tmp_path)
    step = 1 if every else min(SAMPLE, disk.length // 3)
    cuts = range(1 + step // 2, disk.length + 1, step)
    states, wrong = wrong_after(lives, story, tmp_path, disk, cuts, whole, DRAWS)
    assert states
    tally("states", {"story": story, "after": "a call", "tried": states, "wrong": len(wrong)})
    assert not wrong, f"{len(wrong)} of {states} states:\n" + "\n".join(wrong)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sample", "all"])
@pytest.mark.parametrize("story", STORIES)
def test_nothing_is_told_after_an_fsync_that_failed_that_is_not_written_anew(
    story: str, every: bool, lives: Lives, tmp_path: Path
) -> None:
    whole, disk = recorded(lives, story, tmp_path / "whole")
    syncs = [call for call in _calls(tmp_path / "whole") if call.kind == "sync"]
    places = range(len(syncs)) if every else range(1, len(syncs), max(1, len(syncs) // 2))
    wrong, states = list[str](), 0
    for place in places:
        folder = tmp_path / str(place)
        fails = Rule("fail", folder / "place", place, kind="sync", argument=errno.EIO)
        found, disk = recorded(lives, story, folder, fails)
        assert found == whole
        cuts = sorted({when for when, _ in disk.told} | {disk.length})
        tried, bad = wrong_after(lives, story, folder, disk, cuts if every else cuts[-2:], whole, 0)
        states += tried
        name = syncs[place].path.rpartition("/")[2]
        wrong += [f"fsync {place} of {name} fails, {text}" for text in bad]
        shutil.rmtree(folder)
    assert states
    tally("states", {"story": story, "after": "a failed fsync", "tried": states, "wrong": len(wrong)})
    assert not wrong, f"{len(wrong)} of {states} states:\n" + "\n".join(wrong)


def _calls(folder: Path) -> list[Call]:
    return [call for call in Faults(folder / "faults").calls() if call.path.startswith(str(folder / "place"))]
