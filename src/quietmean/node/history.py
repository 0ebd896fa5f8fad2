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


def reconstruct(schedule: Schedule, logs: Mapping[PartyId, PartyLog], heard: Iterable[PartyId], *, sends_shares: bool) -> History:
    """Online rounds, lost messages and late settlements. ``heard``: whose releases this party has, besides what the logs say."""
    arrived = _arrived(logs)
    online = _online(schedule, logs, arrived, {*heard, *(party for log in logs.values() for party in log.heard)})
    lost = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
    for round_ in range(1, schedule.rounds + 1):
        for sender in range(schedule.parties):
            for slot, receiver in enumerate(schedule.neighbours[round_ - 1, sender].tolist()):
                if receiver < 0 or not (online[round_, sender] and online[round_, receiver]):
                    continue
                # Of a message between two parties that left no log nothing is known. It counts as arrived: what colluding
                # parties may have seen must not be left out.
                known = sender in logs or receiver in logs
                lost[round_ - 1, sender, slot] = known and (round_, sender, receiver) not in arrived
    unsettled = History(online, lost if lost.any() else None)
    return replace(unsettled, settled=_settled(schedule, unsettled, logs)) if sends_shares else unsettled


def _settled(schedule: Schedule, history: History, logs: Mapping[PartyId, PartyLog]) -> NDArray[np.int64]:
    """Of what the senders tell, what can be: a log is only as good as its author."""
    delivered = history.delivered(schedule)
    told = {(round_, sender, receiver): later for sender, log in logs.items() for round_, receiver, later in log.settled}
    # What its receiver took in and its sender knows nothing of counts in both places.
    sent = {(round_, sender, receiver) for sender, log in logs.items() for round_, receiver in log.sent}
    received = {(round_, sender, party) for party, log in logs.items() for round_, sender in log.received if sender in logs}
    rows = []
    for (round_, sender, receiver), later in sorted((dict.fromkeys(received - sent, NEVER) | told).items()):
        arrived = (delivered[round_ - 1, sender] & (schedule.neighbours[round_ - 1, sender] == receiver)).any()
        if arrived and (later == NEVER or (later > round_ and history.online[later, sender])):
            rows.append((round_, sender, receiver, later))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _arrived(logs: Mapping[PartyId, PartyLog]) -> set[tuple[int, PartyId, PartyId]]:
    """(round, sender, receiver) of which at least one end says that it arrived.

    Both ends agree unless a message was taken back that its receiver had used; who received it did see it.
    """
    sent = {(round_, party, receiver) for party, log in logs.items() for round_, receiver in log.sent}
    received = {(round_, sender, party) for party, log in logs.items() for round_, sender in log.received}
    return sent | received


def _online(
    schedule: Schedule,
    logs: Mapping[PartyId, PartyLog],
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
        if party in logs:
            online[list(logs[party].online), party] = True
        else:
            # Who left no log was there up to the last sign of it; a release is made in the last round.
            last = schedule.rounds if party in released else last_sign[party]
            online[: last + 1, party] = True
    return online
