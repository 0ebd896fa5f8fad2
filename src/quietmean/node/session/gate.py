"""The gate before the release: nobody publishes y^(T) before a history is agreed on that costs less than the target.

Stages, each a wait for the others like a round:

1. All mixing is over here. When the others say the same, or have been waited for, anyone who has not is cut off: no share of the
   mixing rounds is read here from then on. So this party's log, and what it knows of those who left, is final.
2. These logs are exchanged.
3. What each has got is exchanged, so that all who stay have the same.
4. Each party reconstructs the history, certifies it, and votes: for its digest, and whether the certificate passes. A vote is
   durable before anybody hears of it, and there is one of each party. A party publishes only if its own certificate passes, it
   was there in the last round, and more than half of all parties cast the same vote as it did.

Two histories cannot both have more than half of the votes, so all that is ever published belongs to one history, which everybody
who publishes has certified. Who leaves between vote and release only takes something away from it. The argument, with what it
assumes, is in docs/proofs/inca-gate.md.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quietmean.core.arrays import Array
from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.graphs import Schedule
from quietmean.node.monitor import RoundBegun
from quietmean.node.net import ACCEPTED, AnyRequest, GateLog, Heartbeat, Limits, Log, Payload, ResendRequest, Transfer, Vote
from quietmean.node.phase import GATE_STAGES, Phase, Position
from quietmean.node.session.carrier import Carrier
from quietmean.node.session.context import Context, Wait
from quietmean.node.session.logs import PartialLog, Received
from quietmean.node.session.reconstruction import own_log, reconstruct
from quietmean.node.session.result import read_record
from quietmean.randomness import Seed

if TYPE_CHECKING:
    from quietmean.planning.gate import GateRecord

BARRIER, OWN_LOGS, ALL_LOGS, VOTE = range(1, GATE_STAGES + 1)


class Gate:
    """One party's side of the gate, whose requests ``carrier`` carries.

    ``merge`` takes over the encoded logs of another party, or raises PeerError.
    """

    def __init__(self, context: Context, carrier: Carrier, merge: Callable[[bytes], None]) -> None:
        self._context = context
        self._carrier = carrier
        self._merge = merge
        self._votes = context.store.votes()
        # Who is at the gate, by its own requests: those come in the order in which they were sent, after all shares.
        self._here: set[PartyId] = set()
        # The last stage of which the logs came.
        self._stages: dict[PartyId, int] = {}
        self._sending: dict[PartyId, asyncio.Task[Any]] = {}
        self._informed: set[PartyId] = set()
        # From here on no share of a mixing round is taken from anybody.
        self.closed = context.store.voted_history() is not None

    # --- what the others send ----------------------------------------------------------------------------------------

    def heard(self, sender: PartyId, position: Position) -> None:
        """A request of ``sender`` that states its position."""
        if is_closed(position) and sender not in self._here:
            self._here.add(sender)
            self._context.changed.set()

    def take_log(self, sender: PartyId, request: GateLog, payload: Payload) -> None:
        """Logs before the gate; durable when this returns. Raises :class:`PeerError` for what cannot be read.

        Who is at the barrier only says so.
        """
        raw = bytes(payload)
        if request.stage > BARRIER:
            self._merge(raw)
            self._context.store.keep_gossip(sender, raw)
        self._stages[sender] = max(request.stage, self._stages.get(sender, 0))
        self._context.changed.set()

    def take_vote(self, sender: PartyId, vote: Vote) -> None:
        """A party's vote; durable when this returns. Raises :class:`PeerError` for a second one that differs."""
        cast = vote.digest, vote.passes
        before = self._votes.get(sender)
        if before is not None and before != cast:
            raise PeerError("it voted for something else before: it lost its store, or tells different parties different things")
        if before is None:
            self._context.store.save_vote(sender, *cast)
            self._votes[sender] = cast
        self._context.changed.set()
        # It may have been away when this party sent it.
        self._tell_vote(sender)

    # --- this party's way through ------------------------------------------------------------------------------------

    async def run(self, schedule: Schedule, seed: Seed, weights: Array) -> GateRecord:
        """The decision, from the start or from where the store says that this party was. It is durable when this returns."""
        # Certificates need much that a running party does not: imported when it is due.
        from quietmean.planning.gate import history_digest

        store, party = self._context.store, self._context.party
        if store.voted_history() is None:
            await self._agree_on_logs()
            # What comes later changes nothing any more.
            logs = self._context.gossip.logs()
            record = await self._carrier.compute(lambda: self._certified(logs, schedule, seed, weights))
            digest = bytes.fromhex(history_digest(record.execution, record.incomplete))
            store.cast_vote(party, digest, record.decision.passes, json.dumps(record.to_json()).encode())
            self._votes[party] = digest, record.decision.passes
        self.closed = True
        if store.passed_gate() is None:
            self._enter(VOTE)
            await self._exchange_votes()
            store.pass_gate(self._agreed and store.own_release() is not None)
        return self.record(published=bool(store.passed_gate()))

    def record(self, *, published: bool) -> GateRecord:
        """What is known of the gate now."""
        from quietmean.planning.gate import GateVote

        kept = read_record(json.loads(self._context.store.voted_history() or b"{}"))
        votes = {party: GateVote(digest.hex(), passes) for party, (digest, passes) in self._votes.items()}
        return replace(kept, votes=votes, published=published)

    async def _agree_on_logs(self) -> None:
        context = self._context
        self._enter(BARRIER)
        for other in context.others:
            # In a folder nobody is known to be there now: that this party is here it tells by a file, in its order.
            here = Heartbeat(0, *context.inbox.position) if context.closed is None else GateLog(0, BARRIER)
            context.spawn(context.links[other].ask(here))
        await Wait(context, lambda: dict.fromkeys(self._absent(BARRIER), False), full_time="all").until_over()
        self.closed = True
        self._carrier.disconnect(set(context.others) - self._here)
        gossip = context.gossip
        gossip.put(context.party, own_log(context, Received()), gossip.rounds)
        # Its own log stays the same after a restart, whatever becomes known of shares in doubt.
        context.store.keep_gossip(context.party, gossip.encode(context.party, self._limit))
        for stage in (OWN_LOGS, ALL_LOGS):
            self._enter(stage)
            await self._exchange_logs(stage)

    def _absent(self, stage: int) -> set[PartyId]:
        """The others of whom it is not known that they are at a stage, or beyond.

        Through a folder every visit is another process: who sent its whole log is known from what is kept. And nobody's is waited
        for again where all are here.
        """
        context, gossip = self._context, self._context.gossip
        at_it = self._here if stage == BARRIER else {other for other, last in self._stages.items() if last >= stage}
        if context.closed is not None:
            complete = {other for other in context.others if gossip.until[other] == gossip.rounds}
            if stage < ALL_LOGS or len(complete) == len(context.others):
                at_it = at_it | complete
        return set(context.others) - at_it

    def _enter(self, stage: int) -> None:
        context = self._context
        context.inbox.enter((int(Phase.GATE), stage), frozenset())
        context.report(RoundBegun(Phase.GATE, stage, VOTE, tuple(context.names(context.others)), context.last_moment()))

    @property
    def _limit(self) -> int:
        return Limits.of_study(len(self._context.others) + 1, self._context.gossip.rounds, 0).log

    async def _exchange_logs(self, stage: int) -> None:
        context = self._context
        encoded, acknowledged = context.gossip.encode(context.party, self._limit), set[PartyId]()

        async def send(other: PartyId) -> None:
            answer = await context.links[other].ask(GateLog(0, stage), encoded)
            if answer.status == ACCEPTED:
                acknowledged.add(other)

        def missing() -> dict[PartyId, bool]:
            # Who is further has sent it to an earlier process of this party, or will not any more.
            absent = self._absent(stage)
            behind = [other for other in absent if not context.failure_detector.is_past(other, context.inbox.position)]
            # What is in a folder stays there.
            unsure = context.others if context.closed is None else []
            return dict.fromkeys(behind, False) | {other: True for other in unsure if other not in acknowledged}

        sending = [context.spawn(send(other)) for other in context.others]
        # So that each is on its way before a wait that may be over at once.
        await asyncio.sleep(0)
        await Wait(context, missing).until_over()
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)

    def _certified(self, logs: Mapping[PartyId, PartialLog], schedule: Schedule, seed: Seed, weights: Array) -> GateRecord:
        """The history that follows from these logs, and its certificate."""
        from quietmean.planning.gate import GateRecord, decide

        plan = self._context.settings.plan
        complete = {party: partial.log for party, partial in logs.items() if partial.until == schedule.rounds}
        trace = reconstruct(schedule, complete, (), logs, transfers_mass=True, before_release=True)
        execution = plan.execution(seed, trace, weights)
        incomplete = tuple(party for party in range(execution.parties) if party not in complete)
        decision = decide(plan.target, execution, incomplete)
        return GateRecord(execution, incomplete, decision, {}, published=False, by_folder=plan.target.by_folder)

    async def _exchange_votes(self) -> None:
        context = self._context
        for other in context.others:
            self._tell_vote(other)

        def missing() -> dict[PartyId, bool]:
            if self._decided:
                return {}
            return {other: other not in self._informed for other in context.others if other not in self._votes}

        await Wait(context, missing).until_over()

    async def tell_all(self) -> None:
        """Wait until the others have this party's vote, before it leaves; in a folder it stays."""
        context = self._context
        await asyncio.sleep(0)
        if context.closed is not None:
            return
        await Wait(context, lambda: {other: True for other in context.others if other not in self._informed}).until_over()

    def _tell_vote(self, other: PartyId) -> None:
        """Send the own vote, if there is one, in the background until the end of this node."""
        own, sending = self._votes.get(self._context.party), self._sending.get(other)
        if own is None or other in self._informed or (sending is not None and not sending.done()):
            return

        async def send() -> None:
            answer = await self._context.links[other].ask(Vote(0, *own))
            if answer.status == ACCEPTED:
                self._informed.add(other)
                self._context.changed.set()

        self._sending[other] = self._context.spawn(send())

    @property
    def _agreed(self) -> bool:
        """Did more than half of all parties cast the own vote, and is it that the certificate passes?"""
        own = self._votes[self._context.party]
        return own[1] and 2 * list(self._votes.values()).count(own) > len(self._context.others) + 1

    @property
    def _decided(self) -> bool:
        """Whatever other votes come: is there enough support for the own one, or can there be none for any?"""
        parties = len(self._context.others) + 1
        support = Counter(vote for vote in self._votes.values() if vote[1])
        most = max(support.values(), default=0) + parties - len(self._votes)
        return self._agreed or 2 * most <= parties


def is_closed(position: Position) -> bool:
    """Has a party that was in this position left mixing for good?"""
    return position >= (int(Phase.GATE), 0)


def position_of(request: AnyRequest) -> Position:
    """Where its sender is at least."""
    match request:
        case Transfer() | ResendRequest() | Heartbeat():
            return request.phase, request.round
        case GateLog():
            return int(Phase.GATE), request.stage
        case Vote():
            return int(Phase.GATE), VOTE
        case Log():
            return int(Phase.FINALIZATION), 0
        case _:
            return int(Phase.AGREEMENT), 0
