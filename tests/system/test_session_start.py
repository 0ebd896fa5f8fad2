"""A session that starts with those who are there: who is in is in all its rounds, and is charged and certified for these."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, NotStarted
from quietmean.ledger import Account, Ledger
from quietmean.sessions.receipt import certified
from support.rosters import on_this_machine, write_roster
from support.sessions import account_of, endings, receipt_of

NAMES = ("ada", "bob", "cyd", "dan", "eve")
D = 6
ROUNDS = 3


@pytest.fixture(autouse=True)
def consortium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(5)))
    for name in NAMES:
        with Ledger.open(Path(f"{name}.ledger"), create=True) as book:
            book.set_budget(name, 9.0, 1e-4, when=datetime.now(UTC), unit=PrivacyUnit.PARTY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def terms(seconds: float, **more: Any) -> dict[str, Any]:
    """It starts in so many seconds."""
    return {
        "name": "few",
        "dimension": D,
        "rounds": ROUNDS,
        "epsilon": 8.0,
        "delta": 1e-5,
        "colluding": 1,
        "protocol": "cordp-dme",
        "dropouts": 0.2,
        # A machine that does other things too makes nobody late: nobody waits for this where all come.
        "round_timeout": 15.0,
        "start_timeout": 20.0,
        "minimum": 4,
        "start_by": datetime.fromtimestamp(time.time() + seconds, UTC).isoformat(),
        **more,
    }


def part(name: str, asked: dict[str, Any]) -> qm.session:
    return qm.session(asked, "roster.toml", f"{name}.key", account=name, ledger=f"{name}.ledger")


def account(name: str) -> Account:
    return account_of(name, Path(f"{name}.ledger"))


receipt = partial(receipt_of, "few")


async def all_rounds(name: str, asked: dict[str, Any], dies_in: int = 0) -> list[tuple[bytes, tuple[str, ...]]]:
    """What a party has; ``dies_in``: it is interrupted before that round and started again."""
    found: list[tuple[bytes, tuple[str, ...]]] = []
    while True:
        running = part(name, asked)
        rounds = await running.__aenter__()
        while not rounds.over:
            if rounds.round + 1 == dies_in:
                dies_in = 0
                await running.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None)
                break
            mean = await rounds.mean(np.full(D, 0.1 * (1 + NAMES.index(name))))
            found.append((mean.mean.tobytes(), mean.counted))
        else:
            await running.__aexit__(None, None, None)
            return found


@pytest.mark.parametrize("protocol", ["cordp-dme", pytest.param("packed-sharing", marks=pytest.mark.slow)])
def test_four_have_all_rounds_where_the_fifth_comes_late(protocol: str) -> None:
    there = [name for name in NAMES if name != "bob"]
    """One of them is interrupted between two rounds and goes on, where the protocol does without one."""
    spare = protocol == "cordp-dme"
    asked = terms(1.0, protocol=protocol, dropouts=0.2 * spare)

    async def story() -> tuple[list[Any], BaseException]:
        running = [asyncio.create_task(all_rounds(name, asked, dies_in=2 * spare * (name == "dan"))) for name in there[:-1]]
        eve = part("eve", asked)
        rounds = await eve.__aenter__()
        assert rounds.absent == ("bob",)
        # The others have begun, or are about to: bob is late.
        late = asyncio.create_task(all_rounds("bob", asked))
        means = [await rounds.mean(np.full(D, 0.5)) for _ in range(ROUNDS)]
        (told,) = await asyncio.wait_for(asyncio.gather(late, return_exceptions=True), 40.0)
        await eve.__aexit__(None, None, None)
        own = [(mean.mean.tobytes(), mean.counted) for mean in means]
        assert isinstance(told, BaseException)
        return [own, *(await asyncio.gather(*running))], told

    results, told = asyncio.run(story())
    assert isinstance(told, NotStarted), told
    assert "started without this party, with ada, cyd, dan, eve" in str(told)
    assert "What was reserved in the ledger is given back" in str(told)
    assert account("bob").charged_epsilon == 0
    assert len({json.dumps([counted for _, counted in one]) for one in results}) == 1
    assert results[0] == results[1] == results[2]
    assert [counted for _, counted in results[0]] == [tuple(there)] * ROUNDS
    contract = part("ada", asked).contract
    inside = contract.terms_by_size[4]
    for name in there:
        document = receipt(name)
        assert document["start"] == {"attempt": document["start"]["attempt"], "members": there, "not_in_at_start": ["bob"]}
        assert document["rounds"]["counted"] == dict.fromkeys(there, ROUNDS)
        assert certified(document)["epsilon"] == inside.spent_epsilon(ROUNDS) <= 8.0
        (entry,) = account(name).entries
        assert (entry.status, entry.charged) == ("spent", inside.charge(ROUNDS))
        assert entry.reserved == contract.charge
    # As if fewer had been enough.
    fewer = receipt("ada")
    fewer["start"]["members"] = there[:3]
    with pytest.raises(InputError, match="may not start with so many parties"):
        certified(fewer)


def test_too_few_end_cleanly_and_nothing_is_charged() -> None:
    asked = terms(1.0, start_timeout=6.0)
    for told in endings(lambda name: all_rounds(name, asked), NAMES[:3]):
        assert isinstance(told, NotStarted)
        assert "did not start by its time with 4 parties or more. There were ada, bob, cyd" in str(told)
    for name in NAMES[:3]:
        assert account(name).charged_epsilon == 0
        assert account(name).entries[0].settled
        assert not Path(f"few-{name}.receipt.json").exists()
