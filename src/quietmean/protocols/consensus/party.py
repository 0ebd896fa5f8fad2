"""One party of average consensus, as a state machine. Round 1 exchanges z^(0); round t + 1 is iteration t.

A message that does not arrive leaves z unchanged at both ends: both know what arrived. The mean stays the only fixed point. An
edge that was silent in both directions for some rounds is given up by both ends, so that the remaining parties reach their mean.
Where all edges have to be open, a party of which one is not gives up all: it sends nothing more and has no result.

On a grid a party computes with whole numbers u = value + noise - sum B z^(0) and w = z_{i|j}^(0) - z_{j|i}^(0), and with
differences from z^(0). So its messages are functions of u, w and other messages, however these are rounded; z^(0) itself comes
in again only where an edge is given up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from quietmean.core.grid import numbers_for
from quietmean.core.party import Message, NoiseGroup, NoiseSource, PartyId, Release, Step, Vector
from quietmean.protocols.consensus.quantiser import dither, pack, quantise, reconstruct, unpack
from quietmean.protocols.consensus.spec import ALL, ConsensusParameters
from quietmean.randomness import BitStream, Seed

GIVEN_UP = -1


@dataclass(frozen=True, slots=True)
class Edge:
    """The state of an edge at party i. Its neighbour j holds the same with own and other exchanged.

    ``own`` is z_{i|j}, ``other`` z_{j|i}, shape (d,), on a grid what they differ by from z^(0), and then ``between`` is
    z_{i|j}^(0) - z_{j|i}^(0); ``*_before`` what they were one iteration earlier (for two-step
    differences only). ``*_weight``: z of the weights. ``told``: the copy of x_i that j holds, ``heard``: the copy of x_j that i
    holds (for quantised broadcasts only). ``silent`` counts rounds without any delivery, -1 once the edge is given up.
    """

    own: Vector
    other: Vector
    own_weight: float = 0.0
    other_weight: float = 0.0
    own_before: Vector | None = None
    other_before: Vector | None = None
    told: Vector | None = None
    heard: Vector | None = None
    silent: int = 0
    between: Vector | None = None


class EdgeRules:
    """The rules of one edge at party i. ``sign`` is B_{i|j}; ``rows`` are those of the dither, outward and inward."""

    def __init__(self, parameters: ConsensusParameters, sign: float, rows: tuple[int, int], dimension: int) -> None:
        self._settings = parameters.quantisation
        self._whole = bool(parameters.step)
        self._broadcast = parameters.broadcast
        self._rest = 1.0 - parameters.theta
        self._pull = 2.0 * parameters.c * sign
        self._patience = parameters.patience
        self._rows = rows
        self._dimension = dimension

    def opened(self, own: Vector, other: Vector | None) -> Edge:
        """The edge after the first exchange: ``own`` and ``other`` are z^(0), shape (d,).

        ``other`` is None if the exchange failed in either direction.
        """
        if other is None:
            # The states of the two ends would differ: the edge is not used at all, and both ends know that.
            return Edge(own * 0.0, own * 0.0, silent=GIVEN_UP)
        edge = Edge(own, other)
        if self._whole:
            # From here on everything follows from this, from values minus z^(0), and from messages.
            edge = Edge(own * 0.0, other * 0.0, between=own - other)
        own, other = edge.own, edge.other
        if self._settings is not None and self._settings.two_step:
            return replace(edge, own_before=own, other_before=other)
        if self._settings is not None and self._broadcast:
            return replace(edge, told=np.zeros(self._dimension), heard=np.zeros(self._dimension))
        return edge

    def message_weight(self, edge: Edge, weight: float) -> float:
        """The weight that the message carries: as for values, the step of z_{j|i}, or with broadcasts x_i itself."""
        return weight if self._broadcast else self._weight_step(edge.own_weight, edge.other_weight, weight, 1.0)

    def message(self, edge: Edge, x: Vector, iteration: int) -> tuple[Vector, bytes]:
        """Vector and content of the message about ``x``, shape (d,). The vector is empty if the message is quantised."""
        target = self._target(edge, x)
        if self._settings is None:
            return target, b""
        indices, _ = quantise(self._settings, iteration, target, self._dither(0, iteration))
        return np.zeros(0), pack(self._settings, indices)

    def sent(self, edge: Edge, x: Vector, iteration: int) -> tuple[Vector, int]:
        """What j decodes from that message, shape (d,), and how many entries overloaded.

        It is the step of z_{j|i}, or with broadcasts x_i.
        """
        target = self._target(edge, x)
        if self._settings is None:
            return target, 0
        shift = self._dither(0, iteration)
        indices, overloads = quantise(self._settings, iteration, target, shift)
        decoded = reconstruct(self._settings, iteration, indices, shift)
        return self._meaning(decoded, edge.told, edge.other, edge.other_before), int(overloads.sum())

    def read(self, edge: Edge, message: Message, iteration: int) -> Vector | None:
        """What i decodes from j's message, shape (d,): the step of z_{i|j}, or with broadcasts x_j. None if it cannot be read."""
        if self._settings is None:
            return message.vector if message.vector.size == self._dimension else None
        indices = unpack(self._settings, message.content, self._dimension)
        if indices is None:
            return None
        decoded = reconstruct(self._settings, iteration, indices, self._dither(1, iteration))
        return self._meaning(decoded, edge.heard, edge.own, edge.own_before)

    def moved(self, edge: Edge, outward: tuple[Vector, float] | None, inward: tuple[Vector, float] | None) -> Edge:
        """The edge after an iteration. ``outward``: what j decoded, shape (d,), and the weight; ``inward``: the same for i.

        None means a message that did not arrive.
        """
        if edge.silent == GIVEN_UP:
            return edge
        if outward is None and inward is None and edge.silent + 1 >= self._patience:
            return Edge(edge.own * 0.0, edge.own * 0.0, silent=GIVEN_UP)
        after = replace(edge, silent=edge.silent + 1 if outward is None and inward is None else 0)
        if edge.own_before is not None:
            after = replace(after, own_before=edge.own, other_before=edge.other)
        if outward is not None:
            meaning, weight = outward
            step = self._step(edge, meaning, 1.0) if self._broadcast else meaning
            weight_step = self._weight_step(edge.own_weight, edge.other_weight, weight, 1.0) if self._broadcast else weight
            after = replace(after, other=edge.other + step, other_weight=edge.other_weight + weight_step)
            after = replace(after, told=meaning) if edge.told is not None else after
        if inward is not None:
            meaning, weight = inward
            step = self._step(edge, meaning, -1.0) if self._broadcast else meaning
            weight_step = self._weight_step(edge.other_weight, edge.own_weight, weight, -1.0) if self._broadcast else weight
            after = replace(after, own=edge.own + step, own_weight=edge.own_weight + weight_step)
            after = replace(after, heard=meaning) if edge.heard is not None else after
        return after

    def _target(self, edge: Edge, x: Vector) -> Vector:
        """The vector to transmit, shape (d,), before quantisation."""
        if self._broadcast:
            return x if edge.told is None else x - edge.told
        step = self._step(edge, x, 1.0)
        return step if edge.other_before is None else step + (edge.other - edge.other_before)

    def _meaning(self, decoded: Vector, reference: Vector | None, now: Vector, before: Vector | None) -> Vector:
        if reference is not None:
            return reference + decoded
        # A difference over two iterations, as a step from now.
        return decoded if before is None else decoded - (now - before)

    def _step(self, edge: Edge, x: Vector, end: float) -> Vector:
        """z_{j|i}^(t+1) - z_{j|i}^(t) of equation (11); ``x`` is that of the end that changes it: i for 1, j for -1."""
        from_, to = (edge.own, edge.other) if end > 0 else (edge.other, edge.own)
        apart = from_ - to if edge.between is None else edge.between * end + from_ - to
        step: Vector = (apart + x * (self._pull * end)) * self._rest
        return step

    def _weight_step(self, from_: float, to: float, x: float, end: float) -> float:
        return (from_ - to + x * (self._pull * end)) * self._rest

    def _dither(self, direction: int, iteration: int) -> Vector:
        assert self._settings is not None  # noqa: S101 - for the type checker: asked for by quantised messages alone
        row: Vector = dither(self._settings, iteration, self._rows[direction], 1, self._dimension)[0]
        return row


