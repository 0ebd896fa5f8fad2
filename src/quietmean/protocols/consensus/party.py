"""One party of average consensus, as a state machine. Round 1 exchanges z^(0); round t + 1 is iteration t.

A message that does not arrive leaves z unchanged at both ends: both know what arrived. The mean stays the only fixed point. An
edge that was silent in both directions for some rounds is given up by both ends, so that the remaining parties reach their mean.
Where all edges have to be open, a party of which one is not gives up all: it sends nothing more and has no result.

On a grid a party computes with whole numbers u = value + noise - sum B z^(0) and w = z_{i|j}^(0) - z_{j|i}^(0), and with
differences from z^(0). So its messages are functions of u, w and other messages, however these are rounded; z^(0) itself comes
in again only where an edge is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from quietmean.core.noise import NoiseGroup
from quietmean.core.numbers import numbers_for
from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.protocols.consensus.edge import GIVEN_UP, Edge, EdgeRules
from quietmean.protocols.consensus.local_noise import local_noise
from quietmean.protocols.consensus.spec import ALL, ConsensusParameters


@dataclass(frozen=True, slots=True)
class ConsensusState:
    """``overloads`` counts entries that a quantiser could not take, ``last_overload`` is the latest such iteration, or 0."""

    round: int
    edges: tuple[Edge, ...]
    overloads: int = 0
    last_overload: int = 0


class ConsensusParty:
    """A party of consensus for a value (d,): averages with its neighbours over the edges in use."""

    state_type = ConsensusState

    def __init__(self, parameters: ConsensusParameters, party: PartyId, value: Vector, weight: float, noise: NoiseSource) -> None:
        links = parameters.links
        own = range(int(links.first[party]), int(links.first[party + 1]))
        self._parameters = parameters
        self._party = party
        self._noise = noise
        self._dimension = value.size
        self._neighbours = tuple(int(links.receiver[link]) for link in own)
        self._signs = tuple(float(links.sign[link]) for link in own)
        self._scales = tuple(float(links.sigma[link]) for link in own)
        self._rules = tuple(
            EdgeRules(
                parameters,
                float(links.sign[link]),
                (party, int(links.receiver[link])) if parameters.broadcast else (link, int(links.reverse[link])),
                self._dimension,
            )
            for link in own
        )
        self._numbers = numbers_for(value, parameters.numbers())
        self._value = local_noise(parameters, value, noise)
        self._weight = weight
        self._level = lru_cache(maxsize=2)(self._levelled)

    @property
    def rounds(self) -> int:
        return self._parameters.rounds

    def start(self) -> Step[ConsensusState]:
        own = [self._perturbation(slot) for slot in range(len(self._neighbours))]
        sent = tuple(Message(self._party, (other,), 1, own[slot], 0.0) for slot, other in enumerate(self._neighbours))
        # The edges follow once the messages of the neighbours have arrived.
        return Step(ConsensusState(1, ()), sent)

    def end_round(
        self, state: ConsensusState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[ConsensusState]:
        inbox = {message.sender: message for message in received}
        if state.round == 1:
            return self._proceed(replace(state, round=2, edges=self._opened(inbox, delivered)))
        iteration = state.round - 1
        x, weight = self._estimate(state)
        edges, overloads = [], 0
        for other, edge, rules in zip(self._neighbours, state.edges, self._rules, strict=True):
            if edge.silent == GIVEN_UP:
                edges.append(edge)
                continue
            meaning, too_large = rules.sent(edge, x, iteration)
            # A broadcast is one message, however many neighbours receive it.
            overloads = max(overloads, too_large) if self._parameters.broadcast else overloads + too_large
            read = rules.read(edge, inbox[other], iteration) if other in inbox else None
            outward = (meaning, rules.message_weight(edge, weight)) if other in delivered else None
            edges.append(rules.moved(edge, outward, None if read is None else (read, inbox[other].weight)))
        last = iteration if overloads else state.last_overload
        return self._proceed(ConsensusState(state.round + 1, tuple(edges), state.overloads + overloads, last))

    def miss_round(self, state: ConsensusState) -> Step[ConsensusState]:
        if state.round == 1:
            edges = self._opened({}, frozenset())
        else:
            edges = tuple(rules.moved(edge, None, None) for edge, rules in zip(state.edges, self._rules, strict=True))
        later = replace(state, round=state.round + 1, edges=edges)
        return Step(later) if later.round > self.rounds else self._proceed(later)

    def expects(self, state: ConsensusState) -> frozenset[PartyId]:
        if state.round == 1:
            return frozenset(self._neighbours)
        active = zip(self._neighbours, state.edges, strict=True)
        return frozenset(other for other, edge in active if edge.silent != GIVEN_UP)

    def _perturbation(self, slot: int) -> Vector:
        return self._numbers.noise(self._noise, NoiseGroup.CANCELLING, slot, self._scales[slot], self._dimension)

    def _levelled(self, used: tuple[int, ...]) -> Vector:
        """What estimates start from, with the edges in use: on a grid the noisy value minus z^(0), in whole numbers."""
        if not self._parameters.step:
            return self._value
        return self._numbers.total([self._value, *(self._perturbation(slot) * -self._signs[slot] for slot in used)])

    def _opened(self, inbox: dict[PartyId, Message], delivered: frozenset[PartyId]) -> tuple[Edge, ...]:
        edges = []
        for slot, (other, rules) in enumerate(zip(self._neighbours, self._rules, strict=True)):
            both = other in delivered and other in inbox and inbox[other].vector.size == self._dimension
            edges.append(rules.opened(self._perturbation(slot), inbox[other].vector if both else None))
        if not holds_back(self._parameters, edges):
            return tuple(edges)
        return tuple(rules.opened(self._perturbation(slot), None) for slot, rules in enumerate(self._rules))

    def _estimate(self, state: ConsensusState) -> tuple[Vector, float]:
        """x_i of equation (10), and the same of the weights, from the edges in use."""
        total: Vector | float = 0.0
        total_weight = 0.0
        used = tuple(slot for slot, edge in enumerate(state.edges) if edge.silent != GIVEN_UP)
        for slot in used:
            total = state.edges[slot].own * self._signs[slot] + total
            total_weight += state.edges[slot].own_weight * self._signs[slot]
        share = 1.0 / (1.0 + self._parameters.c * len(used))
        x: Vector = (self._level(used) - total) * share
        return x, (self._weight - total_weight) * share

    def _proceed(self, state: ConsensusState) -> Step[ConsensusState]:
        x, weight = self._estimate(state)
        if state.round > self.rounds:
            # A party that holds back uses no edge: its result would be its own value.
            return Step(state, release=None if holds_back(self._parameters, state.edges) else Release(x, weight))
        active = [slot for slot, edge in enumerate(state.edges) if edge.silent != GIVEN_UP]
        groups = self._together(state, active) if self._parameters.broadcast else [[slot] for slot in active]
        sent = []
        for slots in groups:
            rules, edge = self._rules[slots[0]], state.edges[slots[0]]
            vector, content = rules.message(edge, x, state.round - 1)
            recipients = tuple(self._neighbours[slot] for slot in slots)
            sent.append(Message(self._party, recipients, state.round, vector, rules.message_weight(edge, weight), content))
        return Step(state, tuple(sent))

    def _together(self, state: ConsensusState, active: list[int]) -> list[list[int]]:
        """Groups of neighbours that can receive the same message: those with equal copies of x_i, all if none was lost."""
        groups: dict[bytes, list[int]] = {}
        for slot in active:
            copy = state.edges[slot].told
            groups.setdefault(b"" if copy is None else copy.tobytes(), []).append(slot)
        return list(groups.values())


def holds_back(parameters: ConsensusParameters, edges: Sequence[Edge]) -> bool:
    """Is there an edge without which nothing may be told? What it shares hides the value from the other neighbours."""
    return parameters.open_edges == ALL and any(edge.silent == GIVEN_UP for edge in edges)
