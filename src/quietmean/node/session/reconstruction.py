"""The real history of the mixing phase, reconstructed from all parties' logs, which they exchange before there is a result.

A log is durable before it is acknowledged: a party that crashes here goes on from its store.

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

import asyncio
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.party import PartyId
from quietmean.graphs import NEVER, ExecutionTrace, Schedule
from quietmean.node.monitor import FinalizationBegun
from quietmean.node.net import Log, Payload
from quietmean.node.phase import Phase, Position
from quietmean.node.session.context import Context, Wait
from quietmean.node.session.logs import PartialLog, PartyLog, Received, decode_log, encode_log


def reconstruct(
    schedule: Schedule,
    logs: Mapping[PartyId, PartyLog],
    heard_from: Iterable[PartyId],
    gossip: Mapping[PartyId, PartialLog] | None = None,
    *,
    transfers_mass: bool,
    before_release: bool = False,
) -> ExecutionTrace:
    """Reconstruct online rounds, lost messages and late settlements from the final ``logs``.

    ``before_release``: count everybody as releasing who may have sent something in the last round.

    ``heard``: parties whose releases this party has, besides those that the logs name. ``gossip``: logs up to some round, which
    serve for parties whose final log did not come. ``transfers_mass``: whether a cancelled message may count in both places.
    """
    released = set(heard_from).union(*(log.heard for log in logs.values()))
    partial = {party: partial_log for party, partial_log in (gossip or {}).items() if party not in logs}
    both = {**logs, **{party: partial_log.log for party, partial_log in partial.items()}}
    until = np.zeros(schedule.parties, dtype=np.int64)
    until[list(logs)] = schedule.rounds
    until[list(partial)] = [partial_log.until for partial_log in partial.values()]
    sent = _messages({party: log.sent for party, log in both.items()})
    taken = _messages({party: log.received for party, log in both.items()})[:, [0, 2, 1]]
    # Both ends agree unless a cancelled message had been used by its receiver, which did see it then.
    final = np.isin(np.arange(schedule.parties), list(logs))
    # Of a party that left all repeat what anybody sent them: what came to those who finished they say themselves.
    arrived = np.concatenate([sent[final[sent[:, 1]] | ~final[sent[:, 2]]], taken])
    if before_release:
        released |= {party for party, partial_log in partial.items() if partial_log.until >= schedule.rounds - 1}
    seen = _messages({party: log.seen for party, log in logs.items()})[:, [0, 2, 1]]
    online = _online(schedule, both, until, np.concatenate([arrived, seen]), released, int(transfers_mass))
    _correct(online, final, np.concatenate([sent[final[sent[:, 1]]], taken[final[taken[:, 2]]], seen]))
    # Of each place of the schedule: the message, and what the logs of its ends cover.
    rounds, senders, receivers = _places(schedule)
    numbers = (rounds * schedule.parties + senders) * schedule.parties + receivers
    missing = (schedule.neighbours >= 0) & ~np.isin(numbers, _numbers(schedule, arrived))
    missing &= online[rounds, senders] & online[rounds, receivers]
    sender_logged = until[senders] >= rounds
    # Its sender goes on without it, whatever a silent receiver did; it counts as seen all the same.
    lost = missing & ((until[receivers] >= rounds) | (sender_logged & (not transfers_mass)))
    # Its sender cancelled it; whether the receiver had seen it is not known. It must not be left out.
    kept = missing & sender_logged & ~lost
    # Of other messages nothing is known. They count as arrived, for the same reason.
    trace = ExecutionTrace(online, lost if lost.any() else None).all_handed(schedule)
    # What its receiver accepted and its sender knows nothing of counts in both places.
    unknown = taken[~_among(schedule, taken, sent) & (until[taken[:, 1]] >= taken[:, 0])]
    before, of, _ = np.nonzero(kept)
    doubtful = np.concatenate([unknown, np.stack([before + 1, of, receivers[kept]], axis=-1)])
    logged = {(round_, sender, receiver): later for sender, log in both.items() for round_, receiver, later in log.settled}
    return replace(trace, settled=_settled(schedule, trace, dict.fromkeys(map(tuple, doubtful.tolist()), NEVER) | logged))


def _messages(named: Mapping[PartyId, Sequence[tuple[int, PartyId]]]) -> Ints:
    """Rows (round, party, other) of what each party says as (round, other)."""
    flat = itertools.chain.from_iterable(itertools.chain.from_iterable(named.values()))
    pairs = np.fromiter(flat, dtype=np.int64).reshape(-1, 2)
    parties = np.repeat(np.fromiter(named, dtype=np.int64), [len(messages) for messages in named.values()])
    return np.column_stack([pairs[:, 0], parties, pairs[:, 1]])


def _places(schedule: Schedule) -> tuple[Ints, Ints, Ints]:
    """Round (T, 1, 1), sender (1, n, 1) and receiver (T, n, k) of each place of the schedule; -1 where it has no message."""
    rounds, parties, _ = schedule.neighbours.shape
    return np.arange(1, rounds + 1)[:, None, None], np.arange(parties)[None, :, None], schedule.neighbours.astype(np.int64)


def _among(schedule: Schedule, messages: Ints, others: Ints) -> Mask:
    """Which of some messages, shape (m, 3), are in others."""
    return np.isin(_numbers(schedule, messages), _numbers(schedule, others))


def _numbers(schedule: Schedule, messages: Ints) -> Ints:
    """One number for each message (round, sender, receiver)."""
    numbers: Ints = (messages[:, 0] * schedule.parties + messages[:, 1]) * schedule.parties + messages[:, 2]
    return numbers


def _settled(schedule: Schedule, trace: ExecutionTrace, logged: Mapping[tuple[int, PartyId, PartyId], int]) -> Ints:
    """Rows (round, sender, receiver, later round) of the logged settlements that are consistent with the history."""
    delivered = trace.delivered(schedule)
    rows = []
    for (round_, sender, receiver), later in sorted(logged.items()):
        arrived = (delivered[round_ - 1, sender] & (schedule.neighbours[round_ - 1, sender] == receiver)).any()
        if arrived and (later == NEVER or (later > round_ and trace.online[later, sender])):
            rows.append((round_, sender, receiver, later))
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _online(
    schedule: Schedule,
    logs: Mapping[PartyId, PartyLog],
    until: Ints,
    signs: Ints,
    released: set[PartyId],
    more: int,
) -> Mask:
    online = np.zeros((schedule.rounds + 1, schedule.parties), dtype=np.bool_)
    online[0] = True
    last_sign = np.zeros(schedule.parties, dtype=np.int64)
    np.maximum.at(last_sign, signs[:, 1:], signs[:, :1])
    for party in range(schedule.parties):
        if party in logs:
            online[list(logs[party].online), party] = True
        logged = int(until[party])
        if party in released:
            last = schedule.rounds
        else:
            # No log covers its last round, in which it may have seen what it was sent. Who is online in the very last round
            # counts as having made a release, so there only a sign counts.
            last = max(last_sign[party], min(max(last_sign[party], logged) + more, schedule.rounds - 1))
        online[logged + 1 : last + 1, party] = True
    return online


def _correct(online: Mask, final: Mask, known: Ints) -> None:
    """What others repeat of parties that left, ``online`` (T + 1, n), by what those who finished, ``final``, know themselves.

    Anybody may have said anything to them of who left. ``known``: messages that one of them sent or was handed.
    """
    # It was there in each round in which somebody who finished exchanged something with it.
    for end in (1, 2):
        other = known[~final[known[:, end]]]
        online[other[:, 0], other[:, end]] = True


def own_log(context: Context, came: Received) -> PartyLog:
    """This party's log. Those are named, too, of whom it was handed a release besides those that ``came``."""
    store = context.store
    mixing, heard_from = Phase.MIXING, came.parties
    if context.settings.plan.releases_are_copies:
        heard_from = tuple(sorted({*heard_from, *(sender for _, sender in store.seen_here(Phase.DISSEMINATION))}))
    return PartyLog(
        store.rounds_online(mixing),
        store.arrived_there(mixing),
        store.arrived_here(mixing),
        heard_from,
        store.settled(mixing),
        store.seen_here(mixing),
        releases=came.digests,
    )