def local_noise(parameters: ConsensusParameters, value: Vector, noise: NoiseSource) -> Vector:
    """The value (d,) with the party's local noise of standard deviation ``sigma_local``.

    Only Gaussian noise has an (epsilon, delta) guarantee here. Uniform noise has no epsilon at all: a value further
    from the noisy one than the noise can reach is excluded with certainty.
    """
    sigma = parameters.sigma_local
    if parameters.local_noise == "none":
        return numbers_for(value, parameters.numbers()).value(value)
    if parameters.local_noise == "gaussian":
        numbers = numbers_for(value, parameters.numbers())
        return numbers.value(value) + numbers.noise(noise, NoiseGroup.INDEPENDENT, 0, sigma, value.size)
    # From the middle of a cell of 2^-53: neither end of the interval occurs.
    unit = BitStream(Seed(noise.secret("local noise", 0))).uniform(value.size) + 2.0**-54
    if parameters.local_noise == "uniform":
        return value + (unit - 0.5) * (math.sqrt(12.0) * sigma)
    centred = unit - 0.5
    return value - np.sign(centred) * np.log1p(-2.0 * np.abs(centred)) * (sigma / math.sqrt(2.0))


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
    """Is there an edge without which nothing may be sent? What it shares hides the value from the other neighbours."""
    return parameters.open_edges == ALL and any(edge.silent == GIVEN_UP for edge in edges)
