"""The real history of the mixing phase, reconstructed from all parties' logs.

A party that finished sends its complete log. In protocols that send shares, the logs of the other parties come from gossip: each
message carries the logs that its sender has, its own up to the previous round (see :mod:`.gossip`), and the parties that finish
exchange these logs at the end. So everything that influenced a message to a party that finished is known exactly, through any
chain of parties that have left since. What all parties that finished have seen together is recorded exactly.

What only parties that left have seen is not known. The assumptions about them:

* Such a party was online in all rounds from the last known one to its last activity (a message that it sent or acknowledged),
  and in one more, in which it may have seen what was sent to it. For the very last round only activity in it or a release counts,
  since in a trace every party that is online in that round has made a release.
* A share that its sender cancelled, and that no log of such a receiver mentions, arrived in those rounds. Its sender kept it as
  well.
* A message between two such parties arrived, in rounds in which both count as online.
* What was sent and is not known to have arrived counts as seen by its receiver, whether it was refused, taken back, or its
  receiver was silent: a silent party saw all that was sent to it. Final logs name what was handed over and not used, so
  that it counts too where its sender reported nothing.
* What such parties did later, only with one another, is not in the record. It has influenced no party that finished. The parties
  that left may have seen more of one another than the record states.

Protocols that send no shares do not gossip logs. There, all that is known of a party that left is what the parties that finished
exchanged with it. The same is assumed of its other rounds and messages, without the additional round; but a message whose sender
heard nothing of its arrival did not arrive, since its sender went on without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.graphs.execution_trace import NEVER
from quietmean.node.session.gossip import PartialLog
from quietmean.node.session.logs import PartyLog


def reconstruct(
    schedule: Schedule,
    logs: Mapping[PartyId, PartyLog],
    heard_from: Iterable[PartyId],
    gossip: Mapping[PartyId, PartialLog] | None = None,
    *,
    transfers_mass: bool,
    before_release: bool = False,
) -> ExecutionTrace:
    """Online rounds, lost messages and late settlements, from the final ``logs``.

    ``before_release``: count everybody as releasing who may have sent something in the last round.

    ``heard``: parties whose releases this party has, besides those that the logs name. ``gossip``: logs up to some round, which
    serve for parties whose final log did not come. ``transfers_mass``: whether a cancelled message may count in both places.
    """
    released = {*heard_from, *(party for log in logs.values() for party in log.heard)}
    partial = {party: partial_log for party, partial_log in (gossip or {}).items() if party not in logs}
    both = {**logs, **{party: partial_log.log for party, partial_log in partial.items()}}
    until = dict.fromkeys(logs, schedule.rounds) | {party: partial_log.until for party, partial_log in partial.items()}
    arrived, sent = _arrived(both), _sent(both)
    if before_release:
        released |= {party for party, partial_log in partial.items() if partial_log.until >= schedule.rounds - 1}
    signs = arrived | {(round_, sender, party) for party, log in logs.items() for round_, sender in log.seen}
    online = _online(schedule, both, until, signs, released, int(transfers_mass))
    lost = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
    kept: set[tuple[int, PartyId, PartyId]] = set()
    for round_, sender, slot in np.argwhere(schedule.neighbours >= 0).tolist():
        round_, receiver = round_ + 1, int(schedule.neighbours[round_, sender, slot])
        message = (round_, sender, receiver)
        if message in arrived or not (online[round_, sender] and online[round_, receiver]):
            continue
        sender_logged = until.get(sender, 0) >= round_
        if until.get(receiver, 0) >= round_ or (sender_logged and not transfers_mass):
            # Its sender goes on without it, whatever a silent receiver did; it counts as seen all the same.
            lost[round_ - 1, sender, slot] = True
        elif sender_logged:
            # Its sender cancelled it; whether the receiver had seen it is not known. It must not be left out.
            kept.add(message)
        # Of other messages nothing is known. They count as arrived, for the same reason.
    trace = ExecutionTrace(online, lost if lost.any() else None).all_handed(schedule)
    logged = {(round_, sender, receiver): later for sender, log in both.items() for round_, receiver, later in log.settled}
    # What its receiver accepted and its sender knows nothing of counts in both places.
    unknown = {message for message in arrived - sent if until.get(message[1], 0) >= message[0]}
    return replace(trace, settled=_settled(schedule, trace, dict.fromkeys(unknown | kept, NEVER) | logged))


def _settled(schedule: Schedule, trace: ExecutionTrace, logged: Mapping[tuple[int, PartyId, PartyId], int]) -> Ints:
    """Rows (round, sender, receiver, later round) of the logged settlements that are consistent with the history."""
    delivered = trace.delivered(schedule)
    rows = []
    for (round_, sender, receiver), later in sorted(logged.items()):
        arrived = (delivered[round_ - 1, sender] & (schedule.neighbours[round_ - 1, sender] == receiver)).any()
        if arrived and (later == NEVER or (later > round_ and trace.online[later, sender])):
            rows.append((round_, sender, receiver, later))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _sent(logs: Mapping[PartyId, PartyLog]) -> set[tuple[int, PartyId, PartyId]]:
    return {(round_, party, receiver) for party, log in logs.items() for round_, receiver in log.sent}


def _arrived(logs: Mapping[PartyId, PartyLog]) -> set[tuple[int, PartyId, PartyId]]:
    """(round, sender, receiver) of which at least one end says that it arrived.

    Both ends agree unless a cancelled message had been used by its receiver, which did see it then.
    """
    return _sent(logs) | {(round_, sender, party) for party, log in logs.items() for round_, sender in log.received}


def _online(
    schedule: Schedule,
    logs: Mapping[PartyId, PartyLog],
    until: Mapping[PartyId, int],
    signs: set[tuple[int, PartyId, PartyId]],
    released: set[PartyId],
    more: int,
) -> Mask:
    online = np.zeros((schedule.rounds + 1, schedule.parties), dtype=np.bool_)
    online[0] = True
    last_sign = dict.fromkeys(range(schedule.parties), 0)
    for round_, sender, receiver in signs:
        last_sign[sender] = max(last_sign[sender], round_)
        last_sign[receiver] = max(last_sign[receiver], round_)
    for party in range(schedule.parties):
        if party in logs:
            online[list(logs[party].online), party] = True
        logged = until.get(party, 0)
        if party in released:
            last = schedule.rounds
        else:
            # No log covers its last round, in which it may have seen what it was sent. Whoever is online in the very last round
            # counts as having made a release, so there only a sign counts.
            last = max(last_sign[party], min(max(last_sign[party], logged) + more, schedule.rounds - 1))
        online[logged + 1 : last + 1, party] = True
    return online
