"""Event by event over the real party machines: latency, message loss, retries, time-outs, absence.

Every party has its own clock: it ends a round when its own messages are resolved and those it expects are in, or at the
round's time-out. Early messages wait. A handover is atomic (IncA, section 2.4: a sender learns whether its message arrived).
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import Message, PartyId, PartyMachine, PopulationNoise, Step, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed


@dataclass(frozen=True)
class NetworkModel:
    """Latency is exponential with mean ``latency`` seconds; each try is lost with probability ``loss``.

    A try that was not answered is repeated after ``retry`` seconds, until the round's time-out of ``timeout`` seconds.
    """

    latency: float = 0.02
    loss: float = 0.0
    retry: float = 0.1
    timeout: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.loss < 1:
            raise InputError(f"a message loss of {self.loss:g} is not a probability below 1. Choose 0 <= loss < 1.")
        for name in ("latency", "retry", "timeout"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name):g} seconds. Choose a number > 0.")


@dataclass(frozen=True, eq=False)
class EventResult:
    """The result of a simulated execution with real party machines.

    ``execution`` records what happened (who was online, what was lost), and can be certified. ``estimate``: shape (d,).
    """

    estimate: Vector
    execution: Execution
    seconds: float
    messages: int
    attempts: int


@dataclass
class _Node:
    machine: PartyMachine[Any]
    step: Step[Any]
    inbox: list[Message] = field(default_factory=list)
    parked: list[Message] = field(default_factory=list)
    unresolved: set[PartyId] = field(default_factory=set)
    delivered: set[PartyId] = field(default_factory=set)
    online: bool = True

    @property
    def round(self) -> int:
        return int(self.step.state.round)

    @property
    def finished(self) -> bool:
        return self.round > self.machine.rounds


class _World:
    def __init__(self, execution: Execution, values: Vector, noise: PopulationNoise, network: NetworkModel, seed: int) -> None:
        self.execution = execution
        self.network = network
        self.clock = 0.0
        self.attempts = 0
        self.arrived: set[tuple[int, PartyId, PartyId]] = set()
        self._stream = BitStream(insecure_seed(seed, "network"))
        self._queue: list[tuple[float, int, tuple[Any, ...]]] = []
        self._order = itertools.count()
        machines = [execution.machine(party, values[party], noise.party(party)) for party in range(execution.parties)]
        self.nodes = [_Node(machine, machine.start()) for machine in machines]

    def run(self) -> None:
        for party in range(len(self.nodes)):
            self._enter_round(party)
        while self._queue:
            self.clock, _, (kind, *arguments) = heapq.heappop(self._queue)
            getattr(self, f"_on_{kind}")(*arguments)

    def _schedule(self, delay: float, *event: Any) -> None:
        heapq.heappush(self._queue, (self.clock + delay, next(self._order), event))

    def _enter_round(self, party: PartyId) -> None:
        node = self.nodes[party]
        if node.finished:
            return
        node.inbox, node.delivered = [], set()
        node.online = bool(self.execution.trace.online[node.round, party])
        node.unresolved = {other for message in node.step.send for other in message.recipients} if node.online else set()
        self._schedule(self.network.timeout, "timeout", party, node.round)
        if not node.online:
            return
        for message in node.step.send:
            for other in message.recipients:
                self._on_try(message, other)
        parked, node.parked = node.parked, []
        for message in parked:
            self._on_arrival(message, party)
        self._end_if_complete(party)

    def _on_try(self, message: Message, recipient: PartyId) -> None:
        sender = self.nodes[message.sender]
        if sender.round != message.round or recipient not in sender.unresolved:
            return
        self.attempts += 1
        lost, unit = self._stream.uniform(2)
        if lost >= self.network.loss:
            self._schedule(-self.network.latency * math.log1p(-unit), "arrival", message, recipient)
        self._schedule(self.network.retry, "try", message, recipient)

    def _on_arrival(self, message: Message, recipient: PartyId) -> None:
        sender, node = self.nodes[message.sender], self.nodes[recipient]
        if sender.round != message.round or recipient not in sender.unresolved:
            return  # a duplicate, or the sender has stopped trying and kept its share
        if node.round < message.round:
            node.parked.append(message)
        elif node.round == message.round and node.online:
            node.inbox.append(message)
            sender.unresolved.discard(recipient)
            sender.delivered.add(recipient)
            self.arrived.add((message.round, message.sender, recipient))
            self._end_if_complete(recipient)
            self._end_if_complete(message.sender)

    def _on_timeout(self, party: PartyId, round_: int) -> None:
        if self.nodes[party].round == round_:
            self._end_round(party)

    def _end_if_complete(self, party: PartyId) -> None:
        node = self.nodes[party]
        if node.finished or not node.online or node.unresolved:
            return
        if node.machine.expects(node.step.state) <= {message.sender for message in node.inbox}:
            self._end_round(party)

    def _end_round(self, party: PartyId) -> None:
        node = self.nodes[party]
        if node.online:
            node.step = node.machine.end_round(node.step.state, node.inbox, frozenset(node.delivered))
        else:
            node.step = node.machine.miss_round(node.step.state)
        self._enter_round(party)


def simulate_events(
    execution: Execution, values: Vector, noise: PopulationNoise, network: NetworkModel | None = None, *, seed: int = 0
) -> EventResult:
    """Run the real party machines over a simulated network; ``execution.trace.online`` states who is online in which round.

    ``values``: shape (n, d). Raises :class:`ProtocolFailure` if no party releases a result.
    """
    world = _World(execution, values, noise, network or NetworkModel(), seed)
    world.run()
    releases = [node.step.release for node in world.nodes if node.step.release is not None]
    weight = sum(release.weight for release in releases)
    if not weight > 0:
        raise ProtocolFailure(
            "nobody released a result, as all parties dropped out before the last round. Plan for fewer dropouts."
        )
    total = np.sum([release.vector for release in releases], axis=0)
    return EventResult(total / weight, _with_losses(execution, world.arrived), world.clock, len(world.arrived), world.attempts)


def _with_losses(execution: Execution, arrived: set[tuple[int, PartyId, PartyId]]) -> Execution:
    neighbours = execution.schedule.neighbours
    lost = np.ones(neighbours.shape, dtype=np.bool_)
    for round_, sender, receiver in arrived:
        lost[round_ - 1, sender, neighbours[round_ - 1, sender] == receiver] = False
    return execution.with_trace(ExecutionTrace(execution.trace.online, lost))
