"""``qm.join`` and ``qm.ajoin``: three real parties from one Python process; checked, charged and kept as by the command line."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import quietmean as qm
from quietmean.api.result import StudyResult
from quietmean.core.folders import data_folder
from quietmean.ledger import Ledger
from quietmean.node import Identity
from quietmean.studies.party.audit import AuditLog, Event, LogHead, heads_in, verify
from support.json_documents import faults
from support.rosters import on_this_machine, write_roster
from support.site_policy import write_policy

NAMES = ("north", "south", "east")
STUDY = qm.Study(
    {"age": (0, 100), "smoker": bool},
    ["mean(age)", "proportion(smoker)"],
    epsilon=8.0,
    delta=1e-6,
    name="ages",
    colluding=1,
)


@pytest.fixture(autouse=True)
def consortium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]) -> None:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(3)))


def frame(place: int) -> pd.DataFrame:
    return pd.DataFrame({"age": [20 + place, 40, 60] * 200, "smoker": [place == one for one in range(3)] * 200})


async def one(place: int, **more: Any) -> StudyResult:
    name = NAMES[place]
    given = {"ledger": None, **({} if "account" in more else {"new_account": name}), **more}
    return await qm.ajoin(STUDY, "roster.toml", f"{name}.key", data=frame(place), **given)


def test_three_parties_in_one_process() -> None:
    events: list[dict[str, Any]] = []

    async def all_three() -> list[StudyResult]:
        agreed = qm.contract(STUDY, "roster.toml", "north.key")
        accepts = [qm.contract(STUDY, "roster.toml", f"{name}.key").accept_digest for name in NAMES]
        first = one(0, accept=agreed, report=events.append)
        return await asyncio.gather(first, *(one(place, accept=accepts[place]) for place in (1, 2)))

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        results = asyncio.run(all_three())
    heads: dict[str, list[LogHead]] = {}
    assert [str(one.message) for one in told if "is made in" in str(one.message)]
    for name, result in zip(NAMES, results, strict=True):
        assert result.names == NAMES
        assert result.missing == []
        assert result["mean(age)"].value == results[0]["mean(age)"].value
        mean = result["mean(age)"]
        assert abs(mean.value[0] - (21 + 40 + 60) / 3) < 6 * mean.standard_error[0]
        assert result.epsilon <= result.epsilon_a_priori <= 8.0
        assert result.account is not None
        assert [entry.status for entry in result.account.entries] == ["spent"]
        assert result.receipt == Path(f"ages-{name}.receipt.json").absolute()
        receipt = json.loads(result.receipt.read_text())
        assert faults("receipt", receipt) == []
        assert receipt["origin"]["approval"]["contract"] == qm.contract(STUDY, "roster.toml", "south.key").digest
        heads[str(result.receipt)] = heads_in(receipt, name)
        result.save_report(f"{name}.html")
        assert "Who is left out?" in Path(f"{name}.html").read_text()
    log = verify(AuditLog(data_folder() / "audit.jsonl"), heads)
    assert log.faults == ()
    for place, own_and_others in enumerate(heads.values()):
        # The own head first, then what the two others said.
        keys = [Identity.load(Path(f"{name}.key")).public_key for name in NAMES]
        assert own_and_others[0].key == keys.pop(place)
        assert sorted(head.key for head in own_and_others[1:]) == sorted(keys)
    for name in NAMES:
        own = [one for one in log.entries if one.party == name]
        assert [one.event for one in own] == [Event.YES, Event.CHARGED, Event.STARTED, Event.ENDED]
        assert own[-1].about == {"result": True}
    assert {"agreement", "round"} <= {str(event["event"]) for event in events}


def test_it_continues_and_charges_once() -> None:
    """One is cancelled, as by Ctrl-C, while it waits for the others, and called again."""
    log = AuditLog(data_folder() / "audit.jsonl")

    async def interrupted() -> list[StudyResult]:
        early = asyncio.create_task(one(0))
        while not log.path.exists() or Event.STARTED not in [line.entry.event for line in log.read()[0]]:
            await asyncio.sleep(0.05)
        early.cancel()
        with pytest.raises(asyncio.CancelledError):
            await early
        (*_, last), _ = log.read()
        assert last.entry.about == {"result": False, "reason": "interrupted, it can be continued"}
        return await asyncio.gather(*(one(place) for place in range(3)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = asyncio.run(interrupted())
    assert [result.missing for result in results] == [[], [], []]
    with Ledger.open(data_folder() / "ledger") as book:
        assert sorted(len(account.entries) for account in book.accounts()) == [1, 1, 1]


def test_a_call_that_blocks_also_where_a_loop_runs() -> None:
    """As a cell of a notebook calls it."""

    async def notebook() -> list[StudyResult]:
        others = [
            asyncio.to_thread(qm.join, STUDY, "roster.toml", f"{name}.key", data=frame(1), no_ledger=True) for name in NAMES[1:]
        ]
        waiting = asyncio.gather(*others)
        await asyncio.sleep(0)
        own = qm.join(STUDY, "roster.toml", "north.key", data=frame(0), no_ledger=True)
        return [own, *await waiting]

    results = asyncio.run(notebook())
    assert len({float(result["mean(age)"].value[0]) for result in results}) == 1
    assert not (data_folder() / "ledger").exists()


def refused(**more: Any) -> str:
    given = {"account": "wards", "data": frame(0), **more}
    with pytest.raises(qm.InputError) as found:
        qm.join(STUDY, "roster.toml", "north.key", **given)
    assert not Path("ages-north.store").exists()
    return str(found.value)


def test_what_is_refused_before_anything_is_sent() -> None:
    assert "Give account" in refused(account=None)
    assert "join has no keyword 'acount' (did you mean 'account'?)" in refused(acount="wards")
    assert "is not the digest of this study" in refused(accept="0" * 64)
    assert "unattended = true" in refused(yes=True)
    assert "column 'age' is not one of" in refused(data=frame(0).drop(columns="age"))
    assert "roster" in _message(lambda: qm.join(STUDY, key="north.key", data=frame(0), account="wards"))
    write_policy(largest_epsilon=2.0, never=["smoker"], smallest_records=1000)
    said = refused()
    assert "largest_epsilon" in said
    assert "never" in said
    assert "largest_epsilon" in _message(lambda: qm.contract(STUDY, "roster.toml", "north.key"))
    write_policy(smallest_records=1000)
    assert "smallest_records" in refused()
    write_policy()
    assert "nobody said yes" in refused()
    write_policy(unattended=True, budget={"epsilon": 1.0})
    assert "account 'wards'" in _message(
        lambda: qm.join(STUDY, "roster.toml", "north.key", data=frame(0), account="wards", yes=True)
    )
    Identity.generate().save(Path("locked.key"), b"secret")
    assert "Give it as passphrase" in _message(lambda: qm.contract(STUDY, "roster.toml", "locked.key"))


def _message(call: Callable[[], Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(qm.InputError) as found:
            call()
    return str(found.value)
