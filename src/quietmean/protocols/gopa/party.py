"""The parties of GOPA: those that send to a collector, the party that collects, and those of a study without one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from quietmean.core.noise import NoiseGroup
from quietmean.core.party import Message, PartyId, Release, Step, Vector, total_weight
from quietmean.protocols.gopa.spec import (
    ANNOUNCE,
    EXCHANGE,
    PEER_ROUNDS,
    PUBLISH,
    RELEASE,
    ROLL_BACK,
    ROUNDS,
    GopaParameters,
    read_list,
    sign,
    write_list,
)
from quietmean.protocols.private_value import PrivateValue


class MaskedValue(PrivateValue[GopaParameters]):
    """One party's value under its own noise and that of its partners by the schedule."""

    @cached_property
    def _partners(self) -> tuple[PartyId, ...]:
        return self._schedule.partners(self._party)

    def _masked(self, partners: Iterable[PartyId]) -> Vector:
        """Value, own noise and the noise shared with each of these partners."""
        size, sigma = self._value.size, self._parameters.sigma_star
        own = self._numbers.noise(self._noise, NoiseGroup.INDEPENDENT, 0, sigma, size)
        return self._numbers.total([self._value, own, *map(self._shared, partners)])

    def _shared(self, other: PartyId) -> Vector:
        size, sigma = self._value.size, self._parameters.sigma_delta
        shared = self._numbers.noise(self._noise, NoiseGroup.CANCELLING, 0, sigma, size, shared_with=other)
        return shared * sign(self._party, other)


class _Collected(MaskedValue):
    """What a party is asked for by the collector: the noise to remove again."""

    rounds = ROUNDS

    @property
    def _aggregator(self) -> PartyId:
        return self._parameters.collector

    def _rollback(self, absent: Iterable[PartyId]) -> Vector | None:
        """The negative of the noise shared with absent partners; None where there is none."""
        terms = [self._shared(other) * -1.0 for other in absent]
        return self._numbers.total(terms) if terms else None

    def _absent_partners(self, party: PartyId, arrived: frozenset[PartyId]) -> list[PartyId]:
        return [other for other in self._schedule.partners(party) if other not in arrived]


@dataclass(frozen=True, slots=True)
class GopaState:
    """``published``: this party's masked value reached the aggregator, as far as it knows."""

    round: int
    published: bool = False


class GopaParty(_Collected):
    """Publishes its masked value. Once it has the list of those that did, it removes the noise shared with the others."""

    state_type = GopaState

    def start(self) -> Step[GopaState]:
        return Step(GopaState(PUBLISH), (self._to_aggregator(PUBLISH, self._masked(self._partners), self._weight),))

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
        lists = [read_list(message.content, self._schedule.parties) for message in received if message.sender == self._aggregator]
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


class GopaAggregator(_Collected):
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
            return frozenset(range(self._schedule.parties)) - {self._party}
        if state.round != ROLL_BACK:
            return frozenset()
        arrived = frozenset(state.arrived)
        return frozenset(party for party in arrived - {self._party} if self._absent_partners(party, arrived))

    def _collect(self, messages: Sequence[Message]) -> Step[GopaAggregatorState]:
        total = self._numbers.total([self._masked(self._partners), *(message.vector for message in messages)])
        weight = total_weight(self._weight, messages)
        others = tuple(message.sender for message in messages)
        arrived = tuple(sorted((self._party, *others)))
        state = GopaAggregatorState(ANNOUNCE, total, weight, arrived)
        if not others:
            return Step(state)
        content = write_list(arrived, self._schedule.parties)
        return Step(state, (Message(self._party, others, ANNOUNCE, np.zeros(0), 0.0, content),))

    def _release(self, state: GopaAggregatorState, messages: Sequence[Message]) -> Step[GopaAggregatorState]:
        own = self._rollback(self._absent_partners(self._party, frozenset(state.arrived)))
        rollbacks = [message.vector for message in messages] + ([] if own is None else [own])
        return Step(state, release=Release(self._numbers.total([state.total, *rollbacks]), state.weight))

    def _is_vector(self, message: Message) -> bool:
        # Messages may come without a vector: only the aggregator's own list does.
        return message.vector.size == self._value.size


# The message of a party to its partners: it is online, and adds their shared noise.
HERE = b"\x01"


@dataclass(frozen=True, slots=True)
class GopaPeerState:
    """``sharing``: the partners whose noise is on what this party publishes; empty before the first round is over."""

    round: int
    sharing: tuple[PartyId, ...] = ()


class GopaPeer(MaskedValue):
    """Tells its partners that it is there; then publishes its value under the noise that it shares with those that are.

    A partner counts if each heard the other, as far as this party knows. What others would have had to roll back is so left out
    before anything is published: nobody learns it. A party that leaves after the first round leaves its noise with its partners.
    """

    rounds = PEER_ROUNDS
    state_type = GopaPeerState

    def start(self) -> Step[GopaPeerState]:
        recipients = self._schedule.recipients(EXCHANGE, self._party)
        if not recipients:
            return Step(GopaPeerState(EXCHANGE))
        return Step(GopaPeerState(EXCHANGE), (Message(self._party, recipients, EXCHANGE, np.zeros(0), 0.0, HERE),))

    def end_round(self, state: GopaPeerState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[GopaPeerState]:
        later = replace(state, round=state.round + 1)
        if state.round == EXCHANGE:
            heard = {message.sender for message in received if message.content == HERE and not message.vector.size}
            return Step(replace(later, sharing=tuple(other for other in self._partners if other in heard & delivered)))
        if state.round != RELEASE or len(state.sharing) < self._parameters.least_partners:
            return Step(later)
        return Step(later, release=Release(self._masked(state.sharing), self._weight))

    def miss_round(self, state: GopaPeerState) -> Step[GopaPeerState]:
        return Step(replace(state, round=state.round + 1))

    def expects(self, state: GopaPeerState) -> frozenset[PartyId]:
        return self._schedule.senders(state.round, self._party)
