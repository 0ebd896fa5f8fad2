"""The end: everybody tells everybody what happened to it, so that all can account for this very execution."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from quietmean.core.party import PartyId
from quietmean.node.context import Context, Wait
from quietmean.node.whereabouts import Phase
from quietmean.node.wire import Log, PartyLog, encode_log


def own_log(context: Context, heard: tuple[PartyId, ...]) -> PartyLog:
    store = context.store
    mixing = Phase.MIXING
    return PartyLog(
        store.rounds_online(mixing), store.arrived_there(mixing), store.arrived_here(mixing), heard, store.settled(mixing)
    )


async def exchange_logs(context: Context, log: PartyLog, logs: Mapping[PartyId, PartyLog]) -> None:
    """Send the own log to all and wait for theirs, which come into ``logs``: one round time-out for whoever gives no sign."""
    context.door.enter((int(Phase.CLOSING), 0), frozenset())
    context.report({"event": "closing", "phase": Phase.CLOSING.label, "waiting_for": context.names(context.others)})
    payload = encode_log(log)
    told: set[PartyId] = set()

    def missing() -> dict[PartyId, bool]:
        absent = {party: False for party in context.others if party not in logs}
        return absent | {party: True for party in context.others if party not in told}

    sending = [context.spawn(_tell(context, party, payload, told)) for party in context.others]
    await Wait(context, missing, full_time="all").until_settled()
    for task in sending:
        task.cancel()
    await asyncio.gather(*sending, return_exceptions=True)


async def _tell(context: Context, party: PartyId, payload: bytes, told: set[PartyId]) -> None:
    await context.links[party].ask(Log(0), payload)
    told.add(party)
