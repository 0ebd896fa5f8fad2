"""Which round of a series through a folder goes on, by the clock alone: each moment, each place of a party, enumerated."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quietmean.node.folder import FolderSettings, Outbox, Timetable
from quietmean.node.folder.slot import OtherSession, Slot, SlotKind
from quietmean.node.series.ways import RoundsByFolder
from support.refusals import raised, refused

FIRST, INTERVAL, ROUNDS = 100.0, 8.0, 4
# Start, one to three steps of mixing and of what is published, and the end of a round.
TABLES = [
    Timetable(((0, 0), *((1, step) for step in range(1, mixing + 1)), *published, (4, 0)), FIRST, INTERVAL)
    for mixing, published in itertools.product((1, 2, 3), ((), ((3, 1),)))
]


def chosen(table: Timetable, now: float, current: int) -> int:
    """The round that a party takes part in next which has begun ``current``."""
    party: Any = SimpleNamespace(progress=SimpleNamespace(current=current), rounds=ROUNDS)
    folder = FolderSettings(place=lambda session: None, mailbox=None, mailboxes={}, timetable=table, clock=lambda: now)  # type: ignore[arg-type,return-value]
    return asyncio.run(RoundsByFolder(party, folder).next_round())


def ends(table: Timetable) -> list[list[float]]:
    """When each wait of each round is over, counted one after the other from the start."""
    steps = len(table.waits) - 1
    return [[FIRST + INTERVAL * (1 + steps * round_ + step) for step in range(steps)] for round_ in range(ROUNDS)]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(len(table.waits)))
def test_the_first_round_after_the_last_one_in_which_all_still_wait_for_this_party(table: Timetable) -> None:
    waits = ends(table)
    # Before, at and after each moment at which anything changes.
    moments = sorted({end + by for round_ in waits for end in round_ for by in (-0.5, 0.0, 0.5)} | {0.0, FIRST})
    for current in range(ROUNDS + 1):
        numbers = [chosen(table, now, current) for now in moments]
        for now, number in zip(moments, numbers, strict=True):
            assert current < number <= ROUNDS + 1
            if number <= ROUNDS:
                assert now < waits[number - 1][0]
            # None is passed over in which it would have been waited for.
            assert all(now >= waits[passed - 1][0] for passed in range(current + 1, min(number, ROUNDS + 1)))
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(len(table.waits)))
def test_waits_of_all_rounds_follow_each_other(table: Timetable) -> None:
    for number, waits in enumerate(ends(table), 1):
        of_round = table.of_round(number)
        assert [of_round.end(position) for position in of_round.waits[1:]] == waits
    assert table.last_end(ROUNDS) == ends(table)[-1][-1]
    assert table.of_round(1) == table


def test_the_outbox_of_a_round_takes_the_place_of_that_of_a_round_before(tmp_path: Path) -> None:
    path, slot = tmp_path / "store.round.outbox", Slot(SlotKind.REQUEST, 1, 0, 1)
    outbox = Outbox.of_round(path, "round 1", 0)
    outbox.add(slot, b"file", b"digest")
    outbox.close()
    # Of the same round nothing is forgotten.
    outbox = Outbox.of_round(path, "round 1", 0)
    assert list(outbox.waiting()) == [(slot, b"file")]
    outbox.close()
    raised(OtherSession, "of another study", Outbox, path, "round 2", 0)
    outbox = Outbox.of_round(path, "round 2", 0)
    assert (list(outbox.waiting()), outbox.next_number(1)) == ([], 1)
    outbox.close()
    path.write_bytes(b"no database at all, for long enough to be looked at as one")
    refused("cannot be used", Outbox.of_round, path, "round 3", 0)
