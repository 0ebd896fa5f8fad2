"""A party whose persons have no room in its ledger: the study goes on, restarts do, and only its owner is told."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import quietmean as qm
from quietmean.ledger import Ledger
from support.rosters import on_this_machine, write_roster

NAMES = ("north", "south", "east")
BUDGET = 4.0, 1e-6


def study(name: str) -> qm.Study:
    return qm.Study({"age": (0, 100)}, ["mean(age)"], epsilon=BUDGET[0], delta=BUDGET[1], name=name, unit="person", colluding=1)


def test_a_study_goes_on_without_the_values_of_persons_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(3)))
    for site, name in enumerate(NAMES):
        rows = "".join(f"{site}-{place},{20 * site + 30}\n" for place in range(200))
        (tmp_path / f"{name}.csv").write_text(f"pid,age\n{rows}")
        (tmp_path / f"{name}.format.toml").write_text('[mapping]\nperson = "pid"\n')
        with Ledger.open(tmp_path / f"{name}.ledger", create=True) as book:
            # Exactly one study for north's persons, three for the others'.
            book.set_budget(name, *(BUDGET if name == "north" else (20.0, 1e-5)), when=datetime.now(UTC))

    async def three(name: str) -> tuple[list[Any], list[str]]:
        asked = study(name)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            parties = (
                qm.ajoin(
                    asked,
                    "roster.toml",
                    f"{party}.key",
                    data=f"{party}.csv",
                    store=f"{name}-{party}.store",
                    receipt=f"{name}-{party}.json",
                    ledger=f"{party}.ledger",
                    account=party,
                    accept=qm.contract(asked, "roster.toml", f"{party}.key"),
                )
                for party in NAMES
            )
            results = await asyncio.gather(*parties)
        return results, [str(each.message) for each in told]

    for name, middle in (("first", 50.0), ("second", 60.0)):
        for _ in range(2):
            # The second time each party goes on where it was, with the vector that its store was made for.
            results, told = asyncio.run(three(name))
            for result in results:
                mean = result["mean(age)"]
                # Who has no value is missing in the mean.
                assert abs(mean.value[0] - middle) < 6 * mean.standard_error[0]
            silent = [text for text in told if "take part without a value" in text]
            assert [text.split()[0] for text in silent] == ([] if name == "first" else ["200"])
    for name in NAMES:
        with Ledger.open(tmp_path / f"{name}.ledger") as book:
            (account,) = book.accounts()
        assert [entry.name for entry in account.entries] == ["first", "second"]
        assert account.within(account.budget)
    said = b"".join(path.read_bytes() for path in tmp_path.glob("*.json"))
    assert b"without a value" not in said
