"""Drive real party machines through synchronous rounds, exactly as a schedule and a trace prescribe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quietmean.core.party import Message, PartyId, PartyMachine, PartyState, Release, State, settlement
from quietmean.graphs import ExecutionTrace

Delivery = Callable[[Message, frozenset[PartyId]], None]


@dataclass(frozen=True)
class LockstepResult:
    """The releases of the parties that finished, by party, and the last state of every party."""

    releases: dict[PartyId, Release]
    states: list[PartyState]


def run_lockstep(
    machines: Sequence[PartyMachine[State]],
    trace: ExecutionTrace,
    arrives: Callable[[int, PartyId, PartyId], bool],
    on_send: Delivery = lambda message, receivers: None,
    *,
    refusing: bool = False,
) -> LockstepResult:
    """Run all rounds. ``arrives(round, sender, recipient)`` decides deliveries; ``on_send`` is called with each message.

    If parties are ``refusing``, a message that its recipient does not expect does not arrive, whatever ``arrives`` returns.
    """
    steps, everybody = [machine.start() for machine in machines], frozenset(range(len(machines)))
    releases: dict[PartyId, Release] = {}
    settlements = _Settlements(trace)
    for round_ in range(1, machines[0].rounds + 1):
        inboxes: dict[PartyId, list[Message]] = {party: [] for party in range(len(machines))}
        delivered: dict[PartyId, frozenset[PartyId]] = {}
        awaited = [machine.expects(step.state) if refusing else everybody for machine, step in zip(machines, steps, strict=True)]
        for party, step in enumerate(steps):
            arrived: set[PartyId] = set()
            for message in step.send if trace.online[round_, party] else ():
                reached = frozenset(
                    other for other in message.recipients if party in awaited[other] and arrives(round_, party, other)
                )
                on_send(message, reached)
                for other in reached:
                    inboxes[other].append(message)
                arrived |= settlements.acknowledged(message, reached)
            delivered[party] = frozenset(arrived)
        for party, machine in enumerate(machines):
            state = steps[party].state
            if trace.online[round_, party]:
                inboxes[party] += settlements.due(round_, party)
                steps[party] = machine.end_round(state, inboxes[party], delivered[party])
            else:
                steps[party] = machine.miss_round(state)
    for party, step in enumerate(steps):
        if step.release is not None:
            releases[party] = step.release
    return LockstepResult(releases, [step.state for step in steps])


class _Settlements:
    """Messages whose arrival the sender learns of some rounds late."""

    def __init__(self, trace: ExecutionTrace) -> None:
        self._later = {(round_, sender, receiver): later for round_, sender, receiver, later in trace.settled.tolist()}
        self._kept: dict[tuple[int, PartyId], list[Message]] = {}

    def acknowledged(self, message: Message, reached: frozenset[PartyId]) -> frozenset[PartyId]:
        """The recipients that the sender knows to have been reached; what the others received is kept for later."""
        later = {other: self._later.get((message.round, message.sender, other)) for other in reached} if self._later else {}
        for settled in later.values():
            if settled is not None:
                self._kept.setdefault((settled, message.sender), []).append(message)
        return frozenset(other for other in reached if later.get(other) is None)

    def due(self, round_: int, party: PartyId) -> list[Message]:
        return [settlement(message) for message in self._kept.get((round_, party), [])]
