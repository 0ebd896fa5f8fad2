"""What really happened in the mixing phase, put together from everybody's logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import PartyId
from quietmean.graphs import History, Schedule
from quietmean.graphs.churn import NEVER
from quietmean.node.wire import PartyLog


def reconstruct(
    schedule: Schedule,
    logs: Mapping[PartyId, PartyLog],
    heard: Iterable[PartyId],
    hearsay: Mapping[PartyId, PartyLog] | None = None,
    *,
    sends_shares: bool,
) -> History:
    """Online rounds, lost messages and late settlements. ``heard``: whose releases this party has, besides what the logs say.

    ``hearsay``: what parties that told nothing at the end had told along with their messages, up to some round.
    """
    released = {*heard, *(party for log in logs.values() for party in log.heard)}
    partial = {party: log for party, log in (hearsay or {}).items() if party not in logs}
    both = {**logs, **partial}
    until = dict.fromkeys(logs, schedule.rounds) | {party: max(log.online, default=0) for party, log in partial.items()}
    arrived, sent = _arrived(both), _sent(both)
    online = _online(schedule, logs, partial, arrived, released)
    lost = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
    kept: set[tuple[int, PartyId, PartyId]] = set()
    for round_, sender, slot in np.argwhere(schedule.neighbours >= 0).tolist():
        round_, receiver = round_ + 1, int(schedule.neighbours[round_, sender, slot])
        message = (round_, sender, receiver)
        if message in arrived or not (online[round_, sender] and online[round_, receiver]):
            continue
        if until.get(receiver, 0) >= round_:
            lost[round_ - 1, sender, slot] = True
        elif until.get(sender, 0) >= round_ and sends_shares:
            # It took its share back; whether the receiver had seen it nobody knows. That must not be left out.
            kept.add(message)
        # Of other messages nothing is known. They count as arrived, for the same reason.
    history = History(online, lost if lost.any() else None)
    told = {(round_, sender, receiver): later for sender, log in both.items() for round_, receiver, later in log.settled}
    # What its receiver took in and its sender knows nothing of counts in both places.
    unknown = {message for message in arrived - sent if until.get(message[1], 0) >= message[0]}
    return replace(history, settled=_settled(schedule, history, dict.fromkeys(unknown | kept, NEVER) | told))


def _settled(schedule: Schedule, history: History, told: Mapping[tuple[int, PartyId, PartyId], int]) -> NDArray[np.int64]:
    """Of what the senders tell, what can be: a log is only as good as its author."""
    delivered = history.delivered(schedule)
    rows = []
    for (round_, sender, receiver), later in sorted(told.items()):
        arrived = (delivered[round_ - 1, sender] & (schedule.neighbours[round_ - 1, sender] == receiver)).any()
        if arrived and (later == NEVER or (later > round_ and history.online[later, sender])):
            rows.append((round_, sender, receiver, later))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _sent(logs: Mapping[PartyId, PartyLog]) -> set[tuple[int, PartyId, PartyId]]:
    return {(round_, party, receiver) for party, log in logs.items() for round_, receiver in log.sent}


def _arrived(logs: Mapping[PartyId, PartyLog]) -> set[tuple[int, PartyId, PartyId]]:
    """(round, sender, receiver) of which at least one end says that it arrived.

    Both ends agree unless a message was taken back that its receiver had used; who received it did see it.
    """
    return _sent(logs) | {(round_, sender, party) for party, log in logs.items() for round_, sender in log.received}


def _online(
    schedule: Schedule,
    logs: Mapping[PartyId, PartyLog],
    partial: Mapping[PartyId, PartyLog],
    arrived: set[tuple[int, PartyId, PartyId]],
    released: set[PartyId],
) -> NDArray[np.bool_]:
    online = np.zeros((schedule.rounds + 1, schedule.parties), dtype=np.bool_)
    online[0] = True
    last_sign = dict.fromkeys(range(schedule.parties), 0)
    for round_, sender, receiver in arrived:
        last_sign[sender] = max(last_sign[sender], round_)
        last_sign[receiver] = max(last_sign[receiver], round_)
    for party in range(schedule.parties):
        told = logs.get(party) or partial.get(party)
        if told is not None:
            online[list(told.online), party] = True
        if party not in logs:
            # After the last that it told of itself it was there up to the last sign of it; a release is made in the last round.
            first = max(told.online, default=0) if told is not None else 0
            last = schedule.rounds if party in released else last_sign[party]
            online[first + 1 : last + 1, party] = True
    return online
