"""Random histories of a session: whoever is there takes part, others are away, interrupted, late or with another vector.

Whatever happens, all whose mean counts the same parties have the same one, nobody takes part in a round twice, and everybody is
charged for the rounds that it began.
"""

from __future__ import annotations

import asyncio
import random
import warnings
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import ProtocolFailure
from quietmean.ledger import Ledger
from quietmean.node import SeriesOver
from quietmean.sessions.joined import AsyncRounds
from support.rosters import on_this_machine, write_roster
from support.sessions import entry_of

NAMES = ("ada", "bob", "cyd", "dan")
TERMS: dict[str, Any] = {
    "name": "history",
    "dimension": 5,
    "rounds": 9,
    "epsilon": 8.0,
    "delta": 1e-5,
    "colluding": 1,
    "dropouts": 0.5,
    "protocol": "cordp-dme",
    "round_timeout": 2.0,
}


class History:
    """One party after another is in, away or interrupted, by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.running: dict[str, tuple[qm.session, AsyncRounds]] = {}
        self.means: dict[int, set[tuple[bytes, tuple[str, ...]]]] = defaultdict(set)
        self.took_part: dict[str, list[int]] = defaultdict(list)

    async def enter(self, name: str) -> None:
        part = qm.session(TERMS, "roster.toml", f"{name}.key", account=name, ledger=f"{name}.ledger")
        self.running[name] = part, await part.__aenter__()

    async def leave(self, name: str) -> None:
        part, _ = self.running.pop(name)
        await part.__aexit__(RuntimeError, RuntimeError(), None)

    async def mean(self, name: str, delay: float, patience: float | None) -> None:
        """``patience``: interrupted after so many seconds."""
        _, rounds = self.running[name]
        await asyncio.sleep(delay)
        before = rounds.begun
        try:
            async with asyncio.timeout(patience):
                found = await rounds.mean(np.full(5, self.chance.uniform(0.0, 0.4)))
        except (TimeoutError, ProtocolFailure):
            pass
        except SeriesOver:
            # The others were past the last round.
            assert rounds.over
        else:
            self.means[found.round].add((found.mean.tobytes(), found.counted))
        if rounds.begun > before:
            self.took_part[name].append(rounds.round)

    async def run(self) -> None:
        await asyncio.gather(*map(self.enter, NAMES))
        for _ in range(11):
            there = [name for name in NAMES if name in self.running and not self.running[name][1].over]
            await asyncio.gather(*(self.mean(name, *self._lateness()) for name in there))
            for name in NAMES:
                if name in self.running and self.chance.random() < 0.2:
                    await self.leave(name)
                elif name not in self.running and self.chance.random() < 0.6:
                    await self.enter(name)
        for name in NAMES:
            if name not in self.running:
                await self.enter(name)
        for part, _ in self.running.values():
            await part.__aexit__(None, None, None)

    def _lateness(self) -> tuple[float, float | None]:
        late = self.chance.random()
        return (self.chance.uniform(0, 3) if late < 0.1 else 0.0), (0.3 if late > 0.9 else None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_random_history(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(4)))
    for name in NAMES:
        with Ledger.open(Path(f"{name}.ledger"), create=True) as book:
            book.set_budget(name, 9.0, 1e-4, when=datetime.now(UTC), unit=PrivacyUnit.PARTY)
    history = History(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(history.run())
    terms = qm.session(TERMS, "roster.toml", "ada.key").contract.terms
    assert history.means
    for number, found in history.means.items():
        assert 1 <= number <= 9
        # Who did not hear of all has another sum, and says so.
        assert len(found) == len({counted for _, counted in found}) == len({mean for mean, _ in found}), (number, found)
    for name in NAMES:
        numbers = history.took_part[name]
        assert numbers == sorted(set(numbers))
        paid = entry_of(name, Path(f"{name}.ledger"))
        assert paid.status == "spent"
        assert paid.charged == terms.charge(len(numbers))
        assert paid.charged.mu <= paid.reserved.mu
