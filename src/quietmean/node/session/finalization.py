"""Finalization: all parties exchange their logs, so that each can certify the execution that really happened.

A log is durable before it is acknowledged, and the result is durable before this party leaves. A party that crashes here goes on
from its store, and one that is started again after the end returns the same result.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from quietmean.core.party import PartyId
from quietmean.node.monitor import FinalizationBegun
from quietmean.node.net import Log, Payload
from quietmean.node.phase import Phase, Position
from quietmean.node.session.context import Context, Wait
from quietmean.node.session.logs import PartyLog, encode_log
from quietmean.node.session.received import Received
from quietmean.node.session.result import NodeResult
from quietmean.node.storage import Store
from quietmean.protocols.execution import Execution

if TYPE_CHECKING:
    from quietmean.planning.gate import GateRecord, GateRefused


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


def keep_result(store: Store, phase: Phase, result: NodeResult) -> None:
    """Make the result durable and wipe the party's secrets. ``phase``: the one whose release the result's total is."""
    # The total is the only large part, and in the store already.
    small = replace(result, total_vector=np.zeros(0))
    store.finish(phase, json.dumps({"phase": int(phase), **small.to_json()}).encode())


def keep_refusal(store: Store, record: GateRecord) -> GateRefused:
    """Make it durable that the study ends without a result, and wipe the party's secrets. Returns the error to raise."""
    store.finish(Phase.MIXING, json.dumps({"refused": record.to_json()}).encode())
    return refusal(record.to_json())


def refusal(document: Mapping[str, Any]) -> GateRefused:
    """The error of a study that ended without a result; ``document``: a record of the gate with its history."""
    # Certificates need much that a running party does not: imported when it is due.
    from quietmean.planning.gate import GateRefused

    return GateRefused(read_record(document))


def read_record(document: Mapping[str, Any]) -> GateRecord:
    """A record of the gate with its history, as this program wrote it."""
    from quietmean.planning.gate import GateRecord

    return GateRecord.from_json(document, Execution.from_json(document["history"]))


def kept_result(store: Store) -> NodeResult | None:
    """The stored result, if this party has finished its study. Raises :class:`GateRefused` if it finished without one."""
    raw = store.result()
    if raw is None:
        return None
    document = json.loads(raw)
    if "refused" in document:
        raise refusal(document["refused"])
    return NodeResult.from_json(document | {"total_vector": store.required_release(document.pop("phase")).vector})


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
    # The last ones are in this party's own record at least.
    return own_log(context, came)


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
        for task in self._tasks:
            task.cancel()
        context = self._context
        # Only the log that ends a session says how far the site's audit log had come.
        log = msgspec.structs.replace(own_log(context, self._came), audit=context.store.first_audit(context.settings.site.audit))
        self._seen, self.acknowledged, payload = log.seen, set(), encode_log(log)
        self._tasks += [self._context.spawn(self._send(party, payload, self.acknowledged)) for party in self._context.others]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, party: PartyId, payload: Payload, acknowledged: set[PartyId]) -> None:
        await self._context.links[party].ask(self._request, payload)
        acknowledged.add(party)
