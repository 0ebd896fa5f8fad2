"""What really happened in a study, from the stores of all its parties, also of those that never came back."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.party import PartyId
from quietmean.graphs import NEVER, ExecutionTrace, Schedule
from quietmean.node.phase import Phase
from quietmean.node.storage import COMMITTED, IN_DOUBT

_MIXING = int(Phase.MIXING)


def true_history(schedule: Schedule, stores: Sequence[Path], told: ExecutionTrace) -> ExecutionTrace:
    """The mixing phase as the closed ``stores`` (one for each party, in order) have it.

    A history cannot say that a party left in the last round after its messages and before its release: ``told`` decides whether
    such a party counts as having finished.
    """
    arrived = arrivals(stores)
    online = np.zeros_like(told.online)
    online[0] = True
    for party, store in enumerate(stores):
        for round_, was_online in _rows(store, f"SELECT round, online FROM round WHERE phase = {_MIXING}"):  # noqa: S608
            online[round_, party] = was_online
        state = _rows(store, "SELECT phase, round FROM state")
        if state and state[0][0] == _MIXING and state[0][1] <= schedule.rounds:
            last = state[0][1]
            signs = any(round_ == last and party in ends for round_, *ends in arrived)
            online[last, party] = told.online[last, party] if last == schedule.rounds else signs
    lost = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
    for index in np.argwhere(ExecutionTrace(online).delivered(schedule)).tolist():
        message = (index[0] + 1, index[1], int(schedule.neighbours[tuple(index)]))
        lost[tuple(index)] = message not in arrived
    # Stores know what was taken in, not what was refused: the record may claim more to be seen, never less.
    truth = replace(told, online=online, lost=lost, settled=np.empty((0, 4), dtype=np.int64), seen=None)
    return replace(truth, settled=_kept(schedule, stores, truth))


def arrivals(stores: Sequence[Path]) -> set[tuple[int, PartyId, PartyId]]:
    """(round, sender, receiver) of all that any party, dead or alive, has taken in."""
    query = f"SELECT round, sender FROM inbox WHERE phase = {_MIXING}"  # noqa: S608
    return {(round_, sender, receiver) for receiver, store in enumerate(stores) for round_, sender in _rows(store, query)}


def heard_by_anybody(stores: Sequence[Path]) -> set[PartyId]:
    """Whose releases came to somebody."""
    query = f"SELECT sender FROM inbox WHERE phase = {int(Phase.DISSEMINATION)}"  # noqa: S608
    return {sender for store in stores for (sender,) in _rows(store, query)}


def _kept(schedule: Schedule, stores: Sequence[Path], truth: ExecutionTrace) -> Any:
    """What arrived though its sender kept it: until which round."""
    delivered, kept = truth.delivered(schedule), []
    query = f"SELECT round, receiver, settled FROM outbox WHERE phase = {_MIXING} AND status IN ('{IN_DOUBT}', '{COMMITTED}')"  # noqa: S608
    for sender, store in enumerate(stores):
        for round_, receiver, later in _rows(store, query):
            if (delivered[round_ - 1, sender] & (schedule.neighbours[round_ - 1, sender] == receiver)).any():
                kept.append((round_, sender, receiver, later or NEVER))
    return np.array(sorted(kept), dtype=np.int64).reshape(-1, 4)


def _rows(store: Path, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(store)) as database:
        return database.execute(query).fetchall()
