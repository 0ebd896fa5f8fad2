"""``qm.session``: three real parties in one process, over TLS on loopback: many rounds, one agreement, one budget."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.folders import data_folder
from quietmean.ledger import Account, Ledger
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.studies.audit import AuditLog, Event, verify
from support.site_policy import write_policy

NAMES = ("north", "south", "east")
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
    entries = []
    for name, port in zip(NAMES, free_ports(3), strict=True):
        identity = Identity.generate()
        identity.save(Path(f"{name}.key"))
        entries.append(RosterEntry(name, ("127.0.0.1", port), identity.public_key))
    Path("roster.toml").write_text(Roster(tuple(entries)).to_toml())


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is made in.*")
        yield


def part(name: str, terms: dict[str, Any] = TERMS, **more: Any) -> qm.session:
    return qm.session(terms, "roster.toml", f"{name}.key", **{"account": name, "yes": True, **more})


def account(name: str) -> Account:
    with Ledger.open(data_folder() / "ledger") as book:
        return book.account(name)


def receipt(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(f"averaging-{name}.receipt.json").read_text())
    return document


def files(name: str) -> set[str]:
    return {path.name for path in Path().glob(f"averaging-{name}.store*")}


def test_ten_lines_of_user_code_for_all_rounds() -> None:
    """Means of all rounds, one charge, one receipt, fresh noise each round."""
    sizes: list[int] = []

    async def one(name: str) -> list[np.ndarray[Any, Any]]:
        found: list[np.ndarray[Any, Any]] = []
        async with part(name) as rounds:
            while not rounds.over:
                mean = await rounds.mean(VECTORS[name])
                assert mean.counted == NAMES
                assert mean.round == len(found) + 1
                found.append(mean.mean)
                assert np.abs(mean.mean - sum(VECTORS.values()) / 3).max() < 6 * mean.standard_error
                sizes.append(sum(path.stat().st_size for path in Path().glob(f"averaging-{name}.store*")))
                assert [entry.status for entry in account(name).entries] == ["reserved"]
        return found

    async def all_three() -> list[list[np.ndarray[Any, Any]]]:
        return await asyncio.gather(*(one(name) for name in NAMES))

    results = asyncio.run(all_three())
    for mine in results[1:]:
        np.testing.assert_array_equal(mine, results[0])
    rounds = results[0]
    assert len({value.tobytes() for value in rounds}) == len(rounds) == 4
    contract = part("north").contract
    for name in NAMES:
        (entry,) = account(name).entries
        assert entry.status == "spent"
        assert entry.charged == entry.reserved == contract.charge
        document = receipt(name)
        assert document["rounds"] == {"agreed": 4, "begun": 4, "with_mean": 4, "counted": dict.fromkeys(NAMES, 4)}
        assert document["certificate"]["epsilon"] == contract.epsilon_a_priori <= 20.0
        assert document["origin"]["approval"]["contract"] == contract.digest
        own = [one.event for one in verify(AuditLog(data_folder() / "audit.jsonl"), {}).entries if one.party == name]
        assert own == [Event.YES, Event.CHARGED, Event.STARTED, Event.ENDED]
