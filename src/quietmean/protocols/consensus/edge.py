"""One edge as one of its ends sees it: what to send over it, what came, and how z moves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.party import Message, Vector
from quietmean.protocols.consensus.quantiser import dither, pack, quantise, reconstruct, unpack
from quietmean.protocols.consensus.spec import ConsensusParameters

GIVEN_UP = -1


@dataclass(frozen=True, slots=True)
class Edge:
    """What a party i knows of its edge with j; its neighbour knows the same, the other way round.

    ``own`` is z_{i|j}, ``other`` z_{j|i}, shape (d,); ``*_before`` what they were one iteration earlier (for two-step
    differences only). ``*_weight``: z of the weights. ``told``: what j takes x_i for, ``heard``: what i takes x_j for (for
    quantised broadcasts only). ``silent`` counts rounds without any delivery, -1 once the edge is given up.
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


class EdgeRules:
    """The rules of one edge. ``sign`` is B_{i|j} at this end; ``rows`` are those of the dither of both directions."""

    def __init__(self, parameters: ConsensusParameters, sign: float, rows: tuple[int, int], dimension: int) -> None:
        self._settings = parameters.quantisation
        self._broadcast = parameters.broadcast
        self._rest = 1.0 - parameters.theta
        self._pull = 2.0 * parameters.c * sign
        self._patience = parameters.patience
        self._rows = rows
        self._dimension = dimension

    def opened(self, own: Vector, other: Vector | None) -> Edge:
        """After the first exchange; ``other`` is None if it failed in either direction."""
        if other is None:
            # One end would know less than the other: the edge is not used at all, and both ends know that.
            return Edge(own * 0.0, own * 0.0, silent=GIVEN_UP)
        edge = Edge(own, other)
        if self._settings is not None and self._settings.two_step:
            return replace(edge, own_before=own, other_before=other)
        if self._settings is not None and self._broadcast:
            return replace(edge, told=np.zeros(self._dimension), heard=np.zeros(self._dimension))
        return edge

    def weight_told(self, edge: Edge, weight: float) -> float:
        """What the message says of the weight: as of values, the step of z_{j|i}, or with broadcasts x_i itself."""
        return weight if self._broadcast else self._weight_step(edge.own_weight, edge.other_weight, weight, 1.0)

    def message(self, edge: Edge, x: Vector, iteration: int) -> tuple[Vector, bytes]:
        """Vector and content of the message about ``x``."""
        target = self._target(edge, x)
        if self._settings is None:
            return target, b""
        indices, _ = quantise(self._settings, iteration, target, self._dither(0, iteration))
        return np.zeros(0), pack(self._settings.bits, indices)

    def sent(self, edge: Edge, x: Vector, iteration: int) -> tuple[Vector, int]:
        """What j makes of that message (the step of z_{j|i}; with broadcasts x_i), and how many entries overloaded."""
        target = self._target(edge, x)
        if self._settings is None:
            return target, 0
        shift = self._dither(0, iteration)
        indices, overloads = quantise(self._settings, iteration, target, shift)
        told = reconstruct(self._settings, iteration, indices, shift)
        return self._meaning(told, edge.told, edge.other, edge.other_before), int(overloads.sum())

    def read(self, edge: Edge, message: Message, iteration: int) -> Vector | None:
        """What j's message means (the step of z_{i|j}; with broadcasts x_j); None if it cannot be read."""
        if self._settings is None:
            return message.vector if message.vector.size == self._dimension else None
        indices = unpack(self._settings.bits, message.content, self._dimension)
        if indices is None:
            return None
        told = reconstruct(self._settings, iteration, indices, self._dither(1, iteration))
        return self._meaning(told, edge.heard, edge.own, edge.own_before)

    def moved(self, edge: Edge, told: tuple[Vector, float] | None, heard: tuple[Vector, float] | None) -> Edge:
        """After an iteration in which j was told and i heard (meaning, weight told), None for what did not arrive."""
        if edge.silent == GIVEN_UP:
            return edge
        if told is None and heard is None and edge.silent + 1 >= self._patience:
            return Edge(edge.own * 0.0, edge.own * 0.0, silent=GIVEN_UP)
        after = replace(edge, silent=edge.silent + 1 if told is None and heard is None else 0)
        if edge.own_before is not None:
            after = replace(after, own_before=edge.own, other_before=edge.other)
        if told is not None:
            meaning, weight = told
            step = self._step(edge.own, edge.other, meaning, 1.0) if self._broadcast else meaning
            weight_step = self._weight_step(edge.own_weight, edge.other_weight, weight, 1.0) if self._broadcast else weight
            after = replace(after, other=edge.other + step, other_weight=edge.other_weight + weight_step)
            after = replace(after, told=meaning) if edge.told is not None else after
        if heard is not None:
            meaning, weight = heard
            step = self._step(edge.other, edge.own, meaning, -1.0) if self._broadcast else meaning
            weight_step = self._weight_step(edge.other_weight, edge.own_weight, weight, -1.0) if self._broadcast else weight
            after = replace(after, own=edge.own + step, own_weight=edge.own_weight + weight_step)
            after = replace(after, heard=meaning) if edge.heard is not None else after
        return after

    def _target(self, edge: Edge, x: Vector) -> Vector:
        """What the message is to say, before quantisation."""
        if self._broadcast:
            return x if edge.told is None else x - edge.told
        step = self._step(edge.own, edge.other, x, 1.0)
        return step if edge.other_before is None else step + (edge.other - edge.other_before)

    def _meaning(self, told: Vector, reference: Vector | None, now: Vector, before: Vector | None) -> Vector:
        if reference is not None:
            return reference + told
        # A difference over two iterations, as a step from now.
        return told if before is None else told - (now - before)

    def _step(self, from_: Vector, to: Vector, x: Vector, end: float) -> Vector:
        """z_{j|i}^(t+1) - z_{j|i}^(t) of equation (11), ``x`` that of the end that moves it."""
        step: Vector = (from_ - to + x * (self._pull * end)) * self._rest
        return step

    def _weight_step(self, from_: float, to: float, x: float, end: float) -> float:
        return (from_ - to + x * (self._pull * end)) * self._rest

    def _dither(self, direction: int, iteration: int) -> Vector:
        assert self._settings is not None  # noqa: S101 - for the type checker: asked for by quantised messages alone
        row: Vector = dither(self._settings, iteration, self._rows[direction], 1, self._dimension)[0]
        return row
