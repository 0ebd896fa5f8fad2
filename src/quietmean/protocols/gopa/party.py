"""A party of GOPA, as two state machines: one for parties that publish, one for the party that also collects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.noise import NoiseGroup
from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import Schedule
from quietmean.protocols.gopa.spec import (
    ANNOUNCE,
    PUBLISH,
    ROLL_BACK,
    ROUNDS,
    GopaParameters,
    read_list,
    sign,
    write_list,
)


class _Masking:
    """The common part of both: the published value, and the noise to remove from it again."""

    rounds = ROUNDS

    def __init__(
        self,
        parameters: GopaParameters,
        schedule: Schedule,
        party: PartyId,
        value: Vector,
        weight: float,
        noise: NoiseSource,
    ) -> None:
        self._aggregator = parameters.aggregator
        self._parameters = parameters
        self._parties = schedule.parties
        self._schedule = schedule
        self._party = party
        self._value = value
        self._weight = weight
        self._noise = noise

    def _published(self) -> Vector:
        """Value, own noise and the noise shared with every partner, present or absent."""
        own = self._noise.normal(NoiseGroup.INDEPENDENT, 0, self._value.size) * self._parameters.sigma_star
        masked = self._value + own
        for other in self._schedule.partners(self._party):
            masked = masked + self._shared(other)
        return masked

    def _rollback(self, absent: Iterable[PartyId]) -> Vector | None:
        """The negative of the noise shared with absent partners; None where there is none."""
        total: Vector | None = None
        for other in absent:
            term = self._shared(other) * -1.0
            total = term if total is None else total + term
        return total

    def _shared(self, other: PartyId) -> Vector:
        scale = sign(self._party, other) * self._parameters.sigma_delta
        return self._noise.shared_normal(other, NoiseGroup.CANCELLING, 0, self._value.size) * scale

    def _absent_partners(self, party: PartyId, arrived: frozenset[PartyId]) -> list[PartyId]:
        return [other for other in self._schedule.partners(party) if other not in arrived]


@dataclass(frozen=True, slots=True)
class GopaState:
    """``published``: this party's masked value reached the aggregator, as far as it knows."""

    round: int
    published: bool = False


class GopaParty(_Masking):
    """Publishes its masked value. Once it has the list of those that did, it removes the noise shared with the others."""

    state_type = GopaState

    def start(self) -> Step[GopaState]:
        return Step(GopaState(PUBLISH), (self._to_aggregator(PUBLISH, self._published(), self._weight),))

    def end_round(self, state: GopaState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[GopaState]:
        later = GopaState(state.round + 1, state.published or (state.round == PUBLISH and self._aggregator in delivered))
        if state.round != ANNOUNCE or not state.published:
            return Step(later)
        arrived = self._read_arrived(received)
        if arrived is None or self._party not in arrived:
            return Step(later)
        rollback = self._rollback(self._absent_partners(self._party, arrived))
        return Step(later) if rollback is None else Step(later, (self._to_aggregator(ROLL_BACK, rollback, 0.0),))

    def miss_round(self, state: GopaState) -> Step[GopaState]:
        return Step(replace(state, round=state.round + 1))

    def expects(self, state: GopaState) -> frozenset[PartyId]:
        return frozenset({self._aggregator}) if state.round == ANNOUNCE and state.published else frozenset()

    def _read_arrived(self, received: Sequence[Message]) -> frozenset[PartyId] | None:
        lists = [read_list(message.content, self._parties) for message in received if message.sender == self._aggregator]
        return lists[0] if len(lists) == 1 else None

    def _to_aggregator(self, round_: int, vector: Vector, weight: float) -> Message:
        return Message(self._party, (self._aggregator,), round_, vector, weight)


@dataclass(frozen=True, slots=True)
class GopaAggregatorState:
    """``total`` (d,) and ``weight`` of all that ``arrived``, in rising order; empty before the first round is over."""

    round: int
    total: Vector
    weight: float
    arrived: tuple[PartyId, ...]


class GopaAggregator(_Masking):
    """Adds up what is published and its own masked value; sends the list of those that published; adds the rollbacks."""

    state_type = GopaAggregatorState

    def start(self) -> Step[GopaAggregatorState]:
        return Step(GopaAggregatorState(PUBLISH, np.zeros(0), 0.0, ()))

    def end_round(
        self, state: GopaAggregatorState, received: Sequence[Message], delivered: frozenset[PartyId]
    ) -> Step[GopaAggregatorState]:
        vectors = sorted((message for message in received if self._is_vector(message)), key=lambda message: message.sender)
        if state.round == PUBLISH:
            return self._collect(vectors)
        later = replace(state, round=state.round + 1)
        return self._release(later, vectors) if state.round == ROLL_BACK and state.arrived else Step(later)

    def miss_round(self, state: GopaAggregatorState) -> Step[GopaAggregatorState]:
        return Step(replace(state, round=state.round + 1))

    def expects(self, state: GopaAggregatorState) -> frozenset[PartyId]:
        if state.round == PUBLISH:
            return frozenset(range(self._parties)) - {self._party}
        if state.round != ROLL_BACK:
            return frozenset()
        arrived = frozenset(state.arrived)
        return frozenset(party for party in arrived - {self._party} if self._absent_partners(party, arrived))

    def _collect(self, messages: Sequence[Message]) -> Step[GopaAggregatorState]:
        total, weight = self._published(), self._weight
        for message in messages:
            total, weight = total + message.vector, weight + message.weight
        others = tuple(message.sender for message in messages)
        arrived = tuple(sorted((self._party, *others)))
        state = GopaAggregatorState(ANNOUNCE, total, weight, arrived)
        if not others:
            return Step(state)
        content = write_list(arrived, self._parties)
        return Step(state, (Message(self._party, others, ANNOUNCE, np.zeros(0), 0.0, content),))

    def _release(self, state: GopaAggregatorState, messages: Sequence[Message]) -> Step[GopaAggregatorState]:
        total = state.total
        for message in messages:
            total = total + message.vector
        own = self._rollback(self._absent_partners(self._party, frozenset(state.arrived)))
        return Step(state, release=Release(total if own is None else total + own, state.weight))

    def _is_vector(self, message: Message) -> bool:
        # Messages may come without a vector: only the aggregator's own list does.
        return message.vector.size == self._value.size