def encoded_gossip(context: Context, here: Position) -> bytes:
    """This party's log of the mixing rounds up to its position ``here``, and the logs that came to it, for others to keep."""
    gossip = context.gossip
    phase, round_ = here
    gossip.put(context.party, own_log(context, Received()), round_ - 1 if phase == Phase.MIXING else gossip.rounds)
    return gossip.encode(context.party)


async def exchange_logs(context: Context, came: Received, logs: Mapping[PartyId, PartyLog], *, gossips: bool) -> PartyLog:
    """Send the own log to all and wait for theirs, which the session puts into ``logs``; one round time-out for silent parties.

    With ``gossips``, the gossiped logs go along, so that all who stay know the same of those who left. Returns the own log.
    """
    here = int(Phase.FINALIZATION), 0
    context.inbox.enter(here, frozenset())
    context.report(FinalizationBegun(tuple(context.names(context.others)), context.last_moment()))
    request = Log(0, encoded_gossip(context, here) if gossips else b"")
    announcements = _Announcements(context, came, request)
    announcements.start()

    def missing() -> dict[PartyId, bool]:
        if announcements.outdated:
            # A message came too late in the meantime: who sent it may be unable to tell.
            announcements.start()
        absent = {party: False for party in context.others if party not in logs}
        return absent | {party: True for party in context.others if party not in announcements.acknowledged}

    await Wait(context, missing, full_time="all").until_over()
    await announcements.stop()
    # The last ones are in this party's own record at least. Read as those of the others: equal ones are the same.
    own = encode_log(own_log(context, came))
    return decode_log(own, len(context.settings.names), context.settings.plan.protocol.rounds)


class _Announcements:
    """Sends the own log to all others."""

    def __init__(self, context: Context, came: Received, request: Log) -> None:
        self._context, self._came, self._request = context, came, request
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: tuple[tuple[int, PartyId], ...] = ()
        self.acknowledged: set[PartyId] = set()

    @property
    def outdated(self) -> bool:
        return self._context.store.seen_here(Phase.MIXING) != self._seen

    def start(self) -> None:
        """Send it as it is now, in place of what it was before."""
        self._cancel()
        context = self._context
        # Only the log that ends a session says how far the site's audit log had come.
        log = msgspec.structs.replace(own_log(context, self._came), audit=context.store.first_audit(context.settings.site.audit))
        self._seen, self.acknowledged, payload = log.seen, set(), encode_log(log)
        acknowledged = self.acknowledged

        def send_now(party: PartyId) -> bool:
            answered = context.now(party, self._request, payload) is not None
            if answered:
                acknowledged.add(party)
            return answered

        self._tasks = context.spawn_each(context.others, send_now, lambda party: self._send(party, payload, acknowledged))

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        self._cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, party: PartyId, payload: Payload, acknowledged: set[PartyId]) -> None:
        await self._context.links[party].ask(self._request, payload)
        acknowledged.add(party)
