"""What a hundred parties on one machine need: turns at dialling, errors that stay short, stores that wait for no disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.readable import but_for_names, grouped, listed
from quietmean.node import local
from quietmean.node.local.virtual_time import run_virtually
from quietmean.node.net.transport import Pace
from quietmean.node.storage import Lasting, blob_store
from quietmean.node.storage.store import Store
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.testing import example_execution

NAMES = [f"party-{number:03d}" for number in range(100)]


def test_those_with_one_reason_are_named_once() -> None:
    assert grouped({"north": "it does not answer"}) == "north: it does not answer"
    assert grouped({"a": "x", "b": "y", "c": "x"}) == "a, c: x; b: y"
    assert listed(NAMES) == "party-000, party-001, party-002 and 97 more"
    assert listed(NAMES[:4]) == ", ".join(NAMES[:4])


def test_an_error_of_all_about_all_others_is_short() -> None:
    """Each misses all others: the sentence of each names them, and they are of one kind."""
    reasons = {
        name: f"the study did not start within 60 s for want of {grouped({o: 'it does not answer' for o in NAMES if o != name})}"
        for name in NAMES
    }
    told = grouped(reasons, but_for_names(NAMES))
    assert told.startswith(
        "party-000, party-001, party-002 and 97 more: the study did not start within 60 s for want of party-001,"
    )
    assert len(told) < 250
    # Another reason is told besides.
    reasons["party-050"] = "the process ended with exit code 1"
    assert grouped(reasons, but_for_names(NAMES)).endswith("; party-050: the process ended with exit code 1")


def test_so_many_have_a_turn_at_a_time() -> None:
    async def dialled(count: int, seconds: float, longest: float) -> tuple[int, float]:
        pace, running, most = Pace(3, longest), 0, 0
        loop = asyncio.get_running_loop()

        async def one() -> None:
            nonlocal running, most
            async with pace.turn():
                running += 1
                most = max(most, running)
                await asyncio.sleep(seconds)
                running -= 1

        begun = loop.time()
        await asyncio.gather(*(one() for _ in range(count)))
        return most, loop.time() - begun

    most, took = run_virtually(dialled(12, 0.5, 1.0))
    assert most == 3
    assert took == pytest.approx(2.0)
    # Who does not answer holds up the others for a second, not for the ten of a time-out.
    most, took = run_virtually(dialled(12, 10.0, 1.0))
    assert most == 12
    assert took == pytest.approx(13.0)


def test_a_turn_ends_once() -> None:
    """After its longest time, and again with the body: no more turns come of that."""

    async def run() -> int:
        pace = Pace(1, 0.1)
        for _ in range(5):
            async with pace.turn():
                await asyncio.sleep(0.3)
        return pace._free._value

    assert run_virtually(run()) == 1


@pytest.mark.parametrize("lasting", Lasting)
def test_a_passing_store_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: Lasting) -> None:
    """Large vectors are in a file of their own; what SQLite does is a setting of its."""
    synced: list[int] = []
    monkeypatch.setattr(blob_store, "sync_data", synced.append)
    dimension = blob_store.LARGE
    store = Store.open(tmp_path / "store", "s" * 64, np.zeros(dimension), 1.0, lambda: Seed(bytes(32)), lasting=lasting)
    try:
        assert store._one("PRAGMA synchronous")[0] == (2 if lasting is Lasting.POWER else 0)
        with store._transaction():
            store._set_fact("large", store._blobs.put(os.urandom(blob_store.LARGE)))
        assert bool(synced) == (lasting is Lasting.POWER)
        assert any(tmp_path.iterdir()) == (lasting is not Lasting.NOTHING)
    finally:
        store.close()


def test_an_execution_that_all_have_is_read_once() -> None:
    one, other = (example_execution("local-dp", parties, sigma=1.0).to_json() for parties in (3, 4))
    known: list[tuple[Any, Execution]] = []
    found = [local._read_once(document, known) for document in (one, other, dict(one), dict(other), dict(one))]
    assert found[0] is found[2] is found[4]
    assert found[1] is found[3]
    assert len(known) == 2
