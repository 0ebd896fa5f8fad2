"""One phase of a study: drive a party machine through its rounds, over the network, durably.

Exactness depends on the order: a step (state, what it sends, how the last round ended) is on disk before its first
byte is sent; a transfer is on disk at its receiver before it is answered; no other
task runs between reading the answers and recording the end of the round.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from quietmean.core.codec import load_state
from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import PartyId, PartyMachine, Step, settlement
from quietmean.node.monitor import RoundBegun
from quietmean.node.net import (
    ACCEPTED,
    REFUSED,
    AnswerFrame,
    CancelTransfer,
    ConfirmTransfer,
    ResendRequest,
    Transfer,
    WithheldError,
)
from quietmean.node.phase import Phase, Position
from quietmean.node.session.context import Context, Wait
from quietmean.node.session.reconstruction import encoded_gossip
from quietmean.node.storage import COMMITTED, IN_DOUBT, ClosedRound, Outgoing

_logger = logging.getLogger("quietmean.node")


@dataclass(frozen=True, eq=False)
class PhaseRunner:
    """Runs the rounds of one phase of the protocol.

    ``may_miss``: rounds that have passed for everybody else are missed rather than run alone.

    ``transfers_mass``: what is sent is taken out of what is held; a cancelled share that had been used is settled later.
    ``gossips``: logs of the mixing rounds go along with messages. ``senders``: who may send to this party in a round, which can
    be more than the machine expects. ``gated``: a gate follows, so the release is withheld, and nothing is sent to a party that
    has closed its mixing rounds. ``restarted``: the store was there before this process. ``deals_value``: once the
    machine's first step is durable, neither it nor anybody else needs the value.
    """

    context: Context
    phase: Phase
    machine: PartyMachine[Any]
    may_miss: bool = field(kw_only=True)
    transfers_mass: bool = field(kw_only=True)
    gossips: bool = field(kw_only=True)
    senders: Callable[[int], frozenset[PartyId]] = field(kw_only=True, default=lambda round_: frozenset())
    gated: bool = field(kw_only=True, default=False)
    restarted: bool = field(kw_only=True, default=False)
    deals_value: bool = field(kw_only=True, default=False)

    async def run(self) -> Any:
        """Run the phase from the start, or from where the store says that this party was; returns the machine's last state."""
        state, resumed = self._state()
        if self.deals_value:
            machine: Any = self.machine
            machine.forget_value()
            self.context.settings.brought.forget()
        if self.transfers_mass:
            for round_, receiver in self.context.store.in_doubt(self.phase):
                self.context.spawn(self._cancel((int(self.phase), round_), receiver))
        while state.round <= self.machine.rounds:
            state = await self._round(state, resumed)
            resumed = False
        return state

    def _state(self) -> tuple[Any, bool]:
        stored = self.context.store.state()
        if stored is not None and stored[0] == self.phase:
            return load_state(self.machine.state_type, stored[2], self.context.store.kept), True
        step = self.machine.start()
        self.context.store.record(self.phase, step)
        return step.state, self.restarted and self.phase == Phase.MIXING

    async def _round(self, state: Any, resumed: bool) -> Any:
        context, here = self.context, (int(self.phase), int(state.round))
        expected = self.machine.expects(state)
        context.inbox.enter(here, expected, self.senders(state.round) - expected)
        if resumed:
            await self._catch_up(here)
        elif self.restarted and self._copies:
            # What came early to the process that died, in a phase before this one.
            context.inbox.note_seen(self._may_have_come(here[1]))
        outgoing = context.store.outgoing(*here)
        self._report(here, expected | outgoing.keys())
        statuses = await self._exchange(here, outgoing, expected)
        if self.transfers_mass and state.round == self.machine.rounds:
            statuses = await self._resolve_in_doubt(here, statuses)
        delivered = frozenset(receiver for receiver, status in statuses.items() if status == ACCEPTED)
        received = context.store.received(*here, context.party)
        due = context.store.unsettled(self.phase, context.party) if self.transfers_mass else []
        ended = self.machine.end_round(state, [*received, *map(settlement, due)], delivered)
        step, missed = self._skip_passed_rounds(ended)
        settled = [(message.round, message.recipients[0]) for message in due]
        context.store.record(self.phase, step, ClosedRound(state.round, statuses, settled), missed, withheld=self.gated)
        for receiver, status in statuses.items():
            if status == IN_DOUBT and self.transfers_mass:
                context.spawn(self._cancel(here, receiver))
        return step.state

    async def _resolve_in_doubt(self, here: Position, statuses: dict[PartyId, str]) -> dict[PartyId, str]:
        """Resolve all shares in doubt, and those about to be cancelled: after this round they cannot be settled any more."""
        context = self.context
        resolved = {receiver: status for receiver, status in statuses.items() if status != IN_DOUBT}

        async def ask(receiver: PartyId) -> None:
            answer = await context.links[receiver].ask(CancelTransfer(0, *here))
            resolved[receiver] = answer.status

        def unresolved() -> dict[PartyId, bool]:
            earlier = {receiver: True for _, receiver in context.store.in_doubt(self.phase)}
            return earlier | {receiver: True for receiver in statuses if receiver not in resolved}

        asking = [context.spawn(ask(receiver)) for receiver in statuses if receiver not in resolved]
        await Wait(context, unresolved, full_time="alive", at=(here[0], here[1] + 1)).until_over()
        for task in asking:
            task.cancel()
        return statuses | resolved

    async def _exchange(
        self, here: Position, outgoing: Mapping[PartyId, Outgoing], expected: frozenset[PartyId]
    ) -> dict[PartyId, str]:
        """Send the messages of a round and wait; the status of each, by receiver."""
        context = self.context
        answers: dict[PartyId, AnswerFrame] = {}
        requests: dict[PartyId, asyncio.Task[Any]] = {}

        def missing() -> dict[PartyId, bool]:
            due = expected - context.store.accepted_from(*here)
            past = {party for party in due if context.failure_detector.is_past(party, here)}
            if self._copies:
                # They went on without this party, but still have what they sent to the others.
                again = sorted(past - requests.keys())
                requests.update({party: context.spawn(context.links[party].ask(ResendRequest(0, *here))) for party in again})
            waiting = [party for party in outgoing if party not in answers]
            waiting += [party for party, task in requests.items() if not task.done()]
            return dict.fromkeys(due - past, False) | dict.fromkeys(waiting, True)

        # Should this party never come back, the others have its log from this.
        gossip = encoded_gossip(context, here) if self.gossips and outgoing else b""

        # The same for each whose message has the same shape.
        headers: dict[tuple[float, int, int], Transfer] = {}

        def send_now(receiver: PartyId) -> bool:
            message, answer = outgoing[receiver], None
            if not self._is_closed(receiver):
                shape = message.weight, message.dimension, message.width
                if (header := headers.get(shape)) is None:
                    header = headers[shape] = context.transfer(here, message, gossip)
                answer = context.now(receiver, header, message.payload)
            if answer is not None:
                answers[receiver] = answer
            return answer is not None

        sending = context.spawn_each(
            outgoing, send_now, lambda receiver: self._send(here, receiver, outgoing[receiver], gossip, answers)
        )
        await Wait(context, missing).until_over()
        # After this no transfer is sent again, which a later CancelTransfer relies on; and no ResendRequest either.
        for task in (*sending, *requests.values()):
            task.cancel()
        return {receiver: _status(answers.get(receiver)) for receiver in outgoing}

    async def _send(
        self, here: Position, receiver: PartyId, message: Outgoing, gossip: bytes, answers: dict[PartyId, AnswerFrame]
    ) -> None:
        context = self.context
        transfer, link = context.transfer(here, message, gossip), context.links[receiver]

        def note(answer: AnswerFrame) -> None:
            answers[receiver] = answer

        try:
            await link.ask(transfer, message.payload, note, lambda: self._is_closed(receiver))
        except WithheldError:
            # It may have used the message before, and its answer was lost.
            await link.ask(CancelTransfer(0, *here), on_answer=note)

    def _is_closed(self, receiver: PartyId) -> bool:
        """Whether a party reads no share any more, as far as is known."""
        return self.gated and self.context.failure_detector.is_past(receiver, (int(self.phase), self.machine.rounds))

    @property
    def _copies(self) -> bool:
        """Whether what is sent is public and the same for all; then its sender need not know whether it arrived."""
        return self.phase == Phase.DISSEMINATION and not self.transfers_mass

    async def _cancel(self, here: Position, receiver: PartyId) -> None:
        """Ask until there is an answer whether a cancelled message had been used; if so, it is settled later."""
        answer = await self.context.links[receiver].ask(CancelTransfer(0, *here))
        self.context.store.resolve(*here, receiver, COMMITTED if answer.status == ACCEPTED else REFUSED)
        if answer.status == ACCEPTED:
            name = self.context.settings.names[receiver]
            _logger.info("round %d of %s: %s had used a message that was taken back", here[1], self.phase.label, name)

    async def _catch_up(self, here: Position) -> None:
        """After a restart: learn all positions, and confirm with their senders the transfers accepted before the crash.

        Raises ProtocolFailure if somebody knows more of this party than its own store.
        """
        context = self.context
        seconds = context.round_timeout / 2
        taken_in = [] if self._copies else context.store.received(*here, context.party)
        confirming = asyncio.gather(*(self._confirm(here, message.sender, seconds) for message in taken_in))
        beating = asyncio.gather(*(context.heartbeat(party, seconds) for party in context.others))
        _, answers = await asyncio.gather(confirming, beating)
        ahead = [party for party, answer in zip(context.others, answers, strict=True) if answer and answer.status == REFUSED]
        if ahead:
            # It would draw, vote or send again, otherwise than before.
            names = ", ".join(context.names(ahead))
            raise ProtocolFailure(
                f"{names} had messages of this party from later rounds than its store has. The store was restored or copied. "
                "Start a new study for it. The others go on without this party."
            )
        context.inbox.note_seen(self._may_have_come(here[1]))

    def _may_have_come(self, first: int) -> list[tuple[Position, PartyId]]:
        """What may have been handed to the process that died and was not durable: all that was sent since, as far as is known.

        Who does not answer may have gone on to any round before it left, and sent to nobody else: it counts as if it had. How
        far others have come bounds nothing: who is cut off from them goes on without them.
        """
        places = [(int(self.phase), round_) for round_ in range(first, self.machine.rounds + 1)]
        sent = self.context.failure_detector.may_have_begun
        return [
            (position, sender) for position in places for sender in sorted(self.senders(position[1])) if sent(sender, position)
        ]

    async def _confirm(self, here: Position, sender: PartyId, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                answer = await self.context.links[sender].ask(ConfirmTransfer(0, *here))
            if answer.status == REFUSED:
                self.context.store.forget(*here, sender)

    def _skip_passed_rounds(self, step: Step[Any]) -> tuple[Step[Any], list[int]]:
        missed: list[int] = []
        while self.may_miss and step.state.round <= self.machine.rounds and self._has_passed(step):
            missed.append(step.state.round)
            step = self.machine.miss_round(step.state)
        return step, missed

    def _has_passed(self, step: Step[Any]) -> bool:
        counterparts = self.machine.expects(step.state).union(*(message.recipients for message in step.send))
        return self.context.failure_detector.all_past(counterparts, (self.phase, step.state.round))

    def _report(self, here: Position, waiting_for: frozenset[PartyId]) -> None:
        names = tuple(self.context.names(waiting_for))
        self.context.report(RoundBegun(self.phase, here[1], self.machine.rounds, names, self.context.last_moment()))


def _status(answer: AnswerFrame | None) -> str:
    return IN_DOUBT if answer is None else answer.status
