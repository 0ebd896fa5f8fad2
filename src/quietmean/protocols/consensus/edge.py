"""One edge as one of its ends sees it: the message to send, the message received, and the update of z."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.party import Message, Vector
from quietmean.protocols.consensus.quantiser import dither, pack, quantise, reconstruct, unpack
from quietmean.protocols.consensus.spec import ConsensusParameters

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
